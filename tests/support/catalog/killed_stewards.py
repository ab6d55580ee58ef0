"""A catalog that Stewards in other processes serve and that survives their death: tables, callers, and checks."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pvdm.catalog.commit import Change
from pvdm.lake.format.json_document import Json
from pvdm.lake.paths import Pointer
from pvdm.lake.stores.store import UNFINISHED_PREFIX
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import events
from pvdm.model.role import Role
from tests.support.catalog.http import CONTRACT, SCHEMA, Caller, set_ref, snapshot, with_catalog
from tests.support.catalog.processes import Starter, StewardProcess
from tests.support.steward.http import bearer
from tests.support.steward.notary import Stand, stand_at

FIRST = 100
"""The snapshot that `main` of a protected table shows."""
LEVELS = ("sales",)


@dataclass(slots=True)
class Yard:
    """The ledger and the files of a catalog. Other processes serve it; this process reads and prepares it."""

    stand: Stand
    starter: Starter | None

    @contextlib.contextmanager
    def serving(self) -> Iterator[StewardProcess]:
        """A Steward in another process that serves the catalog."""
        assert self.starter is not None
        with self.starter.serving(self.stand.config) as process:
            yield process

    @contextlib.contextmanager
    def caller(self, serving: StewardProcess, role: Role = Role.PRODUCER, domain: str = "sales") -> Iterator[Caller]:
        """A client with its own token and connection."""
        headers = bearer(self.stand.token(role, domain, f"a {role}")[0])
        with httpx.Client(base_url=serving.url, timeout=60, trust_env=False) as http:
            yield Caller(http, headers)

    def table(self, name: str, *, protected: bool = True) -> TableRow:
        """Create a table; a protected one has one snapshot on `main` and a contract."""
        catalog = self.stand.notary.catalog
        operator = self.stand.grant(Role.OPERATOR, "*")
        request: Any = {"name": name, "schema": SCHEMA}
        state = catalog.tables.create(operator, LEVELS, request)
        if protected:
            shown = snapshot({"metadata": state.metadata.raw}, FIRST)
            updates: list[Json] = [shown, set_ref("main", FIRST)]
            catalog.tables.commit(operator, [Change(LEVELS, name, (), updates)])
            self.change(lambda unit: tables.protect(unit, _row(unit, name), CONTRACT))
        return self.row(name)

    def commit_with_key(self, name: str, key: str, branch: str) -> TableRow:
        """Commit with an idempotency key, in this process: a new branch at the snapshot of `main`."""
        catalog, producer = self.stand.notary.catalog, self.stand.grant(Role.PRODUCER, "sales", "job")
        identified = catalog.requests.identify(producer, key, branch.encode())
        change = Change(LEVELS, name, (), [set_ref(branch, FIRST)])
        (state,) = catalog.tables.commit(producer, [change], key=identified)
        return state.row

    def change(self, work: Any) -> None:
        """Run a function in a transaction of the ledger."""
        notary = self.stand.notary
        notary.ledger.transact(work, at_micros=notary.clock.now_micros())

    def row(self, name: str) -> TableRow:
        with self.stand.notary.ledger.read() as unit:
            return _row(unit, name)

    def find(self, name: str) -> TableRow | None:
        with self.stand.notary.ledger.read() as unit:
            return tables.find(unit, namespaces.get(unit, LEVELS).namespace_id, name)

    def document(self, row: TableRow) -> dict[str, Any]:
        """The document that the row's pointer names; its bytes must have the pointer's hash."""
        data = path_of(row.pointer.location).read_bytes()
        assert hashlib.sha256(data).hexdigest() == row.pointer.sha256
        found: dict[str, Any] = json.loads(data)
        return found

    def rows(self) -> list[TableRow]:
        with self.stand.notary.ledger.read() as unit:
            return tables.list_live(unit)

    def require_whole(self) -> None:
        """Every pointer names an existing file, whose bytes have the pointer's hash."""
        for row in self.rows():
            self.document(row)

    def list_pointers(self, row: TableRow) -> list[Pointer]:
        """Every pointer that the table ever had, by the ledger's step log."""
        with self.stand.notary.ledger.read() as unit:
            steps = [step.new for step in events.history(unit, "tables", row.table_id) if step.new is not None]
        found = [Pointer(step["metadata_location"], step["metadata_sha256"]) for step in steps]
        return list(dict.fromkeys(found))

    def left_over(self) -> set[Path]:
        """The files in the Steward's metadata folder that no pointer ever named.

        Trial files, with which the Steward checks that it can write, are left out: a kill may leave one at any time.
        """
        with self.stand.notary.ledger.read() as unit:
            steps = [step.new for step in _all_events(unit) if step.subject == "tables" and step.new is not None]
        named = {path_of(step["metadata_location"]) for step in steps}
        return {path for path in self.metadata.rglob("*") if path.is_file() and not _is_trial(path)} - named

    @property
    def metadata(self) -> Path:
        config = self.stand.config.catalog
        assert config is not None
        assert isinstance(config.metadata, Path)
        return config.metadata


def _is_trial(path: Path) -> bool:
    """Whether the file has a temporary name and only zeros as content."""
    return path.name.startswith(UNFINISHED_PREFIX) and not path.read_bytes().strip(b"\0")


@contextlib.contextmanager
def yard_at(folder: Path, starter: Starter | None = None, *, ledger_url: str | None = None) -> Iterator[Yard]:
    """A catalog in this folder with the namespace `sales`. Without a starter it cannot be served."""
    folder = folder.resolve()
    with stand_at(folder, ledger_url=ledger_url, changed=with_catalog(folder)) as stand:
        operator = stand.grant(Role.OPERATOR, "*")
        stand.notary.catalog.namespaces.create(operator, LEVELS, {"pvdm.domain": "sales"})
        yield Yard(stand, starter)


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def _row(unit: Unit, name: str) -> TableRow:
    found = tables.find(unit, namespaces.get(unit, LEVELS).namespace_id, name)
    assert found is not None
    return found


def _all_events(unit: Unit) -> Iterator[events.Event]:
    after = 0
    while page := events.page(unit, after=after):
        yield from page
        after = page[-1].event_id
