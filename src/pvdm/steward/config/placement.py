"""Whether the catalog's folders are where the tables of the ledger lie: their documents name files by full paths."""

from __future__ import annotations

from itertools import islice
from typing import Final

from sqlalchemy import func, select

from pvdm.errors import UnavailableError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.stores import place_of
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.schema.catalog import tables as tables_table
from pvdm.ledger.schema.work import verified
from pvdm.steward.config.steward import CatalogConfig

_LOOKED_AT: Final = 1_000
# root/<table UUID>/<file>, and root/<table UUID>/metadata/<file>.
_BELOW_METADATA: Final = 2
_BELOW_VAULT: Final = 3


def require_in_place(ledger: Ledger, catalog: CatalogConfig) -> None:
    """Metadata, vault and warehouse are the folders that the ledger's tables lie in.

    Raises UnavailableError (`steward_folders_moved`): with other folders no table could be read, and new files would be
    written beside the old ones.
    """
    with ledger.read() as unit:
        elsewhere = _metadata_elsewhere(unit, place_of(catalog.metadata))
        if elsewhere is not None:
            raise _moved("metadata", elsewhere, place_of(catalog.metadata))
        elsewhere = _vault_elsewhere(unit, place_of(catalog.vault))
        if elsewhere is not None:
            raise _moved("vault", elsewhere, place_of(catalog.vault))
        lost = _warehouse_lost(unit, parse_location(catalog.warehouse))
        if lost is not None:
            raise _moved("warehouse", lost, parse_location(catalog.warehouse))


def _metadata_elsewhere(unit: Unit, root: Location) -> Location | None:
    """Where the metadata file of some table lies, if that is not the folder."""
    prefix, column = f"{root}/", tables_table.c.metadata_location
    wanted = select(column.label("found")).where(
        tables_table.c.upstream.is_(None),
        tables_table.c.dropped_micros.is_(None),
        func.substr(column, 1, len(prefix)) != prefix,
    )
    row = unit.row(wanted.limit(1))
    return None if row is None else _above(parse_location(row["found"]), _BELOW_METADATA)


def _vault_elsewhere(unit: Unit, root: Location) -> Location | None:
    """Where the newest verified manifest lies, if that is not the folder."""
    wanted = select(verified.c.location.label("found")).where(verified.c.location.is_not(None))
    row = unit.row(wanted.order_by(verified.c.at_micros.desc()).limit(1))
    if row is None or parse_location(row["found"]).is_under(root):
        return None
    return _above(parse_location(row["found"]), _BELOW_VAULT)


def _warehouse_lost(unit: Unit, root: Location) -> Location | None:
    """A table's folder, if no table lies in the warehouse and none of their folders is there.

    Tables may lie outside of the warehouse, and a table without files has no folder: only all together say that the
    warehouse was moved.
    """
    live = [each for each in tables.list_live(unit) if each.upstream is None]
    places = [parse_location(each.location) for each in islice(live, _LOOKED_AT)]
    if root.scheme != "file" or any(each.is_under(root) or each.scheme != "file" for each in places):
        return None
    return None if not places or any(each.local.is_dir() for each in places) else places[0]


def _above(place: Location, levels: int) -> Location:
    return Location(place.scheme, place.authority, place.parts[:-levels])


def _moved(name: str, there: Location, named: Location) -> UnavailableError:
    return UnavailableError(
        "steward_folders_moved",
        f"the tables of this ledger do not lie in the {name} folder that steward.toml names",
        expected=str(there),
        got=str(named),
        hint="nothing was changed; tables name their files by full paths, so bring the folder back to its old path, "
        f"or mount it there, and name that path as `{name}` under [catalog]",
    )
