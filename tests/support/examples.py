"""How many examples a property test is tried with."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_WHOLE: Final = 200
"""A profile that tries fewer examples by default than these tries fewer of the named numbers as well."""
_LEAST: Final = 10


def examples(count: int) -> settings:
    """`count` examples in `make test-long`, and the profile's share of them in the other runs."""
    share = min(settings().max_examples, _WHOLE)
    return settings(max_examples=max(_LEAST, count * share // _WHOLE))
