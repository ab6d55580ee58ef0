"""What all Stewards of one ledger have in common, as the ledger remembers it: one row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import select, update

from pvdm.ledger.schema.work import common_settings
from pvdm.ledger.unit import Unit

_LOCK: Final = "common settings"
_ROW: Final = 1
_ALL: Final = select(common_settings)


@dataclass(frozen=True, slots=True)
class CommonSettings:
    """Names and folders as text; None is what no Steward of the ledger has named yet."""

    notary: str
    origin: str
    catalog: str | None = None
    warehouse: str | None = None
    metadata: str | None = None
    vault: str | None = None


def get(unit: Unit) -> CommonSettings | None:
    """What is kept, if a Steward was made on this ledger."""
    row = unit.row(_ALL)
    return None if row is None else CommonSettings(**{name: row[name] for name in CommonSettings.__slots__})


def lock(unit: Unit) -> None:
    """Nobody else changes them until this unit ends, so that what is compared is what is kept."""
    unit.lock_name(_LOCK)


def put(unit: Unit, settings: CommonSettings) -> None:
    """Keep these; the notary's name stays as it was first kept, by a rule of the table."""
    values = asdict(settings)
    if not unit.insert_new(common_settings, settings_id=_ROW, **values):
        unit.execute(update(common_settings).values(**values, at_micros=unit.at_micros))


def name_log(unit: Unit, origin: str) -> None:
    """The log goes on under this name; where nothing is kept yet, nothing is to change."""
    wanted = update(common_settings).where(common_settings.c.origin != origin)
    unit.execute(wanted.values(origin=origin, at_micros=unit.at_micros))
