"""Long lists of values for an `IN`, in parts: a database takes only so many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

_ASKED_AT_ONCE: Final = 500


def in_batches(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """The values in their order, so many at a time as one statement takes."""
    for start in range(0, len(values), _ASKED_AT_ONCE):
        yield values[start : start + _ASKED_AT_ONCE]
