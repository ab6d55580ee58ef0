"""Runs one test for many values in a loop and reports every failure: for values that are checked in a moment."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest

SHOWN: Final = 20
"""So many failures are reported whole; of the others the name alone."""
Test = Callable[..., None]


def for_each(
    names: str | Sequence[str],
    values: Iterable[Any],
    *,
    ids: Callable[[Any], str] | Iterable[str] | None = None,
) -> Callable[[Test], Test]:
    """Do what `pytest.mark.parametrize` does in a single test; fixtures are shared by all values.

    Thousands of values are collected and scheduled as one test. Not for tests that change a function's fixture.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    named = ids if ids is None or callable(ids) else list(ids)
    rows = [_row(wanted, value, at, named) for at, value in enumerate(values)]
    assert rows, f"there is no value for {', '.join(wanted)}"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        assert set(wanted) <= set(signature.parameters), f"{test.__name__} does not take {wanted}"

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[tuple[str, Exception]] = []
            for name, arguments in rows:
                try:
                    test(**fixtures, **arguments)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"for {name}")
                    failed.append((name, error if isinstance(error, Exception) else _assertion(error)))
            if failed:
                listed = ", ".join(name for name, _ in failed)
                raise ExceptionGroup(
                    f"{len(failed)} of {len(rows)} fail: {listed}", [error for _, error in failed[:SHOWN]]
                )

        del run.__wrapped__
        kept = [each for name, each in signature.parameters.items() if name not in wanted]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate


def _row(
    names: Sequence[str], value: Any, at: int, ids: Callable[[Any], str] | Sequence[str] | None
) -> tuple[str, dict[str, Any]]:
    """A value's name in reports, and its arguments."""
    named = None
    if isinstance(value, type(pytest.param())):
        assert not value.marks, "a value with marks is a test of its own"
        named, parts = value.id, value.values
    else:
        parts = (value,) if len(names) == 1 else tuple(value)
    if named is None:
        if callable(ids):
            named = "-".join(str(ids(part)) for part in parts)
        else:
            named = repr(parts if len(parts) > 1 else parts[0])[:200] if ids is None else ids[at]
    return str(named), dict(zip(names, parts, strict=True))


def _assertion(error: BaseException) -> AssertionError:
    """What `pytest.fail` and `pytest.raises` raise, which is no Exception."""
    made = AssertionError(str(error)).with_traceback(error.__traceback__)
    for note in error.__notes__:
        made.add_note(note)
    return made
