"""The catalog's desks, joined over one ledger, one folder of metadata files and one warehouse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pvdm.catalog.access import CatalogAccess
from pvdm.catalog.commit import Commits
from pvdm.catalog.namespaces import Namespaces
from pvdm.catalog.requests import Requests
from pvdm.catalog.shown import Shown
from pvdm.catalog.state import States
from pvdm.catalog.tables import Desks, Tables
from pvdm.lake.files import MetadataFiles
from pvdm.lake.paths import parse_location
from pvdm.store import Ledger
from pvdm.store.clock import LedgerClock


@dataclass(frozen=True, slots=True)
class Catalog:
    """One catalog: its name, its warehouse, and a desk for each kind of thing in it."""

    name: str
    warehouse: str
    namespaces: Namespaces
    tables: Tables
    requests: Requests
    commits: Commits
    states: States
    access: CatalogAccess
    shown: Shown


def open_catalog(ledger: Ledger, clock: LedgerClock, *, name: str, warehouse: str, metadata: Path) -> Catalog:
    """The catalog of a ledger."""
    place = parse_location(warehouse)
    files = MetadataFiles(metadata)
    states = States(ledger, files)
    access = CatalogAccess(ledger, place)
    commits = Commits(ledger, clock, files, states, access)
    spaces = Namespaces(ledger, clock, access)
    desk = Tables(Desks(ledger, clock, states, access, spaces, commits, place))
    shown = Shown(ledger, files)
    return Catalog(name, str(place), spaces, desk, Requests(ledger), commits, states, access, shown)
