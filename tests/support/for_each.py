"""Runs one test for many values in a loop and reports every failure, for values that are checked quickly."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest

SHOWN: Final = 20
"""At most this many failures are reported in full; of the others only the name is reported."""
Test = Callable[..., None]


def for_each(
    names: str | Sequence[str],
    values: Iterable[Any],
    *,
    ids: Callable[[Any], str] | Iterable[str] | None = None,
) -> Callable[[Test], Test]:
    """Call the test with each value, like `pytest.mark.parametrize`, but as a single test for pytest.

    All values share the test's fixtures, so this is not for tests that change a fixture.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    listed_ids = ids if ids is None or callable(ids) else list(ids)
    cases = [_case(parameters, value, at, listed_ids) for at, value in enumerate(values)]
    assert cases, f"there is no value for {', '.join(parameters)}"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        assert set(parameters) <= set(signature.parameters), f"{test.__name__} does not take {parameters}"

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[tuple[str, Exception]] = []
            for name, arguments in cases:
                try:
                    test(**fixtures, **arguments)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"for {name}")
                    failed.append((name, error if isinstance(error, Exception) else _assertion(error)))
            if failed:
                listed = ", ".join(name for name, _ in failed)
                raise ExceptionGroup(
                    f"{len(failed)} of {len(cases)} fail: {listed}", [error for _, error in failed[:SHOWN]]
                )

        del run.__wrapped__
        fixture_parameters = [each for name, each in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=fixture_parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _case(
    names: Sequence[str], value: Any, at: int, ids: Callable[[Any], str] | Sequence[str] | None
) -> tuple[str, dict[str, Any]]:
    """A value's name in reports, and the test's arguments for it."""
    case_id = None
    if isinstance(value, type(pytest.param())):
        assert not value.marks, "a value with marks is a test of its own"
        case_id, parts = value.id, value.values
    else:
        parts = (value,) if len(names) == 1 else tuple(value)
    if case_id is None:
        if callable(ids):
            case_id = "-".join(str(ids(part)) for part in parts)
        elif ids is None:
            case_id = repr(parts if len(parts) > 1 else parts[0])[:200]
        else:
            case_id = ids[at]
    return str(case_id), dict(zip(names, parts, strict=True))


def _assertion(error: BaseException) -> AssertionError:
    """An AssertionError for an error of `pytest.fail` or `pytest.raises`, which is not an Exception itself."""
    assertion = AssertionError(str(error)).with_traceback(error.__traceback__)
    for note in error.__notes__:
        assertion.add_note(note)
    return assertion
