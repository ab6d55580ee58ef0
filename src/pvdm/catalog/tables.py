"""Operations on tables: create, stage-create, register, load, list, rename, drop and commit."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm.catalog.access import CatalogAccess
from pvdm.catalog.commit import Change, Commits, retry_if_row_changed
from pvdm.catalog.names import is_inside, new_place, read_metadata, require_name
from pvdm.catalog.namespaces import Namespaces
from pvdm.catalog.purge import Leftover, Purge
from pvdm.catalog.requests import RequestKey, note_request
from pvdm.catalog.responses import sees_all
from pvdm.catalog.state import States, TableState, unknown_table_error
from pvdm.catalog.upstream_commit import Hook, require_proved
from pvdm.errors import Code, ConflictError
from pvdm.lake.format.json_document import Json, Node
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.new_table import new_table, read_registered_table
from pvdm.lake.paths import Location, Pointer, parse_location
from pvdm.lake.stores.stores import Stores
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record.tokens import Grant
from pvdm.model import canonical_json
from pvdm.model.role import Role

# Iceberg's messages for a name that is taken, by the reason of the error.
_TABLE_CONFLICTS: Final[Mapping[str, str]] = {
    "table_exists": "Table already exists",
    "name_of_view": "View with same name already exists",
    "name_of_namespace": "Namespace with same name already exists",
}
TableName = tuple[Levels, str]  # the levels of its namespace, and the name of a table or view


@dataclass(frozen=True, slots=True)
class CatalogParts:
    """The parts of the catalog that operations on tables and views use."""

    ledger: Ledger
    clock: LedgerClock
    states: States
    access: CatalogAccess
    namespaces: Namespaces
    commits: Commits
    warehouse: Location
    stores: Stores


class Tables:
    """Operations on tables. Their documents change by commits only."""

    def __init__(self, parts: CatalogParts) -> None:
        self._parts = parts

    def load(self, grant: Grant, levels: Levels, name: str) -> TableState:
        """The table, for grants of its domain. Raises `table_unknown`."""
        return self._load_proved(grant, self._get_row(grant, levels, name))

    def require_exists(self, grant: Grant, levels: Levels, name: str) -> None:
        """Raise unless the table exists for this grant. An upstream's table is loaded from the upstream."""
        row = self._get_row(grant, levels, name)
        if row.upstream is not None:
            self._parts.states.load(row)

    def page(self, grant: Grant, levels: Levels, *, after: str | None, count: int | None) -> list[str]:
        """The names of a namespace's tables, in order, after the name `after`; all of them if `count` is None."""
        namespace = self._parts.namespaces.get(grant, levels)
        upstream_names = self._parts.states.upstreams.list_table_names(levels)
        if upstream_names is not None:
            return [name for name in upstream_names if after is None or name > after][:count]
        with self._parts.ledger.read() as unit:
            return [row.name for row in tables.page(unit, namespace.namespace_id, after=after, count=count)]

    def stage_create(self, grant: Grant, levels: Levels, request: Json) -> TableMetadata:
        """The document that a new table would begin with. Nothing is stored."""
        namespace, name, after = self._make_table(grant, levels, request)
        with name_conflicts(levels, name):
            self._parts.access.require_create(grant, namespace, name, after)
        return after

    def create(self, grant: Grant, levels: Levels, request: Json, *, key: RequestKey | None = None) -> TableState:
        """Create a table without rows."""

        def make() -> TableState:
            namespace, name, after = self._make_table(grant, levels, request)
            with name_conflicts(levels, name):
                return self._parts.commits.create(grant, namespace, name, after, hook=_store_pointers(key))

        return retry_if_row_changed(make)

    def register(
        self,
        grant: Grant,
        levels: Levels,
        name: str,
        metadata_location: str,
        *,
        overwrite: bool = False,
        key: RequestKey | None = None,
    ) -> TableState:
        """Create, or with `overwrite` replace, a table from its metadata file elsewhere. The Steward keeps a copy."""
        access = self._parts.access
        access.require_may_manage(grant)
        namespace, old = self._find_with_namespace(grant, levels, require_name(name, "the table's name"))
        if old is not None and not overwrite:
            raise Code.ALREADY_EXISTS(f"Table already exists: {dotted_table(levels, name)}", reason="table_exists")
        if old is not None:
            access.require_may_rename_or_drop(grant, old, "it would be replaced by a registered one")
        place = parse_location(metadata_location)
        self._require_readable(grant, namespace, place)
        after = read_registered_table(read_metadata(place, self._parts.stores))
        if grant.role is not Role.OPERATOR:
            _require_own_files(after, place, self._parts.warehouse)
        commits, hook = self._parts.commits, _store_pointers(key)
        with name_conflicts(levels, name):
            return commits.create(grant, namespace, name, after, replaces=old, may_reuse_uuid=True, hook=hook)

    def commit(self, grant: Grant, changes: Sequence[Change], *, key: RequestKey | None = None) -> list[TableState]:
        """Make all of these changes of tables, or none."""
        only = changes[0] if len(changes) == 1 else None
        with contextlib.nullcontext() if only is None else name_conflicts(only.levels, only.name):
            return self._parts.commits.commit(grant, changes, hook=_store_pointers(key))

    def state_of_repeated_request(self, grant: Grant, pointer: Sequence[Json], levels: Levels, name: str) -> TableState:
        """The state after an earlier request with this idempotency key; `pointer` has that state's file and hash."""
        row = self._get_row(grant, levels, name)
        location, sha256 = (str(part) for part in pointer)
        return self._load_proved(grant, replace(row, pointer=Pointer(location, sha256)))

    def rename(self, grant: Grant, source: TableName, target: TableName, *, key: RequestKey | None = None) -> None:
        """Rename the table, perhaps into another namespace of the same domain."""
        require_name(target[1], "the table's new name")
        with name_conflicts(*target):
            try:
                retry_if_row_changed(lambda: self._rename(grant, source, target, key))
            except ConflictError as error:
                if error.reason != "name_of_view":
                    raise
                names = f"{dotted_table(*source)} to {dotted_table(*target)}"
                raise Code.ALREADY_EXISTS(f"Cannot rename {names}. View already exists", reason="view_exists") from None

    def _rename(self, grant: Grant, source: TableName, target: TableName, key: RequestKey | None) -> None:
        row, (new_levels, new_name) = self._get_row(grant, *source), target
        for levels, _ in (source, target):
            self._parts.states.upstreams.require_not_upstream(levels, operation="rename a table")
        self._parts.access.require_may_rename_or_drop(grant, row, "its name would change")
        namespace = self._parts.namespaces.get(grant, new_levels)
        if namespace.domain != row.domain:
            message = "a table stays in its domain"
            raise Code.PERMISSION_DENIED(message, reason="domain_wrong", expected=row.domain, got=namespace.domain)
        if namespace.protected_by is not None:
            message = f"the namespace {namespaces.dotted_name(new_levels)} protects its tables"
            expected, got = "a table that is created in it", "a table of another namespace"
            hint = "create it there without rows, and publish them"
            raise Code.CHANGE_GATED(message, reason="namespace_gated", expected=expected, got=got, hint=hint)

        def work(unit: Unit) -> None:
            namespaces.require_unchanged(unit, namespace)
            tables.rename(unit, row, namespace_id=namespace.namespace_id, name=new_name)
            note_request(unit, key, {}, status=204)

        self._parts.ledger.transact(work, at_micros=self._parts.clock.now_micros())

    def drop(
        self, grant: Grant, levels: Levels, name: str, *, purge: bool = False, key: RequestKey | None = None
    ) -> Leftover | None:
        """Drop the table; with `purge` also delete the files in its place. Returns where files are left, and why.

        Raises `purge_refused`, and does not drop the table, if the purge would leave files.
        """
        row = retry_if_row_changed(lambda: self._drop(grant, levels, name, key, purge=purge))
        return self.purge(row.location, row.domain) if purge else None

    def purge(self, location: str, domain: str) -> Leftover | None:
        """Delete the files of a dropped table. Returns where files are left, and why; None if none is left."""
        return self._purge(location, domain).run()

    def _purge(self, location: str, domain: str) -> Purge:
        parts = self._parts
        return Purge(parts.ledger, parts.states, parts.warehouse, parse_location(location), domain)

    def _drop(self, grant: Grant, levels: Levels, name: str, key: RequestKey | None, *, purge: bool) -> TableRow:
        row = self._get_row(grant, levels, name)
        self._parts.states.upstreams.require_not_upstream(levels, operation=f"drop {name}")
        self._parts.access.require_may_rename_or_drop(grant, row, "it would be dropped")
        leftover = self._purge(row.location, row.domain).foresee(self._parts.states.load(row)) if purge else None
        if leftover is not None:
            message = f"{row.name} is not dropped: a purge would leave files in {leftover.place}"
            raise Code.PURGE_REFUSED(message, got=leftover.why)

        def work(unit: Unit) -> None:
            tables.drop(unit, row)
            note_request(unit, key, {"purge": [row.location, row.domain] if purge else []}, status=204)

        self._parts.ledger.transact(work, at_micros=self._parts.clock.now_micros())
        return row

    def _load_proved(self, grant: Grant, row: TableRow) -> TableState:
        """The table's state. For roles that see only what is published, raises if `main` is not proved."""
        state = self._parts.states.load(row)
        if not sees_all(grant.role):
            require_proved(self._parts.ledger, state)
        return state

    def _get_row(self, grant: Grant, levels: Levels, name: str) -> TableRow:
        _, row = self._parts.commits.find(grant, levels, name)
        if row is None:
            raise unknown_table_error(levels, name)
        return row

    def _find_with_namespace(self, grant: Grant, levels: Levels, name: str) -> tuple[Namespace, TableRow | None]:
        namespace = self._parts.namespaces.get(grant, levels)
        with self._parts.ledger.read() as unit:
            return namespace, tables.find(unit, namespace.namespace_id, name)

    def _make_table(self, grant: Grant, levels: Levels, request: Json) -> tuple[Namespace, str, TableMetadata]:
        """The namespace, the name and the first document of the table that the request describes."""
        node = Node(request, "$")
        name = require_name(node.text("name"), "the table's name")
        self._parts.access.require_may_manage(grant)
        namespace, old = self._find_with_namespace(grant, levels, name)
        if old is not None:
            raise Code.ALREADY_EXISTS(f"Table already exists: {dotted_table(levels, name)}", reason="table_exists")
        table_uuid = str(uuid.uuid4())
        location = node.optional_text("location") or str(new_place(self._parts.warehouse, levels, name, table_uuid))
        now_ms = self._parts.clock.now_micros() // 1_000
        return namespace, name, new_table(request, location=location, table_uuid=table_uuid, now_ms=now_ms)

    def _require_readable(self, grant: Grant, namespace: Namespace, place: Location) -> None:
        """Raise unless the metadata file may be registered: in the warehouse, or of a table that the domain dropped.

        An operator may register any file.
        """
        if grant.role is Role.OPERATOR or is_inside(self._parts.warehouse, place):
            return
        with self._parts.ledger.read() as unit:
            dropped = tables.find_dropped(unit, str(place))
        if dropped is None or dropped.domain != namespace.domain:
            message, expected = "the metadata file is outside the warehouse", str(self._parts.warehouse)
            raise Code.LOCATION_OUTSIDE(message, expected=expected, got=str(place)[:200])


@contextlib.contextmanager
def name_conflicts(levels: Levels, name: str, messages: Mapping[str, str] = _TABLE_CONFLICTS) -> Iterator[None]:
    """Replace the message of an error about a taken name by the one that clients expect (`messages`, by reason)."""
    try:
        yield
    except ConflictError as error:
        if error.reason not in messages:
            raise
        raise ConflictError(error.reason, f"{messages[error.reason]}: {dotted_table(levels, name)}") from None


def dotted_table(levels: Levels, name: str) -> str:
    """The name of a table or view with its namespace, for people."""
    return namespaces.dotted_name((*levels, name))


def _store_pointers(key: RequestKey | None) -> Hook | None:
    """A hook that stores the new pointers under the request's key, for repetitions; None without a key."""
    if key is None:
        return None

    def note(unit: Unit, rows: Sequence[TableRow]) -> None:
        pointers: list[canonical_json.Value] = [[row.pointer.location, row.pointer.sha256] for row in rows]
        note_request(unit, key, {"pointers": pointers})

    return note


def _require_own_files(after: TableMetadata, place: Location, warehouse: Location) -> None:
    """Raise unless the manifest lists, and the metadata file if it is in the warehouse, lie in the table's place."""
    own = parse_location(after.location)
    files = [parse_location(each.manifest_list) for each in after.snapshots if each.manifest_list is not None]
    if place.is_under(warehouse):
        files.append(place)
    foreign = next((file for file in files if not file.is_under(own)), None)
    if foreign is not None or any(each.manifest_list is None for each in after.snapshots):
        message = "the metadata names files outside the table's location"
        got = "manifests listed in a snapshot" if foreign is None else str(foreign)[:200]
        raise Code.LOCATION_OUTSIDE(message, expected=f"files under {own}", got=got)
