"""`for_each` runs a test for all its values and reports every one that fails."""

from __future__ import annotations

import pytest

from tests.support.for_each import for_each


def test_every_value_is_tried_and_every_failure_is_reported() -> None:
    tried: list[int] = []

    @for_each("number", range(6))
    def must_be_odd(number: int) -> None:
        tried.append(number)
        assert number % 2

    with pytest.raises(ExceptionGroup, match="3 of 6 fail: 0, 2, 4") as caught:
        must_be_odd()
    assert tried == [0, 1, 2, 3, 4, 5]
    assert [error.__notes__ for error in caught.value.exceptions] == [["for 0"], ["for 2"], ["for 4"]]


def test_a_missing_error_is_reported_as_a_failure() -> None:
    @for_each("text", ["1", "x"])
    def must_be_refused(text: str) -> None:
        with pytest.raises(ValueError, match="invalid"):
            int(text)

    with pytest.raises(ExceptionGroup, match="1 of 2 fail: '1'"):
        must_be_refused()


def test_an_empty_list_of_values_is_refused() -> None:
    with pytest.raises(AssertionError, match="there is no value for x"):
        for_each("x", [])


@for_each(("left", "right"), [pytest.param(1, 2, id="named"), (2, 3)])
def test_fixtures_and_several_names_are_passed(left: int, right: int, request: pytest.FixtureRequest) -> None:
    assert right == left + 1
    assert request.node.name == "test_fixtures_and_several_names_are_passed"
