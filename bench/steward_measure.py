"""How the Steward's benchmark takes time: cases that alternate, each with a warm-up, and what their seconds come to."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from time import perf_counter, process_time


@dataclass(frozen=True, slots=True)
class Taken:
    """What one repetition took: wall time, and processor time of this process in all its threads."""

    seconds: float
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class Case:
    """Work whose one repetition does `operations`; `run` prepares untimed and gives what the rest took."""

    name: str
    operations: int
    run: Callable[[], Taken]
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """Operations a second over all repetitions; `processor_share` is 1 where one core was busy all the time."""

    operations: int
    threads: int
    per_second: float
    per_second_min: float
    per_second_max: float
    processor_share: float
    seconds: tuple[float, ...]

    @classmethod
    def of(cls, case: Case, taken: Sequence[Taken]) -> Figure:
        """The figure of these repetitions."""
        seconds = tuple(each.seconds for each in taken)
        return cls(
            case.operations,
            case.threads,
            case.operations / statistics.median(seconds),
            case.operations / max(seconds),
            case.operations / min(seconds),
            sum(each.processor_seconds for each in taken) / sum(seconds),
            seconds,
        )

    def to_json(self) -> dict[str, object]:
        """The figure in the record."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One rate over another: the median of the repetitions' ratios, since both sides took turns on one machine."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, over: Figure, under: Figure) -> Ratio:
        """How many times as fast `over` was."""
        pairs = zip(over.seconds, under.seconds, strict=True)
        found = [(over.operations / mine) / (under.operations / other) for mine, other in pairs]
        return cls(statistics.median(found), min(found), max(found))


def measure(cases: Sequence[Case], repetitions: int) -> dict[str, Figure]:
    """Every case `repetitions` times, alternating, after a warm-up of each that does not count."""
    taken: dict[str, list[Taken]] = {case.name: [] for case in cases}
    assert len(taken) == len(cases)
    for case in cases:
        case.run()
    for _ in range(repetitions):
        for case in cases:
            taken[case.name].append(case.run())
    return {case.name: Figure.of(case, taken[case.name]) for case in cases}


def timed(work: Callable[[], object]) -> Taken:
    """What one call took."""
    processor, start = process_time(), perf_counter()
    work()
    return Taken(perf_counter() - start, process_time() - processor)


def timed_each(steps: Sequence[Callable[[], object]], threads: int) -> Taken:
    """All steps, shared out evenly to so many threads that start together; until the last of them is through."""
    if threads == 1:
        return timed(lambda: _run(steps))
    ready = threading.Barrier(threads + 1)

    def part(number: int) -> None:
        ready.wait()
        _run(steps[number::threads])

    with ThreadPoolExecutor(threads) as pool:
        parts = [pool.submit(part, number) for number in range(threads)]

        def finish() -> None:
            ready.wait()
            for each in parts:
                each.result()

        return timed(finish)


def _run(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        step()


def quantile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least this share of all are not above."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]
