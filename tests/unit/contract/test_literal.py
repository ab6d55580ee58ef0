"""Literals of each type: the value of a text, the one spelling of a value, the limits of a type, and refused texts."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.errors import InputError
from pvdm.model.filter.expression import LiteralValue
from pvdm.model.filter.literal import literal_text, parse_literal
from pvdm.model.schema import Inner, Kind, ListType, Type, type_from_json
from tests.support.for_each import for_each

NIL = "00000000-0000-0000-0000-000000000000"


@for_each(
    ("kind", "text", "value", "spelling"),
    [
        ("boolean", "true", True, "true"),
        ("boolean", "false", False, "false"),
        ("int", "-2147483648", -(2**31), "-2147483648"),
        ("int", "2147483647", 2**31 - 1, "2147483647"),
        ("int", "+007", 7, "7"),
        ("int", "-0", 0, "0"),
        ("long", "-9223372036854775808", -(2**63), "-9223372036854775808"),
        ("long", "9223372036854775807", 2**63 - 1, "9223372036854775807"),
        ("float", "0.5", 0.5, "0.5"),
        ("float", "0.1", 0.10000000149011612, "0.10000000149011612"),
        ("float", "3.4028234663852886e38", 3.4028234663852886e38, "3.4028234663852886e+38"),
        ("float", "-0", 0.0, "0.0"),
        ("double", "0.1", 0.1, "0.1"),
        ("double", "1e3", 1000.0, "1000.0"),
        ("double", "-0.0", 0.0, "0.0"),
        ("double", "1.7976931348623157e308", 1.7976931348623157e308, "1.7976931348623157e+308"),
        ("double", ".5", 0.5, "0.5"),
        ("double", "5.", 5.0, "5.0"),
        ("decimal(9,2)", "1.5", Decimal("1.50"), "1.50"),
        ("decimal(9,2)", "1.500", Decimal("1.50"), "1.50"),
        ("decimal(9,2)", "-9999999.99", Decimal("-9999999.99"), "-9999999.99"),
        ("decimal(9,2)", "15e-1", Decimal("1.50"), "1.50"),
        ("decimal(9,2)", "-0", Decimal("0.00"), "0.00"),
        ("decimal(9,2)", "0e9999", Decimal("0.00"), "0.00"),
        ("decimal(76,0)", "9" * 76, Decimal("9" * 76), "9" * 76),
        (
            "decimal(38,10)",
            "1234567890123456789012345678.0123456789",
            Decimal("1234567890123456789012345678.0123456789"),
            "1234567890123456789012345678.0123456789",
        ),
        ("date", "0001-01-01", -719_162, "0001-01-01"),
        ("date", "1970-01-02", 1, "1970-01-02"),
        ("date", "9999-12-31", 2_932_896, "9999-12-31"),
        ("time", "00:00", 0, "00:00:00"),
        ("time", "23:59:59.999999", 86_399_999_999, "23:59:59.999999"),
        ("time", "09:30:00.500000", 34_200_500_000, "09:30:00.5"),
        ("time_ns", "00:00:00.000000001", 1, "00:00:00.000000001"),
        ("timestamp", "1970-01-01T00:00:00.000001", 1, "1970-01-01T00:00:00.000001"),
        ("timestamp", "1969-12-31 23:59", -60_000_000, "1969-12-31T23:59:00"),
        ("timestamptz", "1970-01-01T01:00:00+01:00", 0, "1970-01-01T00:00:00Z"),
        ("timestamptz", "1970-01-01T00:00:00-00:30", 1_800_000_000, "1970-01-01T00:30:00Z"),
        ("timestamptz", "9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        ("timestamp_ns", "1677-09-21T00:12:43.145224192", -(2**63), "1677-09-21T00:12:43.145224192"),
        ("timestamptz_ns", "2262-04-11T23:47:16.854775807Z", 2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
        ("string", "", "", ""),
        ("string", "it's", "it's", "it's"),
        ("uuid", NIL, UUID(int=0), NIL),
        ("uuid", "F" * 8 + "-FFFF-FFFF-FFFF-" + "F" * 12, UUID(int=2**128 - 1), str(UUID(int=2**128 - 1))),
        ("binary", "", b"", ""),
        ("binary", "00fF", b"\x00\xff", "00ff"),
        ("fixed(2)", "00ff", b"\x00\xff", "00ff"),
    ],
)
def test_a_literal_of_each_type_is_read_and_has_one_spelling(
    kind: str, text: str, value: LiteralValue, spelling: str
) -> None:
    found = parse_literal(text, type_from_json(kind))
    assert (found, type(found), str(found)) == (value, type(value), str(value))
    assert literal_text(found, type_from_json(kind)) == spelling


REFUSED = {
    "boolean": ["", "True", "1", "yes", "null"],
    "int": ["", "2147483648", "-2147483649", "1.0", "1e3", "١", " 1", "1 ", "1_0", "0x1", "--1"],
    "long": ["9223372036854775808", "-9223372036854775809", "1" * 20],
    "float": ["", ".", "nan", "inf", "-Infinity", "1e39", "1_0", "1e", "0x1p3", "1e99999"],
    "double": ["NaN", "inf", "1e309", "1e9999", "1,5", "e5", "٣"],
    "decimal(9,2)": ["", "1.005", "10000000", "NaN", "1e7", "1e9999", "1e-9999", "Infinity", "1_0", "sNaN"],
    "decimal(38,0)": ["1" * 39, "0." + "1" * 101, "1" * 101],
    "date": ["", "2026-2-1", "2026-02-30", "0000-01-01", "10000-01-01", "20260201", "2026-02-01T00:00", "2026-W01-1"],
    "time": ["", "24:00", "23:60", "23:59:60", "9:30", "09:30.5", "09:30:00.0000001", "09:30Z", "0930"],
    "time_ns": ["09:30:00.0000000001"],
    "timestamp": [
        "2026-01-01",
        "2026-01-01T00:00Z",
        "2026-01-01T00:00:00.0000001",
        "2026-01-01T24:00",
        "2026-02-29T00:00",
        "2026-01-01  00:00",
    ],
    "timestamptz": [
        "2026-01-01T00:00",
        "2026-01-01T00:00+19:00",
        "2026-01-01T00:00+00:60",
        "2026-01-01T00:00 Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-01-01T00:00[UTC]",
    ],
    "timestamp_ns": ["1677-09-21T00:12:43.145224191", "2262-04-11T23:47:16.854775808"],
    "timestamptz_ns": ["2262-04-11T23:47:16.854775807", "2263-01-01T00:00:00Z"],
    "string": ["\ud800"],
    "uuid": ["", NIL.replace("-", ""), "{" + NIL[:-2] + "}", "-" * 4 + "0" * 32, NIL[:-1] + "g", "urn:uuid:" + NIL],
    "binary": ["0", "0g", "00 ff", "0x00"],
    "fixed(2)": ["", "00", "000000"],
    "variant": ["1"],
    "unknown": ["null"],
}


@for_each(("kind", "text"), [(kind, text) for kind, texts in REFUSED.items() for text in texts])
def test_a_text_that_is_not_of_the_type_is_refused_with_the_form(kind: str, text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_literal(text, type_from_json(kind))
    assert refused.value.reason == "literal_invalid"
    assert (refused.value.expected or "").startswith(f"a value of {kind}")
    assert (refused.value.got or "").isascii()


def test_every_simple_type_has_refused_texts() -> None:
    assert REFUSED.keys() >= {kind.value for kind in Kind}


def test_a_nested_type_has_no_literals() -> None:
    with pytest.raises(InputError):
        parse_literal("1", ListType(Inner(type_from_json("int"))))


@for_each(
    ("kind", "value"),
    [
        ("double", float("inf")),
        ("float", float("nan")),
        ("date", 2_932_897),
        ("date", -719_163),
        ("timestamp", 2**63 - 1),
        ("timestamptz", -(2**63)),
        ("time", 86_400_000_000),
    ],
)
def test_a_value_out_of_range_has_no_spelling(kind: str, value: LiteralValue) -> None:
    assert literal_text(value, type_from_json(kind)) is None


KINDS: list[Type] = [type_from_json(kind) for kind in REFUSED if kind not in ("variant", "unknown")]


@pytest.mark.property
@given(st.sampled_from(KINDS), st.text(alphabet="0123456789-+.:eETZ true", max_size=30))
def test_a_literal_is_read_again_from_its_spelling(kind: Type, text: str) -> None:
    try:
        value = parse_literal(text, kind)
    except InputError:
        return
    spelling = literal_text(value, kind)
    assert spelling is not None
    assert parse_literal(spelling, kind) == value
    assert literal_text(parse_literal(spelling, kind), kind) == spelling


@pytest.mark.property
@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["float", "double"]))
def test_a_float_is_read_again_from_its_spelling(value: float, kind: str) -> None:
    wanted = type_from_json(kind)
    try:
        once = parse_literal(repr(value), wanted)
    except InputError:
        return
    assert parse_literal(str(literal_text(once, wanted)), wanted) == once
