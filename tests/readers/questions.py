"""What every engine is asked of a published table, and the right answers from the kernel's rows."""

from __future__ import annotations

import datetime
import math
import operator
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tests.readers.rows import CASE, ID, NAMES, NESTED, ORDERED, UTC, ends

COMPARED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Answer = dict[int, Counter[Any]]
"""What was found of each case."""


@dataclass(frozen=True, slots=True)
class Question:
    """A filter: the column, how it is compared, and with what."""

    column: str
    sign: str
    value: Any = None

    def __str__(self) -> str:
        return f"{self.column} {self.sign}" + ("" if self.value is None else f" {self.value!r}")

    def holds(self, value: Any) -> bool:
        if self.sign == "is null":
            return value is None
        if self.sign == "is not null":
            return value is not None
        if value is None:
            return False
        wanted = plain(self.value)
        if isinstance(value, str) and value == "NaN":
            return False
        return bool(COMPARED[self.sign](value, wanted))


EQUALS_ONLY: Final = frozenset({"flag", "key", "mark", "code"})
"""Columns that engines order differently, or that some engine cannot order."""


def questions(name: str, *, thorough: bool) -> tuple[Question, ...]:
    """Filters on a column: at its ends, in its middle and for nulls; `thorough` adds filters beyond the ends."""
    if name in NESTED - {"place"}:
        return ()  # PyIceberg has no filter on lists and maps
    found = [Question(name, "is null")]
    if name not in ORDERED:
        return tuple(found)
    least, greatest, middle = ends(name)
    found += [Question(name, "=", value) for value in dict.fromkeys((least, middle, greatest))]
    if name not in EQUALS_ONLY:
        found += [Question(name, "<=", least), Question(name, ">=", greatest)]
    if thorough:
        found.append(Question(name, "is not null"))
        if name not in EQUALS_ONLY:
            found += [Question(name, "<", least), Question(name, ">", greatest)]
            found += [
                Question(name, sign, value) for value in values_beyond(least, greatest) for sign in ("=", "<=", ">=")
            ]
    return tuple(found)


def values_beyond(least: Any, greatest: Any) -> tuple[Any, ...]:
    """A value below the least, and one above the greatest."""
    match least:
        case int():
            return least - 1, greatest + 1
        case float():
            return least - 0.25, greatest + 0.25
        case Decimal():
            step = Decimal(1).scaleb(int(least.as_tuple().exponent))
            return least - step, greatest + step
        case datetime.datetime():
            return least - datetime.timedelta(microseconds=1), greatest + datetime.timedelta(microseconds=1)
        case datetime.date():
            return least - datetime.timedelta(days=1), greatest + datetime.timedelta(days=1)
        case str():
            return least[:-1], greatest + "a"
    return ()


def plain(value: Any) -> Any:
    """A value in the one form that all engines' values are brought to; it can be hashed."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case datetime.datetime():
            return value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        case uuid.UUID():
            return value.bytes
        case bytearray() | memoryview():
            return bytes(value)
        case dict() if set(value) == {"floor", "hall"}:
            return ("struct", value["floor"], value["hall"])
        case dict() if set(value) == {"key", "value"}:
            return (value["key"], value["value"])
        case dict():
            return ("list", *((key, each) for key, each in value.items()))
        case list():
            return ("list", *(plain(each) for each in value))
        case _:
            return value


def plain_column(name: str, values: Iterable[Any]) -> list[Any]:
    made = [plain(each) for each in values]
    if name == "key":
        made = [uuid.UUID(each).bytes if isinstance(each, str) else each for each in made]
    return made


def plain_table(table: pa.Table) -> dict[str, list[Any]]:
    return {
        name: plain_column(name, column.to_pylist())
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def answer(table: pa.Table) -> Answer:
    """The rows of a result by their case, which is its first column."""
    found = plain_table(table)
    cases = found.pop(CASE)
    made: Answer = {}
    for case, *values in zip(cases, *found.values(), strict=True):
        made.setdefault(case, Counter())[tuple(values)] += 1
    return made


class Expected:
    """The kernel's rows of each case, and what they answer."""

    def __init__(self, files: Mapping[int, pa.Table], names: Sequence[str] = NAMES) -> None:
        self.names = tuple(names)
        self.columns: dict[int, dict[str, list[Any]]] = {}
        for case, table in files.items():
            found = plain_table(table)
            for name in names:
                found.setdefault(name, [None] * table.num_rows)
            self.columns[case] = found

    def rows(self, names: Sequence[str], cases: Iterable[int]) -> Answer:
        return {case: Counter(zip(*(self.columns[case][name] for name in names), strict=True)) for case in cases}

    def filtered(self, question: Question, cases: Iterable[int]) -> Answer:
        made: Answer = {}
        for case in cases:
            columns = self.columns[case]
            pairs = zip(columns[question.column], columns[ID], strict=True)
            if found := Counter((number,) for value, number in pairs if question.holds(value)):
                made[case] = found
        return made

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any]:
        """Count of rows, counts of values, least and greatest values."""
        columns = self.columns[case]
        found: dict[str, Any] = {"rows": len(columns[CASE])}
        for name in names:
            values = [value for value in columns[name] if value is not None]
            found[f"count {name}"] = len(values)
            if name in ORDERED and name not in EQUALS_ONLY:
                found[f"min {name}"] = min(values, default=None)
                found[f"max {name}"] = max(values, default=None)
        return found
