"""Names of namespaces and tables, and their places in the warehouse."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json_document import METADATA_SIZE_MAX_BYTES
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import NOT_PLAIN_ERRNOS
from pvdm.lake.stores.store import read
from pvdm.lake.stores.stores import Stores
from pvdm.ledger.catalog.namespaces import NAMESPACE_LEVELS_MAX, Levels
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant
from pvdm.model import canonical_json

NAME_MAX_CHARACTERS: Final = 255
SEPARATOR: Final = "\x1f"

_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f]|[\ud800-\udfff]")  # control characters and lone surrogates
_UNSAFE_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_-]")
_FOLDER_CHARACTERS: Final = 64
_HASH_CHARACTERS: Final = 32
# The properties by which engines put a table's files elsewhere than below its location.
WRITE_PATHS: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


def parse_levels(text: str) -> Levels:
    """The levels of a namespace from a path or query, where the unit separator joins them."""
    return require_levels(text.split(SEPARATOR))


def require_levels(levels: list[str]) -> Levels:
    """The levels, if each is a valid name. Raises `namespace_invalid` or `name_invalid`."""
    if not 1 <= len(levels) <= NAMESPACE_LEVELS_MAX:
        raise Code.NAMESPACE_INVALID(expected=f"1 to {NAMESPACE_LEVELS_MAX} levels", got=str(len(levels)))
    return tuple(require_name(level, "a level of the namespace") for level in levels)


def full_name(parts: Sequence[str]) -> str:
    """A namespace's levels, or levels and a table, as one text: dotted, or a JSON array if dots would be ambiguous."""
    dotted = ".".join(parts)
    is_ambiguous = any("." in part for part in parts) or dotted.startswith("[")
    return canonical_json.dump(list(parts)).decode() if is_ambiguous else dotted


def parse_full_name(text: str) -> Levels:
    """The parts of a full name, each a valid name."""
    parts: list[str]
    if text.startswith("["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, list) or not all(isinstance(part, str) for part in parsed):
            expected = "parts joined by dots, or a JSON array of them"
            raise Code.IDENTIFIER_INVALID(reason="name_invalid", expected=expected, got=ascii(text[:80]))
        parts = parsed
    else:
        parts = text.split(".")
    return tuple(require_name(part, "a part of the name") for part in parts)


def require_name(name: str, what: str) -> str:
    """The name, if it is valid: not empty, not too long, no control characters, not dots alone.

    Dots and slashes inside are allowed. Clients remove a segment of dots from a path, so such a name has no address.
    """
    is_sized = 0 < len(name) <= NAME_MAX_CHARACTERS
    if not is_sized or _FORBIDDEN.search(name) or name.strip() != name or not name.strip("."):
        message = f"{what} cannot be accepted"
        expected = f"1 to {NAME_MAX_CHARACTERS} characters without control characters or outer spaces, not dots alone"
        raise Code.IDENTIFIER_INVALID(message, reason="name_invalid", expected=expected, got=ascii(name[:80]))
    return name


def new_place(warehouse: Location, levels: Levels, name: str, uuid: str) -> Location:
    """A new folder for a table or view. Its name has the UUID, since an earlier table may have had the same name."""
    folder = _UNSAFE_CHARACTER.sub("_", name)[:_FOLDER_CHARACTERS]
    return namespace_folder(warehouse, levels).child(f"{folder}-{uuid.replace('-', '')}")


def namespace_folder(warehouse: Location, levels: Levels) -> Location:
    """The folder of a namespace, which no other namespace has. It belongs to the namespace's domain."""
    return warehouse.child(*(_level_folder(level) for level in levels))


def _level_folder(level: str) -> str:
    """The folder of one level: the name if it is short and safe, else the start of it, a dot and its hash."""
    safe = _UNSAFE_CHARACTER.sub("_", level)
    if safe == level and len(level) <= _FOLDER_CHARACTERS:
        return level
    name_hash = hashlib.sha256(level.encode()).hexdigest()[:_HASH_CHARACTERS]
    return f"{safe[: _FOLDER_CHARACTERS - _HASH_CHARACTERS - 1]}.{name_hash}"


def is_inside(warehouse: Location, place: Location) -> bool:
    """Whether the place is in the warehouse by its name and, for a local file, after resolving links."""
    return place.is_under(warehouse) and place.without_links.is_under(warehouse.without_links)


def read_metadata(place: Location, stores: Stores) -> bytes:
    """The bytes of a metadata file that another catalog wrote. Raises if no plain file is there."""
    try:
        return read(stores.for_reading(place), place, METADATA_SIZE_MAX_BYTES)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in NOT_PLAIN_ERRNOS:
            raise Code.LOCATION_INVALID(reason="metadata_location_missing", got=str(place)[:200]) from None
        message = f"the metadata file cannot be read: {error.strerror}"
        raise Code.STORAGE_UNAVAILABLE(message, reason="metadata_files_unavailable") from None


def require_domain_place(
    grant: Grant, place: Location, warehouse: Location, owners: Sequence[tuple[Levels, str]]
) -> None:
    """Raise if the place is in a folder of another domain's namespace, or contains such a folder.

    A place in the warehouse but in no namespace's folder is refused too: it may become another domain's. A grant of
    every domain may use any place. `owners` has the levels and the domain of every namespace.
    """
    if grant.domain == EVERY_DOMAIN:
        return
    folders = [(namespace_folder(warehouse, levels), domain) for levels, domain in owners]
    owned = [(path, domain) for folder, domain in folders for path in {folder, folder.without_links}]
    for path in {place, place.without_links}:
        above = [(folder, domain) for folder, domain in owned if path.is_under(folder) and path != folder]
        _, owner = max(above, key=lambda pair: len(pair[0].parts), default=(None, None))  # innermost folder's domain
        in_warehouse = any(path.overlaps(root) for root in {warehouse, warehouse.without_links})
        contains_foreign = any(folder.is_under(path) and domain != grant.domain for folder, domain in owned)
        if contains_foreign or (in_warehouse and owner is None) or (owner is not None and owner != grant.domain):
            expected = f"a place in a namespace's folder of the domain {grant.domain}, or outside the warehouse"
            raise Code.LOCATION_OF_OTHER_DOMAIN(expected=expected, got=str(place)[:200])


def changed_write_paths(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Location]:
    """The places in those properties of `WRITE_PATHS` that are new or changed. Raises InputError for an invalid one."""
    for key in WRITE_PATHS:
        if key in after and after[key] != before.get(key):
            yield parse_location(after[key])
