"""The freeze: size and SHA-256 of every file, and one root over them, before any key is derived."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pvdm.digest.sharing import mapped
from pvdm.errors import Code, VerificationError
from pvdm.lake.paths import parse_location
from pvdm.verify.fetch import Files, Seen

_DOMAIN: Final = b"pvdm/freeze/v1\0"


@dataclass(frozen=True, slots=True)
class Freeze:
    """Every file by its location, and the root that stands for all of them."""

    files: Mapping[str, Seen]
    root: str


def freeze(locations: Iterable[str], files: Files, *, threads: int = 1) -> Freeze:
    """Hash every file; two names of one file are refused, for then a row would count twice."""
    listed = sorted(locations)
    _require_distinct(listed)
    seen = mapped(threads, files.hash, listed)
    return Freeze(MappingProxyType({each.location: each for each in seen}), root_of(seen))


def freeze_found(
    locations: Iterable[str], files: Files, *, threads: int = 1, pinned: bool = False
) -> tuple[Freeze, dict[str, VerificationError]]:
    """The freeze of what can be hashed, and why each of the others cannot; two names of one file are refused.

    `pinned` files are held to the version that the store shows as well.
    """
    listed = sorted(locations)
    _require_distinct(listed)

    def hashed(location: str) -> Seen | VerificationError:
        try:
            return files.hash(location, pinned=pinned)
        except VerificationError as error:
            return error

    found = dict(zip(listed, mapped(threads, hashed, listed), strict=True))
    seen = {location: each for location, each in found.items() if isinstance(each, Seen)}
    refused = {location: each for location, each in found.items() if isinstance(each, VerificationError)}
    return Freeze(MappingProxyType(seen), root_of(seen.values())), refused


def root_of(seen: Iterable[Seen]) -> str:
    """SHA-256 over the files in the order of their locations, each field with its length before it."""
    digest = hashlib.sha256(_DOMAIN)
    for each in sorted(seen, key=lambda file: file.location):
        for field in (each.location.encode(), str(each.size).encode(), bytes.fromhex(each.sha256)):
            digest.update(len(field).to_bytes(8, "big") + field)
    return digest.hexdigest()


def _require_distinct(locations: list[str]) -> None:
    places: dict[str, str] = {}
    for location in locations:
        place = str(parse_location(location))
        if place in places:
            raise Code.FILE_MISMATCH("a file is listed twice", reason="file_listed_twice", got=location)
        places[place] = location
