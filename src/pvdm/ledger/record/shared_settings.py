"""What all Stewards of one ledger share: the common settings, which are one row, and the epoch book."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import select, update

from pvdm.ledger.connection import record_from
from pvdm.ledger.schema.record import epoch_books, shared_settings
from pvdm.ledger.unit import Unit

_LOCK: Final = "common settings"
_ROW: Final = 1
_ALL: Final = select(shared_settings)


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """Names and folders as text. None if no Steward of the ledger has set it yet."""

    notary: str
    origin: str
    catalog: str | None = None
    warehouse: str | None = None
    metadata: str | None = None
    vault: str | None = None


def find_settings(unit: Unit) -> SharedSettings | None:
    """The stored settings, or None."""
    row = unit.row(_ALL)
    return None if row is None else record_from(SharedSettings, row)


def lock_settings(unit: Unit) -> None:
    """Lock the settings until the end of the unit."""
    unit.lock_name(_LOCK)


def put_settings(unit: Unit, settings: SharedSettings) -> None:
    """Store the settings. A rule of the table keeps the notary's first name."""
    values = asdict(settings)
    if not unit.insert_new(shared_settings, settings_id=_ROW, **values):
        unit.execute(update(shared_settings).values(**values, at_micros=unit.at_micros))


def set_log_origin(unit: Unit, origin: str) -> None:
    """Change the log's origin. Without stored settings nothing changes."""
    wanted = update(shared_settings).where(shared_settings.c.origin != origin)
    unit.execute(wanted.values(origin=origin, at_micros=unit.at_micros))


def newest_epoch_book(unit: Unit) -> bytes | None:
    """The bytes of the newest epoch book, or None. Revisions are never changed."""
    row = unit.row(select(epoch_books).order_by(epoch_books.c.revision.desc()).limit(1))
    return None if row is None else bytes(row["book"])


def add_epoch_book(unit: Unit, revision: int, book: bytes) -> bool:
    """Store this revision if the newest is the one just before it. Returns whether it did."""
    unit.lock_name("epoch book")
    row = unit.row(select(epoch_books.c.revision).order_by(epoch_books.c.revision.desc()).limit(1))
    if revision != (0 if row is None else row["revision"]) + 1:
        return False
    unit.insert(epoch_books, revision=revision, book=book)
    return True
