"""The cells (encoded values) of a column are the same for every Arrow layout, whole or sliced; floats widen exactly."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest.columns import DOUBLE, HALF, SINGLE, widen
from tests.support.for_each import for_each
from tests.support.rows.one_column import (
    ARROW,
    cells,
    dictionary,
    list_of,
    map_of,
    raw,
    refusal,
    run_ends,
    struct_of,
    text_cell,
)

UUID_BYTES = bytes(range(16))
INT_LIST = pa.list_(pa.int32())
WORDS = ["a", None, "a string of more than twelve bytes", "a"]
LONG = WORDS[2]
WORD_CELLS = [text_cell("0c", "a"), "00", text_cell("0c", str(LONG)), text_cell("0c", "a")]
WORD_LAYOUTS = {
    "string": pa.array(WORDS, pa.string()),
    "large_string": pa.array(WORDS, pa.large_string()),
    "string_view": pa.array(WORDS, pa.string_view()),
    "dictionary": pa.array(WORDS).dictionary_encode(),
    "dictionary of views": dictionary(pa.array(["a", LONG], pa.string_view()), [0, None, 1, 0]),
    "dictionary with a null value": dictionary(pa.array(["a", LONG, None]), [0, 2, 1, 0]),
    "run ends": run_ends([1, 2, 3, 4], pa.array(WORDS)),
    "run ends of a dictionary": run_ends([1, 2, 3, 4], pa.array(WORDS).dictionary_encode()),
}


@for_each("array", WORD_LAYOUTS.values(), ids=WORD_LAYOUTS.keys())
def test_strings_have_the_same_cells_in_every_layout(array: Any) -> None:
    assert cells(array, "string") == WORD_CELLS


@for_each("array", WORD_LAYOUTS.values(), ids=WORD_LAYOUTS.keys())
def test_a_slice_of_strings_has_the_cells_of_its_rows(array: Any) -> None:
    assert cells(array.slice(1, 2), "string") == WORD_CELLS[1:3]


LISTS: list[list[int | None] | None] = [[1, 2], None, [3, None], [4, 5]]
LIST_CELLS = ["1106020131020132", "00", "110402013300", "1106020134020135"]
LIST_TYPES = [pa.list_(pa.int32()), pa.large_list(pa.int8()), pa.list_(pa.uint16(), 2)]
LIST_VIEWS = [pa.list_view(pa.int32()), pa.large_list_view(pa.int32())]


@for_each("kind", LIST_TYPES + LIST_VIEWS, ids=str)
def test_lists_have_the_same_cells_in_every_layout(kind: Any) -> None:
    assert cells(pa.array(LISTS, kind), list_of("int")) == LIST_CELLS


@for_each("kind", LIST_TYPES + LIST_VIEWS, ids=str)
def test_a_slice_of_lists_has_the_cells_of_its_rows(kind: Any) -> None:
    assert cells(pa.array(LISTS, kind).slice(2), list_of("int")) == LIST_CELLS[2:]


def test_list_views_may_overlap_and_be_in_any_order() -> None:
    values = pa.array([1, 2, 3], pa.int32())
    array = ARROW.ListViewArray.from_arrays(pa.array([1, 0], pa.int32()), pa.array([2, 2], pa.int32()), values)
    assert cells(array, list_of("int")) == ["1106020132020133", "1106020131020132"]


def test_a_list_of_fixed_size_zero_is_empty() -> None:
    assert cells(pa.array([[], None], pa.list_(pa.int32(), 0)), list_of("int")) == ["1100", "00"]


def test_map_entries_that_are_a_slice_keep_their_keys() -> None:
    kinds = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.int64())]
    entries = ARROW.StructArray.from_arrays([pa.array(["z", "a"]), pa.array([9, 1])], fields=kinds).slice(1)
    offsets = pa.py_buffer(struct.pack("=2i", 0, 1))
    array = pa.Array.from_buffers(pa.map_(pa.string(), pa.int64()), 1, [None, offsets], children=[entries])
    assert cells(array, map_of("string", "long")) == ["12060c0161020131"]


def test_a_dictionary_of_structs_is_read_through_its_indices() -> None:
    values = pa.array([{"a": [1]}, None, {"a": None}], pa.struct([("a", INT_LIST)]))
    array = dictionary(values, [2, 0, None, 1])
    assert cells(array, struct_of(a=list_of("int"))) == ["100100", "10051103020131", "00", "00"]


def test_a_slice_of_structs_has_the_cells_of_its_rows() -> None:
    array = pa.array([{"a": 1}, None, {"a": None}, {"a": 4}], pa.struct([("a", pa.int32())]))
    assert cells(array.slice(1), struct_of(a="int")) == ["00", "100100", "1003020134"]


def test_an_empty_batch_has_no_rows() -> None:
    assert cells(pa.array([], pa.string()), "string") == []


def test_an_empty_batch_of_another_type_is_refused() -> None:
    assert refusal(pa.array([], pa.string()), "long").reason == "cast_refused"


INTEGER_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()]


@for_each("kind", INTEGER_TYPES, ids=str)
def test_every_small_integer_type_is_accepted_as_int_and_long(kind: Any) -> None:
    array = pa.array([100], kind)
    assert cells(array, "int") == cells(array, "long") == ["0203313030"]


def test_a_uint32_is_accepted_as_long_and_refused_as_int() -> None:
    array = pa.array([2**32 - 1], pa.uint32())
    assert cells(array, "long") == [text_cell("02", "4294967295")]
    assert refusal(array, "int").reason == "cast_refused"


def test_a_uint64_is_accepted_as_a_decimal_of_20_digits() -> None:
    assert cells(pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)") == [text_cell("03", str(2**64 - 1))]


@for_each("kind", [pa.decimal32(9, 2), pa.decimal64(9, 2), pa.decimal128(9, 2), pa.decimal256(9, 2)], ids=str)
def test_decimals_have_the_same_cells_in_every_width(kind: Any) -> None:
    assert cells(pa.array([Decimal("-1234567.89")], kind), "decimal(9,2)") == [text_cell("03", "-1234567.89")]


def test_a_decimal_of_76_digits_keeps_every_digit() -> None:
    digits = "9" * 76
    array = pa.array([Decimal(f"-{digits[:66]}.{digits[66:]}")], pa.decimal256(76, 10))
    assert cells(array, "decimal(76,10)") == [text_cell("03", f"-{digits[:66]}.{digits[66:]}")]


def test_dates_and_times_outside_of_pythons_range_are_encoded() -> None:
    assert cells(raw(pa.date32(), -(2**31), code="i"), "date") == [text_cell("06", str(-(2**31)))]
    assert cells(raw(pa.timestamp("us"), 2**63 - 1), "timestamp") == [text_cell("08", str(2**63 - 1))]
    assert cells(raw(pa.timestamp("ns", "UTC"), -(2**63)), "timestamptz_ns") == [text_cell("0b", str(-(2**63)))]


@pytest.mark.parametrize(("unit", "value"), [("s", 1), ("ms", 1_000), ("us", 1_000_000)])
def test_times_of_every_unit_are_encoded_as_microseconds(unit: Any, value: int) -> None:
    time = pa.array([value], pa.time64("us") if unit == "us" else pa.time32(unit))
    assert cells(time, "time") == [text_cell("07", "1000000")]
    assert cells(pa.array([value], pa.timestamp(unit)), "timestamp") == [text_cell("08", "1000000")]


def test_nanoseconds_are_encoded_exactly() -> None:
    assert cells(pa.array([86_399_999_999_999], pa.time64("ns")), "time_ns") == [text_cell("17", "86399999999999")]


def test_a_date64_is_encoded_as_days() -> None:
    assert cells(raw(pa.date64(), -86_400_000), "date") == [text_cell("06", "-1")]


def test_every_nan_has_the_same_cell() -> None:
    for bits in (0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000000, 0xFFFFFFFFFFFFFFFF):
        assert cells(raw(pa.float64(), bits, code="Q"), "double") == ["05087ff8000000000000"]
    for bits in (0x7FC00000, 0xFFC12345, 0x7F800001, 0xFFFFFFFF):
        assert cells(raw(pa.float32(), bits, code="I"), "float") == ["04047fc00000"]


def test_zeros_and_infinities_keep_their_sign() -> None:
    for bits in (0, 1 << 63, 0x7FF0000000000000, 0xFFF0000000000000):
        assert cells(raw(pa.float64(), bits, code="Q"), "double") == [f"0508{bits:016x}"]


@pytest.mark.parametrize("kind", [pa.uuid(), pa.binary(16)], ids=str)
def test_a_uuid_may_be_an_extension_type_or_16_bytes(kind: Any) -> None:
    assert cells(pa.array([UUID_BYTES], kind), "uuid") == ["0d10" + UUID_BYTES.hex()]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_binaries_are_accepted_as_geometries(kind: Any) -> None:
    array = pa.array([b"\x01\xff"], kind)
    assert cells(array, "binary") == ["0f0201ff"]
    assert cells(array, {"crs": "EPSG:4326", "type": "geometry"}) == ["150201ff"]
    assert cells(array, {"algorithm": "spherical", "crs": "EPSG:4326", "type": "geography"}) == ["160201ff"]


def test_the_null_type_is_accepted_as_every_optional_type() -> None:
    for kind in ("unknown", "int", "variant", list_of("int"), map_of("int", "int"), struct_of(a="int")):
        assert cells(pa.nulls(2), kind) == ["00", "00"]
    assert cells(pa.array([[None]], pa.list_(pa.null())), list_of("int")) == ["110100"]


def half_float(bits: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])


@for_each("bits", [0, 0x8000, 1, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x0200])
def test_widening_keeps_every_number(bits: int) -> None:
    single = widen(bits, HALF, SINGLE)
    assert single.to_bytes(4, "big") == struct.pack(">f", half_float(bits))
    assert widen(single, SINGLE, DOUBLE).to_bytes(8, "big") == struct.pack(">d", half_float(bits))


def test_widening_keeps_the_smallest_float() -> None:
    assert widen(1, SINGLE, DOUBLE).to_bytes(8, "big") == struct.pack(">d", 2.0**-149)


@for_each("bits", [0x7C01, 0xFE00, 0x7DFF, 0xFFFF])
def test_every_nan_widens_to_the_same_nan(bits: int) -> None:
    assert cells(raw(pa.float16(), bits, code="H"), "double") == ["05087ff8000000000000"]
    assert cells(raw(pa.float16(), bits, code="H"), "float") == ["04047fc00000"]
