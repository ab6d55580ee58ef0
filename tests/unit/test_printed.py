"""Values in messages: control characters are escaped, and different values have different texts."""

from __future__ import annotations

import json
import unicodedata

from pvdm.model.printable import json_printable, printable, quoted, quoted_path
from tests.support.for_each import for_each

CONTROLS = ["\x1b[2J", "a\nerror: b", "\r", "\x07", "\x9b31m", "\x7f", "\u202eabc", "\u2066", "\u200b", "\u2028", "\0"]


@for_each("text", CONTROLS)
def test_control_characters_are_escaped(text: str) -> None:
    for escaped in (printable(text), quoted(text), quoted_path(text)):
        assert escaped.isprintable()
        assert not [each for each in escaped if unicodedata.category(each).startswith("C")]


@for_each("text", ["Köln", "東京", "a b", "שלום", "'\\"])
def test_visible_characters_are_not_escaped(text: str) -> None:
    assert printable(text) == text


def test_quoted_values_are_different_for_different_values() -> None:
    values = [None, "null", "'null'", "", "a", "a, b", "a), (b", "a 2 times", "a (town)", "\x1b", "\\x1b", "'", "…"]
    texts = [quoted(value) for value in values]
    assert len(set(texts)) == len(values)
    assert texts[:2] == ["null", "'null'"]
    assert [quoted(value) for value in ("88121", "2026-11-14", "Köln", "-1.50")] == [
        "88121",
        "2026-11-14",
        "Köln",
        "-1.50",
    ]
    assert not [each for each in texts if each != "null" and each[0] not in "'\"a"]


def test_a_path_is_quoted_only_if_it_is_unusual() -> None:
    plain = "file:///lake/sales/orders/day=2026-11-14/00000-a%20b.parquet"
    assert quoted_path(plain) == plain
    assert quoted_path("file:///a, b (3)\x1b") == "'file:///a, b (3)\\x1b'"


@for_each("text", [*CONTROLS, "\U000e0041", "Köln", "\\u202e"])
def test_printable_json_has_the_same_value(text: str) -> None:
    escaped = json_printable(json.dumps({"a": [text]}, indent=2, ensure_ascii=False))
    assert json.loads(escaped) == {"a": [text]}
    assert all(each.isprintable() or each == "\n" for each in escaped)
