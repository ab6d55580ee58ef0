"""Places of the warehouse: where a new table or view lies, and which files may be read for one that is registered."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from pvdm.errors import InputError, UnavailableError
from pvdm.lake.format.json.document import METADATA_SIZE_MAX_BYTES
from pvdm.lake.paths import Location
from pvdm.lake.stores.local import NOT_PLAIN
from pvdm.lake.stores.store import read
from pvdm.lake.stores.stores import Stores
from pvdm.ledger.catalog.namespaces import Levels

_PLAIN: Final = re.compile(r"[^A-Za-z0-9_-]")
_FOLDER_CHARACTERS: Final = 64
_DIGEST_CHARACTERS: Final = 32


def own_place(warehouse: Location, levels: Levels, name: str, uuid: str) -> Location:
    """A folder that nothing had before: names come again, and files of a dropped table may still lie there."""
    folder = _PLAIN.sub("_", name)[:_FOLDER_CHARACTERS]
    return home_of(warehouse, levels).child(f"{folder}-{uuid.replace('-', '')}")


def home_of(warehouse: Location, levels: Levels) -> Location:
    """The folder of a namespace, which no other namespace has: what lies in it is its domain's alone."""
    return warehouse.child(*(_level_folder(level) for level in levels))


def _level_folder(level: str) -> str:
    """A plain name is its own folder; any other is told apart by its hash, after a dot that no plain name has."""
    plain = _PLAIN.sub("_", level)
    if plain == level and len(level) <= _FOLDER_CHARACTERS:
        return level
    digest = hashlib.sha256(level.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{plain[: _FOLDER_CHARACTERS - _DIGEST_CHARACTERS - 1]}.{digest}"


def is_inside(warehouse: Location, place: Location) -> bool:
    """In the warehouse by its name and, for a local file, where its links lead to."""
    if not place.is_under(warehouse):
        return False
    return place.scheme != "file" or place.local.resolve().is_relative_to(warehouse.local.resolve())


def read_metadata(place: Location, stores: Stores) -> bytes:
    """The bytes of a metadata file that somebody else wrote."""
    try:
        return read(stores.of(place), place, METADATA_SIZE_MAX_BYTES)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in NOT_PLAIN:
            raise InputError("metadata_location_missing", "there is no metadata file", got=str(place)[:200]) from None
        raise UnavailableError(
            "metadata_files_unavailable", f"the metadata file cannot be read: {error.strerror}"
        ) from None
