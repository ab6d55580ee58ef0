"""The catalog: its parts, built over one ledger, one folder of metadata files and one warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.access import CatalogAccess
from pvdm.catalog.cleanup import RetentionSweep, UnnamedSweep
from pvdm.catalog.commit import Commits
from pvdm.catalog.namespaces import Namespaces
from pvdm.catalog.requests import Requests
from pvdm.catalog.responses import ClientStorage, TableResponses
from pvdm.catalog.state import States
from pvdm.catalog.tables import CatalogParts, Tables
from pvdm.catalog.upstreams import Mount, Upstreams
from pvdm.catalog.views import Views
from pvdm.lake.files import MetadataFiles
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.roles import VendingSettings
from pvdm.lake.stores.stores import ConfiguredPath, Stores, location_of
from pvdm.lake.vault import VaultKind
from pvdm.ledger import Ledger
from pvdm.ledger.clock import LedgerClock

PUBLISHED_FOLDER: Final = "published"  # the folder of the metadata files that consumers load: nothing staged is in them
VIEWS_FOLDER: Final = "views"  # of views' metadata; separate, since a view may be registered with the UUID of a table


@dataclass(frozen=True, slots=True)
class Catalog:
    """One catalog: its name, its warehouse (the folder with the places of its tables) and its parts."""

    name: str
    warehouse: str
    namespaces: Namespaces
    tables: Tables
    views: Views
    requests: Requests
    commits: Commits
    states: States
    access: CatalogAccess
    responses: TableResponses
    unnamed_sweep: UnnamedSweep
    retention: RetentionSweep
    upstreams: Upstreams


@dataclass(frozen=True, slots=True)
class StewardPlaces:
    """Where the Steward keeps its own files: metadata files, the vault, and other places. No table may lie there."""

    metadata: ConfiguredPath
    vault: ConfiguredPath | None = None
    reserved: tuple[ConfiguredPath, ...] = ()


def open_catalog(
    ledger: Ledger,
    clock: LedgerClock,
    *,
    name: str,
    warehouse: str,
    steward_places: StewardPlaces,
    stores: Stores | None = None,
    vending: VendingSettings | None = None,
    mounts: Sequence[Mount] = (),
    metadata_kept_seconds: int = 0,
) -> Catalog:
    """Build the catalog of a ledger. Namespaces at or below one of `mounts` belong to an upstream catalog.

    No metadata file is deleted within `metadata_kept_seconds` after it was written.
    """
    warehouse_place, stores = parse_location(warehouse), stores or Stores()
    metadata_folder = location_of(steward_places.metadata)
    files = MetadataFiles(metadata_folder, stores)
    own_places = (steward_places.metadata, steward_places.vault, *steward_places.reserved)
    access = CatalogAccess(ledger, warehouse_place, *(location_of(each) for each in own_places if each is not None))
    upstreams = Upstreams(ledger, clock, mounts, access.require_upstream_place)
    states = States(ledger, files, upstreams)
    commits = Commits(ledger, clock, files, states, access, metadata_kept_seconds=metadata_kept_seconds)
    namespaces = Namespaces(ledger, clock, access, upstreams)
    parts = CatalogParts(ledger, clock, states, access, namespaces, commits, warehouse_place, stores)
    published = metadata_folder.child(PUBLISHED_FOLDER)
    vault = None if steward_places.vault is None else location_of(steward_places.vault)

    def readable_folders(uuid: str) -> tuple[Location, ...]:
        """The folders that the table's readers need: its published metadata, and its metadata and data in the vault."""
        copies = () if vault is None else (vault.child(uuid, VaultKind.METADATA), vault.child(uuid, VaultKind.DATA))
        return (published.child(uuid), *copies)

    storage = ClientStorage(ledger, stores.s3_settings, vending, readable_folders)
    responses = TableResponses(ledger, MetadataFiles(published, stores), storage)
    return Catalog(
        name,
        str(warehouse_place),
        namespaces,
        Tables(parts),
        Views(parts, MetadataFiles(metadata_folder.child(VIEWS_FOLDER), stores)),
        Requests(ledger),
        commits,
        states,
        access,
        responses,
        UnnamedSweep(ledger, clock, files),
        RetentionSweep(ledger, states, files, kept_seconds=metadata_kept_seconds),
        upstreams,
    )
