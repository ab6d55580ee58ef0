"""Files grouped by size into few tasks, since a Python task costs as much as a file of some megabytes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeVar

from pvdm.verify.spark.settings import TASKS_A_CORE_MAX

_Each = TypeVar("_Each")


def grouped(given: Sequence[tuple[int, _Each]], cores: int) -> list[list[_Each]]:
    """Pairs of size and thing in at most four groups a core, the largest first and each to the smallest group.

    Every thing is in one group, no group is empty, and the same things give the same groups. An empty file still
    costs its opening.
    """
    count = min(len(given), TASKS_A_CORE_MAX * max(1, cores))
    groups: list[list[_Each]] = [[] for _ in range(count)]
    loads = [(0, at) for at in range(count)]
    for size, each in sorted(given, key=lambda pair: -pair[0]):
        load, at = heapq.heappop(loads)
        groups[at].append(each)
        heapq.heappush(loads, (load + size + 1, at))
    return groups
