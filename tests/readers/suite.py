"""Publishes accepted files in one batch, asks every engine, and counts answers that are not the kernel's."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from tests.readers.engines import Cases, Reader
from tests.readers.generation import Case, generate, numbered
from tests.readers.publishing import Lane, Published, Publisher
from tests.readers.questions import Answer, Expected, Question, answer, plain, questions
from tests.readers.rows import CASE, ID, NAMES
from tests.readers.writers import Writer

ONE_COLUMN_IN = 5
ONE_COLUMN_IN_IF_SPARING = 12
"""For changes that are about no single column, a table is asked about one column in so many; the next about others."""
ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "build" / "readers"
Readers = Callable[[Published], Sequence[Reader]]
Ask = Callable[[Cases], pa.Table | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """An engine's answer that is not the kernel's."""

    case: int
    engine: str
    asked: str
    expected: str
    got: str


@dataclass
class Report:
    """What a run found."""

    lane: str
    seed: str
    made: int = 0
    accepted: int = 0
    read: int = 0
    queries: Counter[str] = field(default_factory=Counter)
    writers: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    unreadable: dict[str, dict[int, str]] = field(default_factory=dict)
    changes: dict[int, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Each change that is read differently: by which engines, for which questions."""
        found: dict[int, list[str]] = {}
        for each in self.differences:
            found.setdefault(each.case, []).append(f"{each.engine}: {each.asked}")
        return [f"{self.changes[case]}  ->  {'; '.join(listed[:6])} ({len(listed)})" for case, listed in found.items()]

    def to_json(self) -> dict[str, Any]:
        return {
            "lane": self.lane,
            "seed": self.seed,
            "made": self.made,
            "accepted": self.accepted,
            "engines": sorted(self.queries),
            "queries": dict(self.queries),
            "writers": dict(self.writers),
            "seconds": {name: round(taken, 1) for name, taken in self.seconds.items()},
            "differences": len(self.differences),
            "different_files": self.lines(),
            "unreadable": {
                engine: {self.changes[case]: why[:200] for case, why in cases.items()}
                for engine, cases in self.unreadable.items()
            },
        }

    def write(self, name: str) -> None:
        REPORTS.mkdir(parents=True, exist_ok=True)
        (REPORTS / f"{name}.json").write_text(json.dumps(self.to_json(), indent=1) + "\n")


T = TypeVar("T")


def catch_failure(query: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """The result of the query, or its failure. A panic of an engine in Rust is a BaseException."""
    try:
        return query(), None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return None, error


@dataclass
class Asking:
    """One engine asked about one table; what it cannot read is found by halving and left out from then on."""

    reader: Reader
    cases: Sequence[Case]
    expected: Expected
    report: Report
    share: int = 0
    left_out: dict[str, set[int]] = field(default_factory=dict)

    def ask_all(self, *, thorough: bool, about: Collection[str] = (), sparing: bool = False) -> None:
        """Ask about all columns, or those in `about`.

        If `thorough`, every case is in every question. If `sparing`, a case is asked about its change's own column,
        and about some others in turn.
        """
        names = self.expected.names
        numbers = [each.number for each in self.cases]
        one_in = ONE_COLUMN_IN_IF_SPARING if sparing else ONE_COLUMN_IN
        self._compare(
            "all columns", names, numbers, lambda cases: self.reader.rows(names, cases), self._rows(names[1:])
        )
        for position, name in enumerate(names):
            if about and name not in about:
                continue
            alone = self._cases_to_ask(name, position, one_in) if sparing else numbers
            if position > 0 and alone:
                self._ask_column(name, alone)
            asked_of = numbers if thorough else self._cases_to_ask(name, position, one_in)
            for question in questions(name, thorough=thorough) if asked_of else ():
                self._filter(question, asked_of)
        apart = one_in if sparing else 2
        for each in self.cases:
            if thorough or each.number % apart == self.share % apart:
                self._aggregates(each)

    def _cases_to_ask(self, name: str, position: int, one_in: int) -> list[int]:
        """The cases about this column. For one column in `one_in`, also the cases about no single column."""
        common = position % one_in == self.share % one_in
        return [
            each.number for each in self.cases if each.change.column == name or (common and each.change.column is None)
        ]

    def _rows(self, names: Sequence[str]) -> Callable[[Sequence[int]], Answer]:
        return lambda numbers: self.expected.rows(names, numbers)

    def _ask_column(self, name: str, numbers: Sequence[int]) -> None:
        ask = lambda cases: self.reader.rows((CASE, name), cases)  # noqa: E731
        self._compare(f"column {name}", (name,), numbers, ask, self._rows((name,)))

    def _filter(self, question: Question, numbers: Sequence[int]) -> None:
        ask = lambda cases: self.reader.filtered(question, cases)  # noqa: E731
        right = lambda some: self.expected.filtered(question, some)  # noqa: E731
        self._compare(str(question), (question.column, ID), numbers, ask, right)

    def _compare(
        self,
        asked: str,
        columns: Sequence[str],
        numbers: Sequence[int],
        ask: Ask,
        right: Callable[[Sequence[int]], Answer],
    ) -> None:
        known = ("*", *columns) if len(columns) < 3 else ("*",)
        bad = set[int]().union(*(self.left_out.get(name, set()) for name in known))
        got: Answer = {}
        readable: list[int] = []
        for answered, table in self._halve([each for each in numbers if each not in bad], ask, columns):
            if table is None:
                return
            readable += answered
            for case, found in answer(table).items():
                got.setdefault(case, Counter()).update(found)
        self.report.queries[self.reader.name] += 1
        wanted = right(readable)
        for case in sorted({*got, *wanted}, key=repr):
            if got.get(case) != wanted.get(case):
                self._differs(case, asked, wanted.get(case), got.get(case))

    def _halve(self, cases: Cases, ask: Ask, columns: Sequence[str]) -> Iterator[tuple[Sequence[int], pa.Table | None]]:
        """The answers about these cases, without those that the engine cannot read."""
        if not cases:
            return
        found, error = catch_failure(lambda: ask(cases))
        if error is None:
            yield cases, found
        else:
            if len(cases) > 1:
                yield from self._halve(cases[: len(cases) // 2], ask, columns)
                yield from self._halve(cases[len(cases) // 2 :], ask, columns)
                return
            if len(columns) < 3:
                self.left_out.setdefault(columns[0], set()).add(cases[0])
            elif not self._can_read_ids(cases[0]):
                self.left_out.setdefault("*", set()).add(cases[0])
            why = f"{'all columns' if len(columns) > 2 else columns[0]}: {type(error).__name__}: {error}"
            self.report.unreadable.setdefault(self.reader.name, {})[cases[0]] = why

    def _can_read_ids(self, case: int) -> bool:
        """Whether the engine can read anything of the case."""
        return catch_failure(lambda: self.reader.rows((CASE, ID), (case,)))[1] is None

    def _aggregates(self, case: Case) -> None:
        names = [name for name in self.expected.names if name in case.rows.column_names]
        left = {name for name, cases in self.left_out.items() if case.number in cases}
        if "*" in left:
            return
        names = [name for name in names if name not in left]
        found, error = catch_failure(lambda: self.reader.aggregates(case.number, names))
        if error is not None:
            why = f"aggregates: {type(error).__name__}: {error}"
            self.report.unreadable.setdefault(self.reader.name, {})[case.number] = why
            return
        if found is None:
            return
        self.report.queries[self.reader.name] += 1
        right = self.expected.aggregates(case.number, names)
        for name, value in found.items():
            if plain(value) != right[name]:
                self._differs(case.number, f"the file's {name}", right[name], value)

    def _differs(self, case: int, asked: str, expected: object, got: object) -> None:
        found = Difference(case, self.reader.name, asked, str(expected)[:300], str(got)[:300])
        self.report.differences.append(found)


def make_cases(lane: Lane, writers: Sequence[Writer], count: int, seed: str, report: Report) -> list[Case]:
    changes, made = generate(writers, count, lane.without, lane.storage, f"{seed} {lane.name}")
    cases = numbered(changes, lane.without, lane.storage)
    report.made += made
    report.accepted += len(cases)
    record_cases(cases, report)
    return cases


def record_cases(cases: Sequence[Case], report: Report) -> None:
    report.changes |= {each.number: str(each.change) for each in cases}
    report.writers.update(each.change.writer.engine for each in cases)


def expected_of(cases: Sequence[Case], lane: Lane) -> Expected:
    return Expected({each.number: each.rows for each in cases}, [name for name in NAMES if name not in lane.without])


def rows_of(cases: Sequence[Case]) -> pa.Table:
    # A file may have narrower numbers inside a struct.
    return pa.concat_tables([each.rows for each in cases], promote_options="permissive")


def read_by_all(
    published: Published,
    cases: Sequence[Case],
    readers: Readers,
    report: Report,
    *,
    thorough: bool = False,
    share: int = 0,
    about: Collection[str] = (),
    sparing: bool = False,
) -> None:
    """Ask every engine; the parameters are those of `Asking.ask_all`."""
    expected = expected_of(cases, published.lane)
    for reader in readers(published):
        begun = time.monotonic()
        try:
            Asking(reader, cases, expected, report, share).ask_all(thorough=thorough, about=about, sparing=sparing)
        finally:
            reader.close()
            report.seconds[reader.name] = time.monotonic() - begun


def run_lane(
    publisher: Publisher,
    lane: Lane,
    writers: Sequence[Writer],
    readers: Readers,
    *,
    count: int,
    seed: str,
    share: int = 0,
    sparing: bool = False,
) -> Report:
    """Make, publish and read so many accepted files."""
    report = Report(lane.name, seed)
    begun = time.monotonic()
    cases = make_cases(lane, writers, count, seed, report)
    published = publisher.publish(lane, {each.number: each.data for each in cases}, rows_of(cases))
    report.seconds["making and publishing"] = time.monotonic() - begun
    assert sorted(published.files) == [each.number for each in cases]
    read_by_all(published, cases, readers, report, share=share, sparing=sparing)
    return report
