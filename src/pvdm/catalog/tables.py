"""The desk of tables: made, staged, registered, loaded, listed, renamed, dropped, and committed to."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pvdm.catalog.access import CatalogAccess
from pvdm.catalog.commit import Change, Commits, repeated
from pvdm.catalog.names import judged_name
from pvdm.catalog.namespaces import Namespaces, names_from
from pvdm.catalog.places import is_inside, own_place, read_metadata
from pvdm.catalog.purge import Left, Purge
from pvdm.catalog.requests import Once
from pvdm.catalog.state import States, TableState, unknown_table
from pvdm.catalog.upstream.commit import Extra
from pvdm.catalog.upstream.heads import require_proved
from pvdm.catalog.visibility import sees_all
from pvdm.errors import ConflictError, NotAllowedError
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.json.node import Node
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.new_table import new_table, register_table
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.stores import Stores
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import Pointer, TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record.tokens import Grant
from pvdm.model import canonical_json
from pvdm.model.role import Role


@dataclass(frozen=True, slots=True)
class Desks:
    """What the desk of tables stands on."""

    ledger: Ledger
    clock: LedgerClock
    states: States
    access: CatalogAccess
    namespaces: Namespaces
    commits: Commits
    warehouse: Location
    stores: Stores


class Tables:
    """Everything that is done to tables; their documents change by commits alone."""

    def __init__(self, desks: Desks) -> None:
        self._desks = desks

    def load(self, grant: Grant, levels: Levels, name: str) -> TableState:
        """The table, for those of its domain."""
        return self._proved(grant, self._row(grant, levels, name))

    def require(self, grant: Grant, levels: Levels, name: str) -> None:
        """The table is there for the bearer; an upstream's is, if the upstream says so now."""
        row = self._row(grant, levels, name)
        if row.upstream is not None:
            self._desks.states.of(row)

    def page(self, grant: Grant, levels: Levels, *, after: str | None, count: int | None) -> list[str]:
        """The names in a namespace; without a count all of them."""
        home = self._desks.namespaces.get(grant, levels)
        there = self._desks.states.upstreams.names(levels)
        if there is not None:
            found = [name for name in there if after is None or name > after]
            return found if count is None else found[:count]
        with self._desks.ledger.read() as unit:

            def names(start: str | None, wanted: int) -> list[str]:
                return [row.name for row in tables.page(unit, home.namespace_id, after=start, count=wanted)]

            return names_from(names, after=after, count=count)

    def staged(self, grant: Grant, levels: Levels, request: Json) -> TableMetadata:
        """The document that a table would begin with; nothing is kept of it."""
        namespace, name, after = self._made(grant, levels, request)
        with _named(levels, name):
            self._desks.access.require_create(grant, namespace, name, after)
        return after

    def create(self, grant: Grant, levels: Levels, request: Json, *, once: Once | None = None) -> TableState:
        """A new table without rows."""

        def make() -> TableState:
            namespace, name, after = self._made(grant, levels, request)
            with _named(levels, name):
                return self._desks.commits.create(grant, namespace, name, after, extra=_noting(once))

        return repeated(make)

    def register(
        self,
        grant: Grant,
        levels: Levels,
        name: str,
        metadata_location: str,
        *,
        overwrite: bool = False,
        once: Once | None = None,
    ) -> TableState:
        """A table from the metadata file that it had elsewhere; the Steward keeps its own copy of that."""
        access = self._desks.access
        access.require_making(grant)
        namespace, old = self._place(grant, levels, judged_name(name, "the table's name"))
        if old is not None and not overwrite:
            raise _exists(levels, name)
        if old is not None:
            access.require_change(grant, old, "it would be replaced by a registered one")
        place = parse_location(metadata_location)
        self._require_readable(grant, namespace, place)
        after = register_table(read_metadata(place, self._desks.stores))
        if grant.role is not Role.OPERATOR:
            _require_own_files(after, place, self._desks.warehouse)
        with _named(levels, name):
            return self._desks.commits.create(
                grant, namespace, name, after, instead_of=old, returning=True, extra=_noting(once)
            )

    def commit(self, grant: Grant, changes: Sequence[Change], *, once: Once | None = None) -> list[TableState]:
        """Change tables, all or none."""
        if len(changes) == 1:
            with _named(changes[0].levels, changes[0].name):
                return self._desks.commits.commit(grant, changes, extra=_noting(once))
        return self._desks.commits.commit(grant, changes, extra=_noting(once))

    def again(self, grant: Grant, facts: Sequence[Json], levels: Levels, name: str) -> TableState:
        """The state that an earlier request with the same key led to."""
        row = self._row(grant, levels, name)
        location, sha256 = (str(fact) for fact in facts)
        return self._proved(grant, replace(row, pointer=Pointer(location, sha256)))

    def rename(
        self, grant: Grant, source: tuple[Levels, str], target: tuple[Levels, str], *, once: Once | None = None
    ) -> None:
        """Another name, perhaps in another namespace of the same domain."""
        judged_name(target[1], "the table's new name")
        with _named(*target):
            try:
                repeated(lambda: self._rename(grant, source, target, once))
            except ConflictError as error:
                if error.code != "name_of_view":
                    raise
                raise ConflictError(
                    "view_exists", f"Cannot rename {_shown(*source)} to {_shown(*target)}. View already exists"
                ) from None

    def _rename(self, grant: Grant, source: tuple[Levels, str], target: tuple[Levels, str], once: Once | None) -> None:
        row = self._row(grant, *source)
        for levels, _ in (source, target):
            self._desks.states.upstreams.require_own(levels, "a table would get another name")
        self._desks.access.require_change(grant, row, "its name would change")
        namespace = self._desks.namespaces.get(grant, target[0])
        if namespace.domain != row.domain:
            raise NotAllowedError(
                "domain_wrong", "a table stays in its domain", expected=row.domain, got=namespace.domain
            )
        if namespace.protected_by is not None:
            raise NotAllowedError(
                "namespace_gated",
                f"the namespace {namespaces.shown(target[0])} protects its tables",
                expected="a table that is created in it",
                got="one from elsewhere",
                hint="create it there without rows, and publish them",
            )

        def work(unit: Unit) -> None:
            namespaces.require_still(unit, namespace)
            tables.rename(unit, row, namespace_id=namespace.namespace_id, name=target[1])
            if once is not None:
                once.note(unit, {}, status=204)

        self._desks.ledger.transact(work, at_micros=self._desks.clock.now_micros())

    def drop(
        self, grant: Grant, levels: Levels, name: str, *, purge: bool = False, once: Once | None = None
    ) -> Left | None:
        """End the table; with `purge` the files in its place go too. Gives what is left of them, and why.

        `purge_refused` if files would be left: then the table is not dropped.
        """
        row = repeated(lambda: self._drop(grant, levels, name, once, purge=purge))
        return self.purge(row.location, row.domain) if purge else None

    def purge(self, location: str, domain: str) -> Left | None:
        """Remove the files of a dropped table; gives what is left, and why. A second call finds nothing."""
        return self._purge(location, domain).run()

    def _purge(self, location: str, domain: str) -> Purge:
        desks = self._desks
        return Purge(desks.ledger, desks.states, desks.warehouse, parse_location(location), domain)

    def _require_purge(self, row: TableRow) -> None:
        left = self._purge(row.location, row.domain).foresee(self._desks.states.of(row))
        if left is not None:
            raise NotAllowedError(
                "purge_refused",
                f"{row.name} is not dropped: a purge would leave files in {left.place}",
                expected="a place that holds all files of this table and none that others need",
                got=left.why,
                hint="drop it without purge; its files stay, and the owner of the place removes them",
            )

    def _drop(self, grant: Grant, levels: Levels, name: str, once: Once | None, *, purge: bool) -> TableRow:
        row = self._row(grant, levels, name)
        self._desks.states.upstreams.require_own(levels, f"{name} would be dropped")
        self._desks.access.require_change(grant, row, "it would be dropped")
        if purge:
            self._require_purge(row)

        def work(unit: Unit) -> None:
            tables.drop(unit, row)
            if once is not None:
                once.note(unit, {"purge": [row.location, row.domain] if purge else []}, status=204)

        self._desks.ledger.transact(work, at_micros=self._desks.clock.now_micros())
        return row

    def _proved(self, grant: Grant, row: TableRow) -> TableState:
        """For who sees what is published alone: that, or an error."""
        state = self._desks.states.of(row)
        if not sees_all(grant.role):
            require_proved(self._desks.ledger, state)
        return state

    def _row(self, grant: Grant, levels: Levels, name: str) -> TableRow:
        with self._desks.ledger.read() as unit:
            namespace, row = tables.find_with_home(unit, levels, name)
        if namespace is None:
            raise unknown_table(levels, name)
        self._desks.access.require_namespace(grant, namespace)
        if row is None:
            row = self._desks.states.upstreams.noted(namespace, name)
        if row is None:
            raise unknown_table(levels, name)
        return row

    def _place(self, grant: Grant, levels: Levels, name: str) -> tuple[Namespace, TableRow | None]:
        namespace = self._desks.namespaces.get(grant, levels)
        with self._desks.ledger.read() as unit:
            return namespace, tables.find(unit, namespace.namespace_id, name)

    def _made(self, grant: Grant, levels: Levels, request: Json) -> tuple[Namespace, str, TableMetadata]:
        node = Node(request, "$")
        name = judged_name(node.text("name"), "the table's name")
        self._desks.access.require_making(grant)
        namespace, old = self._place(grant, levels, name)
        if old is not None:
            raise _exists(levels, name)
        table_uuid = str(uuid.uuid4())
        location = node.optional_text("location") or str(own_place(self._desks.warehouse, levels, name, table_uuid))
        now_ms = self._desks.clock.now_micros() // 1_000
        return namespace, name, new_table(request, location=location, table_uuid=table_uuid, now_ms=now_ms)

    def _require_readable(self, grant: Grant, namespace: Namespace, place: Location) -> None:
        """An operator may bring any file; others one of the warehouse, or of a table that their domain dropped."""
        if grant.role is Role.OPERATOR or is_inside(self._desks.warehouse, place):
            return
        with self._desks.ledger.read() as unit:
            dropped = tables.find_dropped(unit, str(place))
        if dropped is None or dropped.domain != namespace.domain:
            raise NotAllowedError(
                "location_outside",
                "the metadata file is outside the warehouse",
                expected=str(self._desks.warehouse),
                got=str(place)[:200],
            )


@contextlib.contextmanager
def _named(levels: Levels, name: str) -> Iterator[None]:
    """A name that is taken is told with its namespace, as clients expect it."""
    try:
        yield
    except ConflictError as error:
        if error.code == "table_exists":
            raise _exists(levels, name) from None
        if error.code == "name_of_view":
            raise ConflictError(error.code, f"View with same name already exists: {_shown(levels, name)}") from None
        raise


def _exists(levels: Levels, name: str) -> ConflictError:
    return ConflictError("table_exists", f"Table already exists: {_shown(levels, name)}")


def _shown(levels: Levels, name: str) -> str:
    return namespaces.shown((*levels, name))


def _noting(once: Once | None) -> Extra | None:
    if once is None:
        return None

    def note(unit: Unit, rows: Sequence[TableRow]) -> None:
        pointers: list[canonical_json.Value] = [[row.pointer.location, row.pointer.sha256] for row in rows]
        once.note(unit, {"pointers": pointers})

    return note


def _require_own_files(after: TableMetadata, place: Location, warehouse: Location) -> None:
    """A document brings in only what lies in its own place: neither itself nor a manifest list is another table's."""
    own = parse_location(after.location)
    files = [parse_location(each.manifest_list) for each in after.snapshots if each.manifest_list is not None]
    if place.is_under(warehouse):
        files.append(place)
    foreign = next((file for file in files if not file.is_under(own)), None)
    if foreign is not None or any(each.manifest_list is None for each in after.snapshots):
        raise NotAllowedError(
            "location_outside",
            "the metadata names files outside the table's location",
            expected=f"files under {own}",
            got="manifests listed in a snapshot" if foreign is None else str(foreign)[:200],
        )
