"""Compares the configuration with the ledger: the settings that its Stewards share, and the folders of its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from typing import Final

from sqlalchemy import func, select

from pvdm.errors import Code, PvdmError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.stores import location_of
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import shared_settings
from pvdm.ledger.record.shared_settings import SharedSettings
from pvdm.ledger.schema.catalog import tables as tables_table
from pvdm.ledger.schema.catalog import views
from pvdm.ledger.schema.work import verified
from pvdm.steward.config.steward import CatalogConfig, StewardConfig

# Fields of SharedSettings with their names in steward.toml: at the top of the file, and under [catalog].
_LOG_SETTINGS: Final = {"notary": "notary", "origin": "origin"}
_CATALOG_SETTINGS: Final = {"catalog": "name", "warehouse": "warehouse", "metadata": "metadata", "vault": "vault"}
_WAREHOUSE_TABLES_MAX: Final = 1_000  # so many tables are compared with the warehouse
# Levels below the root: root/<table UUID>/<file>, and root/<table UUID>/metadata/<file>.
_METADATA_FILE_DEPTH: Final = 2
_VAULT_FILE_DEPTH: Final = 3


def require_shared_settings(
    ledger: Ledger, config: StewardConfig, *, creating: bool = False, ignores_origin: bool = False
) -> bool:
    """Return whether the ledger has every configured setting. Raises `steward_differs` if one has another value.

    `creating`: the catalog's settings may change if the catalog never had a table or view.
    `ignores_origin`: the log's name is not compared, since a restore checks it itself.
    """
    configured = _configured_settings(ledger, config)
    with ledger.read() as unit:
        stored = shared_settings.find_settings(unit)
        if stored is not None and ignores_origin:
            stored = replace(stored, origin=configured.origin)
        return _merge_settings(unit, stored, configured, creating=creating) == stored


def store_shared_settings(ledger: Ledger, config: StewardConfig, *, at_micros: int, creating: bool = False) -> None:
    """Store the settings that the ledger lacks. Raises `steward_differs` if a stored one has another value."""
    configured = _configured_settings(ledger, config)

    def work(unit: Unit) -> None:
        shared_settings.lock_settings(unit)
        stored = shared_settings.find_settings(unit)
        merged = _merge_settings(unit, stored, configured, creating=creating)
        if merged != stored:
            shared_settings.put_settings(unit, merged)

    ledger.transact(work, at_micros=at_micros)


def _configured_settings(ledger: Ledger, config: StewardConfig) -> SharedSettings:
    """The configured settings to compare; folders only on PostgreSQL, since a SQLite ledger has only one Steward."""
    catalog = config.catalog
    shared = SharedSettings(config.notary, config.origin, catalog=catalog.name)
    if ledger.file is not None:
        return shared
    return replace(
        shared,
        warehouse=str(parse_location(catalog.warehouse)),
        metadata=str(location_of(catalog.metadata)),
        vault=str(location_of(catalog.vault)),
    )


def _merge_settings(
    unit: Unit, stored: SharedSettings | None, configured: SharedSettings, *, creating: bool
) -> SharedSettings:
    """The stored settings, completed with the configured ones. Raises `steward_differs` if they conflict.

    With `creating`, settings of a catalog that never had a table or view are replaced instead.
    """
    if stored is None:
        return configured
    to_store = {name: value for name, value in asdict(configured).items() if value is not None}
    for name, value in to_store.items():
        stored_value = getattr(stored, name)
        if stored_value is None or stored_value == value:
            continue
        # Rows of dropped tables and views stay, so without a row the catalog never had a table or view.
        is_new = all(unit.row(select(each).limit(1)) is None for each in (tables_table.c.table_id, views.c.view_id))
        may_change = creating and is_new and name in _CATALOG_SETTINGS
        if not may_change:
            raise _differs_error(name, stored_value, value)
    return replace(stored, **to_store)


def _differs_error(name: str, stored: str, configured: str) -> PvdmError:
    hint = "nothing was changed; write the expected value into steward.toml, or name another ledger"
    setting = _LOG_SETTINGS.get(name) or f"{_CATALOG_SETTINGS[name]} under [catalog]"
    if name == "origin":
        hint += "; if the end of the log is lost, only `pvdm steward restore --lost-origin` sets a new origin"
    if name in _CATALOG_SETTINGS:
        hint += "; if the catalog never had a table or view, stop every Steward and run `pvdm steward init` again"
    return Code.STEWARD_FOLDER_UNAVAILABLE(
        f"the Stewards of this ledger have another {setting}",
        reason="steward_differs",
        expected=stored,
        got=configured,
        hint=hint,
    )


def require_table_folders(ledger: Ledger, catalog: CatalogConfig) -> None:
    """Raise `steward_folders_moved` if the ledger's tables seem to lie in other folders than the configured ones.

    After a move no table can be read, since metadata names files by full paths. This compares the paths of live tables'
    metadata files (without an upstream's tables), and of the newest verified manifest in the vault. The warehouse is
    accepted if a table's location is in it, or if a table's folder exists.
    """
    checks: tuple[tuple[str, Location, Callable[[Unit, Location], str | None]], ...] = (
        ("metadata", location_of(catalog.metadata), _find_metadata_elsewhere),
        ("vault", location_of(catalog.vault), _find_vault_elsewhere),
        ("warehouse", parse_location(catalog.warehouse), _find_lost_warehouse),
    )
    with ledger.read() as unit:
        for name, configured, find_expected in checks:
            expected = find_expected(unit, configured)
            if expected is not None:
                raise Code.STEWARD_FOLDER_UNAVAILABLE(
                    f"the tables of this ledger do not lie in the {name} folder that steward.toml names",
                    reason="steward_folders_moved",
                    expected=expected,
                    got=str(configured),
                    hint="nothing was changed; tables name their files by full paths, so bring the folder back to its "
                    f"old path, or mount it there, and name that path as `{name}` under [catalog]",
                )


def _find_metadata_elsewhere(unit: Unit, root: Location) -> str | None:
    """The metadata folder of a table whose metadata file is not under `root`; None if there is no such table."""
    prefix, column = f"{root}/", tables_table.c.metadata_location
    elsewhere = select(column.label("location")).where(
        tables_table.c.upstream.is_(None),
        tables_table.c.dropped_micros.is_(None),
        func.substr(column, 1, len(prefix)) != prefix,
    )
    row = unit.row(elsewhere.limit(1))
    return None if row is None else _ancestor(parse_location(row["location"]), _METADATA_FILE_DEPTH)


def _find_vault_elsewhere(unit: Unit, root: Location) -> str | None:
    """The vault of the newest verified manifest, if the manifest is not under `root`; else None."""
    locations = select(verified.c.location).where(verified.c.location.is_not(None))
    row = unit.row(locations.order_by(verified.c.at_micros.desc()).limit(1))
    if row is None or parse_location(row["location"]).is_under(root):
        return None
    return _ancestor(parse_location(row["location"]), _VAULT_FILE_DEPTH)


def _find_lost_warehouse(unit: Unit, root: Location) -> str | None:
    """Describe the expected warehouse if no table is in `root` and no table's folder exists; else None.

    One missing folder proves nothing: a table may lie elsewhere, or have no files. Object stores are not checked.
    """
    live = [each for each in tables.list_live(unit) if each.upstream is None]
    places = [parse_location(each.location) for each in islice(live, _WAREHOUSE_TABLES_MAX)]
    if root.scheme != "file" or any(each.is_under(root) or each.scheme != "file" for each in places):
        return None
    is_lost = places and not any(each.local.is_dir() for each in places)
    return f"a folder that contains {places[0]}" if is_lost else None


def _ancestor(location: Location, levels: int) -> str:
    return str(Location(location.scheme, location.authority, location.parts[:-levels]))
