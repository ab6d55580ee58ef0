"""The catalog's namespaces; rows of dropped ones stay. A change raises if the row is not as it was read (`judged`)."""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from
from pvdm.ledger.schema.catalog import namespaces, tables, views
from pvdm.ledger.unit import Unit, select_page, where_given
from pvdm.model import canonical_json

NAMESPACE_LEVELS_MAX: Final = 32
NAMESPACE_PROPERTIES_MAX_BYTES: Final = 262_144
_KEYS_CACHED: Final = 1_024

Levels = tuple[str, ...]

_LIVE: Final = namespaces.c.dropped_micros.is_(None)
_BY_LEVELS: Final = select(namespaces).where(namespaces.c.levels == bindparam("of_levels"), _LIVE)
_BY_ID: Final = select(namespaces).where(namespaces.c.namespace_id == bindparam("of_id"), _LIVE)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace in the ledger. New tables in it are protected under the contract with the hash `protected_by`."""

    namespace_id: str
    levels: Levels
    domain: str
    properties: Mapping[str, str]
    protected_by: str | None


def create(unit: Unit, levels: Levels, *, domain: str, properties: Mapping[str, str]) -> Namespace:
    """Add a namespace. Raises `namespace_exists`, and `name_of_table` or `name_of_view` if its name is taken.

    Engines read `a.b.c` as the table `c` of the namespace `a.b`. If there is no such table, they read it as a part of
    the table `a.b`: a branch, a tag or a metadata table. A new namespace `a.b` could give `a.b.c` another meaning.
    """
    unit.lock_name("namespaces")
    home = find(unit, levels[:-1])
    if home is not None:
        unit.lock_name(f"names {home.namespace_id}")
        require_no_view(unit, home.namespace_id, levels[-1])
        if _has_table(unit, home.namespace_id, levels[-1]):
            message = f"Table with same name already exists: {dotted_name(levels)}"
            raise Code.ALREADY_EXISTS(message, reason="name_of_table")
    if find(unit, levels) is not None:
        raise Code.ALREADY_EXISTS(f"Namespace already exists: {dotted_name(levels)}", reason="namespace_exists")
    new = Namespace(secrets.token_hex(16), levels, ids.require_name(domain, "domain"), properties, None)
    unit.insert(
        namespaces,
        namespace_id=new.namespace_id,
        levels=levels_key(levels),
        parent=levels_key(levels[:-1]),
        domain=domain,
        properties=_dump_properties(properties),
        protected_by=None,
        dropped_micros=None,
    )
    return new


def find(unit: Unit, levels: Levels) -> Namespace | None:
    """The namespace, or None."""
    return convert_if_found(namespace_from, unit.row(_BY_LEVELS, of_levels=levels_key(levels)))


def get(unit: Unit, levels: Levels) -> Namespace:
    """The namespace. Raises `namespace_unknown`."""
    found = find(unit, levels)
    if found is None:
        raise Code.NAMESPACE_UNKNOWN(f"Namespace does not exist: {dotted_name(levels)}")
    return found


def find_by_id(unit: Unit, namespace_id: str) -> Namespace | None:
    """The namespace by its own id, or None."""
    return convert_if_found(namespace_from, unit.row(_BY_ID, of_id=namespace_id))


def list_children(
    unit: Unit, parent: Levels, *, domain: str | None = None, after: Levels | None = None, count: int | None = None
) -> list[Namespace]:
    """The first `count` namespaces directly in `parent` (`()`: the top level) whose `levels_key` is above `after`'s."""
    inside = select(namespaces).where(namespaces.c.parent == levels_key(parent), _LIVE)
    inside = where_given(inside, (namespaces.c.domain, domain))
    last = None if after is None else levels_key(after)
    return [namespace_from(row) for row in unit.rows(select_page(inside, namespaces.c.levels, last, count))]


def list_owners(unit: Unit) -> list[tuple[Levels, str]]:
    """The levels and the domain of every live namespace."""
    wanted = select(namespaces.c.levels, namespaces.c.domain).where(_LIVE)
    return [(levels_of_key(row["levels"]), row["domain"]) for row in unit.rows(wanted.order_by(namespaces.c.levels))]


def set_properties(unit: Unit, judged: Namespace, properties: Mapping[str, str]) -> None:
    """Replace the properties."""
    _change(unit, judged, properties=_dump_properties(properties))


def protect(unit: Unit, judged: Namespace, contract_hash: str | None) -> None:
    """Set the contract that protects new tables of the namespace; None ends this protection."""
    if contract_hash is not None:
        ids.require_sha256(contract_hash, "contract hash")
    _change(unit, judged, protected_by=contract_hash)


def drop(unit: Unit, judged: Namespace) -> None:
    """Drop the namespace. Raises `namespace_not_empty` if it holds namespaces, tables or views."""
    unit.lock_name("namespaces")
    require_unchanged(unit, judged)
    unit.lock_name(f"names {judged.namespace_id}")
    if (
        _has_table(unit, judged.namespace_id)
        or _has_view(unit, judged.namespace_id)
        or list_children(unit, judged.levels, count=1)
    ):
        raise Code.NAMESPACE_NOT_EMPTY(f"Namespace is not empty: {dotted_name(judged.levels)}")
    _change(unit, judged, dropped_micros=unit.at_micros)


def require_unchanged(unit: Unit, judged: Namespace) -> None:
    """Lock the namespace until the end of the unit. Raises `namespace_moved` if it is not `judged` any more."""
    row = unit.lock_row(namespaces, namespace_id=judged.namespace_id)
    if row is None or row["dropped_micros"] is not None or namespace_from(row) != judged:
        raise Code.NAMESPACE_MOVED("the namespace has changed since it was read", got=dotted_name(judged.levels))


@functools.lru_cache(maxsize=_KEYS_CACHED)
def levels_key(levels: Levels) -> str:
    """The levels as one unambiguous text, by which the ledger finds the namespace."""
    return canonical_json.dump(list(levels)).decode()


def dotted_name(levels: Sequence[str]) -> str:
    """The levels joined by dots, for people to read."""
    return ".".join(levels)


def _change(unit: Unit, judged: Namespace, **changed: object) -> None:
    require_unchanged(unit, judged)
    unit.update(namespaces, {"namespace_id": judged.namespace_id}, **changed)


def _dump_properties(properties: Mapping[str, str]) -> str:
    if any("\0" in text for pair in properties.items() for text in pair):
        raise Code.NAMESPACE_INVALID(reason="namespace_property_invalid", got="text with it")
    text = canonical_json.dump(dict(properties))
    if len(text) > NAMESPACE_PROPERTIES_MAX_BYTES:
        expected = f"at most {NAMESPACE_PROPERTIES_MAX_BYTES} bytes"
        raise Code.NAMESPACE_INVALID(reason="namespace_properties_too_large", expected=expected, got=str(len(text)))
    return text.decode()


@functools.lru_cache(maxsize=_KEYS_CACHED)
def levels_of_key(key: str) -> Levels:
    """The levels whose `levels_key` is this key."""
    return tuple(json.loads(key))


def namespace_from(row: Row) -> Namespace:
    """The namespace of a row with all columns of the table `namespaces`."""
    levels, properties = levels_of_key(row["levels"]), json.loads(row["properties"])
    return record_from(Namespace, row, levels=levels, properties=properties)


def _has_view(unit: Unit, namespace_id: str, name: str | None = None) -> bool:
    """Whether the namespace holds a view: any view, or one with this name."""
    wanted = select(views.c.view_id).where(views.c.namespace_id == namespace_id, views.c.dropped_micros.is_(None))
    return unit.row(where_given(wanted, (views.c.name, name)).limit(1)) is not None


def _has_table(unit: Unit, namespace_id: str, name: str | None = None) -> bool:
    """Whether the namespace holds a table: any table, or one with this name."""
    wanted = select(tables.c.table_id).where(tables.c.namespace_id == namespace_id, tables.c.dropped_micros.is_(None))
    return unit.row(where_given(wanted, (tables.c.name, name)).limit(1)) is not None


def require_no_child(unit: Unit, namespace_id: str, name: str) -> None:
    """Raise `name_of_namespace` if a namespace has this full name. The caller holds the lock on the names."""
    home = find_by_id(unit, namespace_id)
    if home is not None and find(unit, (*home.levels, name)) is not None:
        raise Code.ALREADY_EXISTS(f"Namespace with same name already exists: {name}", reason="name_of_namespace")


def require_no_view(unit: Unit, namespace_id: str, name: str) -> None:
    """Raise `name_of_view` if a view has the name. The caller holds the lock on the namespace's names."""
    if _has_view(unit, namespace_id, name):
        raise Code.ALREADY_EXISTS(f"View with same name already exists: {name}", reason="name_of_view")
