"""What a store of files can do, in the words of files: what is not there is a FileNotFoundError, and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.lake.paths import Location

PIECE_BYTES: Final = 8 * 1024 * 1024
UNFINISHED: Final = ".pvdm-new-"
"""How names of files begin that are not whole yet."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Facts:
    """What a store says of a file: its size, and the version of it that is shown, where the store keeps versions."""

    size: int
    version: str | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as it is listed."""

    place: Location
    size: int
    modified_seconds: float


@dataclass(frozen=True, slots=True)
class Moments:
    """What is called around one write, for faults that tests make there."""

    before_sync: Callable[[], None] = _nothing
    after_temp: Callable[[], None] = _nothing
    after_name: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Reading:
    """One state of a file being read: its version, where the store keeps versions, and its bytes."""

    version: str | None
    pieces: Iterator[bytes]


class Store(Protocol):
    """Files by their locations. It raises OSError and its kinds; what they mean, its caller says."""

    def reading(self, place: Location) -> Reading:
        """One state of the file, piece by piece."""

    def end(self, place: Location, size: int) -> bytes:
        """The last bytes of the file, as many as it has of them."""

    def facts(self, place: Location) -> Facts:
        """Size and version, without its bytes."""

    def put_new(self, place: Location, data: bytes, at: Moments) -> None:
        """A file that was not there, durable when this returns; FileExistsError, with what is there durable."""

    def put(self, place: Location, data: bytes, at: Moments) -> None:
        """The file, durable when this returns, in the place of what may lie there."""

    def files(self, folder: Location) -> list[Listed]:
        """The files right in the folder, whole or not, in the order of their names; none where it is not there."""

    def folders(self, folder: Location) -> list[str]:
        """The names of the folders right in the folder, in their order."""

    def remove(self, place: Location) -> None:
        """Take a file away; it may be gone."""

    def make_durable(self, places: Sequence[Location]) -> None:
        """What others wrote there is there after a power loss, with the folders that lead to it."""


def read(store: Store, place: Location, most: int) -> bytes:
    """The bytes, but no more than one beyond this many."""
    found = bytearray()
    for piece in store.reading(place).pieces:
        found += piece
        if len(found) > most:
            return bytes(found[: most + 1])
    return bytes(found)
