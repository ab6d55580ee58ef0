"""The interface of stagers, and the checks that both stagers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pvdm.client import AccessToken
from pvdm.client.table import split_name
from pvdm.errors import Code, PvdmError
from pvdm.model.statements.core import Operation

Rows_contra = TypeVar("Rows_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one attempt's rows are written (`prefix` is its folder), with which token, and what they replace."""

    steward_url: str
    table: str
    branch: str
    prefix: str
    workload_id: str
    chunk_id: str
    attempt_id: str
    token: AccessToken
    operation: Operation
    partition: tuple[tuple[str, str | None], ...] = ()

    @property
    def table_parts(self) -> tuple[tuple[str, ...], str]:
        """The levels of the table's namespace, and its name."""
        return split_name(self.table)

    @property
    def summary(self) -> dict[str, str]:
        """Properties for the summary of the staged snapshot; nothing relies on them."""
        return {"pvdm.workload": self.workload_id, "pvdm.chunk": self.chunk_id, "pvdm.attempt": self.attempt_id}


class Stager(Protocol[Rows_contra]):
    """Stages one chunk's rows on the attempt's branch. After an error it removes files that no commit can reference."""

    def stage(self, make: Callable[[], Rows_contra], to: Destination) -> None:
        """Make the rows, write them, and commit them to the branch."""

    def cancel(self, to: Destination) -> bool:
        """Stop `stage` in another thread, if it runs.

        True means that the caller need not wait: `make` may still run, but its rows are never written.
        """


def require_names(given: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise unless the target's columns are given, each once, in any order. A missing column is not read as null."""
    if sorted(given) == sorted(wanted):
        return
    missing, other = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    twice = sorted({name for name in given if list(given).count(name) > 1})
    got = [
        f"{word} {', '.join(ascii(name)[1:-1][:80] for name in names[:5])}"
        for word, names in (("without", missing), ("with", other), ("twice", twice))
        if names
    ]
    raise Code.ROWS_INVALID(
        reason="rows_columns_differ", expected=", ".join(ascii(name)[1:-1] for name in wanted)[:400], got="; ".join(got)
    )


def type_error(column: str, expected: str, got: str) -> PvdmError:
    """The error for a type whose values could change."""
    message = f"column {column[:80]!a} cannot be written without losing something"
    return Code.ROWS_INVALID(message, reason="rows_type_differs", expected=expected[:200], got=got[:200])
