"""Tables and views share the names of a namespace: what a new table, or the end of a namespace, asks about views."""

from __future__ import annotations

from sqlalchemy import select

from pvdm.errors import ConflictError
from pvdm.ledger.schema.views import views
from pvdm.ledger.unit import Unit


def has_views(unit: Unit, namespace_id: str) -> bool:
    """Whether a view lies in the namespace."""
    wanted = select(views.c.view_id).where(views.c.namespace_id == namespace_id, views.c.dropped_micros.is_(None))
    return unit.row(wanted.limit(1)) is not None


def require_no_view(unit: Unit, namespace_id: str, name: str) -> None:
    """No view has the name; the caller holds the names of the namespace."""
    wanted = select(views.c.view_id).where(
        views.c.namespace_id == namespace_id, views.c.name == name, views.c.dropped_micros.is_(None)
    )
    if unit.row(wanted) is not None:
        raise ConflictError("name_of_view", f"View with same name already exists: {name}")
