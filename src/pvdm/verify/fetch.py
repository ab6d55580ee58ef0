"""Fetches and freezes files: each is hashed before any key is derived, and fetched once into the Steward's memory."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pvdm.digest.sharing import mapped
from pvdm.errors import Code, PvdmError, VerificationError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import NOT_PLAIN
from pvdm.lake.stores.stores import Stores

FETCH_SIZE_MAX_BYTES: Final = 2_147_483_648
Fetch = Callable[[str], bytes]
"""Gives the bytes of the file at a location."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file's bytes and their SHA-256."""

    data: bytes
    sha256: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class HashedFile:
    """A file as it was hashed, without its bytes; `version` pins the version that the store showed."""

    location: str
    size: int
    sha256: str
    version: str | None = None


class Files:
    """Reads files from their stores; local links are not followed, and only plain files are read."""

    def __init__(self, stores: Stores | None = None) -> None:
        self.stores = stores or Stores()

    def fetch(self, location: str | Location, *, most: int = FETCH_SIZE_MAX_BYTES) -> Fetched:
        """Read the whole file into memory, once."""
        place = location if isinstance(location, Location) else parse_location(location)
        parts, digest = [], hashlib.sha256()
        version, pieces = self._reading(place, most)
        for piece in pieces:
            digest.update(piece)
            parts.append(piece)
        return Fetched(b"".join(parts), digest.hexdigest(), version)

    def fetch_frozen(self, frozen: HashedFile) -> Fetched:
        """Read a frozen file again; raises `file_changed` unless bytes and pinned version are those of the freeze."""
        try:
            fetched = self.fetch(frozen.location, most=frozen.size)
        except VerificationError as error:
            if error.code != Code.FILE_TOO_LARGE:
                raise
            raise _changed(frozen, f"more than {frozen.size} bytes") from None
        if (len(fetched.data), fetched.sha256) != (frozen.size, frozen.sha256):
            raise _changed(frozen, f"{len(fetched.data)} bytes, SHA-256 {fetched.sha256}")
        if frozen.version is not None and fetched.version != frozen.version:
            raise _changed(frozen, f"version {fetched.version}, not {frozen.version}")
        return fetched

    def require_version(self, frozen: HashedFile) -> None:
        """Require that the store shows the frozen version now; no bytes are read."""
        place = parse_location(frozen.location)
        with _store_errors(place):
            shown = self.stores.of(place).facts(place).version
        if shown != frozen.version:
            raise _changed(frozen, f"version {shown}, not {frozen.version}")

    def read(self, location: str, *, most: int) -> bytes:
        """Read the bytes of a metadata file of at most `most` bytes."""
        return b"".join(self._reading(parse_location(location), most)[1])

    def hash(self, location: str, *, pinned: bool = False) -> HashedFile:
        """Size and SHA-256 of a file, without keeping it; `pinned` adds the version that the store shows."""
        place = parse_location(location)
        size, digest = 0, hashlib.sha256()
        version, pieces = self._reading(place, FETCH_SIZE_MAX_BYTES)
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
        if pinned and version is None:
            raise Code.FILE_WITHOUT_VERSION(got=str(place))
        return HashedFile(location, size, digest.hexdigest(), version if pinned else None)

    def make_durable(self, locations: Sequence[str]) -> None:
        """Sync the files, so that they survive a power loss; a producer may have written them."""
        places = [parse_location(each) for each in locations]
        for scheme in sorted({each.scheme for each in places}):
            of_store = [each for each in places if each.scheme == scheme]
            with _store_errors(of_store[0]):
                self.stores.of(of_store[0]).make_durable(of_store)

    def end(self, location: str, size: int) -> bytes:
        """Read the last `size` bytes of a file, or all of a shorter one."""
        place = parse_location(location)
        with _store_errors(place):
            return self.stores.of(place).end(place, size)

    def _reading(self, place: Location, most: int) -> tuple[str | None, Iterator[bytes]]:
        with _store_errors(place):
            found = self.stores.of(place).reading(place)
        return found.version, self._pieces(place, found.pieces, most)

    def _pieces(self, place: Location, pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
        seen = 0
        with _store_errors(place):
            for piece in pieces:
                seen += len(piece)
                if seen > most:
                    raise Code.FILE_TOO_LARGE(expected=f"at most {most} bytes", got=str(place))
                yield piece


def fetch_source(files: Files, frozen: Iterable[HashedFile]) -> Fetch:
    """A function that fetches these frozen files of the source; any other location is `source_not_frozen`."""
    known = {each.location: each for each in frozen}

    def fetch(location: str) -> bytes:
        if location not in known:
            raise Code.SOURCE_NOT_FROZEN(got=location)
        return files.fetch_frozen(known[location]).data

    return fetch


def _changed(frozen: HashedFile, got: str) -> PvdmError:
    return Code.FILE_MISMATCH(
        f"{frozen.location} was changed after the freeze",
        reason="file_changed",
        expected=f"{frozen.size} bytes, SHA-256 {frozen.sha256}",
        got=got,
    )


@contextlib.contextmanager
def _store_errors(place: Location) -> Iterator[None]:
    """Translate errors of a store; a missing file, or one that is not plain, is a fact about the file."""
    try:
        yield
    except FileNotFoundError:
        raise Code.FILE_MISMATCH(reason="file_missing", expected=str(place), got="none") from None
    except OSError as error:
        if error.errno in NOT_PLAIN:
            raise Code.FILE_MISMATCH(reason="file_not_plain", got=str(place)) from None
        raise Code.FILE_UNREADABLE(expected=str(place), got=str(error.strerror or error)) from None


_FREEZE_DOMAIN: Final = b"pvdm/freeze/v1\0"


@dataclass(frozen=True, slots=True)
class Freeze:
    """Every file by its location, and the hash over all of them."""

    files: Mapping[str, HashedFile]
    root: str


def freeze(locations: Iterable[str], files: Files, *, threads: int = 1) -> Freeze:
    """Hash every file; two names of one file are refused, since a row would count twice."""
    listed = _distinct(locations)
    seen = mapped(threads, files.hash, listed)
    return Freeze(MappingProxyType({each.location: each for each in seen}), root_of(seen))


def freeze_found(
    locations: Iterable[str], files: Files, *, threads: int = 1, pinned: bool = False
) -> tuple[Freeze, dict[str, VerificationError]]:
    """The freeze of the files that can be hashed, and the error of each other file.

    Two names of one file are refused. `pinned` freezes the version that the store shows as well.
    """
    listed = _distinct(locations)

    def hashed(location: str) -> HashedFile | VerificationError:
        try:
            return files.hash(location, pinned=pinned)
        except VerificationError as error:
            return error

    found = dict(zip(listed, mapped(threads, hashed, listed), strict=True))
    seen = {location: each for location, each in found.items() if isinstance(each, HashedFile)}
    refused = {location: each for location, each in found.items() if isinstance(each, VerificationError)}
    return Freeze(MappingProxyType(seen), root_of(seen.values())), refused


def root_of(seen: Iterable[HashedFile]) -> str:
    """SHA-256 over the files in the order of their locations, each field preceded by its length."""
    digest = hashlib.sha256(_FREEZE_DOMAIN)
    for each in sorted(seen, key=lambda file: file.location):
        for field in (each.location.encode(), str(each.size).encode(), bytes.fromhex(each.sha256)):
            digest.update(len(field).to_bytes(8, "big") + field)
    return digest.hexdigest()


def _distinct(locations: Iterable[str]) -> list[str]:
    """The locations in order; raises where two of them mean one file."""
    listed = sorted(locations)
    places: set[str] = set()
    for location in listed:
        place = str(parse_location(location))
        if place in places:
            raise Code.FILE_MISMATCH(reason="file_listed_twice", got=location)
        places.add(place)
    return listed
