"""The catalog's views: each view's current metadata file.

A change raises `namespace_moved` or `view_moved` if the namespace or the view (`judged`) has changed since it was read.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import Code
from pvdm.lake.paths import Pointer
from pvdm.ledger import ids
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Namespace
from pvdm.ledger.connection import Row, convert_if_found, record_from
from pvdm.ledger.schema.catalog import views
from pvdm.ledger.unit import Unit, select_page

_LIVE: Final = views.c.dropped_micros.is_(None)


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A view in the ledger. `revision` counts every change of the row."""

    view_id: str
    namespace_id: str
    name: str
    domain: str
    view_uuid: str
    location: str
    pointer: Pointer
    revision: int


@dataclass(frozen=True, slots=True)
class NewView:
    """The values with which a view is created."""

    name: str
    view_uuid: str
    location: str
    pointer: Pointer


def create(unit: Unit, home: Namespace, new: NewView) -> ViewRow:
    """Add the view to the namespace `home`. Raises `view_uuid_taken`, or an error of `_require_free`."""
    namespaces.require_unchanged(unit, home)
    unit.lock_name(f"names {home.namespace_id}")
    _require_free(unit, home.namespace_id, new.name)
    if find_by_uuid(unit, new.view_uuid) is not None:
        raise Code.ALREADY_EXISTS(reason="view_uuid_taken", got=new.view_uuid)
    view_id = secrets.token_hex(16)
    unit.insert(
        views,
        view_id=view_id,
        namespace_id=home.namespace_id,
        name=ids.require_name(new.name, "view name"),
        domain=ids.require_name(home.domain, "domain"),
        view_uuid=ids.require_name(new.view_uuid.lower(), "view UUID"),
        location=new.location,
        metadata_location=new.pointer.location,
        metadata_sha256=ids.require_sha256(new.pointer.sha256, "metadata hash"),
        revision=0,
        dropped_micros=None,
    )
    return _get(unit, view_id)


def find(unit: Unit, namespace_id: str, name: str) -> ViewRow | None:
    """The view of that name, or None."""
    wanted = select(views).where(views.c.namespace_id == namespace_id, views.c.name == name, _LIVE)
    return convert_if_found(_to_view, unit.row(wanted))


def find_by_uuid(unit: Unit, view_uuid: str) -> ViewRow | None:
    """The view of that UUID in any letter case, or None."""
    wanted = select(views).where(views.c.view_uuid == view_uuid.lower(), _LIVE)
    return convert_if_found(_to_view, unit.row(wanted))


def find_dropped(unit: Unit, metadata_location: str) -> ViewRow | None:
    """The newest view that was dropped while this metadata file was current, or None."""
    wanted = select(views).where(views.c.metadata_location == metadata_location, views.c.dropped_micros.is_not(None))
    return convert_if_found(_to_view, unit.row(wanted.order_by(views.c.dropped_micros.desc()).limit(1)))


def page(unit: Unit, namespace_id: str, *, after: str | None = None, count: int | None = None) -> list[ViewRow]:
    """The views of a namespace by name."""
    live = select(views).where(views.c.namespace_id == namespace_id, _LIVE)
    return [_to_view(row) for row in unit.rows(select_page(live, views.c.name, after, count))]


def swap(unit: Unit, home: Namespace, judged: ViewRow, to: Pointer, *, location: str) -> ViewRow:
    """Make the metadata file `to` current. Raises `namespace_moved` or `view_moved` if namespace or row has changed."""
    namespaces.require_unchanged(unit, home)
    require_unchanged(unit, judged)
    sha256 = ids.require_sha256(to.sha256, "metadata hash")
    _change(unit, judged, metadata_location=to.location, metadata_sha256=sha256, location=location)
    return _get(unit, judged.view_id)


def rename(unit: Unit, judged: ViewRow, name: str, *, old_home: Namespace, new_home: Namespace) -> None:
    """Rename the view, perhaps into another namespace. Raises as `_require_free` for a taken name."""
    for home in sorted((old_home, new_home), key=lambda each: each.namespace_id):
        # Always in the same order, so that there is no deadlock.
        namespaces.require_unchanged(unit, home)
    unit.lock_name(f"names {new_home.namespace_id}")
    require_unchanged(unit, judged)
    _require_free(unit, new_home.namespace_id, name)
    _change(unit, judged, namespace_id=new_home.namespace_id, name=ids.require_name(name, "view name"))


def drop(unit: Unit, home: Namespace, judged: ViewRow) -> None:
    """Drop the view. Its row and its history stay."""
    namespaces.require_unchanged(unit, home)
    require_unchanged(unit, judged)
    _change(unit, judged, dropped_micros=unit.at_micros)


def require_unchanged(unit: Unit, judged: ViewRow) -> None:
    """Lock the row until the end of the unit. Raises `view_moved` if it is not `judged` any more."""
    row = unit.lock_row(views, view_id=judged.view_id)
    if row is None or row["dropped_micros"] is not None or _to_view(row) != judged:
        got = "none" if row is None else f"revision {row['revision']}"
        raise Code.VIEW_MOVED(expected=f"revision {judged.revision}", got=got)


def _require_free(unit: Unit, namespace_id: str, name: str) -> None:
    """Raise `view_exists`, `name_of_table` or `name_of_namespace` if the name is taken."""
    namespaces.require_no_child(unit, namespace_id, name)
    if find(unit, namespace_id, name) is not None:
        raise Code.ALREADY_EXISTS(f"View already exists: {name}", reason="view_exists")
    if tables.find(unit, namespace_id, name) is not None:
        raise Code.ALREADY_EXISTS(f"Table with same name already exists: {name}", reason="name_of_table")


def _get(unit: Unit, view_id: str) -> ViewRow:
    row = unit.find(views, view_id=view_id)
    if row is None:
        raise AssertionError("this transaction has written the row, but cannot find it")
    return _to_view(row)


def _change(unit: Unit, judged: ViewRow, **changed: object) -> None:
    unit.update(views, {"view_id": judged.view_id}, **changed, revision=judged.revision + 1)


def _to_view(row: Row) -> ViewRow:
    return record_from(ViewRow, row, pointer=Pointer(row["metadata_location"], row["metadata_sha256"]))
