"""A catalog without HTTP: ledger, clock, files, commits, tables of two domains, and updates as Spark sends them."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pvdm.catalog.access import CatalogAccess
from pvdm.catalog.commit import Change, Commits, PermitMaker
from pvdm.catalog.state import States, TableState
from pvdm.catalog.upstreams import Upstreams
from pvdm.lake.files import MetadataFiles
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.new_table import new_table
from pvdm.lake.paths import Pointer, parse_location
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.target import Permit
from pvdm.model.role import Role
from tests.support.lake.metadata import column, schema
from tests.support.ledger.databases import NOW, ledger_at
from tests.support.ledger.rows import attempt_opening, hex32, hex64, pinned_workload, workload_opening

Doc = dict[str, Any]

NOW_MS = NOW // 1_000
SALES: Levels = ("sales", "raw")
RISK: Levels = ("risk",)
CONTRACT = hex64("contract")
FIRST = 100
"""The id of the snapshot that `main` of a protected example table shows."""


def grant(role: Role = Role.PRODUCER, domain: str = "sales", *, attempt_id: str | None = None) -> Grant:
    """What a token of this role and domain allows."""
    return Grant(hex32(f"token {role} {domain}"), role, domain, f"a {role}", NOW + 10**12, attempt_id)


PRODUCER = grant()
OPERATOR = grant(Role.OPERATOR, "*")
STEWARD = grant(Role.STEWARD, "*")


def request(version: int = 2, **properties: str) -> Doc:
    """The request that an engine sends for CREATE TABLE, in this format version."""
    spec = {"fields": [{"name": "day", "transform": "identity", "source-id": 2, "field-id": 1000}]}
    return {
        "schema": schema(0, column(1, "id"), column(2, "day", "date"), column(3, "town", "string")),
        "partition-spec": spec,
        "properties": {"format-version": str(version), "owner": "sales", **properties},
    }


@dataclass
class Core:
    """A catalog without HTTP. Its clock shows `micros`, and stands still unless a test changes that."""

    folder: Path
    ledger: Ledger
    micros: int = NOW
    counter: int = field(default=FIRST)

    def __post_init__(self) -> None:
        self.warehouse = parse_location(str(self.folder / "warehouse"))
        self.root = self.folder / "metadata"
        self.clock = LedgerClock(self.ledger, wall=lambda: self.micros, monotonic=lambda: self.micros)
        self.files = MetadataFiles(self.root)
        self.access = CatalogAccess(self.ledger, self.warehouse, parse_location(str(self.root)))
        upstreams = Upstreams(self.ledger, self.clock, (), self.access.require_upstream_place)
        self.states = States(self.ledger, self.files, upstreams)
        self.commits = Commits(self.ledger, self.clock, self.files, self.states, self.access)

    def fresh(self) -> Core:
        """Another catalog on the same ledger and files, with empty caches, as after a restart."""
        return Core(self.folder, self.ledger, self.micros, self.counter)

    def namespace(self, levels: Levels = SALES, *, domain: str = "sales", protected: bool = False) -> None:
        """Create a namespace."""

        def work(unit: Unit) -> None:
            created = namespaces.create(unit, levels, domain=domain, properties={})
            if protected:
                namespaces.protect(unit, created, CONTRACT)

        self.ledger.transact(work, at_micros=self.micros)

    def get_namespace(self, levels: Levels = SALES) -> Namespace:
        with self.ledger.read() as unit:
            return namespaces.get(unit, levels)

    def place(self, name: str, levels: Levels = SALES) -> str:
        """The location of a new table."""
        return str(self.warehouse.child(*levels, name))

    def table(
        self,
        name: str = "orders",
        *,
        levels: Levels = SALES,
        version: int = 2,
        protected: bool = True,
        shown: bool = True,
    ) -> TableState:
        """Create a table: with one snapshot on `main` if it is `shown`, and under a contract if it is `protected`."""
        with self.ledger.read() as unit:
            namespace = namespaces.get(unit, levels)
        metadata = new_table(
            request(version), location=self.place(name, levels), table_uuid=str(uuid.uuid4()), now_ms=NOW_MS
        )
        self.commits.create(OPERATOR, namespace, name, metadata)
        if shown:
            snapshot = self.snapshot(metadata, snapshot_id=FIRST)
            self.commit(name, to_ref("main", snapshot), levels=levels, by=OPERATOR)
        if protected:
            self.protect(name, levels=levels)
        return self.get(name, levels=levels)

    def protect(self, name: str = "orders", *, levels: Levels = SALES) -> None:
        """Put the table under a contract in the ledger, without an approval."""
        row = self.get(name, levels=levels).row
        self.ledger.transact(lambda unit: tables.protect(unit, row, CONTRACT), at_micros=self.micros)

    def plant(self, name: str, document: TableMetadata, *, levels: Levels = SALES) -> TableState:
        """Point the table to a document that no commit made, as an older table might have it."""
        row = self.get(name, levels=levels).row
        file = self.files.write(row.table_uuid, row.revision + 1, document.to_bytes())
        self.ledger.transact(
            lambda unit: tables.swap(unit, row, Pointer(file.location, file.sha256)), at_micros=self.micros
        )
        return self.get(name, levels=levels)

    def get(self, name: str = "orders", *, levels: Levels = SALES) -> TableState:
        return self.states.get(levels, name)

    def commit(
        self,
        name: str,
        updates: Sequence[Doc],
        *,
        requirements: Sequence[Doc] = (),
        levels: Levels = SALES,
        by: Grant = PRODUCER,
        permit: Permit | None = None,
    ) -> TableState:
        """Commit updates to a table; returns its new state."""
        change = Change(levels, name, requirements, updates)
        return self.commits.commit(by, [change], make_permit=always_permit(permit))[0]

    def snapshot(self, base: TableMetadata, /, *, snapshot_id: Any = None, **more: Any) -> Doc:
        """A snapshot on top of `base` that every check accepts, apart from the fields in `more`."""
        if snapshot_id is None:
            self.counter += 1
            snapshot_id = self.counter
        snapshot: Doc = {
            "snapshot-id": snapshot_id,
            "sequence-number": base.next_sequence_number,
            "timestamp-ms": self.micros // 1_000,
            "summary": {"operation": "append", "added-records": "3", "engine-name": "spark"},
            "manifest-list": f"{base.location}/metadata/snap-{snapshot_id}-1-x.avro",
            "schema-id": base.current_schema_id,
            **more,
        }
        if base.format_version == 1:
            del snapshot["sequence-number"]
        if base.format_version > 2:
            snapshot = {"first-row-id": base.next_row_id, "added-rows": 3, **snapshot}
        return snapshot

    def staged(
        self, name: str = "orders", branch: str = "stage", *, by: Grant = PRODUCER, levels: Levels = SALES
    ) -> TableState:
        """Commit one snapshot to a branch: on its head, or as its first if there is no such branch."""
        base = self.get(name, levels=levels).metadata
        ref = base.refs.get(branch)
        parent = {} if ref is None else {"parent-snapshot-id": ref.snapshot_id}
        return self.commit(
            name,
            to_ref(branch, self.snapshot(base, **parent)),
            requirements=[ref_is(base, branch)],
            by=by,
            levels=levels,
        )

    def attempt(self, table: TableRow, name: object = 1, *, prefix: str | None = None) -> Attempt:
        """Open an attempt at the table, in the state STAGING, with its own branch and storage prefix."""
        attempt = attempt_opening(name, workload_id=f"orders-{name}")
        attempt = replace(attempt, prefix=prefix or f"{table.location}/attempts/{attempt.attempt_id}")

        def work(unit: Unit) -> Attempt:
            workloads.open_once(unit, workload_opening(f"orders-{name}", table=table.table_uuid), pinned_workload())
            return attempts.open_next(unit, attempt)

        return self.ledger.transact(work, at_micros=self.micros)

    def permit_for(self, name: str, updates: Sequence[Doc]) -> Permit:
        """The permit that the gate would create for exactly these updates now."""
        state = self.get(name)
        after = apply_updates(
            state.metadata, updates, now_ms=self.micros // 1_000, previous_location=state.row.pointer.location
        )
        file = self.files.write(state.row.table_uuid, 0, after.to_bytes())
        self.files.remove(file)
        return Permit(state.row.table_uuid, state.row.pointer.sha256, file.sha256)

    def on_disk(self) -> set[str]:
        """The names of all metadata files."""
        return {path.name for path in self.root.rglob("*") if path.is_file()}


def always_permit(permit: Permit | None) -> PermitMaker | None:
    """A permit maker that gives this permit for every change, in place of the gate; None without a permit."""
    return None if permit is None else lambda *_: permit


def to_ref(name: str, snapshot: Doc, **more: object) -> list[Doc]:
    """The updates of a write: add the snapshot, and set the ref to it."""
    return [{"action": "add-snapshot", "snapshot": snapshot}, set_ref(name, snapshot["snapshot-id"], **more)]


def set_ref(name: str, snapshot_id: int, kind: str = "branch", /, **more: object) -> Doc:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id, **more}


def ref_is(base: TableMetadata, name: str) -> Doc:
    """The requirement of a write: the ref is as in `base`."""
    ref = base.refs.get(name)
    return {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": None if ref is None else ref.snapshot_id}


@contextlib.contextmanager
def core_at(folder: Path, url: str) -> Iterator[Core]:
    """A core with one namespace of the domain `sales` and one of `risk`, on the ledger at `url`."""
    with ledger_at(url) as ledger:
        core = Core(folder, ledger)
        core.namespace()
        core.namespace(RISK, domain="risk")
        yield core


@contextlib.contextmanager
def core_in(folder: Path, migrated: Path) -> Iterator[Core]:
    """Like `core_at`, on a copy of a migrated SQLite file."""
    shutil.copy(migrated, folder / "ledger.db")
    with core_at(folder, f"sqlite:///{folder}/ledger.db") as core:
        yield core
