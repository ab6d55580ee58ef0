"""Catalogs that users already have, behind one small interface: read whole, and committed to by comparing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.errors import Code, ConflictError, InputError, StateUnknownError, UnavailableError, VerificationError
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.table.metadata import TableMetadata

UPSTREAM_TIMEOUT_MAX_SECONDS: Final = 300
MOVED: Final = Code.UPSTREAM_MOVED
REJECTED: Final = Code.UPSTREAM_REJECTED
UNKNOWN: Final = Code.UPSTREAM_UNKNOWN


@dataclass(frozen=True, slots=True)
class Place:
    """A table by its name at the upstream."""

    levels: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((*self.levels, self.name))


@dataclass(frozen=True, slots=True)
class Seen:
    """What the upstream shows of a table: its metadata file's location, and the whole document."""

    location: str
    metadata: TableMetadata


@dataclass(frozen=True, slots=True)
class Asked:
    """A commit: on exactly what was seen, if all of this still holds."""

    seen: Seen
    requirements: Sequence[Json]
    updates: Sequence[Json]


class Upstream(Protocol):
    """One catalog of somebody else's; its compare-and-swap decides what happened, and nobody else's word."""

    def load(self, place: Place) -> Seen:
        """The table as it is now, read anew each time."""

    def commit(self, place: Place, asked: Asked) -> None:
        """Compare and swap, once. `upstream_moved` and `upstream_rejected`: nothing happened, as far as the upstream
        says; `upstream_unknown`: it may have, or may still.
        """

    def require_kept(self, seen: Seen) -> None:
        """A commit to this keeps all of it; else it is refused, before anything is announced or sent."""

    def names(self, levels: tuple[str, ...]) -> list[str]:
        """The tables of a namespace."""

    def has_namespace(self, levels: tuple[str, ...]) -> bool:
        """Whether there is such a namespace."""

    def anew(self) -> Upstream:
        """The same catalog by connections of its own, with nothing remembered."""

    def close(self) -> None:
        """Let go of the connections."""


def moved(name: str, place: Place, why: str) -> ConflictError:
    """Somebody else was first."""
    return ConflictError(
        MOVED,
        f"{place} has changed at the upstream catalog {name} since it was read",
        expected="the state that was read",
        got=_short(why),
        hint="load the table again and commit on its new state",
    )


def rejected(name: str, place: Place, why: str) -> InputError:
    """The upstream does not take this commit as it is."""
    return InputError(REJECTED, f"the upstream catalog {name} does not accept the commit to {place}", got=_short(why))


def unknown(name: str, place: Place, why: str | Exception) -> StateUnknownError:
    """No answer, or one that does not say what happened."""
    return StateUnknownError(
        UNKNOWN,
        f"whether the upstream catalog {name} has made the commit to {place} is not known",
        expected="an answer that says so",
        got=_short(why),
        hint="load the table and see; do not send it again",
    )


def unavailable(name: str, what: str, why: str | Exception) -> UnavailableError:
    """It cannot be asked just now, or does not answer us."""
    return UnavailableError(
        Code.UPSTREAM_UNAVAILABLE,
        f"the upstream catalog {name} cannot be asked for {what}",
        expected="its answer",
        got=_short(why),
        hint="nothing was changed; whoever runs the Steward finds its address in steward.toml",
    )


def answer_wrong(name: str, place: Place) -> VerificationError:
    """An answer without which nothing can be told apart."""
    return VerificationError(
        Code.UPSTREAM_ANSWER_WRONG, f"the upstream catalog {name} names no metadata file", got=str(place)[:200]
    )


def no_table(place: Place) -> InputError:
    """For whoever asks for a table that is not there."""
    return InputError(Code.TABLE_UNKNOWN, f"Table does not exist: {place}")


def _short(why: str | Exception) -> str:
    """Its first words on one line: an answer may be long, and is somebody else's.

    Of what went wrong on the way only the kind is told: the rest is addresses, which are nobody's business here.
    """
    text = type(why).__name__ if isinstance(why, Exception) else " ".join(why.split())[:200]
    return "".join(each if each.isascii() and each.isprintable() else ascii(each)[1:-1] for each in text)
