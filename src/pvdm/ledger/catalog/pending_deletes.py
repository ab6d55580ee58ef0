"""Metadata files that are to go: a name that stands here is never pointed to, however late somebody wakes up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select

from pvdm.errors import ConflictError
from pvdm.ledger import ids
from pvdm.ledger.schema.catalog import doomed_files
from pvdm.ledger.unit import Unit

_BY_NAME: Final = select(doomed_files.c.name).where(doomed_files.c.name == bindparam("of_name"))


def add(unit: Unit, table_uuid: str, names: Sequence[str]) -> None:
    """These may be removed as soon as this is committed; the caller holds the table's lock (`tables.lock`).

    Rows stay for ever: a commit may sleep for any time between its file and its swap.
    """
    for name in names:
        unit.insert_new(
            doomed_files, name=ids.name(name, "file name"), table_uuid=ids.name(table_uuid.lower(), "table UUID")
        )


def require_none(unit: Unit, names: Sequence[str]) -> None:
    """A document whose file may be gone is not shown: its writer writes another; under the table's lock as well."""
    if any(unit.row(_BY_NAME, of_name=name) is not None for name in names):
        raise ConflictError("table_moved", "the new document lay until it was swept", expected="one just written")
