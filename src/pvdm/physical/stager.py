"""What a stager is told and what it promises, with Spark behind it or without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pvdm.client import AccessToken
from pvdm.client.table import split_name
from pvdm.model.statements.core import Operation

Rows_contra = TypeVar("Rows_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one attempt's rows go, by whose right, and what they replace."""

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
    def catalog_uri(self) -> str:
        """Iceberg's REST protocol at the Steward."""
        return f"{self.steward_url}/catalog"

    @property
    def name(self) -> tuple[tuple[str, ...], str]:
        """Namespace and name of the table."""
        return split_name(self.table)

    @property
    def summary(self) -> dict[str, str]:
        """What the staged snapshots say of themselves; nothing is judged by it."""
        return {
            "pvdm.workload": self.workload_id,
            "pvdm.chunk": self.chunk_id,
            "pvdm.attempt": self.attempt_id,
        }


class Stager(Protocol[Rows_contra]):
    """Puts one chunk's rows on the attempt's branch; what it had begun when it raises, it has taken back."""

    def stage(self, make: Callable[[], Rows_contra], to: Destination) -> None:
        """Have the rows made, write them, and let the branch show them."""

    def cancel(self, to: Destination) -> bool:
        """Stop what `stage` is doing in another thread; where nothing is being done, nothing happens.

        True means that the caller need not wait for it to end: a job's own function may still run, but its rows are
        never written.
        """
