"""What every Steward of one ledger must have in common: kept in the ledger by the first, compared by all others."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlalchemy import select

from pvdm.errors import UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.stores import place_of
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import shared_settings
from pvdm.ledger.record.shared_settings import SharedSettings
from pvdm.ledger.schema.catalog import tables, views
from pvdm.steward.config.steward import StewardConfig

# Each with its name in steward.toml.
_NAMES: Final = {"notary": "notary", "origin": "origin"}
_CATALOG: Final = {
    "catalog": "name under [catalog]",
    "warehouse": "warehouse under [catalog]",
    "metadata": "metadata under [catalog]",
    "vault": "vault under [catalog]",
}


def require_common(ledger: Ledger, config: StewardConfig, *, making: bool = False, renaming: bool = False) -> bool:
    """Nothing in the configuration differs from what the ledger's Stewards have in common; whether all of it is kept.

    Raises UnavailableError (`steward_differs`). `making`: the catalog's part may change until something lies in the
    catalog. `renaming`: a restore judges the log's name itself.
    """
    wanted = _settings(ledger, config)
    with ledger.read() as unit:
        known = shared_settings.find_settings(unit)
        if known is not None and renaming:
            known = replace(known, origin=wanted.origin)
        return _joined(unit, known, wanted, making=making) == known


def keep_common(ledger: Ledger, config: StewardConfig, *, at_micros: int, making: bool = False) -> None:
    """Keep what this configuration is the first to name; of two at once the second is refused if it differs."""
    wanted = _settings(ledger, config)

    def work(unit: Unit) -> None:
        shared_settings.lock_settings(unit)
        known = shared_settings.find_settings(unit)
        joined = _joined(unit, known, wanted, making=making)
        if joined != known:
            shared_settings.put_settings(unit, joined)

    ledger.transact(work, at_micros=at_micros)


def _settings(ledger: Ledger, config: StewardConfig) -> SharedSettings:
    """A SQLite ledger is served by one process: its folders may be moved until tables lie there, so none is kept."""
    names = SharedSettings(config.notary, config.origin)
    catalog = config.catalog
    if catalog is None:
        return names
    if ledger.file is not None:
        return replace(names, catalog=catalog.name)
    return replace(
        names,
        catalog=catalog.name,
        warehouse=str(parse_location(catalog.warehouse)),
        metadata=str(place_of(catalog.metadata)),
        vault=str(place_of(catalog.vault)),
    )


def _joined(unit: Unit, known: SharedSettings | None, wanted: SharedSettings, *, making: bool) -> SharedSettings:
    """What is kept, with what is named now."""
    if known is None:
        return wanted
    named = {each: getattr(wanted, each) for each in (*_NAMES, *_CATALOG) if getattr(wanted, each) is not None}
    for each, now in named.items():
        before = getattr(known, each)
        if before is None or before == now:
            continue
        if not (making and each in _CATALOG and _is_empty(unit)):
            raise _differs(each, before, now)
    return replace(known, **named)


def _is_empty(unit: Unit) -> bool:
    """Whether the catalog never knew a table or view, be it an upstream's: the vault holds manifests of those too."""
    found = (unit.row(select(each).limit(1)) for each in (tables.c.table_id, views.c.view_id))
    return all(row is None for row in found)


def _differs(name: str, before: str, now: str) -> UnavailableError:
    hint = "nothing was changed; write the expected value into steward.toml, or name another ledger"
    if name == "origin":
        hint += "; where the log's end is lost, only `pvdm steward restore --lost-origin` gives it a new one"
    if name in _CATALOG:
        hint += "; while the catalog is empty, `pvdm steward init` takes the new one, with every Steward stopped"
    return UnavailableError(
        "steward_differs",
        f"the Stewards of this ledger have another {(_NAMES | _CATALOG)[name]}",
        expected=before,
        got=now,
        hint=hint,
    )
