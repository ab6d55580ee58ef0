"""Single values as bytes, as in Appendix D of Iceberg's specification: conversion both ways, and refused values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

from pvdm.lake.format.schema.single_value import decode_promoted, decode_value, encode_value, from_unscaled
from pvdm.model.schema import DecimalType, FixedType, GeoType, Inner, Kind, ListType, PrimitiveType, StructType, Type
from tests.support.for_each import for_each
from tests.support.lake.manifests import refused

BOOLEAN, INT, LONG, FLOAT, DOUBLE = (
    PrimitiveType(kind) for kind in (Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE)
)
DATE, TIME, TIMESTAMP, TIMESTAMP_NS = (
    PrimitiveType(kind) for kind in (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_NS)
)
STRING, BINARY, UUID_TYPE = (PrimitiveType(kind) for kind in (Kind.STRING, Kind.BINARY, Kind.UUID))
A_UUID = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


@for_each(
    ("kind", "value", "data"),
    [
        (BOOLEAN, False, "00"),
        (BOOLEAN, True, "01"),
        (INT, 34, "22000000"),
        (INT, -(2**31), "00000080"),
        (LONG, 34, "2200000000000000"),
        (FLOAT, 1.5, "0000c03f"),
        (FLOAT, -0.0, "00000080"),
        (DOUBLE, -1.5, "000000000000f8bf"),
        (DATE, 17_486, "4e440000"),
        (TIME, 81_068_000_000, "008307e012000000"),
        (TIMESTAMP, -1, "ffffffffffffffff"),
        (TIMESTAMP_NS, 1, "0100000000000000"),
        (STRING, "ice", "696365"),
        (STRING, "", ""),
        (UUID_TYPE, A_UUID, "f79c3e09677c4bbda4793f349cb785e7"),
        (FixedType(3), b"\x01\x02\x03", "010203"),
        (BINARY, b"", ""),
        (DecimalType(9, 2), Decimal("14.20"), "058c"),
        (DecimalType(9, 2), Decimal("0.00"), "00"),
        (DecimalType(9, 2), Decimal("1.28"), "0080"),
        (DecimalType(9, 2), Decimal("-1.28"), "80"),
        (DecimalType(38, 0), Decimal(-(10**38) + 1), "b4c4b357a5793b85f675ddc000000001"),
        (GeoType("OGC:CRS84"), b"\x01\x02", "0102"),
    ],
)
def test_a_value_is_converted_to_and_from_its_bytes(kind: Type, value: Any, data: str) -> None:
    assert (encode_value(kind, value).hex(), decode_value(kind, bytes.fromhex(data))) == (data, value)


def test_any_byte_except_zero_is_read_as_true() -> None:
    assert decode_value(BOOLEAN, b"\x7f") is True


def test_a_decimal_of_a_megabyte_is_refused() -> None:
    with refused("single_value_invalid"):
        from_unscaled(DecimalType(9, 2), 1 << 8_000_000)


def test_a_decimal_keeps_its_scale() -> None:
    assert str(decode_value(DecimalType(9, 4), bytes.fromhex("00bc6058"))) == "1234.5432"


def test_a_decimal_with_fewer_digits_is_written_at_the_types_scale() -> None:
    assert encode_value(DecimalType(9, 2), Decimal("14.2")) == encode_value(DecimalType(9, 2), Decimal("14.20"))


@for_each(
    ("kind", "data", "value"),
    [
        (LONG, "ffffffff", -1),
        (DOUBLE, "0000c03f", 1.5),
        (TIMESTAMP, "01000000", 86_400_000_000),
        (TIMESTAMP_NS, "ffffffff", -86_400_000_000_000),
        (LONG, "0100000000000000", 1),
    ],
)
def test_a_widened_column_reads_the_bytes_of_its_old_type(kind: Type, data: str, value: Any) -> None:
    assert decode_promoted(kind, bytes.fromhex(data)) == value


def test_a_date_that_a_timestamp_cannot_hold_is_refused() -> None:
    with refused("single_value_invalid"):
        decode_promoted(TIMESTAMP_NS, bytes.fromhex("ffffff7f"))


@for_each(
    ("kind", "data"),
    [
        (BOOLEAN, ""),
        (BOOLEAN, "0000"),
        (INT, "000000"),
        (LONG, "000000"),
        (FLOAT, "0000000000000000"),
        (UUID_TYPE, "00"),
        (FixedType(3), "0102"),
        (DecimalType(9, 2), ""),
        (DecimalType(9, 2), "00" * 18),
        (PrimitiveType(Kind.TIMESTAMPTZ), "01000000"),
    ],
)
def test_bytes_of_another_length_are_refused(kind: Type, data: str) -> None:
    with refused("single_value_wrong_length"):
        decode_promoted(kind, bytes.fromhex(data))


@for_each(
    ("kind", "data"),
    [
        (STRING, "ff"),
        (TIME, "ffffffffffffffff"),
        (TIME, "0060d71d14000000"),
        (DecimalType(2, 0), "64"),
    ],
)
def test_bytes_that_are_no_value_of_the_type_are_refused(kind: Type, data: str) -> None:
    with refused("single_value_invalid"):
        decode_value(kind, bytes.fromhex(data))


@for_each(
    ("kind", "value"),
    [
        (BOOLEAN, 1),
        (INT, 2**31),
        (INT, True),
        (LONG, 1.0),
        (FLOAT, 0.1),
        (FLOAT, 1e300),
        (DOUBLE, 1),
        (TIME, 86_400_000_000),
        (STRING, b"a"),
        (STRING, "\udc00"),
        (UUID_TYPE, str(A_UUID)),
        (FixedType(3), b"ab"),
        (BINARY, "a"),
        (DecimalType(9, 2), Decimal("1.001")),
        (DecimalType(3, 2), Decimal("10.00")),
        (DecimalType(3, 2), Decimal("1E+1000000")),
        (DecimalType(3, 2), Decimal("1E-1000000")),
        (DecimalType(9, 2), Decimal("NaN")),
        (DecimalType(9, 2), 1),
        (INT, None),
    ],
)
def test_encoding_a_value_of_another_type_is_refused(kind: Type, value: Any) -> None:
    with refused("single_value_invalid"):
        encode_value(kind, value)


@for_each(
    "kind",
    [PrimitiveType(Kind.UNKNOWN), PrimitiveType(Kind.VARIANT), StructType(()), ListType(Inner(INT))],
)
def test_a_type_without_serialization_is_refused(kind: Type) -> None:
    with refused("single_value_unsupported"):
        encode_value(kind, b"")
    with refused("single_value_unsupported"):
        decode_value(kind, b"")


def test_bytes_above_the_limit_are_refused() -> None:
    with refused("single_value_too_large"):
        decode_value(BINARY, bytes(17_000_000))
