"""Times the cases of the Steward's benchmark: they take turns after a warm-up, and their seconds give the figures."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from time import perf_counter, process_time


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The wall time of one repetition, and the processor time of this process with all its threads."""

    seconds: float
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class Case:
    """Work whose repetition has `operations` operations; `run` does it and returns its time without the preparation."""

    name: str
    operations: int
    run: Callable[[], Elapsed]
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """Operations a second over all repetitions; `processor_share` is 1 if one core was busy all the time."""

    operations: int
    threads: int
    per_second: float
    per_second_min: float
    per_second_max: float
    processor_share: float
    seconds: tuple[float, ...]

    @classmethod
    def of(cls, case: Case, taken: Sequence[Elapsed]) -> Figure:
        """The figure of these repetitions."""
        seconds = tuple(elapsed.seconds for elapsed in taken)
        return cls(
            case.operations,
            case.threads,
            case.operations / statistics.median(seconds),
            case.operations / max(seconds),
            case.operations / min(seconds),
            sum(elapsed.processor_seconds for elapsed in taken) / sum(seconds),
            seconds,
        )

    def to_json(self) -> dict[str, object]:
        """The figure in the record."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One rate divided by another, repetition by repetition: the median, minimum and maximum of these ratios."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, over: Figure, under: Figure) -> Ratio:
        """The rate of `over` divided by that of `under`."""
        pairs = zip(over.seconds, under.seconds, strict=True)
        ratios = [(over.operations / over_time) / (under.operations / under_time) for over_time, under_time in pairs]
        return cls(statistics.median(ratios), min(ratios), max(ratios))


def measure(cases: Sequence[Case], repetitions: int) -> dict[str, Figure]:
    """Run every case `repetitions` times, in turn, after a warm-up of each that does not count."""
    taken: dict[str, list[Elapsed]] = {case.name: [] for case in cases}
    assert len(taken) == len(cases)
    for case in cases:
        case.run()
    for _ in range(repetitions):
        for case in cases:
            taken[case.name].append(case.run())
    return {case.name: Figure.of(case, taken[case.name]) for case in cases}


def time_call(work: Callable[[], object]) -> Elapsed:
    """The time of one call."""
    processor, start = process_time(), perf_counter()
    work()
    return Elapsed(perf_counter() - start, process_time() - processor)


def time_steps(steps: Sequence[Callable[[], object]], threads: int) -> Elapsed:
    """The time of all steps, divided among threads that start together, until the last thread has ended."""
    if threads == 1:
        return time_call(lambda: _run(steps))
    ready = threading.Barrier(threads + 1)

    def part(number: int) -> None:
        ready.wait()
        _run(steps[number::threads])

    with ThreadPoolExecutor(threads) as pool:
        parts = [pool.submit(part, number) for number in range(threads)]

        def finish() -> None:
            ready.wait()
            for future in parts:
                future.result()

        return time_call(finish)


def _run(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        step()


def quantile(samples: Sequence[float], share: float) -> float:
    """The smallest sample such that at least this share of all samples is not larger."""
    ordered = sorted(samples)
    count = math.ceil(len(ordered) * round(share * 1000) / 1000)
    return ordered[max(0, count - 1)]
