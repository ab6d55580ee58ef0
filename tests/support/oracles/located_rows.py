"""What is wrong with rows, told the naive way: counters of keys and rows, and nothing of the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

Pair = tuple[Hashable, Hashable]


@dataclass(frozen=True, slots=True)
class Wrong:
    """Rows of each class, and the keys that have rows of it, with how many."""

    missing: Counter[Hashable]
    added: Counter[Hashable]
    duplicated: Counter[Hashable]
    modified: Counter[Hashable]


def wrong(intent: Iterable[Pair], staged: Iterable[Pair]) -> Wrong:
    """Pairs of key and content on both sides."""
    wanted, got = Counter(intent), Counter(staged)
    missing: Counter[Hashable] = Counter()
    others: Counter[Hashable] = Counter()
    duplicated: Counter[Hashable] = Counter()
    for (key, _), count in (wanted - got).items():
        missing[key] += count
    for (key, row), count in (got - wanted).items():
        (duplicated if (key, row) in wanted else others)[key] += count
    modified = missing & others
    return Wrong(missing - modified, others - modified, duplicated, modified)
