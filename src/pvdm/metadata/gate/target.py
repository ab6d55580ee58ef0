"""The interface of a table that the gate publishes to, and the permit without which no commit moves its `main`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pvdm.errors import Code
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.unit import Unit
from pvdm.metadata.gate.ledger_changes import LedgerChanges
from pvdm.metadata.gate.proposal import PublishedSnapshot
from pvdm.model.statements.table import TableRef


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission for one commit to `main` of one table, with the SHA-256 of the metadata files before and after it."""

    table_uuid: str
    base_sha256: str
    new_sha256: str

    def require(self, *, table_uuid: str, base_sha256: str, new_sha256: str) -> None:
        """Raise `permit_for_other_commit` unless this permit is for this commit."""
        if (self.table_uuid, self.base_sha256, self.new_sha256) != (table_uuid, base_sha256, new_sha256):
            raise Code.PERMIT_FOR_OTHER_COMMIT(
                expected=f"{self.table_uuid} from {self.base_sha256} to {self.new_sha256}",
                got=f"{table_uuid} from {base_sha256} to {new_sha256}",
            )


@dataclass(frozen=True, slots=True)
class Base:
    """The table as its catalog shows it: its row in the ledger, and the metadata file that the row's pointer names."""

    table: TableRef
    row: TableRow
    metadata: TableMetadata


@dataclass(frozen=True, slots=True)
class NextCommit:
    """The updates of one try to commit on a base, and the function that permits the resulting metadata file."""

    updates: Sequence[Json]
    permit: Callable[[TableMetadata, bytes], Permit]  # called with the new metadata file, parsed and as bytes
    branches: tuple[str, ...] = ()  # staging branches that were checked: an upstream requires that they have not moved


class Target(Protocol):
    """One table of one catalog."""

    @property
    def removes_branches(self) -> bool:
        """Whether a publication removes the staging branches in the same commit. If not, a later commit does."""

    def load(self) -> Base:
        """The table as it is now. A table that does not exist is an error."""

    def publish(
        self,
        make: Callable[[Base], NextCommit],
        in_transaction: Callable[[Unit, TableRow], LedgerChanges],
        then: Callable[[PublishedSnapshot], None],
    ) -> None:
        """Commit what `make` makes of a base, and apply the ledger changes. If the base has moved, call `make` again.

        `in_transaction` repeats checks and returns the changes. In the Steward's own catalog it gets the new row and
        runs in the transaction that replaces the pointer; any error undoes the transaction. For an upstream it runs
        before the upstream is called. `then` runs after the commit, before the next commit in the table's queue.
        """

    def read_back(self) -> Base:
        """The table as a new connection to the catalog shows it, without any cache."""
