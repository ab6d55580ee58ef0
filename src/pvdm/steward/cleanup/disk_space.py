"""How much room there is in the folders that the Steward uses on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pvdm.lake.paths import parse_location
from pvdm.lake.stores.stores import Place, place_of
from pvdm.steward.config.steward import StewardConfig


@dataclass(frozen=True, slots=True)
class Room:
    """The bytes of a folder's file system that are free to the Steward's user, and all that it has."""

    free_bytes: int
    size_bytes: int


def local_folders(config: StewardConfig, ledger_file: Path | None) -> dict[str, Path]:
    """Each folder on this machine by what it is for; what lies in an object store or a database server is not here."""
    places: dict[str, Place | None] = {
        "ledger": None if ledger_file is None else ledger_file.parent,
        "outside": config.outside_at or config.outside_path.parent,
        "archive": config.archive_at or config.archive,
        "temporary": Path(tempfile.gettempdir()),
    }
    if config.catalog is not None:
        places["warehouse"] = parse_location(config.catalog.warehouse)
        places |= {"metadata": config.catalog.metadata, "vault": config.catalog.vault}
    found = {name: place_of(place) for name, place in places.items() if place is not None}
    return {name: place.local for name, place in found.items() if place.scheme == "file"}


def measure_room(folders: Mapping[str, Path]) -> dict[str, Room]:
    """The room of each folder that is there; one that is missing has none, and readiness says so."""
    found = {}
    for name, folder in folders.items():
        try:
            facts = os.statvfs(folder)
        except OSError:
            continue
        found[name] = Room(facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize)
    return found
