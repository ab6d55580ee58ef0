"""Counts missing, added, duplicated and modified rows in plain Python, to check the kernel's result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

Pair = tuple[Hashable, Hashable]
"""A row: its key and its content."""


@dataclass(frozen=True, slots=True)
class WrongRowCounts:
    """For each class of wrong rows: the keys that have such rows, each with the number of its rows."""

    missing: Counter[Hashable]
    added: Counter[Hashable]
    duplicated: Counter[Hashable]
    modified: Counter[Hashable]


def count_wrong_rows(intent: Iterable[Pair], staged: Iterable[Pair]) -> WrongRowCounts:
    """Compare the rows of intent and staged.

    A staged row too many is duplicated if intent has the same row. If its key also has a missing row, both are one
    modified row. Otherwise it is added.
    """
    wanted, got = Counter(intent), Counter(staged)
    missing: Counter[Hashable] = Counter()
    unwanted: Counter[Hashable] = Counter()
    duplicated: Counter[Hashable] = Counter()
    for (key, _), count in (wanted - got).items():
        missing[key] += count
    for (key, row), count in (got - wanted).items():
        counter = duplicated if (key, row) in wanted else unwanted
        counter[key] += count
    modified = missing & unwanted
    return WrongRowCounts(missing - modified, unwanted - modified, duplicated, modified)
