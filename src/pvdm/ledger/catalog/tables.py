"""The catalog's pointers: which metadata file each table shows, swapped only from the one that was judged."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Select, and_, bindparam, exists, func, or_, select, update

from pvdm.errors import ConflictError, InputError
from pvdm.lake.paths import Location, parse_location
from pvdm.ledger import ids
from pvdm.ledger.batches import in_batches
from pvdm.ledger.catalog.namespaces import Levels, Namespace, key, of_row
from pvdm.ledger.catalog.view_names import require_no_view
from pvdm.ledger.connection import Row
from pvdm.ledger.schema.catalog import namespaces, tables
from pvdm.ledger.schema.work import events
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import announced

TABLE_PLACE_MAX_BYTES: Final = 2_000
"""What an index entry of PostgreSQL holds with room to spare."""

# What every commit asks, made once: to make a statement takes longer than to run it.
_BY_NAME: Final = select(tables).where(
    tables.c.namespace_id == bindparam("of_namespace"),
    tables.c.name == bindparam("of_name"),
    tables.c.dropped_micros.is_(None),
)
_BY_LEVELS_AND_NAME: Final = (
    select(*(column.label(f"space_{column.name}") for column in namespaces.c), tables)
    .select_from(namespaces)
    .outerjoin(
        tables,
        (tables.c.namespace_id == namespaces.c.namespace_id)
        & (tables.c.name == bindparam("of_name"))
        & tables.c.dropped_micros.is_(None),
    )
    .where(namespaces.c.levels == bindparam("of_levels"), namespaces.c.dropped_micros.is_(None))
)
_JUDGED: Final = (
    "table_id",
    "namespace_id",
    "name",
    "domain",
    "table_uuid",
    "location",
    "metadata_location",
    "metadata_sha256",
    "previous_location",
    "revision",
    "contract_hash",
)
_SWAPPED: Final = ("metadata_location", "metadata_sha256", "previous_location", "location", "place")
_SWAP: Final = (
    update(tables)
    .where(
        *(tables.c[name].is_not_distinct_from(bindparam(f"judged_{name}")) for name in _JUDGED),
        tables.c.dropped_micros.is_(None),
    )
    .values({name: bindparam(f"new_{name}") for name in (*_SWAPPED, "revision", "at_micros")})
)
_BY_UUID: Final = select(tables).where(tables.c.table_uuid == bindparam("of_uuid"), tables.c.dropped_micros.is_(None))
_BY_ID: Final = select(tables).where(tables.c.table_id == bindparam("of_id"), tables.c.dropped_micros.is_(None))


@dataclass(frozen=True, slots=True)
class Pointer:
    """A metadata file: where it is and what its bytes are."""

    location: str
    sha256: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table as the ledger has it; with a contract it is protected, and `revision` counts every change of the row."""

    table_id: str
    namespace_id: str
    name: str
    domain: str
    table_uuid: str
    location: str
    pointer: Pointer
    previous_location: str | None
    revision: int
    contract_hash: str | None
    upstream: str | None = None
    """The upstream catalog whose table it is; then the pointer is what was last seen there, and swaps nothing."""

    @property
    def protected(self) -> bool:
        """Whether the gate stands in front of its `main`."""
        return self.contract_hash is not None


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a table is created with."""

    namespace_id: str
    name: str
    domain: str
    table_uuid: str
    location: str
    pointer: Pointer
    contract_hash: str | None
    returning: bool = False  # brought back from its own metadata: it may be one that was dropped
    upstream: str | None = None


def create(unit: Unit, new: NewTable) -> TableRow:
    """Add the table; a name that is taken is `table_exists`, a UUID that is or was in use `table_uuid_taken`."""
    unit.lock_name(f"names {new.namespace_id}")
    _require_home(unit, new.namespace_id)
    lock(unit, [new.table_uuid])
    if find(unit, new.namespace_id, new.name) is not None:
        raise _exists(new.name)
    require_no_view(unit, new.namespace_id, new.name)
    _require_uuid_free(unit, new)
    table_id = secrets.token_hex(16)
    unit.insert(
        tables,
        table_id=table_id,
        namespace_id=new.namespace_id,
        name=ids.name(new.name, "table name"),
        domain=ids.name(new.domain, "domain"),
        table_uuid=ids.name(new.table_uuid.lower(), "table UUID"),
        location=new.location,
        place=place_key(parse_location(new.location)),
        metadata_location=new.pointer.location,
        metadata_sha256=ids.sha256(new.pointer.sha256, "metadata hash"),
        previous_location=None,
        revision=0,
        upstream=new.upstream,
        contract_hash=new.contract_hash,
        protected_micros=None if new.contract_hash is None else unit.at_micros,
        dropped_micros=None,
    )
    return get_id(unit, table_id)


def find(unit: Unit, namespace_id: str, name: str) -> TableRow | None:
    """The table of that name, if it is there."""
    row = unit.row(_BY_NAME, of_namespace=namespace_id, of_name=name)
    return None if row is None else _table(row)


def find_with_home(unit: Unit, levels: Levels, name: str) -> tuple[Namespace | None, TableRow | None]:
    """The namespace and its table of that name, as far as they are there, in one look."""
    row = unit.row(_BY_LEVELS_AND_NAME, of_levels=key(levels), of_name=name)
    if row is None:
        return None, None
    home = of_row({column.name: row[f"space_{column.name}"] for column in namespaces.c})
    return home, None if row["table_id"] is None else _table(row)


def find_uuid(unit: Unit, table_uuid: str) -> TableRow | None:
    """The table of that UUID, however it is spelled, if it is there."""
    row = unit.row(_BY_UUID, of_uuid=table_uuid.lower())
    return None if row is None else _table(row)


def ids_of(unit: Unit, table_uuid: str) -> list[str]:
    """The own ids of all tables that ever had this UUID, the dropped ones too."""
    wanted = select(tables.c.table_id).where(tables.c.table_uuid == table_uuid.lower())
    return [row["table_id"] for row in unit.rows(wanted.order_by(tables.c.table_id))]


def get_id(unit: Unit, table_id: str) -> TableRow:
    """The table by its own id; one that is gone is an error."""
    row = unit.row(_BY_ID, of_id=table_id)
    if row is None:
        raise ConflictError("table_moved", "the table was dropped meanwhile")
    return _table(row)


def was_upstreams(unit: Unit, table_uuid: str) -> bool:
    """Whether the last table of that UUID was an upstream's; one that is not there may be shown there again."""
    wanted = select(tables.c.upstream).where(tables.c.table_uuid == table_uuid.lower())
    row = unit.row(wanted.order_by(tables.c.at_micros.desc()).limit(1))
    return row is not None and row["upstream"] is not None


def page(unit: Unit, namespace_id: str, *, after: str | None = None, count: int = 1_000) -> list[TableRow]:
    """The tables of a namespace by name."""
    wanted = select(tables).where(tables.c.namespace_id == namespace_id, tables.c.dropped_micros.is_(None))
    if after is not None:
        wanted = wanted.where(tables.c.name > after)
    return [_table(row) for row in unit.rows(wanted.order_by(tables.c.name).limit(count))]


def find_dropped(unit: Unit, metadata_location: str) -> TableRow | None:
    """The newest table that was dropped while it showed this metadata file, if one was."""
    wanted = select(tables).where(tables.c.metadata_location == metadata_location, tables.c.dropped_micros.is_not(None))
    row = unit.row(wanted.order_by(tables.c.dropped_micros.desc()).limit(1))
    return None if row is None else _table(row)


def find_dropped_overlapping(unit: Unit, place: Location, *, but_domain: str) -> TableRow | None:
    """A dropped table of another domain that lay there, above or below: its domain may register it again."""
    for wanted in overlapping(place, dropped=True):
        row = unit.row(wanted.where(tables.c.domain != but_domain).order_by(tables.c.place).limit(1))
        if row is not None:
            return _table(row)
    return None


def find_overlapping(unit: Unit, place: Location, *, but: str | None = None) -> TableRow | None:
    """A table that lies there, above or below, by the index; `but` is the id of one that may."""
    for wanted in overlapping(place):
        others = wanted if but is None else wanted.where(tables.c.table_id != but)
        row = unit.row(others.order_by(tables.c.place).limit(1))
        if row is not None:
            return _table(row)
    return None


def was_protected(unit: Unit, row: TableRow) -> bool:
    """Whether the table was ever protected; then proofs may name its files."""
    found = unit.row(select(tables.c.protected_micros).where(tables.c.table_id == row.table_id))
    return found is not None and found["protected_micros"] is not None


def find_holding(unit: Unit, places: Iterable[Location], *, but_domain: str) -> TableRow | None:
    """A table of another domain in whose place one of these lies, one that was dropped too."""
    around = {above for place in places for above in place.around()}
    # No table has a longer place.
    asked = sorted(key for key in map(_key_of, around) if len(key.encode()) <= TABLE_PLACE_MAX_BYTES)
    for some in in_batches(asked):
        row = unit.row(select(tables).where(tables.c.place.in_(some), tables.c.domain != but_domain).limit(1))
        if row is not None:
            return _table(row)
    return None


def overlapping(place: Location, *, dropped: bool = False) -> tuple[Select[Any], Select[Any]]:
    """What lies there or below, and what lies above: two queries, as an OR of them would read the whole index."""
    key = place_key(place)
    above = [place_key(Location(place.scheme, place.authority, place.parts[:end])) for end in range(len(place.parts))]
    ended = tables.c.dropped_micros
    wanted = select(tables).where(ended.is_not(None) if dropped else ended.is_(None))
    # Every place below begins with the key; "0" is what comes after "/".
    return wanted.where(tables.c.place >= key, tables.c.place < key[:-1] + "0"), wanted.where(tables.c.place.in_(above))


def place_key(place: Location) -> str:
    """A place in normal form, closed by a slash: one lies in another if its key begins with the other's."""
    key = _key_of(place)
    if len(key.encode()) > TABLE_PLACE_MAX_BYTES:
        raise InputError(
            "location_invalid",
            "the location cannot be accepted",
            expected=f"at most {TABLE_PLACE_MAX_BYTES} bytes",
            got=f"{len(key.encode())} bytes",
        )
    return key


def _key_of(place: Location) -> str:
    return f"{place.scheme}://{place.authority}/" + "".join(f"{part}/" for part in place.parts)


def all_live(unit: Unit) -> list[TableRow]:
    """Every table of the catalog, by id."""
    wanted = select(tables).where(tables.c.dropped_micros.is_(None)).order_by(tables.c.table_id)
    return [_table(row) for row in unit.rows(wanted)]


def changed_after(unit: Unit, event_id: int) -> list[TableRow]:
    """Every table of the catalog that may have changed after this event, by id, whatever any clock says."""
    step = and_(events.c.subject == "tables", events.c.row_key == tables.c.table_id, events.c.event_id > event_id)
    # What an upstream's table shows changes without its row.
    changed = or_(exists().where(step), tables.c.upstream.is_not(None))
    wanted = select(tables).where(tables.c.dropped_micros.is_(None), changed)
    return [_table(row) for row in unit.rows(wanted.order_by(tables.c.table_id))]


def swap(unit: Unit, judged: TableRow, to: Pointer, *, location: str | None = None) -> TableRow:
    """Show another metadata file, if the row is still the one that was judged; else `table_moved`."""
    after = replace(
        judged,
        pointer=to,
        previous_location=judged.pointer.location,
        location=location or judged.location,
        revision=judged.revision + 1,
    )
    # One statement compares and swaps: it waits for whoever has the row, and looks again at what they leave.
    changed = unit.change(
        _SWAP,
        **{f"judged_{name}": value for name, value in _columns(judged).items()},
        new_metadata_location=to.location,
        new_metadata_sha256=ids.sha256(to.sha256, "metadata hash"),
        new_previous_location=after.previous_location,
        new_location=after.location,
        new_place=place_key(parse_location(after.location)),
        new_revision=after.revision,
        new_at_micros=unit.at_micros,
    )
    if changed != 1:
        require_still(unit, judged)
        raise AssertionError("a row that is as it was judged can be swapped")
    return after


def observe(unit: Unit, judged: TableRow, seen: Pointer) -> TableRow:
    """Note what an upstream's table was last seen to show; all else is as it was judged, or it is `table_moved`."""
    row = unit.locked(tables, table_id=judged.table_id)
    known = None if row is None or row["dropped_micros"] is not None else _table(row)
    if known is None or _apart_from_seen(known) != _apart_from_seen(judged):
        raise _moved(judged, known)
    if known.pointer != seen:
        values = {
            "metadata_location": seen.location,
            "metadata_sha256": ids.sha256(seen.sha256, "metadata hash"),
            "previous_location": known.pointer.location,
        }
        _change(unit, known, **values)
    return get_id(unit, judged.table_id)


def _apart_from_seen(row: TableRow) -> TableRow:
    return replace(row, pointer=Pointer("", ""), previous_location=None, revision=0)


def rename(unit: Unit, judged: TableRow, *, namespace_id: str, name: str) -> TableRow:
    """Give the table another name, if that is free and the row is still the one that was judged."""
    unit.lock_name(f"names {namespace_id}")
    _require_home(unit, namespace_id)
    require_still(unit, judged)
    if find(unit, namespace_id, name) is not None:
        raise _exists(name)
    require_no_view(unit, namespace_id, name)
    _change(unit, judged, namespace_id=namespace_id, name=ids.name(name, "table name"))
    return get_id(unit, judged.table_id)


def protect(unit: Unit, judged: TableRow, contract_hash: str | None) -> TableRow:
    """Put the table under a contract, or take it out."""
    if judged.upstream is None:
        require_still(unit, judged)
    else:
        judged = observe(unit, judged, judged.pointer)
        announced.require_none(unit, judged.table_uuid)
    if contract_hash is not None:
        ids.sha256(contract_hash, "contract hash")
    first = None if contract_hash is None else unit.at_micros
    _change(unit, judged, contract_hash=contract_hash, protected_micros=func.coalesce(tables.c.protected_micros, first))
    return get_id(unit, judged.table_id)


def drop(unit: Unit, judged: TableRow) -> None:
    """End the table; its row and its history stay."""
    require_still(unit, judged)
    _change(unit, judged, dropped_micros=unit.at_micros)


def lock(unit: Unit, table_uuids: Sequence[str]) -> None:
    """Wait for whoever else changes these tables, always in one order, so that two that wait never wait in a circle."""
    for table_uuid in sorted({found.lower() for found in table_uuids}):
        unit.lock_name(f"table {table_uuid}")


def _require_home(unit: Unit, namespace_id: str) -> None:
    """The namespace is there, and stays until the end of the unit."""
    row = unit.locked(namespaces, namespace_id=namespace_id)
    if row is None or row["dropped_micros"] is not None:
        raise ConflictError("namespace_moved", "the namespace was dropped meanwhile")


def _require_uuid_free(unit: Unit, new: NewTable) -> None:
    """A UUID is one table's for ever; one that was dropped unprotected may come back to its own place and domain."""
    rows = list(unit.rows(select(tables).where(tables.c.table_uuid == new.table_uuid.lower())))
    for row in rows:
        if row["dropped_micros"] is None:
            raise _uuid_taken("a table with this UUID is in the catalog", new)
        if row["protected_micros"] is not None:
            raise _uuid_taken("a protected table had this UUID, and proofs name it", new)
    if not rows:
        return
    # It may have come back before, and moved since: where it was last is its place.
    latest = max(int(row["dropped_micros"]) for row in rows)
    place = place_key(parse_location(new.location))
    last = [(row["domain"], row["place"], row["upstream"]) for row in rows if row["dropped_micros"] == latest]
    if not new.returning or (new.domain, place, new.upstream) not in last:
        raise _uuid_taken("a table that was dropped had this UUID", new)


def _uuid_taken(message: str, new: NewTable) -> ConflictError:
    return ConflictError(
        "table_uuid_taken",
        message,
        expected="a UUID of its own",
        got=new.table_uuid,
        hint="create a new table; one that was never protected can be registered again in its own place",
    )


def require_still(unit: Unit, judged: TableRow) -> None:
    """The row as it was judged, kept so until the end of the unit; else `table_moved`."""
    row = unit.locked(tables, table_id=judged.table_id)
    if row is None or row["dropped_micros"] is not None or _table(row) != judged:
        raise _moved(judged, None if row is None else _table(row))


def _moved(judged: TableRow, found: TableRow | None) -> ConflictError:
    return ConflictError(
        "table_moved",
        "the table has changed since it was judged",
        expected=f"revision {judged.revision}",
        got="none" if found is None else f"revision {found.revision}",
    )


def _columns(judged: TableRow) -> dict[str, str | int | None]:
    """Every column that a judged row was read from."""
    pointer = {"metadata_location": judged.pointer.location, "metadata_sha256": judged.pointer.sha256}
    return {name: pointer[name] if name in pointer else getattr(judged, name) for name in _JUDGED}


def _change(unit: Unit, judged: TableRow, **changed: object) -> None:
    values = {**changed, "revision": judged.revision + 1, "at_micros": unit.at_micros}
    unit.execute(update(tables).where(tables.c.table_id == judged.table_id).values(**values))


def _exists(name: str) -> ConflictError:
    return ConflictError("table_exists", f"Table already exists: {name}")


def _table(row: Row) -> TableRow:
    return TableRow(
        row["table_id"],
        row["namespace_id"],
        row["name"],
        row["domain"],
        row["table_uuid"],
        row["location"],
        Pointer(row["metadata_location"], row["metadata_sha256"]),
        row["previous_location"],
        row["revision"],
        row["contract_hash"],
        row["upstream"],
    )
