"""The number of random examples of a property test."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_WHOLE: Final = 200
"""A Hypothesis profile with fewer examples by default tries that share of a test's number, for example 25 / 200."""
_LEAST: Final = 10


def examples(count: int) -> settings:
    """Settings with `count` examples in `make test-long`, and with the profile's share of them in other runs."""
    share = min(settings().max_examples, _WHOLE)
    return settings(max_examples=max(_LEAST, count * share // _WHOLE))
