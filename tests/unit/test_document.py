"""Canonical JSON: one spelling for each value, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.errors import InputError
from pvdm.model.canonical_json import DOCUMENT_DEPTH_MAX, Value, dump, parse
from tests.support.for_each import for_each

SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(VALUES)
def test_a_written_value_is_read_back(value: Value) -> None:
    assert parse(dump(value), size_max_bytes=1 << 20) == value


def test_keys_are_in_the_order_of_rfc_8785() -> None:
    # U+1F600 is two UTF-16 units that begin with d83d and sorts before U+FB33, though its code point is larger.
    assert dump({"\ufb33": 1, "\U0001f600": 2, "\r": 3, "1": 4}) == '{"\\r":3,"1":4,"\U0001f600":2,"\ufb33":1}'.encode()


@for_each(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b"1.0",
        b"1e3",
        b"NaN",
        b"-0",
        b"9007199254740992",
        b'"\\u0061"',
        b'"\\ud800"',
        b"\xff",
        b"\xef\xbb\xbf1",
        b"1 ",
        b"1\n",
        b"11 1",
        b"",
        b"[" * (DOCUMENT_DEPTH_MAX + 1) + b"]" * (DOCUMENT_DEPTH_MAX + 1),
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_any_other_spelling_is_refused(data: bytes) -> None:
    with pytest.raises(InputError) as refusal:
        parse(data, size_max_bytes=1 << 20)
    assert refusal.value.reason == "document_malformed"


def test_a_document_above_its_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(InputError) as refusal:
        parse(b"[" * 101, size_max_bytes=100)
    assert refusal.value.reason == "document_too_large"


@for_each("value", [1.5, b"bytes", {1: 2}, {1}, "\ud800"], ids=repr)
def test_a_value_without_a_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InputError):
        dump(value)  # type: ignore[arg-type]
