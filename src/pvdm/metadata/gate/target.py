"""The table that the gate publishes to, behind one small interface: what is judged is what the swap compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pvdm.lake.format.json.document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.unit import Unit
from pvdm.metadata.gate.order import Order
from pvdm.metadata.gate.permit import Permit
from pvdm.metadata.gate.proposal import Shown
from pvdm.model.statements.table import TableRef


@dataclass(frozen=True, slots=True)
class Base:
    """The table as the catalog shows it: the row with its pointer, and the document of exactly that pointer."""

    table: TableRef
    row: TableRow
    metadata: TableMetadata


@dataclass(frozen=True, slots=True)
class Next:
    """What one try wants done to its base, and the gate's word on the document that comes of it."""

    updates: Sequence[Json]
    permit: Callable[[TableMetadata, bytes], Permit]
    branches: tuple[str, ...] = ()
    """The staging branches that were judged."""


class Target(Protocol):
    """One table of one catalog."""

    @property
    def removes_branches(self) -> bool:
        """Whether a publication takes the staging branches away in the same commit. Else a later commit does."""

    def load(self) -> Base:
        """The table as it is now; one that is not there is an error."""

    def publish(
        self,
        make: Callable[[Base], Next],
        in_transaction: Callable[[Unit, TableRow], Order],
        then: Callable[[Shown], None],
    ) -> None:
        """Show what `make` makes of a base, and carry its order out; a base that moved is made anew.

        `in_transaction` judges once more and gives the order. Where the pointer and the ledger are one database, it
        runs where the pointer is swapped, with the row as it is after it, and whatever it or the order raises undoes
        all of it. `then` runs after the commit, before anyone else's turn.
        """

    def read_back(self) -> Base:
        """The table as a new connection to the catalog shows it, with nothing remembered."""
