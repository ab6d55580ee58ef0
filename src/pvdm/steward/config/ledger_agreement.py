"""Compares the configuration with the ledger: the settings its Stewards share, and where its tables lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Final

from sqlalchemy import func, select

from pvdm.errors import Code, PvdmError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.stores import place_of
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import shared_settings
from pvdm.ledger.record.shared_settings import SharedSettings
from pvdm.ledger.schema.catalog import tables as tables_table
from pvdm.ledger.schema.catalog import views
from pvdm.ledger.schema.work import verified
from pvdm.steward.config.steward import CatalogConfig, StewardConfig

# Each with its name in steward.toml.
_NAMES: Final = {"notary": "notary", "origin": "origin"}
_CATALOG: Final = {
    "catalog": "name under [catalog]",
    "warehouse": "warehouse under [catalog]",
    "metadata": "metadata under [catalog]",
    "vault": "vault under [catalog]",
}
_LOOKED_AT: Final = 1_000
# root/<table UUID>/<file>, and root/<table UUID>/metadata/<file>.
_BELOW_METADATA: Final = 2
_BELOW_VAULT: Final = 3


def require_common(ledger: Ledger, config: StewardConfig, *, making: bool = False, renaming: bool = False) -> bool:
    """Compare the configuration with the settings that the ledger stores; returns whether all of them are stored.

    Raises UnavailableError (`steward_differs`). `making`: the catalog's settings may change while the catalog is empty.
    `renaming`: the log's name is not compared, since a restore judges it itself.
    """
    wanted = _settings(ledger, config)
    with ledger.read() as unit:
        known = shared_settings.find_settings(unit)
        if known is not None and renaming:
            known = replace(known, origin=wanted.origin)
        return _merge_settings(unit, known, wanted, making=making) == known


def keep_common(ledger: Ledger, config: StewardConfig, *, at_micros: int, making: bool = False) -> None:
    """Store the settings that this configuration is the first to name; a concurrent different one is refused."""
    wanted = _settings(ledger, config)

    def work(unit: Unit) -> None:
        shared_settings.lock_settings(unit)
        known = shared_settings.find_settings(unit)
        joined = _merge_settings(unit, known, wanted, making=making)
        if joined != known:
            shared_settings.put_settings(unit, joined)

    ledger.transact(work, at_micros=at_micros)


def _settings(ledger: Ledger, config: StewardConfig) -> SharedSettings:
    """The settings to compare; folders only on PostgreSQL, since one process serves a SQLite ledger."""
    catalog = config.catalog
    shared = SharedSettings(config.notary, config.origin, catalog=catalog.name)
    if ledger.file is not None:
        return shared
    return replace(
        shared,
        warehouse=str(parse_location(catalog.warehouse)),
        metadata=str(place_of(catalog.metadata)),
        vault=str(place_of(catalog.vault)),
    )


def _merge_settings(
    unit: Unit, known: SharedSettings | None, wanted: SharedSettings, *, making: bool
) -> SharedSettings:
    """The stored settings with the configured ones; raises `steward_differs` where they conflict."""
    if known is None:
        return wanted
    named = {each: getattr(wanted, each) for each in (*_NAMES, *_CATALOG) if getattr(wanted, each) is not None}
    for each, now in named.items():
        before = getattr(known, each)
        if before is None or before == now:
            continue
        # A catalog that never had a table or view, an upstream's included, may move.
        rows = (unit.row(select(column).limit(1)) for column in (tables_table.c.table_id, views.c.view_id))
        if not (making and each in _CATALOG and all(row is None for row in rows)):
            raise _differs_error(each, before, now)
    return replace(known, **named)


def _differs_error(name: str, before: str, now: str) -> PvdmError:
    hint = "nothing was changed; write the expected value into steward.toml, or name another ledger"
    if name == "origin":
        hint += "; where the log's end is lost, only `pvdm steward restore --lost-origin` gives it a new one"
    if name in _CATALOG:
        hint += "; while the catalog is empty, `pvdm steward init` takes the new one, with every Steward stopped"
    return Code.STEWARD_FOLDER_UNAVAILABLE(
        f"the Stewards of this ledger have another {(_NAMES | _CATALOG)[name]}",
        reason="steward_differs",
        expected=before,
        got=now,
        hint=hint,
    )


def require_in_place(ledger: Ledger, catalog: CatalogConfig) -> None:
    """Require that metadata, vault and warehouse are the folders that the ledger's tables lie in.

    Raises UnavailableError (`steward_folders_moved`): metadata names files by full paths, so no table could be read.
    """
    checks: tuple[tuple[str, Location, Callable[[Unit, Location], Location | None]], ...] = (
        ("metadata", place_of(catalog.metadata), _metadata_elsewhere),
        ("vault", place_of(catalog.vault), _vault_elsewhere),
        ("warehouse", parse_location(catalog.warehouse), _warehouse_lost),
    )
    with ledger.read() as unit:
        for name, named, find_elsewhere in checks:
            there = find_elsewhere(unit, named)
            if there is not None:
                raise Code.STEWARD_FOLDER_UNAVAILABLE(
                    f"the tables of this ledger do not lie in the {name} folder that steward.toml names",
                    reason="steward_folders_moved",
                    expected=str(there),
                    got=str(named),
                    hint="nothing was changed; tables name their files by full paths, so bring the folder back to its "
                    f"old path, or mount it there, and name that path as `{name}` under [catalog]",
                )


def _metadata_elsewhere(unit: Unit, root: Location) -> Location | None:
    """The folder of a metadata file that lies elsewhere; None if there is none."""
    prefix, column = f"{root}/", tables_table.c.metadata_location
    wanted = select(column.label("found")).where(
        tables_table.c.upstream.is_(None),
        tables_table.c.dropped_micros.is_(None),
        func.substr(column, 1, len(prefix)) != prefix,
    )
    row = unit.row(wanted.limit(1))
    return None if row is None else _ancestor(parse_location(row["found"]), _BELOW_METADATA)


def _vault_elsewhere(unit: Unit, root: Location) -> Location | None:
    """The folder of the newest verified manifest, if it lies elsewhere."""
    wanted = select(verified.c.location.label("found")).where(verified.c.location.is_not(None))
    row = unit.row(wanted.order_by(verified.c.at_micros.desc()).limit(1))
    if row is None or parse_location(row["found"]).is_under(root):
        return None
    return _ancestor(parse_location(row["found"]), _BELOW_VAULT)


def _warehouse_lost(unit: Unit, root: Location) -> Location | None:
    """A table's folder, if no table lies in the warehouse and none of the tables' folders exists.

    One table proves nothing: it may lie outside of the warehouse, or have no files and so no folder.
    """
    live = [each for each in tables.list_live(unit) if each.upstream is None]
    places = [parse_location(each.location) for each in islice(live, _LOOKED_AT)]
    if root.scheme != "file" or any(each.is_under(root) or each.scheme != "file" for each in places):
        return None
    return None if not places or any(each.local.is_dir() for each in places) else places[0]


def _ancestor(place: Location, levels: int) -> Location:
    return Location(place.scheme, place.authority, place.parts[:-levels])
