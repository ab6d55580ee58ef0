"""The tests' own decoder of canonical rows: examples of spec/canonical.md, and bytes that it has to refuse."""

from __future__ import annotations

import ast
import inspect
import unicodedata

import pytest

from pvdm.digest.plan import Mode
from pvdm.digest.unicode14 import UNASSIGNED
from pvdm.errors import InputError
from pvdm.model.schema import (
    DecimalType,
    Field,
    FixedType,
    GeoType,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
    Type,
)
from tests.support.for_each import for_each
from tests.support.oracles import canonical_decoder, canonical_values
from tests.support.oracles.canonical_decoder import decode_cell, decode_row
from tests.support.oracles.canonical_values import (
    DecimalValue,
    FloatBits,
    MapValue,
    StructValue,
    Value,
    VariantKind,
    VariantValue,
)

STORED, PORTABLE = Mode.STORED, Mode.PORTABLE
BOOLEAN, INT, LONG, FLOAT, DOUBLE, DATE, TIME, TIME_NS = (
    PrimitiveType(kind)
    for kind in (Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE, Kind.DATE, Kind.TIME, Kind.TIME_NS)
)
TIMESTAMP, TIMESTAMPTZ, STRING, UUID, BINARY, UNKNOWN, VARIANT = (
    PrimitiveType(kind)
    for kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.STRING, Kind.UUID, Kind.BINARY, Kind.UNKNOWN, Kind.VARIANT)
)
TIMESTAMP_NS, TIMESTAMPTZ_NS = PrimitiveType(Kind.TIMESTAMP_NS), PrimitiveType(Kind.TIMESTAMPTZ_NS)
LIST_OF_INT = ListType(Inner(INT))
MAP_OF_STRING_TO_INT = MapType(Inner(STRING, required=True), Inner(INT))
STRUCT = StructType((Field("b", INT), Field("a", STRING)))
MONEY = DecimalType(10, 2)


def list_of(kind: Type, levels: int) -> Type:
    for _ in range(levels):
        kind = ListType(Inner(kind))
    return kind


def variant_object(*members: tuple[str, VariantValue]) -> VariantValue:
    return VariantValue(VariantKind.OBJECT, members)


EXAMPLES: list[tuple[str, Type, Mode, str, Value]] = [
    # Section 9.
    ("long", LONG, STORED, "02 02 34 32", 42),
    ("negative long", LONG, STORED, "02 02 2d 37", -7),
    ("boolean", BOOLEAN, STORED, "01 04 74 72 75 65", True),
    ("decimal", MONEY, STORED, "03 04 31 2e 35 30", DecimalValue(150, 2)),
    ("decimal at its declared scale", DecimalType(10, 4, 2), PORTABLE, "03 04 31 2e 35 30", DecimalValue(150, 2)),
    ("negative decimal", MONEY, STORED, "03 05 2d 30 2e 30 35", DecimalValue(-5, 2)),
    ("negative zero", DOUBLE, STORED, "05 08 80 00 00 00 00 00 00 00", FloatBits(1 << 63, 64)),
    ("date", DATE, STORED, "06 01 31", 1),
    ("timestamptz", TIMESTAMPTZ, STORED, "09 07 31 30 30 30 30 30 30", 1_000_000),
    ("string as stored", STRING, STORED, "0c 03 65 cc 81", "e\u0301"),
    ("string in NFC", STRING, PORTABLE, "0c 02 c3 a9", "é"),
    ("empty string", STRING, STORED, "0c 00", ""),
    ("null", STRING, STORED, "00", None),
    ("list with a null", LIST_OF_INT, STORED, "11 07 02 01 31 00 02 01 32", (1, None, 2)),
    ("empty list", LIST_OF_INT, STORED, "11 00", ()),
    ("struct", STRUCT, STORED, "10 06 0c 01 78 02 01 35", StructValue((("a", "x"), ("b", 5)))),
    ("map", MAP_OF_STRING_TO_INT, STORED, "12 0a 0c 01 61 00 0c 01 62 02 01 31", MapValue((("a", None), ("b", 1)))),
    # Section 6.
    ("SQL null of type variant", VARIANT, STORED, "00", None),
    ("variant null", VARIANT, STORED, "13 01 00", VariantValue(VariantKind.NULL, None)),
    ("empty object", VARIANT, STORED, "13 02 14 00", variant_object()),
    ("object with a null", VARIANT, STORED, "13 06 14 04 0c 01 61 00",
     variant_object(("a", VariantValue(VariantKind.NULL, None)))),
    ("object with an empty string", VARIANT, STORED, "13 07 14 05 0c 01 61 0c 00",
     variant_object(("a", VariantValue(VariantKind.STRING, "")))),
    # The rest of the types, by hand from section 4.
    ("false", BOOLEAN, STORED, "01 05 66 61 6c 73 65", False),
    ("the NaN of float", FLOAT, STORED, "04 04 7f c0 00 00", FloatBits(0x7FC00000, 32)),
    ("the NaN of double", DOUBLE, STORED, "05 08 7f f8 00 00 00 00 00 00", FloatBits(0x7FF8000000000000, 64)),
    ("negative infinity", FLOAT, STORED, "04 04 ff 80 00 00", FloatBits(0xFF800000, 32)),
    ("NaN with a payload in a variant", VARIANT, STORED, "13 06 04 04 7f 80 00 01",
     VariantValue(VariantKind.FLOAT, FloatBits(0x7F800001, 32))),
    ("time", TIME, STORED, "07 01 30", 0),
    ("timestamp", TIMESTAMP, STORED, "08 02 2d 31", -1),
    ("timestamp_ns", TIMESTAMP_NS, STORED, "0a 01 39", 9),
    ("timestamptz_ns", TIMESTAMPTZ_NS, STORED, "0b 01 39", 9),
    ("uuid", UUID, STORED, "0d 10" + "ab" * 16, b"\xab" * 16),
    ("fixed", FixedType(3), STORED, "0e 03 00 01 ff", b"\x00\x01\xff"),
    ("binary", BINARY, STORED, "0f 01 00", b"\x00"),
    ("geometry", GeoType("OGC:CRS84"), STORED, "15 01 07", b"\x07"),
    ("geography", GeoType("OGC:CRS84", "spherical"), STORED, "16 01 07", b"\x07"),
    ("time_ns", TIME_NS, STORED, "17 0e" + b"86399999999999".hex(), 86_399_999_999_999),
    ("unknown", UNKNOWN, STORED, "00", None),
    ("length of two bytes", STRING, STORED, "0c ac 02" + "78" * 300, "x" * 300),
    ("U+0000", STRING, PORTABLE, "0c 01 00", "\0"),
    ("decimal without a point", DecimalType(3, 0), STORED, "03 03 31 30 30", DecimalValue(100, 0)),
    ("zero decimal", MONEY, STORED, "03 04 30 2e 30 30", DecimalValue(0, 2)),
    ("decimal of 76 digits", DecimalType(76, 76), STORED, "03 4f" + (b"-0." + b"9" * 76).hex(),
     DecimalValue(1 - 10**76, 76)),
    ("variant decimal keeps its scale", VARIANT, STORED, "13 06 03 04 31 2e 35 30",
     VariantValue(VariantKind.DECIMAL, DecimalValue(150, 2))),
    ("variant array", VARIANT, STORED, "13 06 11 04 00 02 01 31",
     VariantValue(VariantKind.ARRAY, (VariantValue(VariantKind.NULL, None), VariantValue(VariantKind.INTEGER, 1)))),
]  # fmt: skip


@for_each(("kind", "mode", "cell", "value"), [each[1:] for each in EXAMPLES], ids=[each[0] for each in EXAMPLES])
def test_a_cell_decodes_to_its_value(kind: Type, mode: Mode, cell: str, value: Value) -> None:
    assert decode_cell(Inner(kind), mode, bytes.fromhex(cell)) == value


def test_the_row_of_section_9_decodes_in_canonical_column_order() -> None:
    schema = Schema((Field("payment_id", LONG), Field("amount", MONEY), Field("note", STRING)))
    row = decode_row(schema, STORED, bytes.fromhex("03 05 31 30 2e 30 30 00 02 05 38 38 31 32 31"))
    assert list(row.items()) == [("amount", DecimalValue(1000, 2)), ("note", None), ("payment_id", 88121)]


MALFORMED: list[tuple[str, Type, Mode, str, int]] = [
    ("float NaN with a payload", FLOAT, STORED, "04 04 7f c0 00 01", 2),
    ("float NaN with a sign", FLOAT, STORED, "04 04 ff c0 00 00", 2),
    ("signaling float NaN", FLOAT, STORED, "04 04 7f 80 00 01", 2),
    ("double NaN with a payload", DOUBLE, STORED, "05 08 7f f8 00 00 00 00 00 01", 2),
    ("double NaN with a sign", DOUBLE, STORED, "05 08 ff f8 00 00 00 00 00 00", 2),
    # Framing.
    ("nothing at all", LONG, STORED, "", 0),
    ("tag without a length", LONG, STORED, "02", 1),
    ("length that does not end", LONG, STORED, "02 81", 1),
    ("length in more bytes than needed", STRING, STORED, "0c 80 00", 1),
    ("length of one in two bytes", STRING, STORED, "0c 81 00 78", 1),
    ("length of six bytes", STRING, STORED, "0c ff ff ff ff ff 01", 1),
    ("length beyond the buffer", STRING, STORED, "0c 05 78", 1),
    ("huge length", BINARY, STORED, "0f ff ff ff ff 7f", 1),
    ("bytes left over", LONG, STORED, "02 01 31 00", 3),
    ("null with a length", LONG, STORED, "00 00", 1),
    ("unknown tag", LONG, STORED, "18 01 31", 0),
    ("date where a long is due", LONG, STORED, "06 01 31", 0),
    ("timestamp where a timestamptz is due", TIMESTAMPTZ, STORED, "08 01 31", 0),
    ("time_ns where a time is due", TIME, STORED, "17 01 31", 0),
    ("geography where a geometry is due", GeoType("x"), STORED, "16 00", 0),
    ("binary where a fixed is due", FixedType(1), STORED, "0f 01 00", 0),
    ("value of unknown", UNKNOWN, STORED, "0c 00", 0),
    ("object outside a variant", STRUCT, STORED, "14 00", 0),
    # Integers.
    ("leading zero", LONG, STORED, "02 02 30 31", 2),
    ("negative zero", LONG, STORED, "02 02 2d 30", 2),
    ("plus sign", LONG, STORED, "02 02 2b 31", 2),
    ("no digits", LONG, STORED, "02 00", 2),
    ("minus alone", LONG, STORED, "02 01 2d", 2),
    ("underscore between digits", LONG, STORED, "02 03 31 5f 30", 2),
    ("space before a digit", LONG, STORED, "02 02 20 31", 2),
    ("line feed after a digit", LONG, STORED, "02 02 31 0a", 2),
    ("digit that is not ASCII", LONG, STORED, "02 02 d9 a1", 2),
    ("int above its range", INT, STORED, "02 0a" + b"2147483648".hex(), 2),
    ("int below its range", INT, STORED, "02 0b" + b"-2147483649".hex(), 2),
    ("long above its range", LONG, STORED, "02 13" + b"9223372036854775808".hex(), 2),
    ("integer of 5,000 digits", LONG, STORED, "02 88 27" + "31" * 5000, 3),
    ("date above its range", DATE, STORED, "06 0a" + b"2147483648".hex(), 2),
    ("time of a whole day", TIME, STORED, "07 0b" + b"86400000000".hex(), 2),
    ("negative time", TIME, STORED, "07 02 2d 31", 2),
    ("time_ns of a whole day", TIME_NS, STORED, "17 0e" + b"86400000000000".hex(), 2),
    # Decimals.
    ("too few digits after the point", MONEY, STORED, "03 03 31 2e 35", 2),
    ("too many digits after the point", MONEY, STORED, "03 05 31 2e 35 30 30", 2),
    ("no point", MONEY, STORED, "03 03 31 35 30", 2),
    ("point at scale 0", DecimalType(3, 0), STORED, "03 02 31 2e", 2),
    ("no digit before the point", MONEY, STORED, "03 03 2e 35 30", 2),
    ("superfluous leading zero", MONEY, STORED, "03 05 30 31 2e 35 30", 2),
    ("zero with a sign", MONEY, STORED, "03 05 2d 30 2e 30 30", 2),
    ("exponent", DecimalType(3, 0), STORED, "03 03 31 65 31", 2),
    ("more digits than the precision", DecimalType(3, 2), STORED, "03 05 31 30 2e 30 30", 2),
    ("77 digits", DecimalType(76, 0), STORED, "03 4d" + "31" * 77, 2),
    ("the type's scale where another is declared", DecimalType(10, 4, 2), PORTABLE, "03 06 31 2e 35 30 30 30", 2),
    # Fixed sizes and text.
    ("boolean in capitals", BOOLEAN, STORED, "01 04 54 52 55 45", 2),
    ("float of five bytes", FLOAT, STORED, "04 05 00 00 00 00 00", 2),
    ("double of four bytes", DOUBLE, STORED, "05 04 00 00 00 00", 2),
    ("uuid of 15 bytes", UUID, STORED, "0d 0f" + "00" * 15, 2),
    ("fixed of another length", FixedType(3), STORED, "0e 02 00 00", 2),
    ("overlong UTF-8", STRING, STORED, "0c 02 c0 80", 2),
    ("surrogate", STRING, STORED, "0c 03 ed a0 80", 2),
    ("above U+10FFFF", STRING, STORED, "0c 04 f4 90 80 80", 2),
    ("cut UTF-8", STRING, STORED, "0c 03 61 61 c3", 4),
    ("string not in NFC", STRING, PORTABLE, "0c 03 65 cc 81", 2),
    ("combining marks out of order", STRING, PORTABLE, "0c 05 61 cc 87 cc a3", 2),
    ("unassigned code point", STRING, PORTABLE, "0c 03 61 cd b8", 3),
    ("code point of Unicode 15", STRING, PORTABLE, "0c 04" + "\U0001e030".encode().hex(), 2),
    ("noncharacter", STRING, PORTABLE, "0c 03 ef bf bf", 2),
    # Nested values.
    ("struct with a field too few", STRUCT, STORED, "10 03 0c 01 78", 5),
    ("struct with a field too many", STRUCT, STORED, "10 03 00 00 00", 4),
    ("struct in the schema's order", STRUCT, STORED, "10 06 02 01 35 0c 01 78", 2),
    ("element beyond its list", LIST_OF_INT, STORED, "11 02 02 01 31", 3),
    ("map keys out of order", MAP_OF_STRING_TO_INT, STORED, "12 08 0c 01 62 00 0c 01 61 00", 6),
    ("map key twice", MAP_OF_STRING_TO_INT, STORED, "12 08 0c 01 61 00 0c 01 61 00", 6),
    ("map keys ordered by text, not by cell", MAP_OF_STRING_TO_INT, STORED, "12 09 0c 02 61 61 00 0c 01 62 00", 7),
    ("null map key", MAP_OF_STRING_TO_INT, STORED, "12 02 00 00", 2),
    ("map key without a value", MAP_OF_STRING_TO_INT, STORED, "12 03 0c 01 61", 5),
    ("map key not in NFC", MAP_OF_STRING_TO_INT, PORTABLE, "12 06 0c 03 65 cc 81 00", 4),
    # Variants.
    ("variant without a value", VARIANT, STORED, "13 00", 2),
    ("variant with two values", VARIANT, STORED, "13 02 00 00", 3),
    ("variant in a variant", VARIANT, STORED, "13 03 13 01 00", 2),
    ("struct in a variant", VARIANT, STORED, "13 02 10 00", 2),
    ("map in a variant", VARIANT, STORED, "13 02 12 00", 2),
    ("fixed in a variant", VARIANT, STORED, "13 03 0e 01 00", 2),
    ("time_ns in a variant", VARIANT, STORED, "13 03 17 01 30", 2),
    ("geometry in a variant", VARIANT, STORED, "13 02 15 00", 2),
    ("variant integer above int64", VARIANT, STORED, "13 15 02 13" + b"9223372036854775808".hex(), 4),
    ("variant decimal of scale 39", VARIANT, STORED, "13 2b 03 29" + (b"0." + b"0" * 38 + b"1").hex(), 4),
    ("variant decimal of 39 digits", VARIANT, STORED, "13 29 03 27" + "31" * 39, 4),
    ("variant time of a whole day", VARIANT, STORED, "13 0d 07 0b" + b"86400000000".hex(), 4),
    ("object names out of order", VARIANT, STORED, "13 0a 14 08 0c 01 62 00 0c 01 61 00", 8),
    ("object name twice", VARIANT, STORED, "13 0a 14 08 0c 01 61 00 0c 01 61 00", 8),
    ("object name that is no string", VARIANT, STORED, "13 05 14 03 00 0c 00", 4),
    ("object name without a value", VARIANT, STORED, "13 05 14 03 0c 01 61", 7),
    ("object name not in NFC", VARIANT, PORTABLE, "13 08 14 06 0c 03 65 cc 81 00", 6),
    ("float in a portable variant", VARIANT, PORTABLE, "13 06 04 04 00 00 00 00", 2),
    ("double in a portable variant", VARIANT, PORTABLE, "13 0a 05 08 00 00 00 00 00 00 00 00", 2),
    ("decimal in a portable variant", VARIANT, PORTABLE, "13 03 03 01 31", 2),
    # Schemas that their mode refuses before any row is read.
    ("float in portable mode", FLOAT, PORTABLE, "00", 0),
    ("double deep in portable mode", MapType(Inner(STRING, required=True), Inner(ListType(Inner(DOUBLE)))), PORTABLE,
     "00", 0),
    ("geometry in portable mode", GeoType("x"), PORTABLE, "00", 0),
    ("undeclared scale in portable mode", StructType((Field("a", MONEY),)), PORTABLE, "00", 0),
    ("declared scale in stored mode", DecimalType(10, 4, 2), STORED, "00", 0),
]  # fmt: skip


@for_each(("kind", "mode", "cell", "offset"), [each[1:] for each in MALFORMED], ids=[each[0] for each in MALFORMED])
def test_bytes_that_no_encoder_writes_are_refused_at_an_offset(kind: Type, mode: Mode, cell: str, offset: int) -> None:
    with pytest.raises(InputError) as refusal:
        decode_cell(Inner(kind), mode, bytes.fromhex(cell))
    assert (refusal.value.reason, refusal.value.details) == ("encoding_malformed", {"offset": offset})


@for_each(
    ("slot", "cell"),
    [
        (Inner(LONG, required=True), "00"),
        (Inner(ListType(Inner(LONG, required=True))), "11 01 00"),
        (Inner(StructType((Field("a", LONG, required=True),))), "10 01 00"),
        (Inner(MapType(Inner(LONG, required=True), Inner(LONG, required=True))), "12 04 02 01 31 00"),
    ],
    ids=["column", "element", "field", "map value"],
)
def test_a_null_of_a_required_value_is_refused(slot: Inner, cell: str) -> None:
    with pytest.raises(InputError, match="required"):
        decode_cell(slot, STORED, bytes.fromhex(cell))


def test_a_null_struct_with_required_fields_is_decoded() -> None:
    slot = Inner(StructType((Field("a", LONG, required=True),)))
    assert decode_cell(slot, STORED, b"\x00") is None


def variant_arrays(levels: int) -> bytes:
    """A variant with `levels` arrays inside one another, the innermost empty."""
    inner = b""
    for _ in range(levels):
        inner = b"\x11" + length_bytes(inner) + inner
    return b"\x13" + length_bytes(inner) + inner


def length_bytes(inner: bytes) -> bytes:
    assert len(inner) < 1 << 14
    return bytes([len(inner)]) if len(inner) < 128 else bytes([len(inner) & 127 | 128, len(inner) >> 7])


def test_sixty_four_values_inside_one_another_are_decoded() -> None:
    value = decode_cell(Inner(VARIANT), STORED, variant_arrays(63))
    assert isinstance(value, VariantValue)


def test_a_variant_nested_deeper_than_the_limit_is_refused() -> None:
    with pytest.raises(InputError, match="64 values inside one another"):
        decode_cell(Inner(VARIANT), STORED, variant_arrays(64))


def test_the_depth_of_a_variant_counts_the_lists_around_it() -> None:
    cell = variant_arrays(60)
    for _ in range(4):
        cell = b"\x11" + length_bytes(cell) + cell
    with pytest.raises(InputError, match="64 values inside one another"):
        decode_cell(Inner(list_of(VARIANT, 4)), STORED, cell)


def test_a_row_above_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.oracles.canonical_decoder.ROW_SIZE_MAX_BYTES", 4)
    with pytest.raises(InputError, match="at most 4 bytes"):
        decode_cell(Inner(STRING), STORED, bytes.fromhex("0c 03 61 61 61"))


def test_a_row_of_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(InputError) as refusal:
        decode_row(Schema(()), STORED, b"")
    assert refusal.value.reason == "encoding_malformed"


def test_a_row_with_a_column_too_many_is_refused() -> None:
    with pytest.raises(InputError, match="left over"):
        decode_row(Schema((Field("a", LONG),)), STORED, b"\x00\x00")


def test_columns_are_read_in_code_point_order_and_not_in_utf16_order() -> None:
    schema = Schema((Field("\U0001f600", LONG), Field("\uffee", STRING)))
    assert decode_row(schema, STORED, bytes.fromhex("0c 01 78 02 01 31")) == {"\uffee": "x", "\U0001f600": 1}


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="only a Python with Unicode 14.0.0 can tell (3.11)")
def test_the_table_of_unassigned_code_points_is_that_of_unicode_14() -> None:
    table = {point for first, last in UNASSIGNED for point in range(first, last + 1)}
    assert table == {point for point in range(0x110000) if unicodedata.category(chr(point)) == "Cn"}


def test_the_decoder_shares_no_code_with_the_encoders() -> None:
    """A decoder that shared code with an encoder would share its mistakes."""
    imported = set()
    for module in (canonical_decoder, canonical_values):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom):
                imported |= {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
            elif isinstance(node, ast.Import):
                imported |= {each.name for each in node.names}
    own = {name for name in imported if name.startswith(("pvdm", "tests"))}
    allowed = (
        "pvdm.digest.plan",
        "pvdm.digest.unicode14",
        "pvdm.errors",
        "pvdm.model",
        "tests.support.oracles.canonical_",
    )
    assert {name for name in own if not name.startswith(allowed)} == set()
