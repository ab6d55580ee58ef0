"""The log as readers ask for it: checkpoint, tiles, and proofs against the newest checkpoint or an older size."""

from __future__ import annotations

from collections.abc import Callable

from pvdm.errors import InputError, VerificationError
from pvdm.ledger import Ledger
from pvdm.ledger.record.log_storage import LedgerLog
from pvdm.steward.record.log_reader import LedgerLogReader
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.export import tile_bytes
from pvdm.trust.log.merkle import ConsistencyProof
from pvdm.trust.log.proof_file import LogProof
from pvdm.trust.log.tiles import TILE_WIDTH, parse_path


class LogDesk:
    """Reads only, and shows nothing that the checkpoint outside does not cover."""

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
            raise VerificationError("log_empty", "the log has no checkpoint yet")
        self._require_covered(read_unverified(note).checkpoint.size)
        return note

    def tile(self, path: str) -> bytes:
        """A tile or an entry bundle by its C2SP path; one that the log has not reached is unknown."""
        tile = parse_path(path)
        size = self._reader.size()
        reached = size >> (8 * max(tile.level, 0))
        if tile.index * TILE_WIDTH + tile.width > reached:
            raise InputError("tile_unknown", "the log has not reached this tile", got=ascii(path[:200]))
        self._require_covered(size)
        return tile_bytes(self._reader, tile)

    def entry(self, index: int) -> bytes:
        """One entry."""
        self._require(index, self._reader.size())
        return self._reader.read_entries(index, index + 1)[0]

    def proof(self, index: int) -> bytes:
        """A log proof file: the entry is in the tree of the newest checkpoint."""
        with self._ledger.read() as unit:
            log = LedgerLog(unit)
            note = log.newest_checkpoint()
            size = 0 if note is None else read_unverified(note).checkpoint.size
            self._require(index, size)
            included = merkle.prove_inclusion(log, index=index, size=size)
        self._require_covered(size)
        return LogProof(index, included.hashes, note or b"").to_bytes()

    def consistency(self, old: int, new: int) -> ConsistencyProof:
        """The tree of `new` entries begins with the tree of `old` ones."""
        size = self._reader.size()
        if not 0 <= old <= new <= size:
            raise InputError(
                "log_sizes_invalid",
                "no proof can be made between these sizes",
                expected=f"0 to {size}, in order",
                got=f"{old} and {new}",
            )
        self._require_covered(new)
        return merkle.prove_consistency(self._reader, old_size=old, new_size=new)

    @staticmethod
    def _require(index: int, size: int) -> None:
        if not 0 <= index < size:
            raise InputError(
                "log_entry_unknown", "the log has no such entry", expected=f"0 to {size - 1}", got=str(index)
            )
