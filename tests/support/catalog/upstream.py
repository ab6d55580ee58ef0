"""Protected tables of an upstream catalog, for the gate's tests: the upstream is another Steward, behind a proxy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pvdm.catalog.commit import Change
from pvdm.catalog.state import TableState
from pvdm.errors import PvdmError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import NewSnapshot, SnapshotChange, next_snapshot
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.record import statements
from pvdm.ledger.work import announced, attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.proposal import PublicationResult
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.config.sections import RestUpstreamConfig, UpstreamConfig
from pvdm.steward.config.steward import StewardConfig
from tests.support.catalog.core import request
from tests.support.gate.approvals import SALES, Scene, with_catalog
from tests.support.gate.protected_tables import House, Row
from tests.support.servers.fault_proxy import FaultProxy, fault_proxy
from tests.support.steward.http import Served, served
from tests.support.steward.notary import Time, stand_at

BEFORE: Sequence[Row] = [(1, 1, "Ulm"), (2, 2, "Bonn")]
NEW: Sequence[Row] = [(3, 1, "Ulm"), (4, 3, "Bonn")]
Doc = dict[str, Any]


@dataclass(slots=True)
class Upstream:
    """The catalog of another Steward, without protected tables, as the upstream; and the proxy before it."""

    steward: Served
    proxy: FaultProxy
    levels: Levels = SALES

    @property
    def catalog(self) -> Any:
        return self.steward.stand.notary.catalog

    def grant(self) -> Any:
        return self.steward.stand.grant()

    def table_state(self, name: str = "orders") -> TableState:
        found: TableState = self.catalog.states.get(self.levels, name)
        return found

    def commit(self, updates: Sequence[Any], name: str = "orders") -> None:
        """Commit to the upstream directly, and not through the Steward under test."""
        self.catalog.commits.commit(self.grant(), [Change(self.levels, name, (), list(updates))])

    def append_directly(self, house: House, rows: Sequence[Row], name: str = "orders", *, branch: str = "main") -> int:
        """Append rows to a ref at the upstream directly; returns the snapshot's id."""
        metadata = self.table_state(name).metadata
        files = house.write_files(f"{metadata.location}/data/slipped", rows)
        snapshot = new_snapshot_on(house, metadata, files, branch)
        self.commit(snapshot.updates, name)
        return snapshot.snapshot_id


@dataclass(slots=True)
class UpstreamScene(Scene):
    """A scene whose tables are created in the upstream."""

    there: Upstream | None = None

    def make(self, name: str = "orders", *, version: int = 2, levels: Levels = SALES) -> TableState:
        assert self.there is not None
        there = self.there
        there.catalog.tables.create(there.grant(), there.levels, {"name": name, **request(version)})
        return self.table_state(name, levels)


def new_snapshot_on(house: House, metadata: TableMetadata, files: Sequence[DataFile], branch: str) -> NewSnapshot:
    """A snapshot that adds these files to a branch of the table, with its manifests written to the table's folder."""
    home = f"{metadata.location}/metadata".removeprefix("file://")
    Path(home).mkdir(parents=True, exist_ok=True)
    snapshot = next_snapshot(
        metadata,
        SnapshotChange(tuple(files), frozenset(), {"engine-name": "somebody else"}),
        branch=branch,
        snapshot_id=9_000_000 + house.number(),
        now_ms=max(house.scene.now // 1_000, metadata.last_updated_ms),
        place=lambda file: f"file://{home}/{file}",
        reader=house.files,
    )
    for file in snapshot.files:
        Path(file.location.removeprefix("file://")).write_bytes(file.data)
    return snapshot


@contextlib.contextmanager
def upstream_at(folder: Path, *, clock: Time | None = None) -> Iterator[Served]:
    """A Steward that serves a catalog, to be used as upstream."""
    with served(folder, changed=with_catalog(folder), clock=clock) as steward:
        yield steward


@contextlib.contextmanager
def there_at(steward: Served, name: str) -> Iterator[Upstream]:
    """A new namespace in that Steward's catalog, and a proxy in front of the catalog."""
    steward.stand.notary.catalog.namespaces.create(steward.stand.grant(), (name,), {"pvdm.domain": "sales"})
    with fault_proxy(f"{steward.server.url}/catalog") as proxy:
        yield Upstream(steward, proxy, (name,))


def with_upstream(folder: Path, there: Upstream, *, seconds: int = 30) -> Any:
    """A change of a configuration: the namespace `sales` is that of the upstream."""
    token = folder / "upstream.token"

    def changed(config: StewardConfig) -> StewardConfig:
        token.write_text(there.steward.stand.token()[0])
        local = with_catalog(folder)(config)
        rest = RestUpstreamConfig(there.proxy.url, token_file=token, timeout_seconds=seconds)
        return replace(
            local, catalog=replace(local.catalog, upstreams=(UpstreamConfig("up", SALES, there.levels, rest),))
        )

    return changed


@contextlib.contextmanager
def house_over(folder: Path, there: Upstream, *, ledger_url: str | None = None, seconds: int = 30) -> Iterator[House]:
    """A Steward in this folder whose namespace `sales` is that of the upstream."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with stand_at(folder, ledger_url=ledger_url, changed=with_upstream(folder, there, seconds=seconds)) as stand:
        scene = UpstreamScene(stand, there=there)
        stand.notary.catalog.namespaces.create(scene.grant(), SALES, {"pvdm.domain": "sales"})
        yield House(stand, scene)


def publish(house: House, *found: Attempt) -> PublicationResult:
    return house.publishing().publish(found[0].workload_id, [attempt.attempt_id for attempt in found])


def reason_of(house: House, *found: Attempt) -> str:
    """The error code of publishing these attempts; `published` if there is no error."""
    try:
        publish(house, *found)
    except PvdmError as error:
        return error.reason
    return "published"


def receipts_of(house: House) -> list[str]:
    with house.notary.ledger.read() as unit:
        return [each.statement_id for each in statements.list_by_kind(unit, StatementKind.RECEIPT)]


def announced_of(house: House, attempt: Attempt) -> list[str]:
    """The states of the attempt's announced publications (requests to the upstream that the ledger announces first)."""
    with house.notary.ledger.read() as unit:
        return sorted(str(each.state) for each in announced.list_by_attempt(unit, attempt.attempt_id))


def load_attempt(house: House, attempt: Attempt) -> Attempt:
    """The attempt as the ledger has it now."""
    with house.notary.ledger.read() as unit:
        return attempts.get(unit, attempt.attempt_id)
