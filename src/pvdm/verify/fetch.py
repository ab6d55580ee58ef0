"""Fetches and freezes files. A freeze hashes each file before any key is derived; a fetch reads it into memory once."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pvdm.digest.sharing import map_in_threads
from pvdm.errors import Code, PvdmError, VerificationError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import NOT_PLAIN_ERRNOS
from pvdm.lake.stores.stores import Stores

FETCH_SIZE_MAX_BYTES: Final = 2_147_483_648
Fetcher = Callable[[str], bytes]
"""Returns the bytes of the file at a location."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file's bytes, their SHA-256, and the file's version if its store has versions."""

    data: bytes
    sha256: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class HashedFile:
    """Size and hash of a file. `version`, the store's version of the file, is pinned with storage `sealed` only."""

    location: str
    size: int
    sha256: str
    version: str | None = None


class Files:
    """Reads files from their stores. On this machine it reads regular files only, and no links to them."""

    def __init__(self, stores: Stores | None = None) -> None:
        self.stores = stores or Stores()

    def fetch(self, location: str | Location, *, max_bytes: int = FETCH_SIZE_MAX_BYTES) -> Fetched:
        """Read the whole file into memory, once. Raises `file_too_large` for more than `max_bytes` bytes."""
        place = location if isinstance(location, Location) else parse_location(location)
        version, pieces = self._open(place, max_bytes)
        data = b"".join(pieces)
        return Fetched(data, hashlib.sha256(data).hexdigest(), version)

    def fetch_frozen(self, frozen: HashedFile) -> Fetched:
        """Read a frozen file again; raises `file_changed` unless bytes and pinned version are those of the freeze."""
        try:
            fetched = self.fetch(frozen.location, max_bytes=frozen.size)
        except VerificationError as error:
            if error.reason != "file_too_large":
                raise
            raise _changed_error(frozen, f"more than {frozen.size} bytes") from None
        if (len(fetched.data), fetched.sha256) != (frozen.size, frozen.sha256):
            raise _changed_error(frozen, describe_bytes(len(fetched.data), fetched.sha256))
        if frozen.version is not None and fetched.version != frozen.version:
            raise _changed_error(frozen, f"version {fetched.version}, not {frozen.version}")
        return fetched

    def require_version(self, frozen: HashedFile) -> None:
        """Require that the file's current version in the store is the frozen one; no bytes are read."""
        place = parse_location(frozen.location)
        with _translate_store_errors(place):
            version = self.stores.for_reading(place).facts(place).version
        if version != frozen.version:
            raise _changed_error(frozen, f"version {version}, not {frozen.version}")

    def read(self, location: str, *, max_bytes: int) -> bytes:
        """The bytes of a file. Raises `file_too_large` for more than `max_bytes` bytes."""
        return b"".join(self._open(parse_location(location), max_bytes)[1])

    def hash(self, location: str, *, pinned: bool = False) -> HashedFile:
        """Size and SHA-256 of a file, read in pieces. With `pinned`, its version in the store too."""
        place = parse_location(location)
        size, digest = 0, hashlib.sha256()
        version, pieces = self._open(place, FETCH_SIZE_MAX_BYTES)
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
        if pinned and version is None:
            raise Code.STORAGE_UNAVAILABLE(reason="file_without_version", got=str(place))
        return HashedFile(location, size, digest.hexdigest(), version if pinned else None)

    def make_durable(self, locations: Sequence[str]) -> None:
        """Sync the files, so that they survive a power loss."""
        places = [parse_location(each) for each in locations]
        for scheme in sorted({each.scheme for each in places}):
            of_store = [each for each in places if each.scheme == scheme]
            with _translate_store_errors(of_store[0]):
                self.stores.for_reading(of_store[0]).make_durable(of_store)

    def read_end(self, location: str, size: int) -> bytes:
        """Read the last `size` bytes of a file, or all of a shorter one."""
        place = parse_location(location)
        with _translate_store_errors(place):
            return self.stores.for_reading(place).read_end(place, size)

    def _open(self, place: Location, max_bytes: int) -> tuple[str | None, Iterator[bytes]]:
        """The file's version in its store, and its bytes in pieces."""
        with _translate_store_errors(place):
            opened = self.stores.for_reading(place).start_reading(place)
        return opened.version, self._limit(place, opened.pieces, max_bytes)

    def _limit(self, place: Location, pieces: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
        size = 0
        with _translate_store_errors(place):
            for piece in pieces:
                size += len(piece)
                if size > max_bytes:
                    expected = f"at most {max_bytes} bytes"
                    raise Code.FILE_MISMATCH(reason="file_too_large", expected=expected, got=str(place))
                yield piece


def source_fetcher(files: Files, frozen: Iterable[HashedFile]) -> Fetcher:
    """A function that fetches these frozen files of the source. It raises `source_not_frozen` for any other one."""
    by_location = {each.location: each for each in frozen}

    def fetch(location: str) -> bytes:
        if location not in by_location:
            raise Code.BUG(reason="source_not_frozen", got=location)
        return files.fetch_frozen(by_location[location]).data

    return fetch


def describe_bytes(size: int, sha256: str) -> str:
    """Size and hash of a file, for an error."""
    return f"{size} bytes, SHA-256 {sha256}"


def _changed_error(frozen: HashedFile, got: str) -> PvdmError:
    message, expected = f"{frozen.location} was changed after the freeze", describe_bytes(frozen.size, frozen.sha256)
    return Code.FILE_MISMATCH(message, reason="file_changed", expected=expected, got=got)


@contextlib.contextmanager
def _translate_store_errors(place: Location) -> Iterator[None]:
    """Translate errors of a store: `file_mismatch` for a missing or not plain file, else `storage_unavailable`."""
    try:
        yield
    except FileNotFoundError:
        raise Code.FILE_MISMATCH(reason="file_missing", expected=str(place), got="none") from None
    except OSError as error:
        if error.errno in NOT_PLAIN_ERRNOS:
            raise Code.FILE_MISMATCH(reason="file_not_plain", got=str(place)) from None
        got = str(error.strerror or error)
        raise Code.STORAGE_UNAVAILABLE(reason="file_unreadable", expected=str(place), got=got) from None


_FREEZE_DOMAIN: Final = b"pvdm/freeze/v1\0"


@dataclass(frozen=True, slots=True)
class Freeze:
    """The hashed files by location, and `root`, the hash over all of them (`root_of`)."""

    files: Mapping[str, HashedFile]
    root: str


def freeze(locations: Iterable[str], files: Files, *, threads: int = 1) -> Freeze:
    """Hash every file. Two names of one file are refused, since its rows would count twice."""
    hashed = map_in_threads(threads, files.hash, _require_distinct(locations))
    return Freeze(MappingProxyType({each.location: each for each in hashed}), root_of(hashed))


def freeze_readable(
    locations: Iterable[str], files: Files, *, threads: int = 1, pinned: bool = False
) -> tuple[Freeze, dict[str, VerificationError]]:
    """The freeze of the files that could be hashed, and the error of each other file by location.

    Two names of one file are refused. With `pinned` the freeze has the files' versions in the store too.
    """
    refused: dict[str, VerificationError] = {}

    def hash_file(location: str) -> HashedFile | None:
        try:
            return files.hash(location, pinned=pinned)
        except VerificationError as error:
            refused[location] = error
            return None

    results = map_in_threads(threads, hash_file, _require_distinct(locations))
    hashed = {each.location: each for each in results if each is not None}
    return Freeze(MappingProxyType(hashed), root_of(hashed.values())), dict(sorted(refused.items()))


def root_of(files: Iterable[HashedFile]) -> str:
    """SHA-256 over the files in the order of their locations, each field preceded by its length."""
    digest = hashlib.sha256(_FREEZE_DOMAIN)
    for file in sorted(files, key=lambda each: each.location):
        for field in (file.location.encode(), str(file.size).encode(), bytes.fromhex(file.sha256)):
            digest.update(len(field).to_bytes(8, "big") + field)
    return digest.hexdigest()


def _require_distinct(locations: Iterable[str]) -> list[str]:
    """The locations, sorted. Raises if two locations are names of one file."""
    listed = sorted(locations)
    places: set[Location] = set()
    for location in listed:
        place = parse_location(location)
        if place in places:
            raise Code.FILE_MISMATCH(reason="file_listed_twice", got=location)
        places.add(place)
    return listed
