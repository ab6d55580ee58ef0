"""The interface of a store of files: this machine's disk, or an object store. A `place` is a parsed location."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.errors import Code
from pvdm.lake.paths import Location

PIECE_BYTES: Final = 8 * 1024 * 1024  # files are read in pieces of this size
UNFINISHED_PREFIX: Final = ".pvdm-new-"
"""The beginning of the temporary names of files that are being written."""


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file's size, and its current version if the store keeps versions."""

    size: int
    version: str | None


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in a listing."""

    place: Location
    size: int
    modified_seconds: float


@dataclass(frozen=True, slots=True)
class WriteHooks:
    """Functions that a write calls, for tests. A local file is written under a temporary name first."""

    before_sync: Callable[[], None] = _do_nothing
    after_temp: Callable[[], None] = _do_nothing  # the temporary file is complete and synced
    after_name: Callable[[], None] = _do_nothing  # the file has its own name


@dataclass(frozen=True, slots=True)
class FileStream:
    """A file that is being read: its version, if the store keeps versions, and its bytes."""

    version: str | None
    pieces: Iterator[bytes]


class Store(Protocol):
    """Files by their locations. Methods raise OSError and its subclasses."""

    def start_reading(self, place: Location) -> FileStream:
        """Begin to read one version of the file in pieces."""

    def read_end(self, place: Location, size: int) -> bytes:
        """The last `size` bytes of the file, or all if it has fewer."""

    def facts(self, place: Location) -> FileFacts:
        """The file's size and version."""

    def put_new(self, place: Location, data: bytes, hooks: WriteHooks) -> None:
        """Write a new file, durable when this returns. If it exists: makes it durable, raises FileExistsError."""

    def put(self, place: Location, data: bytes, hooks: WriteHooks) -> None:
        """Write or replace the file. It is durable when this returns."""

    def files(self, folder: Location) -> list[ListedFile]:
        """The files directly in the folder, also unfinished ones, sorted by name; none if the folder is missing."""

    def folders(self, folder: Location) -> list[str]:
        """The names of the folders directly in the folder, sorted; none if the folder is missing."""

    def remove(self, place: Location) -> None:
        """Remove a file if it is there."""

    def make_durable(self, places: Sequence[Location]) -> None:
        """Make files that others wrote durable, with the folders above them."""


@contextlib.contextmanager
def translate_errors(reason: str, what: str) -> Iterator[None]:
    """Raise errors of a store as `storage_unavailable` with this reason. `what` names the files in the message."""
    try:
        yield
    except OSError as error:
        message = f"{what} cannot be reached: {error.strerror or type(error).__name__}"
        raise Code.STORAGE_UNAVAILABLE(message, reason=reason) from None


def read(store: Store, place: Location, max_bytes: int) -> bytes:
    """The file's bytes, at most `max_bytes` and one more. The additional byte shows that the file is too large."""
    found = bytearray()
    for piece in store.start_reading(place).pieces:
        found += piece
        if len(found) > max_bytes:
            break
    return bytes(found[: max_bytes + 1])
