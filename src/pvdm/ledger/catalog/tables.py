"""The catalog's pointers: each table's current metadata file. A change raises if the row is not as read (`judged`)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Select, and_, bindparam, exists, func, or_, select, update

from pvdm.errors import Code, PvdmError
from pvdm.lake.paths import Location, Pointer, parse_location
from pvdm.ledger import ids
from pvdm.ledger.catalog.namespaces import (
    Levels,
    Namespace,
    levels_key,
    namespace_from,
    require_no_child,
    require_no_view,
)
from pvdm.ledger.connection import Row, convert_if_found, record_from
from pvdm.ledger.schema.catalog import namespaces, pending_deletes, tables
from pvdm.ledger.schema.record import events
from pvdm.ledger.unit import Unit, select_page
from pvdm.ledger.work import announced

TABLE_PLACE_MAX_BYTES: Final = 2_000  # of a place key (`place_key`); less than PostgreSQL allows in an index

# Queries of every commit, built once: building a statement takes longer than running it.
_LIVE: Final = tables.c.dropped_micros.is_(None)
_BY_NAME: Final = select(tables).where(
    tables.c.namespace_id == bindparam("of_namespace"), tables.c.name == bindparam("of_name"), _LIVE
)
_BY_LEVELS_AND_NAME: Final = (
    select(*(column.label(f"space_{column.name}") for column in namespaces.c), tables)
    .select_from(namespaces)
    .outerjoin(
        tables,
        (tables.c.namespace_id == namespaces.c.namespace_id) & (tables.c.name == bindparam("of_name")) & _LIVE,
    )
    .where(namespaces.c.levels == bindparam("of_levels"), namespaces.c.dropped_micros.is_(None))
)
# A swap compares every column except these. Their changes also change `revision`; `_LIVE` compares `dropped_micros`.
_NOT_COMPARED: Final = frozenset({"place", "upstream", "protected_micros", "dropped_micros", "at_micros"})
_COMPARED: Final = tuple(column.name for column in tables.c if column.name not in _NOT_COMPARED)
_SWAPPED: Final = ("metadata_location", "metadata_sha256", "previous_location", "location", "place")
_SWAP: Final = (
    update(tables)
    .where(*(tables.c[name].is_not_distinct_from(bindparam(f"judged_{name}")) for name in _COMPARED), _LIVE)
    .values({name: bindparam(f"new_{name}") for name in (*_SWAPPED, "revision", "at_micros")})
)
_BY_UUID: Final = select(tables).where(tables.c.table_uuid == bindparam("of_uuid"), _LIVE)
_BY_ID: Final = select(tables).where(tables.c.table_id == bindparam("of_id"), _LIVE)
_SCHEDULED: Final = select(pending_deletes.c.name).where(pending_deletes.c.name == bindparam("of_name"))


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table in the ledger. With a contract it is protected. `revision` counts every change of the row."""

    table_id: str
    namespace_id: str
    name: str
    domain: str
    table_uuid: str
    location: str
    pointer: Pointer
    previous_location: str | None  # of the metadata file before the one that `pointer` names
    revision: int
    contract_hash: str | None
    upstream: str | None = None  # the upstream catalog that owns the table; `pointer` was last seen there

    @property
    def protected(self) -> bool:
        """Whether its `main` changes only by a proof or a signed migration."""
        return self.contract_hash is not None


@dataclass(frozen=True, slots=True)
class NewTable:
    """The values with which a table is created."""

    namespace_id: str
    name: str
    domain: str
    table_uuid: str
    location: str
    pointer: Pointer
    contract_hash: str | None
    may_reuse_uuid: bool = False  # registered from its own metadata, so a dropped table may have had its UUID
    upstream: str | None = None


def create(unit: Unit, new: NewTable) -> TableRow:
    """Add the table. Raises `table_exists` for a taken name, `table_uuid_taken` for a UUID that is or was in use."""
    unit.lock_name(f"names {new.namespace_id}")
    _require_namespace(unit, new.namespace_id)
    lock(unit, [new.table_uuid])
    if find(unit, new.namespace_id, new.name) is not None:
        raise Code.ALREADY_EXISTS(f"Table already exists: {new.name}", reason="table_exists")
    require_no_view(unit, new.namespace_id, new.name)
    require_no_child(unit, new.namespace_id, new.name)
    _require_uuid_free(unit, new)
    table_id = secrets.token_hex(16)
    unit.insert(
        tables,
        table_id=table_id,
        namespace_id=new.namespace_id,
        name=ids.require_name(new.name, "table name"),
        domain=ids.require_name(new.domain, "domain"),
        table_uuid=ids.require_name(new.table_uuid.lower(), "table UUID"),
        location=new.location,
        place=place_key(parse_location(new.location)),
        metadata_location=new.pointer.location,
        metadata_sha256=ids.require_sha256(new.pointer.sha256, "metadata hash"),
        previous_location=None,
        revision=0,
        upstream=new.upstream,
        contract_hash=new.contract_hash,
        protected_micros=None if new.contract_hash is None else unit.at_micros,
        dropped_micros=None,
    )
    return get_by_id(unit, table_id)


def find(unit: Unit, namespace_id: str, name: str) -> TableRow | None:
    """The table of that name, or None."""
    return convert_if_found(_to_table, unit.row(_BY_NAME, of_namespace=namespace_id, of_name=name))


def find_with_namespace(unit: Unit, levels: Levels, name: str) -> tuple[Namespace | None, TableRow | None]:
    """The namespace and its table of that name, each None if it does not exist, in one query."""
    row = unit.row(_BY_LEVELS_AND_NAME, of_levels=levels_key(levels), of_name=name)
    if row is None:
        return None, None
    home = namespace_from({column.name: row[f"space_{column.name}"] for column in namespaces.c})
    return home, None if row["table_id"] is None else _to_table(row)


def find_by_uuid(unit: Unit, table_uuid: str) -> TableRow | None:
    """The table of that UUID in any letter case, or None."""
    return convert_if_found(_to_table, unit.row(_BY_UUID, of_uuid=table_uuid.lower()))


def list_ids(unit: Unit, table_uuid: str) -> list[str]:
    """The ids of all tables that ever had this UUID, dropped ones included."""
    wanted = select(tables.c.table_id).where(tables.c.table_uuid == table_uuid.lower())
    return [row["table_id"] for row in unit.rows(wanted.order_by(tables.c.table_id))]


def get_by_id(unit: Unit, table_id: str) -> TableRow:
    """The table by its own id. Raises `table_moved` if it was dropped."""
    row = unit.row(_BY_ID, of_id=table_id)
    if row is None:
        raise Code.TABLE_MOVED("the table was dropped meanwhile")
    return _to_table(row)


def belonged_to_upstream(unit: Unit, table_uuid: str) -> bool:
    """Whether the last table of that UUID belonged to an upstream. It may appear there again."""
    wanted = select(tables.c.upstream).where(tables.c.table_uuid == table_uuid.lower())
    row = unit.row(wanted.order_by(tables.c.at_micros.desc()).limit(1))
    return row is not None and row["upstream"] is not None


def page(unit: Unit, namespace_id: str, *, after: str | None = None, count: int | None = None) -> list[TableRow]:
    """The tables of a namespace in order of name, at most `count`, after the name `after`."""
    live = select(tables).where(tables.c.namespace_id == namespace_id, _LIVE)
    return [_to_table(row) for row in unit.rows(select_page(live, tables.c.name, after, count))]


def find_dropped(unit: Unit, metadata_location: str) -> TableRow | None:
    """The newest table that was dropped while this metadata file was current, or None."""
    wanted = select(tables).where(tables.c.metadata_location == metadata_location, tables.c.dropped_micros.is_not(None))
    return convert_if_found(_to_table, unit.row(wanted.order_by(tables.c.dropped_micros.desc()).limit(1)))


def find_dropped_overlapping(unit: Unit, place: Location, *, except_domain: str) -> TableRow | None:
    """A dropped table of another domain at, above or below the place, or None. Its domain may register it again."""
    queries = select_overlapping(place, dropped=True)
    return _find_first(unit, (each.where(tables.c.domain != except_domain) for each in queries))


def find_overlapping(unit: Unit, place: Location, *, except_id: str | None = None) -> TableRow | None:
    """A table at, above or below the place, except the one with the id `except_id`; or None."""
    excepted = except_id or ""  # no table has the id ""
    return _find_first(unit, (each.where(tables.c.table_id != excepted) for each in select_overlapping(place)))


def _find_first(unit: Unit, queries: Iterable[Select[Any]]) -> TableRow | None:
    """The first table that the first query with any result finds, or None."""
    rows = (unit.row(each.order_by(tables.c.place).limit(1)) for each in queries)
    return next((_to_table(row) for row in rows if row is not None), None)


def was_protected(unit: Unit, row: TableRow) -> bool:
    """Whether the table was ever protected. Then proofs may name its files."""
    found = unit.row(select(tables.c.protected_micros).where(tables.c.table_id == row.table_id))
    return found is not None and found["protected_micros"] is not None


def find_containing(unit: Unit, places: Iterable[Location], *, except_domain: str) -> TableRow | None:
    """A live or dropped table of another domain than `except_domain` whose place contains one of `places`; or None."""
    keys = {_location_key(above) for place in places for above in place.self_and_parents()}
    # No table has a longer key.
    possible = sorted(key for key in keys if len(key.encode()) <= TABLE_PLACE_MAX_BYTES)
    others = select(tables).where(tables.c.domain != except_domain).limit(1)
    return convert_if_found(_to_table, next(unit.rows_with(others, tables.c.place, possible), None))


def select_overlapping(place: Location, *, dropped: bool = False) -> tuple[Select[Any], Select[Any]]:
    """Two queries: tables at or below the place, and tables above it. One query with OR would read the whole index."""
    key = place_key(place)
    above = [place_key(Location(place.scheme, place.authority, place.parts[:end])) for end in range(len(place.parts))]
    wanted = select(tables).where(tables.c.dropped_micros.is_not(None) if dropped else _LIVE)
    # Every place below begins with the key; "0" is the character after "/".
    return wanted.where(tables.c.place >= key, tables.c.place < key[:-1] + "0"), wanted.where(tables.c.place.in_(above))


def place_key(place: Location) -> str:
    """A place in normal form with a final slash. The keys of all places below a place begin with its key."""
    key = _location_key(place)
    if len(key.encode()) > TABLE_PLACE_MAX_BYTES:
        raise Code.LOCATION_INVALID(expected=f"at most {TABLE_PLACE_MAX_BYTES} bytes", got=f"{len(key.encode())} bytes")
    return key


def _location_key(place: Location) -> str:
    return f"{place.scheme}://{place.authority}/" + "".join(f"{part}/" for part in place.parts)


def list_live(unit: Unit) -> list[TableRow]:
    """Every table of the catalog, by id."""
    return [_to_table(row) for row in unit.rows(select(tables).where(_LIVE).order_by(tables.c.table_id))]


def list_changed_after(unit: Unit, event_id: int) -> list[TableRow]:
    """Every table of the catalog that may have changed after this event, by id. Event ids are compared, not times."""
    step = and_(events.c.subject == "tables", events.c.row_key == tables.c.table_id, events.c.event_id > event_id)
    # An upstream's table may change without a change of its row.
    changed = or_(exists().where(step), tables.c.upstream.is_not(None))
    wanted = select(tables).where(_LIVE, changed)
    return [_to_table(row) for row in unit.rows(wanted.order_by(tables.c.table_id))]


def swap(unit: Unit, judged: TableRow, to: Pointer, *, location: str | None = None) -> TableRow:
    """Make the metadata file `to` current and return the new row. Raises `table_moved` if the row has changed."""
    after = replace(
        judged,
        pointer=to,
        previous_location=judged.pointer.location,
        location=location or judged.location,
        revision=judged.revision + 1,
    )
    pointer = {"metadata_location": judged.pointer.location, "metadata_sha256": judged.pointer.sha256}
    compared = {name: pointer[name] if name in pointer else getattr(judged, name) for name in _COMPARED}
    # One statement compares and swaps. It waits for a lock on the row, then compares what the lock's holder committed.
    changed = unit.change(
        _SWAP,
        **{f"judged_{name}": value for name, value in compared.items()},
        new_metadata_location=to.location,
        new_metadata_sha256=ids.require_sha256(to.sha256, "metadata hash"),
        new_previous_location=after.previous_location,
        new_location=after.location,
        new_place=place_key(parse_location(after.location)),
        new_revision=after.revision,
        new_at_micros=unit.at_micros,
    )
    if changed != 1:
        require_unchanged(unit, judged)
        raise AssertionError("the row is unchanged, but was not swapped")
    return after


def note_upstream_pointer(unit: Unit, judged: TableRow, seen: Pointer) -> TableRow:
    """Note the metadata file that an upstream shows. Raises `table_moved` if another part of the row has changed."""
    row = unit.lock_row(tables, table_id=judged.table_id)
    stored = None if row is None or row["dropped_micros"] is not None else _to_table(row)
    if stored is None or _without_pointer(stored) != _without_pointer(judged):
        raise _moved_error(judged, None if stored is None else stored.revision)
    if stored.pointer != seen:
        sha256, previous = ids.require_sha256(seen.sha256, "metadata hash"), stored.pointer.location
        _change(unit, stored, metadata_location=seen.location, metadata_sha256=sha256, previous_location=previous)
    return get_by_id(unit, judged.table_id)


def _without_pointer(row: TableRow) -> TableRow:
    """The row without what changes when another metadata file is noted."""
    return replace(row, pointer=Pointer("", ""), previous_location=None, revision=0)


def rename(unit: Unit, judged: TableRow, *, namespace_id: str, name: str) -> None:
    """Rename the table. Raises `table_moved` if the row is not `judged` any more, `table_exists` for a taken name."""
    unit.lock_name(f"names {namespace_id}")
    _require_namespace(unit, namespace_id)
    require_unchanged(unit, judged)
    if find(unit, namespace_id, name) is not None:
        raise Code.ALREADY_EXISTS(f"Table already exists: {name}", reason="table_exists")
    require_no_view(unit, namespace_id, name)
    require_no_child(unit, namespace_id, name)
    _change(unit, judged, namespace_id=namespace_id, name=ids.require_name(name, "table name"))


def protect(unit: Unit, judged: TableRow, contract_hash: str | None) -> TableRow:
    """Put the table under a contract; None ends its protection. Raises `table_moved` if the row has changed."""
    if judged.upstream is None:
        require_unchanged(unit, judged)
    else:  # only the stored pointer may differ: requests of other callers note what the upstream shows
        judged = note_upstream_pointer(unit, judged, judged.pointer)
        announced.require_no_open_publication(unit, judged.table_uuid)
    if contract_hash is not None:
        ids.require_sha256(contract_hash, "contract hash")
    now = None if contract_hash is None else unit.at_micros
    since = func.coalesce(tables.c.protected_micros, now)  # the time of the first protection stays
    _change(unit, judged, contract_hash=contract_hash, protected_micros=since)
    return get_by_id(unit, judged.table_id)


def drop(unit: Unit, judged: TableRow) -> None:
    """Drop the table. Its row and its history stay. Raises `table_moved` if the row has changed."""
    require_unchanged(unit, judged)
    _change(unit, judged, dropped_micros=unit.at_micros)


def lock(unit: Unit, table_uuids: Sequence[str]) -> None:
    """Lock these tables until the end of the unit, always in the same order, so that there is no deadlock."""
    for table_uuid in sorted({found.lower() for found in table_uuids}):
        unit.lock_name(f"table {table_uuid}")


def _require_namespace(unit: Unit, namespace_id: str) -> None:
    """Lock the namespace until the end of the unit. Raises `namespace_moved` if it was dropped."""
    row = unit.lock_row(namespaces, namespace_id=namespace_id)
    if row is None or row["dropped_micros"] is not None:
        raise Code.NAMESPACE_MOVED("the namespace was dropped meanwhile")


def _require_uuid_free(unit: Unit, new: NewTable) -> None:
    """Raise `table_uuid_taken` if another table has or had the UUID.

    A dropped table that was never protected may be registered again with the same domain, place and upstream.
    """
    rows = unit.rows(select(tables).where(tables.c.table_uuid == new.table_uuid.lower()))
    for row in rows:
        if row["dropped_micros"] is None:
            raise Code.ALREADY_EXISTS(reason="table_uuid_taken", got=new.table_uuid)
        if row["protected_micros"] is not None:
            message = "a protected table had this UUID, and proofs name it"
            raise Code.ALREADY_EXISTS(message, reason="table_uuid_taken", got=new.table_uuid)
    if not rows:
        return
    # The table may have been registered again and moved: its last place counts.
    latest = max(int(row["dropped_micros"]) for row in rows)
    place = place_key(parse_location(new.location))
    last = [(row["domain"], row["place"], row["upstream"]) for row in rows if row["dropped_micros"] == latest]
    if not new.may_reuse_uuid or (new.domain, place, new.upstream) not in last:
        raise Code.ALREADY_EXISTS("a dropped table had this UUID", reason="table_uuid_taken", got=new.table_uuid)


def require_unchanged(unit: Unit, judged: TableRow) -> None:
    """Lock the row until the end of the unit. Raises `table_moved` if it is not `judged` any more."""
    row = unit.lock_row(tables, table_id=judged.table_id)
    if row is None or row["dropped_micros"] is not None or _to_table(row) != judged:
        raise _moved_error(judged, None if row is None else row["revision"])


def _moved_error(judged: TableRow, revision: int | None) -> PvdmError:
    got = "none" if revision is None else f"revision {revision}"
    return Code.TABLE_MOVED("the table has changed since it was read", expected=f"revision {judged.revision}", got=got)


def _change(unit: Unit, judged: TableRow, **changed: object) -> None:
    unit.update(tables, {"table_id": judged.table_id}, **changed, revision=judged.revision + 1)


def _to_table(row: Row) -> TableRow:
    return record_from(TableRow, row, pointer=Pointer(row["metadata_location"], row["metadata_sha256"]))


def schedule_deletes(unit: Unit, table_uuid: str, names: Sequence[str]) -> None:
    """Schedule metadata files for deletion. The caller holds the table's lock.

    The files may be deleted once this is committed. Rows are never removed: a commit can be delayed for any time
    between writing its file and its swap, and must still be refused if its file is one of these.
    """
    for name in names:
        unit.insert_new(
            pending_deletes,
            name=ids.require_name(name, "file name"),
            table_uuid=ids.require_name(table_uuid.lower(), "table UUID"),
        )


def require_not_scheduled_for_deletion(unit: Unit, names: Sequence[str]) -> None:
    """Raise `table_moved` if a file is scheduled for deletion. The caller holds the table's lock."""
    if any(unit.row(_SCHEDULED, of_name=name) is not None for name in names):
        message = "the new metadata file was scheduled for deletion before the commit"
        raise Code.TABLE_MOVED(message, expected="a new file")
