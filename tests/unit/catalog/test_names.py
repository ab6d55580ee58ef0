"""Names of namespaces and tables: which are accepted, and that different namespaces have different keys."""

from __future__ import annotations

import pytest

from pvdm.catalog.names import NAME_MAX_CHARACTERS, SEPARATOR, parse_levels, require_levels, require_name
from pvdm.errors import InputError
from pvdm.ledger.catalog.namespaces import NAMESPACE_LEVELS_MAX, levels_key
from tests.support.for_each import for_each


@for_each("name", ["orders", "a.b", "a/b", "ünïcode 表", "a b", "..a", "x" * NAME_MAX_CHARACTERS])
def test_a_name_of_letters_dots_and_slashes_is_accepted(name: str) -> None:
    assert require_name(name, "the name") == name


@for_each(
    "name",
    [
        "",
        ".",
        "..",
        "...",
        " a",
        "a ",
        "\ta",
        "a\x00b",
        "a\x1fb",
        "a\nb",
        "a\x7f",
        "\ud800",
        "x" * (NAME_MAX_CHARACTERS + 1),
    ],
    ids=ascii,
)
def test_a_name_that_is_empty_too_long_or_hides_something_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        require_name(name, "the name")
    assert caught.value.reason == "name_invalid"


def test_levels_are_split_at_the_separator_only() -> None:
    assert parse_levels(f"a.b{SEPARATOR}c") == ("a.b", "c")


@pytest.mark.parametrize("levels", [[], ["x"] * (NAMESPACE_LEVELS_MAX + 1)], ids=["none", "too many"])
def test_a_namespace_with_no_or_too_many_levels_is_refused(levels: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        require_levels(levels)
    assert caught.value.reason == "namespace_invalid"


def test_an_empty_level_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        parse_levels(f"a{SEPARATOR}")
    assert caught.value.reason == "name_invalid"


def test_two_namespaces_that_look_alike_with_dots_have_two_keys() -> None:
    assert levels_key(("a", "b")) != levels_key(("a.b",))


def test_quotes_in_a_level_cannot_imitate_two_levels() -> None:
    assert levels_key(('a","b',)) != levels_key(("a", "b"))
