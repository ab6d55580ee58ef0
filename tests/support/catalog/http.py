"""The catalog over HTTP: a served Steward, callers of each role, and requests for tables and snapshots."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.work import attempts, workloads
from pvdm.ledger.work.attempts import AttemptOpening
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.workloads import Opening, PinnedWorkload
from pvdm.model.contract import Atomicity
from pvdm.model.role import Role
from pvdm.steward.config.steward import CatalogConfig, Limits, StewardConfig
from tests.support.steward.http import Served, bearer, served
from tests.support.steward.notary import Time, attempt_token
from tools.proof_kit import fixed

V1 = "/catalog/v1"
CONTRACT = "c0" * 32
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "note", "required": False, "type": "string"},
    ],
}


@dataclass(slots=True)
class Caller:
    """A client of the catalog with one token."""

    http: httpx.Client
    headers: dict[str, str]

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request under `/catalog/v1`."""
        headers = {**self.headers, **options.pop("headers", {})}
        return self.http.request(method, f"{V1}{path}", headers=headers, **options)

    def done(self, method: str, path: str, **options: Any) -> Any:
        """Send a request that must succeed; returns the JSON of its response."""
        response = self.ask(method, path, **options)
        assert response.status_code in (200, 204), response.text
        return response.json() if response.content else None

    def make(self, name: str = "t", *, namespace: str = "sales", **more: Any) -> dict[str, Any]:
        """Create a table; returns the JSON of the response."""
        body = {"name": name, "schema": SCHEMA, **more}
        response: dict[str, Any] = self.done("POST", f"/namespaces/{namespace}/tables", json=body)
        return response

    def commit(
        self, table: str, updates: list[Any], requirements: list[Any] | None = None, **options: Any
    ) -> httpx.Response:
        """Commit to a table of the namespace `sales`."""
        body = {"requirements": requirements or [], "updates": updates}
        return self.ask("POST", f"/namespaces/sales/tables/{table}", json=body, **options)


@dataclass(slots=True)
class Lake:
    """A served catalog with the namespace `sales` of the domain `sales`."""

    steward: Served
    folder: Path

    def caller(self, role: Role = Role.OPERATOR, domain: str = "*", name: str = "somebody") -> Caller:
        return Caller(self.steward.http, self.steward.headers(role, domain, name))

    def unprotect(self, name: str) -> None:
        """Clear the contract of a table of `sales` in the ledger."""
        self.protect(name, None)

    def protect(self, name: str, contract: str | None = CONTRACT) -> None:
        """Set the contract of a table of `sales` in the ledger, without an approval."""

        def work(unit: Unit) -> None:
            row = tables.find(unit, namespaces.get(unit, ("sales",)).namespace_id, name)
            assert row is not None
            tables.protect(unit, row, contract)

        self.change(work)

    def protect_namespace(self, *levels: str) -> None:
        self.change(lambda unit: namespaces.protect(unit, namespaces.get(unit, levels), CONTRACT))

    def change(self, work: Any) -> None:
        """Run a function in a transaction of the Steward's ledger."""
        notary = self.steward.stand.notary
        notary.ledger.transact(work, at_micros=notary.clock.now_micros())

    def attempt(self, table_uuid: str, prefix: str, branch: str) -> Caller:
        """Open an attempt at this table, and return a producer with a token for it."""
        attempt_id = fixed(f"attempt {branch}", 16)

        def work(unit: Unit) -> None:
            opening = Opening(f"work-{branch}", CONTRACT, table_uuid, "raw", b"{}", Atomicity.CHUNK, "sales")
            epoch = self.steward.stand.notary.keys.epoch_for(None)
            workloads.open_once(unit, opening, PinnedWorkload("77", "ab" * 32, epoch, [Chunk("all", b"{}")]))
            attempts.open_next(
                unit, AttemptOpening(attempt_id, f"work-{branch}", "all", branch, prefix, fixed(branch, 16), "opened")
            )

        self.change(work)
        access = self.steward.stand.notary.access
        token, _ = attempt_token(access, self.steward.stand.grant(Role.PRODUCER, "sales", "job"), attempt_id)
        return Caller(self.steward.http, bearer(token.reveal()))


def with_catalog(folder: Path, **limits: int) -> Any:
    """A change of a configuration: a catalog in this folder, and a high rate limit."""

    def changed(config: StewardConfig) -> StewardConfig:
        high_rate = {"rate_per_second": 100_000, "burst": 1_000_000}
        service = replace(config.service, limits=Limits(**{**high_rate, **limits}))
        return replace(config, service=service, catalog=CatalogConfig(f"file://{folder}/warehouse", folder / "catalog"))

    return changed


@contextlib.contextmanager
def lake_at(folder: Path, *, ledger_url: str | None = None, clock: Time | None = None, **limits: int) -> Iterator[Lake]:
    """A served catalog in this folder. If clients use the real time, `clock` must be `RealTime`."""
    folder = folder.resolve()
    with served(folder, changed=with_catalog(folder, **limits), ledger_url=ledger_url, clock=clock) as steward:
        lake = Lake(steward, folder)
        body = {"namespace": ["sales"], "properties": {"pvdm.domain": "sales"}}
        lake.caller().done("POST", "/namespaces", json=body)
        yield lake


def snapshot(table: dict[str, Any], snapshot_id: int, *, parent: int | None = None, step: int = 1) -> dict[str, Any]:
    """An add-snapshot update for a table, given as the response that loaded it. `step` is added to number and time."""
    metadata = table["metadata"]
    added: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata["last-sequence-number"] + step,
        "timestamp-ms": metadata["last-updated-ms"] + step,
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": metadata["current-schema-id"],
    }
    if parent is not None:
        added["parent-snapshot-id"] = parent
    return {"action": "add-snapshot", "snapshot": added}


def set_ref(name: str, snapshot_id: int, kind: str = "branch") -> dict[str, Any]:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id}


def refusal(response: httpx.Response) -> tuple[int, str]:
    """The status and the error type of a response that refuses a request."""
    error = response.json()["error"]
    assert error["code"] == response.status_code
    return response.status_code, error["type"]


def namespace_path(*levels: str) -> str:
    """The levels of a namespace as one part of a URL's path."""
    return quote("\x1f".join(levels), safe="")


def metadata_document(response: dict[str, Any]) -> Any:
    """The document in the metadata file that a response names."""
    return json.loads(Path(response["metadata-location"].removeprefix("file://")).read_bytes())
