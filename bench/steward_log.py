"""The log's share of the Steward's benchmark: how long an inclusion proof takes as the log grows."""

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
from bench.steward_measure import quantile, timed
from pvdm.steward.record.log import LogQueries
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.log.log import APPEND_ENTRIES_MAX
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.proof import KnownLog
from tests.support.ledger.databases import ledger_at


@dataclass(frozen=True, slots=True)
class InclusionFigure:
    """Microseconds for one proof at random places of a log of this size; the spread is of the repetitions' medians."""

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
    """How the time grew between two sizes, as a share of how the logarithm grew."""

    smaller: int
    larger: int
    time_ratio: float
    logarithm_ratio: float

    @property
    def over_logarithm(self) -> float:
        """At most 1 where the time grows no faster than the logarithm."""
        return self.time_ratio / self.logarithm_ratio

    @property
    def holds(self) -> bool:
        """Whether it did."""
        return self.over_logarithm <= 1

    def to_json(self) -> dict[str, object]:
        """The growth in the record."""
        return {**asdict(self), "over_logarithm": self.over_logarithm, "no_faster_than_logarithm": self.holds}


@contextlib.contextmanager
def desks(
    folder: Path, sizes: Sequence[int], origin: str, signer: SigningKey
) -> Iterator[tuple[dict[int, LogQueries], float]]:
    """One log of each size, and the seconds it took to build; copied from the largest as that reaches each size."""
    path = folder / "log.db"
    with contextlib.ExitStack() as stack:
        found, seconds, reached = {}, 0.0, 0
        with ledger_at(f"sqlite:///{path}") as ledger:
            for size in sorted(sizes):
                while reached < size:
                    count = min(APPEND_ENTRIES_MAX, size - reached)
                    seconds += timed(partial(append, ledger, origin, signer, count)).seconds
                    reached += count
                # No transaction is open, so the file alone is the whole database.
                shutil.copy(path, folder / f"log-{size}.db")
        for size in sizes:
            copy = stack.enter_context(ledger_at(f"sqlite:///{folder}/log-{size}.db"))
            found[size] = LogQueries(copy, lambda _size: None)  # nothing is kept outside here
        yield found, seconds


def measure_inclusion(
    found: dict[int, LogQueries], *, repetitions: int, samples: int, random: Random, key: NoteKey
) -> list[InclusionFigure]:
    """Proofs as the service gives them (hashes read from SQLite, checkpoint attached), size by size in turn."""
    checker = KnownLog(key.name, (key,))
    times: dict[int, list[list[float]]] = {size: [] for size in found}
    for repetition in range(repetitions + 1):
        taken: dict[int, list[float]] = {size: [] for size in found}
        for _, (size, desk) in itertools.product(range(samples), found.items()):
            taken[size].append(timed(partial(desk.proof, random.randrange(size))).seconds)
        if repetition > 0:  # the first only warms up
            for size, seconds in taken.items():
                times[size].append(seconds)
    for size, desk in found.items():
        assert desk.size() == size
        for index in (random.randrange(size) for _ in range(samples)):
            checker.require_included(entry(index).to_bytes(), desk.proof(index))
    return [_figure(size, taken) for size, taken in times.items()]


def _figure(size: int, taken: Sequence[Sequence[float]]) -> InclusionFigure:
    every = [seconds * 1e6 for each in taken for seconds in each]
    medians = [statistics.median(each) * 1e6 for each in taken]
    return InclusionFigure(
        size, len(every), statistics.median(every), quantile(every, 0.99), min(medians), max(medians)
    )


def growth(figures: Sequence[InclusionFigure]) -> list[Growth]:
    """From every size to every larger one."""
    return [
        Growth(
            small.size,
            large.size,
            large.median_micros / small.median_micros,
            math.log2(large.size) / math.log2(small.size),
        )
        for small, large in itertools.combinations(sorted(figures, key=lambda figure: figure.size), 2)
    ]
