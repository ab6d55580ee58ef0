"""The part of the Steward's benchmark about the log: how long an inclusion proof takes as the log grows."""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

from bench.steward_ledger import append, entry
from bench.steward_measure import quantile, time_call
from pvdm.steward.record.log import LogQueries
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.log.log import APPEND_ENTRIES_MAX
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.proof import KnownLog
from tests.support.ledger.databases import ledger_at


@dataclass(frozen=True, slots=True)
class InclusionFigure:
    """Microseconds for the proof of a random entry in a log of this size; minimum and maximum of the medians."""

    size: int
    samples: int
    median_micros: float
    p99_micros: float
    median_micros_min: float
    median_micros_max: float

    def to_json(self) -> dict[str, object]:
        """The figure in the record."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Growth:
    """How much the time grew between two sizes, compared with the logarithm of the size."""

    smaller: int
    larger: int
    time_ratio: float
    logarithm_ratio: float

    @property
    def over_logarithm(self) -> float:
        """At most 1 if the time grew no faster than the logarithm."""
        return self.time_ratio / self.logarithm_ratio

    @property
    def holds(self) -> bool:
        """Whether the time grew no faster than the logarithm."""
        return self.over_logarithm <= 1

    def to_json(self) -> dict[str, object]:
        """The growth in the record."""
        return {**asdict(self), "over_logarithm": self.over_logarithm, "no_faster_than_logarithm": self.holds}


@contextlib.contextmanager
def open_logs(
    folder: Path, sizes: Sequence[int], origin: str, signer: SigningKey
) -> Iterator[tuple[dict[int, LogQueries], float]]:
    """One log of each size, and the seconds to build the largest, which is copied whenever it reaches a size."""
    path = folder / "log.db"
    with contextlib.ExitStack() as stack:
        found, seconds, reached = {}, 0.0, 0
        with ledger_at(f"sqlite:///{path}") as ledger:
            for size in sorted(sizes):
                while reached < size:
                    count = min(APPEND_ENTRIES_MAX, size - reached)
                    seconds += time_call(partial(append, ledger, origin, signer, count)).seconds
                    reached += count
                # No transaction is open, so the file alone is the whole database.
                shutil.copy(path, folder / f"log-{size}.db")
        for size in sizes:
            copy = stack.enter_context(ledger_at(f"sqlite:///{folder}/log-{size}.db"))
            found[size] = LogQueries(copy, lambda _size: None)  # there is no outside checkpoint here
        yield found, seconds


def measure_inclusion(
    found: dict[int, LogQueries], *, repetitions: int, samples: int, random: Random, key: NoteKey
) -> list[InclusionFigure]:
    """Time proofs as the service makes them (hashes read from SQLite, with a checkpoint); the sizes take turns."""
    checker = KnownLog(key.name, (key,))
    times: dict[int, list[list[float]]] = {size: [] for size in found}
    for repetition in range(repetitions + 1):
        taken: dict[int, list[float]] = {size: [] for size in found}
        for _, (size, queries) in itertools.product(range(samples), found.items()):
            taken[size].append(time_call(partial(queries.proof, random.randrange(size))).seconds)
        if repetition > 0:  # the first only warms up
            for size, seconds in taken.items():
                times[size].append(seconds)
    for size, queries in found.items():
        assert queries.size() == size
        for index in (random.randrange(size) for _ in range(samples)):
            checker.require_included(entry(index).to_bytes(), queries.proof(index))
    return [_figure(size, taken) for size, taken in times.items()]


def _figure(size: int, taken: Sequence[Sequence[float]]) -> InclusionFigure:
    every = [seconds * 1e6 for repetition in taken for seconds in repetition]
    medians = [statistics.median(repetition) * 1e6 for repetition in taken]
    return InclusionFigure(
        size, len(every), statistics.median(every), quantile(every, 0.99), min(medians), max(medians)
    )


def growth(figures: Sequence[InclusionFigure]) -> list[Growth]:
    """The growth from every size to every larger one."""
    return [
        Growth(
            small.size,
            large.size,
            large.median_micros / small.median_micros,
            math.log2(large.size) / math.log2(small.size),
        )
        for small, large in itertools.combinations(sorted(figures, key=lambda figure: figure.size), 2)
    ]
