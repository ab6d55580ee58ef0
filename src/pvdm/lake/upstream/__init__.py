"""The interface to upstreams, users' own catalogs: load a table's whole document, commit by compare-and-swap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.stores.s3_client import S3Settings

UPSTREAM_TIMEOUT_MAX_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    """The name of a table at the upstream; `levels` are the parts of its namespace's name."""

    levels: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((*self.levels, self.name))


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """A table's state at the upstream: the location of its metadata file, and the whole document."""

    metadata_location: str
    metadata: TableMetadata


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A commit made for the state `seen`, which was read before. It happens only if the requirements hold."""

    seen: UpstreamState
    requirements: Sequence[Json]
    updates: Sequence[Json]


@dataclass(frozen=True, slots=True)
class GlueSettings:
    """The Glue catalog and the store of its files. Credentials come from AWS's default chain.

    Without a store the files are local or in AWS S3, and PyIceberg finds the store's settings itself.
    """

    region: str
    endpoint: str | None = None
    catalog_id: str | None = None
    timeout_seconds: int = 30
    store: S3Settings | None = None


class Upstream(Protocol):
    """One upstream catalog. Its compare-and-swap alone decides whether a commit happened."""

    def load(self, identifier: TableIdentifier) -> UpstreamState:
        """The table's current state; it is never cached."""

    def commit(self, identifier: TableIdentifier, request: CommitRequest) -> None:
        """Send the compare-and-swap once.

        Raises `upstream_unknown` if it may have happened. It did not happen after other errors (`upstream_moved`, …).
        """

    def require_lossless(self, seen: UpstreamState) -> None:
        """Raise if a commit to this state would lose a part of its document. Nothing is sent."""

    def names(self, levels: tuple[str, ...]) -> list[str]:
        """The names of the tables of a namespace."""

    def has_namespace(self, levels: tuple[str, ...]) -> bool:
        """Whether the namespace exists."""

    def reconnect(self) -> Upstream:
        """The same catalog with new connections and no cached state."""

    def close(self) -> None:
        """Close the connections."""


def moved_error(name: str, identifier: TableIdentifier, why: str) -> PvdmError:
    """The error of a commit that lost against another one."""
    words = f"{identifier} has changed at the upstream catalog {name} since it was read"
    return Code.UPSTREAM_MOVED(words, expected="the state that was read", got=_short(why))


def rejected_error(name: str, identifier: TableIdentifier, why: str) -> PvdmError:
    """The error of a commit that the upstream does not accept."""
    words = f"the upstream catalog {name} does not accept the commit to {identifier}"
    return Code.UPSTREAM_REJECTED(words, got=_short(why))


def unknown_outcome_error(name: str, identifier: TableIdentifier, why: str | Exception) -> PvdmError:
    """The error of a commit whose outcome is not known."""
    words = f"it is not known whether the upstream catalog {name} made the commit to {identifier}"
    return Code.UPSTREAM_UNKNOWN(words, expected="an answer to the commit", got=_short(why))


def unavailable_error(name: str, what: str, why: str | Exception) -> PvdmError:
    """The error of a request that the upstream does not answer, or refuses."""
    words = f"the upstream catalog {name} does not answer a request for {what}, or refuses it"
    return Code.UPSTREAM_UNAVAILABLE(words, got=_short(why))


def location_missing_error(name: str, identifier: TableIdentifier) -> PvdmError:
    """The error of an answer without a metadata location."""
    words = f"the upstream catalog {name} names no metadata file for the table"
    return Code.UPSTREAM_WRONG(words, reason="upstream_answer_wrong", got=str(identifier)[:200])


def table_missing_error(identifier: TableIdentifier) -> PvdmError:
    """The error of a request for a table that does not exist."""
    return Code.TABLE_UNKNOWN(f"Table does not exist: {identifier}")


def _short(why: str | Exception) -> str:
    """The text in one printable line of 200 characters at most. Of an exception only the class: it has no addresses."""
    text = type(why).__name__ if isinstance(why, Exception) else " ".join(why.split())[:200]
    return "".join(each if each.isascii() and each.isprintable() else ascii(each)[1:-1] for each in text)
