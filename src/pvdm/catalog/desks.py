"""The catalog's desks, joined over one ledger, one folder of metadata files and one warehouse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.catalog.access import CatalogAccess
from pvdm.catalog.commit import Commits
from pvdm.catalog.namespaces import Namespaces
from pvdm.catalog.orphans import Orphans
from pvdm.catalog.requests import Requests
from pvdm.catalog.shown import Shown
from pvdm.catalog.state import States
from pvdm.catalog.tables import Desks, Tables
from pvdm.catalog.views import Views
from pvdm.lake.files import MetadataFiles
from pvdm.lake.paths import parse_location
from pvdm.store import Ledger
from pvdm.store.clock import LedgerClock

PUBLISHED_FOLDER: Final = "published"
"""Beside the tables' own folders: the files that consumers are pointed to, and nothing else."""
VIEWS_FOLDER: Final = "views"
"""Beside them too: a view may come with any UUID, a table's as well, and shares no folder with one."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """One catalog: its name, its warehouse, and a desk for each kind of thing in it."""

    name: str
    warehouse: str
    namespaces: Namespaces
    tables: Tables
    views: Views
    requests: Requests
    commits: Commits
    states: States
    access: CatalogAccess
    shown: Shown
    orphans: Orphans


def open_catalog(
    ledger: Ledger, clock: LedgerClock, *, name: str, warehouse: str, metadata: Path, vault: Path | None = None
) -> Catalog:
    """The catalog of a ledger; no table lies in the `vault`."""
    place = parse_location(warehouse)
    files = MetadataFiles(metadata)
    states = States(ledger, files)
    own = [parse_location(str(each.resolve())) for each in (metadata, vault) if each is not None]
    access = CatalogAccess(ledger, place, *own)
    commits = Commits(ledger, clock, files, states, access)
    spaces = Namespaces(ledger, clock, access)
    desks = Desks(ledger, clock, states, access, spaces, commits, place)
    shown = Shown(ledger, MetadataFiles(metadata / PUBLISHED_FOLDER))
    orphans = Orphans(ledger, clock, files)
    return Catalog(
        name,
        str(place),
        spaces,
        Tables(desks),
        Views(desks, MetadataFiles(metadata / VIEWS_FOLDER)),
        Requests(ledger),
        commits,
        states,
        access,
        shown,
        orphans,
    )
