"""Data among words: it steers no terminal, makes no line of its own, and no two values look alike."""

from __future__ import annotations

import json
import unicodedata

import pytest

from pvdm.model.printable import json_printable, printable, quoted, quoted_path
from tests.support.for_each import for_each

STEERING = ["\x1b[2J", "a\nerror: b", "\r", "\x07", "\x9b31m", "\x7f", "\u202eabc", "\u2066", "\u200b", "\u2028", "\0"]


@pytest.mark.parametrize("text", STEERING)
def test_what_steers_a_terminal_is_escaped_wherever_it_is_printed(text: str) -> None:
    for made in (printable(text), quoted(text), quoted_path(text)):
        assert made.isprintable()
        assert not [each for each in made if unicodedata.category(each).startswith("C")]


@pytest.mark.parametrize("text", ["Köln", "東京", "a b", "שלום", "'\\"])
def test_what_can_be_seen_is_left_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_null_and_texts_that_look_like_it_or_like_two_values_differ() -> None:
    values = [None, "null", "'null'", "", "a", "a, b", "a), (b", "a 2 times", "a (town)", "\x1b", "\\x1b", "'", "…"]
    told = [quoted(value) for value in values]
    assert len(set(told)) == len(values)
    assert told[:2] == ["null", "'null'"]
    assert [quoted(value) for value in ("88121", "2026-11-14", "Köln", "-1.50")] == [
        "88121",
        "2026-11-14",
        "Köln",
        "-1.50",
    ]
    assert not [each for each in told if each != "null" and each[0] not in "'\"a"]


def test_a_path_is_told_as_it_is_unless_it_is_odd() -> None:
    plain = "file:///lake/sales/orders/day=2026-11-14/00000-a%20b.parquet"
    assert quoted_path(plain) == plain
    assert quoted_path("file:///a, b (3)\x1b") == "'file:///a, b (3)\\x1b'"


@for_each("text", [*STEERING, "\U000e0041", "Köln", "\\u202e"])
def test_json_that_is_printed_means_the_same(text: str) -> None:
    made = json_printable(json.dumps({"a": [text]}, indent=2, ensure_ascii=False))
    assert json.loads(made) == {"a": [text]}
    assert all(each.isprintable() or each == "\n" for each in made)
