"""Reads the log of the ledger: for callers (checkpoint, tiles, proofs) and for appends (readers and edge)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pvdm.errors import Code
from pvdm.ledger import Ledger
from pvdm.ledger.record.log_storage import LedgerLog
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.export import tile_bytes
from pvdm.trust.log.merkle import ConsistencyProof, Node, frontier
from pvdm.trust.log.proof import LogProof
from pvdm.trust.log.tiles import TILE_WIDTH, parse_path


class LogQueries:
    """Answers queries about the log; entries that the outside checkpoint does not cover yet are covered first."""

    def __init__(self, ledger: Ledger, require_covered: Callable[[int], None]) -> None:
        """`require_covered` returns once the outside covers a log of that size."""
        self._ledger = ledger
        self._require_covered = require_covered
        self._reader = LedgerLogReader(ledger)

    def size(self) -> int:
        """How many entries there are."""
        return self._reader.size()

    def checkpoint(self) -> bytes:
        """The newest signed note."""
        note = self._reader.newest_checkpoint()
        if note is None:
            raise Code.LOG_EMPTY("the log has no checkpoint yet")
        self._require_covered(read_unverified(note).checkpoint.size)
        return note

    def tile(self, path: str) -> bytes:
        """A tile or an entry bundle by its C2SP path; raises `tile_unknown` beyond the log's size."""
        tile = parse_path(path)
        size = self._reader.size()
        reached = size >> (8 * max(tile.level, 0))
        if tile.index * TILE_WIDTH + tile.width > reached:
            raise Code.TILE_UNKNOWN(got=ascii(path[:200]))
        self._require_covered(size)
        return tile_bytes(self._reader, tile)

    def entry(self, index: int) -> bytes:
        """One entry."""
        self._require(index, self._reader.size())
        return self._reader.read_entries(index, index + 1)[0]

    def proof(self, index: int) -> bytes:
        """A log proof file for the entry, against the newest checkpoint."""
        with self._ledger.read() as unit:
            log = LedgerLog(unit)
            note = log.newest_checkpoint()
            size = 0 if note is None else read_unverified(note).checkpoint.size
            self._require(index, size)
            included = merkle.prove_inclusion(log, index=index, size=size)
        self._require_covered(size)
        return LogProof(index, included.hashes, note or b"").to_bytes()

    def consistency(self, old: int, new: int) -> ConsistencyProof:
        """The proof that the tree of `new` entries extends the tree of `old` ones."""
        size = self._reader.size()
        if not 0 <= old <= new <= size:
            raise Code.LOG_REQUEST_INVALID(
                "no proof can be made between these sizes",
                reason="log_sizes_invalid",
                expected=f"0 to {size}, in order",
                got=f"{old} and {new}",
            )
        self._require_covered(new)
        return merkle.prove_consistency(self._reader, old_size=old, new_size=new)

    @staticmethod
    def _require(index: int, size: int) -> None:
        if not 0 <= index < size:
            raise Code.LOG_ENTRY_UNKNOWN("the log has no such entry", expected=f"0 to {size - 1}", got=str(index))


class LedgerLogReader:
    """A log storage that uses one read transaction a call; the log only grows, so results fit together."""

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
        """Refused: entries are stored in the transaction of their subject."""
        raise Code.LOG_READ_ONLY("this view of the log only reads")


class PinnedLogReader(LedgerLogReader):
    """The log as it was when its size was first read.

    No transaction stays open, since the key service may read its epoch book from the same ledger meanwhile.
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
    """What an append needs of a log, read in one transaction: its right edge and its newest checkpoint."""

    entries: int
    hashes: Mapping[Node, bytes]
    note: bytes | None

    @classmethod
    def of(cls, ledger: Ledger) -> LogEdge:
        """Read the edge now."""
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
        """Hashes of the edge, and no others."""
        return [self.hashes[node] for node in nodes]

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """Refused: an edge holds no entries."""
        raise Code.LOG_READ_ONLY("the edge of a log holds no entries", got=f"{start} to {end}")

    def newest_checkpoint(self) -> bytes | None:
        """The signed note of that size."""
        return self.note

    def append(self, **_: object) -> None:
        """Refused: an edge is only read."""
        raise Code.LOG_READ_ONLY("the edge of a log only reads")
