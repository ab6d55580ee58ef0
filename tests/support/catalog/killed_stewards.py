"""A catalog whose Stewards are processes: tables to begin with, requests as clients send them, and what must hold."""

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
from pvdm.lake.stores.store import UNFINISHED
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import events
from pvdm.model.role import Role
from tests.support.catalog.http import CONTRACT, SCHEMA, Caller, set_ref, snapshot, with_catalog
from tests.support.catalog.processes import Serving, Starter
from tests.support.steward.http import bearer
from tests.support.steward.notary import Stand, stand_at

FIRST = 100
"""The snapshot that `main` of a protected table shows."""
LEVELS = ("sales",)


@dataclass(slots=True)
class Yard:
    """The ledger and the files of a catalog, with no Steward served yet; this process looks at them from outside."""

    stand: Stand
    starter: Starter | None

    @contextlib.contextmanager
    def serving(self) -> Iterator[Serving]:
        assert self.starter is not None
        with self.starter.serving(self.stand.config) as made:
            yield made

    @contextlib.contextmanager
    def caller(self, serving: Serving, role: Role = Role.PRODUCER, domain: str = "sales") -> Iterator[Caller]:
        """Somebody with a token and a connection of its own."""
        headers = bearer(self.stand.token(role, domain, f"a {role}")[0])
        with httpx.Client(base_url=serving.url, timeout=60, trust_env=False) as http:
            yield Caller(http, headers)

    def table(self, name: str, *, protected: bool = True) -> TableRow:
        """A table, with one snapshot on `main` and under a contract if it is protected."""
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

    def keyed(self, name: str, key: str, branch: str) -> TableRow:
        """A commit under a key, in this process: a new branch at what `main` shows."""
        catalog, producer = self.stand.notary.catalog, self.stand.grant(Role.PRODUCER, "sales", "job")
        identified = catalog.requests.identify(producer, key, branch.encode())
        change = Change(LEVELS, name, (), [set_ref(branch, FIRST)])
        (state,) = catalog.tables.commit(producer, [change], key=identified)
        return state.row

    def change(self, work: Any) -> None:
        notary = self.stand.notary
        notary.ledger.transact(work, at_micros=notary.clock.now_micros())

    def row(self, name: str) -> TableRow:
        with self.stand.notary.ledger.read() as unit:
            return _row(unit, name)

    def find(self, name: str) -> TableRow | None:
        with self.stand.notary.ledger.read() as unit:
            return tables.find(unit, namespaces.get(unit, LEVELS).namespace_id, name)

    def document(self, row: TableRow) -> dict[str, Any]:
        """The document that the pointer names, if its bytes are those that the row says."""
        data = path_of(row.pointer.location).read_bytes()
        assert hashlib.sha256(data).hexdigest() == row.pointer.sha256
        found: dict[str, Any] = json.loads(data)
        return found

    def rows(self) -> list[TableRow]:
        with self.stand.notary.ledger.read() as unit:
            return tables.list_live(unit)

    def require_whole(self) -> None:
        """Every pointer names a file that is there, with the bytes that it says."""
        for row in self.rows():
            self.document(row)

    def list_pointers(self, row: TableRow) -> list[Pointer]:
        """Every metadata file that the table ever pointed to, by the ledger's own history."""
        with self.stand.notary.ledger.read() as unit:
            steps = [step.new for step in events.history(unit, "tables", row.table_id) if step.new is not None]
        found = [Pointer(step["metadata_location"], step["metadata_sha256"]) for step in steps]
        return list(dict.fromkeys(found))

    def left_over(self) -> set[Path]:
        """The files in the Steward's own place that no pointer ever named.

        Without files by which a check of the folder tried to write: a kill may leave one, at any time.
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
    return path.name.startswith(UNFINISHED) and not path.read_bytes().strip(b"\0")


@contextlib.contextmanager
def yard_at(folder: Path, starter: Starter | None = None, *, ledger_url: str | None = None) -> Iterator[Yard]:
    """A catalog in this folder with the namespace `sales` of the domain `sales`; without a starter none is served."""
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
