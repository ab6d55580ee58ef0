"""The transparency log's tables: entries, hashes and checkpoints, read and appended in the caller's unit of work.

`LedgerLog` implements the protocol `LogStorage` of `pvdm.trust.log` without importing it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from sqlalchemy import TextClause, func, select, text

from pvdm.errors import Code, VerificationError
from pvdm.ledger.schema.record import log_checkpoints, log_entries, log_hashes
from pvdm.ledger.unit import Unit

# A node is (level, index): the complete subtree over leaves index << level up to (index + 1) << level.
NodeT = TypeVar("NodeT", bound=tuple[int, int])

_NODES_AT_ONCE: Final = 512
_LOCK: Final = "log"
_LAST: Final = select(func.max(log_entries.c.entry_index))


class LedgerLog:
    """The log in one unit of work."""

    __slots__ = ("_unit",)

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def hold(self) -> None:
        """Wait until no other unit appends. The size that is read then is still the size at `append`."""
        self._unit.lock_name(_LOCK)

    def size(self) -> int:
        """The number of entries."""
        last: int | None = self._unit.execute(_LAST).scalar_one()
        return 0 if last is None else last + 1

    def read_hashes(self, nodes: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """The hashes of complete subtrees, in the order of `nodes`. Raises `log_incomplete`."""
        found: dict[tuple[int, int], bytes] = {}
        wanted = sorted({(node[0], node[1]) for node in nodes})
        for at in range(0, len(wanted), _NODES_AT_ONCE):
            part = wanted[at : at + _NODES_AT_ONCE]
            levels = {f"level_{number}": node[0] for number, node in enumerate(part)}
            positions = {f"position_{number}": node[1] for number, node in enumerate(part)}
            rows = self._unit.execute(_select_hashes(len(part)), {**levels, **positions}).mappings().all()
            found |= {(row["level"], row["position"]): bytes(row["hash"]) for row in rows}
        missing = [node for node in wanted if node not in found]
        if missing:
            raise _gap_error(f"hash {missing[0][1]} of level {missing[0][0]}")
        return [found[node[0], node[1]] for node in nodes]

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """The entries from `start` up to, but without, `end`. Raises `log_incomplete`."""
        index = log_entries.c.entry_index
        rows = self._unit.rows(select(log_entries).where(index >= start, index < end).order_by(index))
        if [row["entry_index"] for row in rows] != list(range(start, end)):
            raise _gap_error(f"entries {start} to {end}")
        return [bytes(row["entry"]) for row in rows]

    def newest_checkpoint(self) -> bytes | None:
        """The signed note that was stored with the last append. None while the log is empty."""
        row = self._unit.row(select(log_checkpoints).order_by(log_checkpoints.c.size.desc()).limit(1))
        return None if row is None else bytes(row["note"])

    def append(self, *, at: int, entries: Sequence[bytes], hashes: Mapping[NodeT, bytes], checkpoint: bytes) -> None:
        """Store all of it in the caller's transaction. Raises `log_moved` if the size is not `at`."""
        self.hold()
        size = self.size()
        if size != at:
            raise Code.LOG_MOVED(expected=f"size {at}", got=f"size {size}")
        numbered = enumerate(entries, start=at)
        self._unit.insert_many(log_entries, [{"entry_index": index, "entry": entry} for index, entry in numbered])
        nodes = [{"level": node[0], "position": node[1], "hash": value} for node, value in hashes.items()]
        self._unit.insert_many(log_hashes, nodes)
        self._unit.insert(log_checkpoints, size=at + len(entries), note=checkpoint)


@functools.cache
def _select_hashes(count: int) -> TextClause:
    """Hashes by level and position. SQLite scans the table for `IN (VALUES ...)`, but not around a SELECT."""
    places = ", ".join(f"(:level_{number}, :position_{number})" for number in range(count))
    return text(
        "SELECT level, position, hash FROM log_hashes"  # noqa: S608 - made of numbers only
        f" WHERE (level, position) IN (SELECT * FROM (VALUES {places}) AS wanted)"
    )


def _gap_error(what: str) -> VerificationError:
    return VerificationError(Code.LOG_INCOMPLETE, "the stored log has a gap", expected=what, got="nothing")
