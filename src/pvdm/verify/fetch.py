"""Files fetched once into the Steward's own memory: what was hashed is what is decoded."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pvdm.errors import UnavailableError, VerificationError
from pvdm.lake.paths import Location, parse_location

FETCH_SIZE_MAX_BYTES: Final = 2_147_483_648
_PIECE: Final = 8 * 1024 * 1024
# A link, a link in a circle, a socket: facts about what was put there, not about the disk.
_NOT_PLAIN: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file's bytes, and what they hash to."""

    location: Location
    data: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was hashed, without its bytes."""

    location: str
    size: int
    sha256: str


class Files:
    """Reads local files; links are not followed, and only plain files are read."""

    def fetch(self, location: str, *, most: int = FETCH_SIZE_MAX_BYTES) -> Fetched:
        """The whole file in memory, read once."""
        place = parse_location(location)
        parts, digest = [], hashlib.sha256()
        for piece in self._pieces(place, most):
            digest.update(piece)
            parts.append(piece)
        return Fetched(place, b"".join(parts), digest.hexdigest())

    def fetch_frozen(self, frozen: Seen) -> Fetched:
        """The file that was frozen, read once more and held to what it was."""
        try:
            fetched = self.fetch(frozen.location, most=frozen.size)
        except VerificationError as error:
            if error.code != "file_too_large":
                raise
            raise _changed(frozen, f"more than {frozen.size} bytes") from None
        require_same(fetched, frozen)
        return fetched

    def read(self, location: str, *, most: int) -> bytes:
        """The bytes alone, for metadata."""
        return b"".join(self._pieces(parse_location(location), most))

    def hash(self, location: str) -> Seen:
        """Size and SHA-256 of a file, without keeping it."""
        place = parse_location(location)
        size, digest = 0, hashlib.sha256()
        for piece in self._pieces(place, FETCH_SIZE_MAX_BYTES):
            digest.update(piece)
            size += len(piece)
        return Seen(location, size, digest.hexdigest())

    def end(self, location: str, size: int) -> bytes:
        """The last bytes of a file, as many as it has of them; nothing before them is read."""
        place = parse_location(location)
        with self._opened(place) as file:
            try:
                file.seek(max(0, os.fstat(file.fileno()).st_size - size))
                return file.read(size)
            except OSError as error:
                raise _unreadable(place, error) from None

    @contextlib.contextmanager
    def _opened(self, place: Location) -> Iterator[io.FileIO]:
        """A plain file; no link is followed."""
        try:
            descriptor = os.open(place.local, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise VerificationError("file_missing", "a file is not there", expected=str(place), got="none") from None
        except OSError as error:
            if error.errno in _NOT_PLAIN:
                raise _not_plain(place) from None
            raise _unreadable(place, error) from None
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _not_plain(place)
            yield file

    def _pieces(self, place: Location, most: int) -> Iterator[bytes]:
        with self._opened(place) as file:
            seen = 0
            while piece := self._piece(file, place):
                seen += len(piece)
                if seen > most:
                    raise VerificationError(
                        "file_too_large", "a file is too large", expected=f"at most {most} bytes", got=str(place)
                    )
                yield piece

    def _piece(self, file: io.FileIO, place: Location) -> bytes:
        try:
            return file.read(_PIECE)
        except OSError as error:
            raise _unreadable(place, error) from None


def require_same(fetched: Fetched, frozen: Seen) -> None:
    """The bytes are those that were frozen; a file that changed since is physical damage, or a swap."""
    if (len(fetched.data), fetched.sha256) != (frozen.size, frozen.sha256):
        raise _changed(frozen, f"{len(fetched.data)} bytes, SHA-256 {fetched.sha256}")


def _changed(frozen: Seen, got: str) -> VerificationError:
    return VerificationError(
        "file_changed",
        f"{frozen.location} was changed after the freeze",
        expected=f"{frozen.size} bytes, SHA-256 {frozen.sha256}",
        got=got,
    )


def _not_plain(place: Location) -> VerificationError:
    return VerificationError("file_not_plain", "a file is no plain file", expected="a plain file", got=str(place))


def _unreadable(place: Location, error: OSError) -> UnavailableError:
    return UnavailableError(
        "file_unreadable", "a file cannot be read", expected=str(place), got=str(error.strerror or error)
    )
