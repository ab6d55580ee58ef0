"""Locating: which rows of two sides that differ are wrong, in two passes over both, linear in time, bounded in memory.

Pass one leaves for each bucket of keys the difference of both sides; pass two collects the rows of the buckets that
differ, in memory or beyond it in a spool, sorts them and tells what is missing, added, duplicated and modified. All
hashes are under a key that is drawn here, used once and never told: row hashes of an attempt's key are forgeries.
"""

from __future__ import annotations

import math
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from pvdm.digest import Plan
from pvdm.digest.parquet import FileRequest
from pvdm.digest.sharing import share
from pvdm.errors import Code
from pvdm.model.projection import ProjectionName

if TYPE_CHECKING:
    from pvdm.digest.locating import Sieve, Suspects

LOCATE_MEMORY_MAX_BYTES: Final = 268_435_456
LOCATE_SPOOL_MAX_BYTES: Final = 34_359_738_368
LOCATE_SECONDS_MAX: Final = 3_600
SAMPLE_KEYS_MAX: Final = 20
_KEY_BYTES: Final = 32
_BITS_MIN, _BITS_MAX = 8, 20
# Identity, content and place of a row; each field adds eight bytes.
_RECORD_BYTES: Final = 40
_FIELD_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Bounds:
    """What locating may take; `folder` is where its spool lies, the system's own place where it is None."""

    memory_bytes: int = LOCATE_MEMORY_MAX_BYTES
    spool_bytes: int = LOCATE_SPOOL_MAX_BYTES
    seconds: float = LOCATE_SECONDS_MAX
    samples: int = SAMPLE_KEYS_MAX
    folder: Path | None = None


class IntentSide(Protocol):
    """The intended rows, file by file; each time they are asked for, the same rows in the same order."""

    def __len__(self) -> int:
        """How many files there are."""

    def rows(self, file: int) -> Iterator[pa.RecordBatch]:
        """The rows of one file, in the target's columns."""


class StagedSide(Protocol):
    """The staged files, held to what was frozen each time they are fetched."""

    @property
    def request(self) -> FileRequest:
        """How they are read."""

    def __len__(self) -> int:
        """How many files there are."""

    def data(self, file: int) -> bytes:
        """The bytes of one file."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows each side has, as the digests counted them."""

    intent: int
    staged: int


class Locating:
    """One locating of one attempt's rows."""

    def __init__(
        self, plan: Plan, intent: IntentSide, staged: StagedSide, *, threads: int = 1, bounds: Bounds | None = None
    ) -> None:
        self._plan = plan
        self._intent = intent
        self._staged = staged
        self._threads = max(1, threads)
        self._bounds = bounds or Bounds()
        self._until = time.monotonic() + self._bounds.seconds
        # Files of both sides, as numbers: below none those of the intent, then the staged ones.
        self._files = [(False, at) for at in range(len(intent))] + [(True, at) for at in range(len(staged))]
        self.spooled = False

    def run(self, rows: Rows) -> dict[str, Any]:
        """What the kernel tells: for each class its rows, by file, and places of the first keys; checked by count."""
        sieve = self._sieve(rows)
        _, suspected = sieve.differing()
        with tempfile.TemporaryDirectory(prefix="pvdm-locate-", dir=self._bounds.folder) as folder:
            found = self._collect(sieve, suspected, Path(folder)).tally(self._bounds.samples)
        _require_explained(found, rows)
        return found

    def _sieve(self, rows: Rows) -> Sieve:
        from pvdm.digest.locating import Sieve

        key, bits = secrets.token_bytes(_KEY_BYTES), _bits(max(rows.intent, rows.staged))

        def sift(sieve: Sieve, is_staged: bool, file: int) -> None:
            if is_staged:
                sieve.read(self._staged.data(file), self._staged.request)
                return
            for batch in self._intent.rows(file):
                self.require_time()
                sieve.add(batch)

        first, *others = self._each([Sieve(self._plan, key, bits) for _ in range(self._threads)], sift)
        for other in others:
            first.merge(other)
        return first

    def _collect(self, sieve: Sieve, suspected: int, folder: Path) -> Suspects:
        bounds, columns = self._bounds, len(self._plan.projection(ProjectionName.CONTENT).columns)
        # Which fields differ is told where there is room for it; which rows do, before that.
        fields = suspected * (_RECORD_BYTES + _FIELD_BYTES * columns) <= bounds.spool_bytes

        def collect(suspects: Suspects, is_staged: bool, file: int) -> None:
            if is_staged:
                suspects.read(self._staged.data(file), self._staged.request, file)
                return
            seen = 0
            for batch in self._intent.rows(file):
                self.require_time()
                suspects.add(batch, file, seen)
                seen += batch.num_rows

        workers = [
            sieve.suspects(
                fields=fields,
                memory_bytes=bounds.memory_bytes // self._threads,
                spool=folder / f"rows-{at}",
                spool_bytes=bounds.spool_bytes // self._threads,
            )
            for at in range(self._threads)
        ]
        first, *others = self._each(workers, collect)
        for other in others:
            first.absorb(other)
        self.spooled = first.is_spooled
        return first

    def _each(self, workers: Sequence[_W], work: Callable[[_W, bool, int], None]) -> Sequence[_W]:
        """Every file once, by whichever worker is free."""

        def taking(worker: _W) -> Callable[[tuple[bool, int]], None]:
            def one(file: tuple[bool, int]) -> None:
                self.require_time()
                work(worker, *file)

            return one

        share(self._files, [taking(worker) for worker in workers])
        return workers

    def require_time(self) -> None:
        """Locating never holds a verdict up for longer than this."""
        if time.monotonic() > self._until:
            raise Code.LOCATE_FAILED(
                reason="locate_too_slow", expected=f"at most {self._bounds.seconds:g} seconds", got="more"
            )


_W = TypeVar("_W")


def _bits(rows: int) -> int:
    """About four rows a bucket, as long as the buckets stay small beside the files in memory."""
    return min(_BITS_MAX, max(_BITS_MIN, math.ceil(math.log2(rows / 4 + 1))))


def _require_explained(found: dict[str, Any], rows: Rows) -> None:
    """The rows that were found explain the digests: some are wrong, and they make up the difference of the counts."""
    counts = {name: found[name]["rows"] for name in ("missing", "added", "duplicated", "modified")}
    surplus = counts["added"] + counts["duplicated"] - counts["missing"]
    if surplus != rows.staged - rows.intent or not any(counts.values()):
        raise Code.LOCATE_INCONSISTENT(expected=f"{rows.staged - rows.intent} rows more", got=f"{surplus}")
