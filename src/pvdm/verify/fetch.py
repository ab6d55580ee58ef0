"""Files fetched once into the Steward's own memory: what was hashed is what is decoded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, UnavailableError, VerificationError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import NOT_PLAIN
from pvdm.lake.stores.stores import Stores

FETCH_SIZE_MAX_BYTES: Final = 2_147_483_648


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file's bytes, and what they hash to."""

    location: Location
    data: bytes
    sha256: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was hashed, without its bytes; a `version` pins the one that the store showed."""

    location: str
    size: int
    sha256: str
    version: str | None = None


class Files:
    """Reads files where they lie; on this machine links are not followed, and only plain files are read."""

    def __init__(self, stores: Stores | None = None) -> None:
        self.stores = stores or Stores()

    def fetch(self, location: str | Location, *, most: int = FETCH_SIZE_MAX_BYTES) -> Fetched:
        """The whole file in memory, read once."""
        place = location if isinstance(location, Location) else parse_location(location)
        parts, digest = [], hashlib.sha256()
        version, pieces = self._reading(place, most)
        for piece in pieces:
            digest.update(piece)
            parts.append(piece)
        return Fetched(place, b"".join(parts), digest.hexdigest(), version)

    def fetch_frozen(self, frozen: Seen) -> Fetched:
        """The file that was frozen, read once more and held to what it was."""
        try:
            fetched = self.fetch(frozen.location, most=frozen.size)
        except VerificationError as error:
            if error.code != Code.FILE_TOO_LARGE:
                raise
            raise _changed(frozen, f"more than {frozen.size} bytes") from None
        require_same(fetched, frozen)
        return fetched

    def require_version(self, frozen: Seen) -> None:
        """The store shows the version that was frozen, now too; nothing of it is read."""
        place = parse_location(frozen.location)
        try:
            shown = self.stores.of(place).facts(place).version
        except OSError as error:
            raise _failure(place, error) from None
        if shown != frozen.version:
            raise _changed(frozen, f"version {shown}, not {frozen.version}")

    def read(self, location: str, *, most: int) -> bytes:
        """The bytes alone, for metadata."""
        return b"".join(self._reading(parse_location(location), most)[1])

    def hash(self, location: str, *, pinned: bool = False) -> Seen:
        """Size and SHA-256 of a file, without keeping it; `pinned` with the version that the store shows."""
        place = parse_location(location)
        size, digest = 0, hashlib.sha256()
        version, pieces = self._reading(place, FETCH_SIZE_MAX_BYTES)
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
        if pinned and version is None:
            raise Code.FILE_WITHOUT_VERSION(got=str(place))
        return Seen(location, size, digest.hexdigest(), version if pinned else None)

    def make_durable(self, locations: Sequence[str]) -> None:
        """The files survive a power loss, also those that a producer wrote."""
        places = [parse_location(each) for each in locations]
        for scheme in sorted({each.scheme for each in places}):
            of_store = [each for each in places if each.scheme == scheme]
            try:
                self.stores.of(of_store[0]).make_durable(of_store)
            except OSError as error:
                raise _failure(of_store[0], error) from None

    def end(self, location: str, size: int) -> bytes:
        """The last bytes of a file, as many as it has of them; nothing before them is read."""
        place = parse_location(location)
        try:
            return self.stores.of(place).end(place, size)
        except OSError as error:
            raise _failure(place, error) from None

    def _reading(self, place: Location, most: int) -> tuple[str | None, Iterator[bytes]]:
        try:
            found = self.stores.of(place).reading(place)
        except OSError as error:
            raise _failure(place, error) from None
        return found.version, self._pieces(place, found.pieces, most)

    def _pieces(self, place: Location, pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
        seen = 0
        try:
            for piece in pieces:
                seen += len(piece)
                if seen > most:
                    raise Code.FILE_TOO_LARGE(expected=f"at most {most} bytes", got=str(place))
                yield piece
        except OSError as error:
            raise _failure(place, error) from None


def require_same(fetched: Fetched, frozen: Seen) -> None:
    """The bytes are those that were frozen; a file that changed since is physical damage, or a swap."""
    if (len(fetched.data), fetched.sha256) != (frozen.size, frozen.sha256):
        raise _changed(frozen, f"{len(fetched.data)} bytes, SHA-256 {fetched.sha256}")
    if frozen.version is not None and fetched.version != frozen.version:
        raise _changed(frozen, f"version {fetched.version}, not {frozen.version}")


def _changed(frozen: Seen, got: str) -> VerificationError:
    return VerificationError(
        "file_changed",
        f"{frozen.location} was changed after the freeze",
        expected=f"{frozen.size} bytes, SHA-256 {frozen.sha256}",
        got=got,
    )


def _failure(place: Location, error: OSError) -> VerificationError | UnavailableError:
    """What is not there, or is no plain file, is a fact about the file; anything else is about the store."""
    if isinstance(error, FileNotFoundError):
        return VerificationError("file_missing", "a file is not there", expected=str(place), got="none")
    if error.errno in NOT_PLAIN:
        return VerificationError("file_not_plain", "a file is no plain file", expected="a plain file", got=str(place))
    return UnavailableError(
        Code.FILE_UNREADABLE, "a file cannot be read", expected=str(place), got=str(error.strerror or error)
    )
