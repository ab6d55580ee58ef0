"""The epoch book's revisions, oldest to newest, none ever changed: the newest is the one that counts."""

from __future__ import annotations

from sqlalchemy import select

from pvdm.ledger.schema.work import epoch_books
from pvdm.ledger.unit import Unit


def newest(unit: Unit) -> bytes | None:
    """The bytes of the newest book; None before the first."""
    row = unit.row(select(epoch_books).order_by(epoch_books.c.revision.desc()).limit(1))
    return None if row is None else bytes(row["book"])


def add(unit: Unit, revision: int, book: bytes) -> bool:
    """Keep this revision if the newest is the one just before it; says whether it did."""
    unit.lock_name("epoch book")
    row = unit.row(select(epoch_books.c.revision).order_by(epoch_books.c.revision.desc()).limit(1))
    if revision != (0 if row is None else row["revision"]) + 1:
        return False
    unit.insert(epoch_books, revision=revision, book=book)
    return True
