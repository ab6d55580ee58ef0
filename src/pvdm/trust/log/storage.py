"""What the log asks of whoever keeps it: level hashes, entries, the newest checkpoint, and one atomic append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pvdm.trust.log.merkle import Node


class LogStorage(Protocol):
    """The log's place in the ledger; nothing that was appended is ever changed or removed."""

    def size(self) -> int:
        """How many entries the log has."""
        ...

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """The hashes of complete subtrees, in the order asked; one round trip, and a missing one is an error."""
        ...

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """The entries from `start` up to, but without, `end`; a missing one is an error."""
        ...

    def newest_checkpoint(self) -> bytes | None:
        """The signed note that was stored with the last append; None while the log is empty."""
        ...

    def append(self, *, at: int, entries: Sequence[bytes], hashes: Mapping[Node, bytes], checkpoint: bytes) -> None:
        """Store all of it in the caller's transaction; if the size is not `at`, raise `log_moved` and store nothing."""
        ...
