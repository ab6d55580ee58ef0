"""Bounds of columns: cut as Iceberg cuts them, compared exactly, and left out if no value is a valid bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from pvdm.lake.format.schema.bounds import (
    MetricsMode,
    compare,
    decode_bound,
    lower_bound,
    upper_bound,
)
from pvdm.lake.format.schema.single_value import encode_value
from pvdm.model.schema import DecimalType, FixedType, GeoType, Kind, PrimitiveType, StructType, Type
from tests.support.for_each import for_each
from tests.support.lake.manifests import lies_within, refused

STRING, BINARY, DOUBLE, LONG = (PrimitiveType(kind) for kind in (Kind.STRING, Kind.BINARY, Kind.DOUBLE, Kind.LONG))
UUID_TYPE, VARIANT = PrimitiveType(Kind.UUID), PrimitiveType(Kind.VARIANT)
GEOMETRY = GeoType("OGC:CRS84")
LAST = "\U0010ffff"


def test_text_is_cut_at_sixteen_code_points_not_bytes() -> None:
    assert lower_bound(STRING, "𝄞" * 20) == ("𝄞" * 16).encode()


def test_an_upper_bound_of_cut_text_is_above_every_text_with_that_prefix() -> None:
    assert upper_bound(STRING, "abcdefghijklmnopqrst") == b"abcdefghijklmnoq"


@pytest.mark.parametrize("text", ["", "a", "a" * 16])
def test_text_that_fits_is_its_own_bound(text: str) -> None:
    assert (lower_bound(STRING, text), upper_bound(STRING, text)) == (text.encode(), text.encode())


def test_the_code_point_before_one_that_cannot_be_incremented_is_incremented() -> None:
    assert upper_bound(STRING, "a" * 14 + "b" + LAST + "rest") == b"a" * 14 + b"c"


def test_text_that_cannot_be_incremented_has_no_upper_bound() -> None:
    assert upper_bound(STRING, LAST * 17) is None


def test_an_increment_skips_surrogates() -> None:
    assert upper_bound(STRING, "a" * 15 + "\ud7ff" + "z") == ("a" * 15 + "\ue000").encode()


def test_bytes_are_cut_and_incremented_like_text() -> None:
    value = bytes(14) + b"\x05\xff\xff"
    assert (lower_bound(BINARY, value), upper_bound(BINARY, value)) == (bytes(14) + b"\x05\xff", bytes(14) + b"\x06")


def test_bytes_that_cannot_be_incremented_have_no_upper_bound() -> None:
    assert upper_bound(BINARY, b"\xff" * 17) is None


def test_a_fixed_value_is_never_cut() -> None:
    value = b"\xff" * 20
    assert (lower_bound(FixedType(20), value), upper_bound(FixedType(20), value)) == (value, value)


@for_each(
    ("mode", "bounds"),
    [("none", (None, None)), ("counts", (None, None)), ("full", (b"abcd", b"abcd")), ("truncate(2)", (b"ab", b"ac"))],
)
def test_the_metrics_mode_decides_about_bounds(mode: str, bounds: tuple[bytes | None, bytes | None]) -> None:
    found = MetricsMode.parse(mode)
    assert (lower_bound(STRING, "abcd", found), upper_bound(STRING, "abcd", found)) == bounds


@for_each("mode", ["", "some", "truncate(0)", "truncate(-1)", "truncate(16"])
def test_an_unknown_metrics_mode_is_refused(mode: str) -> None:
    with refused("metrics_mode_unknown"):
        MetricsMode.parse(mode)


def test_counts_are_kept_by_every_mode_but_none() -> None:
    assert [MetricsMode.parse(mode).keeps_counts for mode in ("none", "counts", "truncate(1)", "full")] == [False] + [
        True
    ] * 3


@for_each(
    ("kind", "less", "more"),
    [
        (LONG, -1, 0),
        (DOUBLE, -0.0, 0.0),
        (DOUBLE, -math.inf, math.inf),
        (PrimitiveType(Kind.FLOAT), -1.5, -0.0),
        (STRING, "\uffff", "\U00010000"),
        (STRING, "a", "aa"),
        (BINARY, b"\x7f", b"\x80"),
        (FixedType(1), b"\x7f", b"\x80"),
        (PrimitiveType(Kind.BOOLEAN), False, True),
        (DecimalType(38, 2), Decimal("99999999999999999.01"), Decimal("99999999999999999.02")),
        (UUID_TYPE, UUID("7fffffff-0000-0000-0000-000000000000"), UUID("80000000-0000-0000-0000-000000000000")),
    ],
)
def test_values_are_compared_exactly(kind: Type, less: Any, more: Any) -> None:
    assert (compare(kind, less, more), compare(kind, more, less), compare(kind, less, less)) == (-1, 1, 0)


@for_each("kind", [VARIANT, GEOMETRY, PrimitiveType(Kind.UNKNOWN), StructType(())])
def test_comparing_values_without_an_order_is_refused(kind: Type) -> None:
    with refused("bound_type_unordered"):
        compare(kind, b"", b"")


@pytest.mark.parametrize("kind", [DOUBLE, PrimitiveType(Kind.FLOAT)])
def test_nan_as_a_bound_is_refused(kind: Type) -> None:
    for make in (lower_bound, upper_bound):
        with refused("bound_is_nan"):
            make(kind, math.nan)


def test_the_bytes_of_nan_as_a_bound_are_refused() -> None:
    with refused("bound_is_nan"):
        decode_bound(DOUBLE, bytes.fromhex("000000000000f87f"))


@pytest.mark.parametrize("make", [lower_bound, upper_bound])
def test_a_bound_of_a_geometry_is_refused(make: Callable[[Type, bytes], bytes | None]) -> None:
    with refused("bound_type_unordered"):
        make(GEOMETRY, b"")


@for_each(
    ("value", "lower", "upper", "holds"),
    [
        ("b", b"a", b"c", True),
        ("b", None, None, True),
        ("b", b"b", b"b", True),
        ("b", b"ba", None, False),
        ("b", None, b"a", False),
    ],
)
def test_a_value_lies_within_its_bounds(value: str, lower: bytes | None, upper: bytes | None, holds: bool) -> None:
    assert lies_within(STRING, value, lower, upper) is holds


def test_a_lower_bound_of_positive_zero_excludes_negative_zero() -> None:
    assert not lies_within(DOUBLE, -0.0, encode_value(DOUBLE, 0.0), None)
