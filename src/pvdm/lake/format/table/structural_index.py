"""Parts of a table or view found by what they mean, each looked at once, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Alike(Generic[_T]):
    """The ids of parts by their meaning; of parts that mean the same the first one counts."""

    def __init__(self, parts: Mapping[int, _T], meaning: Callable[[_T], Hashable]) -> None:
        self._meaning = meaning
        self._ids: dict[Hashable, dict[int, None]] = {}
        self._meanings: dict[int, Hashable] = {}
        for part_id, part in parts.items():
            self.add(part_id, part)

    def find(self, part: _T) -> int | None:
        """The id of the part that means the same."""
        return next(iter(self._ids.get(self._meaning(part), ())), None)

    def add(self, part_id: int, part: _T) -> None:
        """Remember one more part."""
        meaning = self._meanings[part_id] = self._meaning(part)
        self._ids.setdefault(meaning, {})[part_id] = None

    def remove(self, part_id: int) -> None:
        """Forget a part."""
        del self._ids[self._meanings.pop(part_id)][part_id]
