"""The ledger's log outside of a transaction: short reads, and the growing edge taken along to sign far away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pvdm.errors import PvdmError
from pvdm.ledger import Ledger
from pvdm.ledger.record.log_storage import LedgerLog
from pvdm.trust.log.merkle import Node, frontier


class LedgerLogReader:
    """A log storage that reads each thing in a unit of its own; the log only grows, so the pieces fit."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def size(self) -> int:
        """How many entries the log has."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).size()

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """The hashes of complete subtrees, in the order asked."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).read_hashes(nodes)

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """The entries from `start` up to, but without, `end`."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).read_entries(start, end)

    def newest_checkpoint(self) -> bytes | None:
        """The signed note that was stored with the last append."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).newest_checkpoint()

    def append(self, **_: object) -> None:
        """Nobody appends here: entries are stored in the transaction of what they are about."""
        raise PvdmError("log_read_only", "this view of the log only reads")


class PinnedLogReader(LedgerLogReader):
    """The log as it stood when its size was first asked for, however it grows meanwhile.

    No unit stays open: the key home may keep its book in the same ledger and must be able to read it in between.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._pinned: tuple[int, bytes | None] | None = None

    def size(self) -> int:
        """How many entries the log had."""
        return self._pin()[0]

    def newest_checkpoint(self) -> bytes | None:
        """The signed note of that size."""
        return self._pin()[1]

    def _pin(self) -> tuple[int, bytes | None]:
        if self._pinned is None:
            with self._ledger.read() as unit:
                log = LedgerLog(unit)
                self._pinned = (log.size(), log.newest_checkpoint())
        return self._pinned


@dataclass(frozen=True, slots=True)
class LogEdge:
    """What an append needs of a log of one size, read at one moment: its right edge and its newest checkpoint."""

    entries: int
    hashes: Mapping[Node, bytes]
    note: bytes | None

    @classmethod
    def of(cls, ledger: Ledger) -> LogEdge:
        """The edge as it stands."""
        with ledger.read() as unit:
            log = LedgerLog(unit)
            size = log.size()
            nodes = frontier(size)
            hashes = log.read_hashes(nodes) if nodes else []
            return cls(size, dict(zip(nodes, hashes, strict=True)), log.newest_checkpoint())

    def size(self) -> int:
        """How many entries the log had."""
        return self.entries

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """Hashes of the edge; no others are at hand."""
        return [self.hashes[node] for node in nodes]

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """An edge holds no entries."""
        raise PvdmError("log_read_only", "the edge of a log holds no entries", got=f"{start} to {end}")

    def newest_checkpoint(self) -> bytes | None:
        """The signed note of that size."""
        return self.note

    def append(self, **_: object) -> None:
        """Nobody appends to an edge."""
        raise PvdmError("log_read_only", "the edge of a log only reads")
