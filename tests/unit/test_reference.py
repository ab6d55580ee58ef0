"""The reference encoder: the examples of the specification, variants, casts, and values that are refused."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest.plan import Construction, Mode, Plan, element_key
from pvdm.digest.reference import ReferenceEngine
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import Schema
from pvdm.model.secret import DigestKey
from tests.support.for_each import for_each
from tests.support.rows.one_column import (
    ARROW,
    CONTENT,
    NAMES,
    STORAGE,
    VariantType,
    cells,
    dictionary,
    list_of,
    map_of,
    plan_for,
    raw,
    refusal,
    struct_of,
    text_cell,
    variants,
)

# --- The examples of the specification ---

INT_LIST = pa.list_(pa.int32())
EXAMPLES: list[tuple[Any, object, Mode, str]] = [
    (pa.array([42]), "long", Mode.STORED, "02023432"),
    (pa.array([-7]), "long", Mode.STORED, "02022d37"),
    (pa.array([True]), "boolean", Mode.STORED, "010474727565"),
    (pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "decimal(10,2)", Mode.STORED, "0304312e3530"),
    (pa.array([Decimal("1.5000")], pa.decimal128(10, 4)), "decimal(10,4)@2", Mode.PORTABLE, "0304312e3530"),
    (pa.array([Decimal("-0.05")], pa.decimal128(10, 2)), "decimal(10,2)", Mode.STORED, "03052d302e3035"),
    (pa.array([-0.0]), "double", Mode.STORED, "05088000000000000000"),
    (pa.array([1], pa.date32()), "date", Mode.STORED, "060131"),
    (pa.array([1], pa.timestamp("s", "Europe/Vienna")), "timestamptz", Mode.STORED, "090731303030303030"),
    (pa.array(["e\u0301"]), "string", Mode.STORED, "0c0365cc81"),
    (pa.array(["e\u0301"]), "string", Mode.PORTABLE, "0c02c3a9"),
    (pa.array([""]), "string", Mode.STORED, "0c00"),
    (pa.array([None], pa.string()), "string", Mode.STORED, "00"),
    (pa.array([[1, None, 2]], INT_LIST), list_of("int"), Mode.STORED, "110702013100020132"),
    (pa.array([[]], INT_LIST), list_of("int"), Mode.STORED, "1100"),
    (pa.array([{"b": 5, "a": "x"}]), struct_of(b="long", a="string"), Mode.STORED, "10060c0178020135"),
    (
        pa.array([[("b", 1), ("a", None)]], pa.map_(pa.string(), pa.int32())),
        map_of("string", "int"),
        Mode.STORED,
        "120a0c0161000c0162020131",
    ),
]


@for_each(("array", "kind", "mode", "expected"), EXAMPLES)
def test_an_example_of_the_specification_has_its_bytes(array: Any, kind: object, mode: Mode, expected: str) -> None:
    assert cells(array, kind, mode) == [expected]


def spec_example(construction: Construction) -> tuple[Plan, pa.RecordBatch]:
    fields = [
        {"name": "payment_id", "required": True, "type": "long"},
        {"name": "amount", "required": False, "type": "decimal(10,2)"},
        {"name": "note", "required": False, "type": "string"},
    ]
    schema = Schema.from_json({"fields": fields, "type": "struct"})
    columns = {
        "payment_id": pa.array([88121, 88122]),
        "amount": pa.array([Decimal("10.00"), None], pa.decimal128(10, 2)),
        "note": pa.array([None, "ok"], pa.string()),
    }
    plan = Plan(schema, (content(schema), identity(schema, ["payment_id"])), construction=construction)
    return plan, pa.record_batch(columns)


def totals(construction: Construction) -> tuple[int, int]:
    plan, batch = spec_example(construction)
    key = element_key(DigestKey(bytes(range(32)), epoch=0), plan, CONTENT)
    accumulator = ReferenceEngine().start(plan, {CONTENT: key})
    accumulator.update(batch)
    return accumulator.totals()[CONTENT]


def test_the_example_of_the_specification_has_its_digest() -> None:
    rows, total = totals(Construction.HMAC_SHA256)
    assert (rows, f"{total:064x}") == (2, "810f8d098aca4572663b46032475a000ff46e258aa83655ebac169bb5e3f4119")


def test_blake3_has_another_sum_for_the_same_rows() -> None:
    rows, total = totals(Construction.BLAKE3)
    assert rows == 2
    assert total != totals(Construction.HMAC_SHA256)[1]


def test_each_projection_encodes_only_its_columns() -> None:
    plan, batch = spec_example(Construction.HMAC_SHA256)
    assert ReferenceEngine().encode(plan, ProjectionName.IDENTITY, batch)[0].hex() == "02053838313231"


# --- Variant ---


SHREDDED = pa.struct([*STORAGE, ("typed_value", pa.int64())])
OBJECT = bytes((0x02, 2, 1, 0, 0, 1, 2, 0x00, 0x04))  # {"a": null, "b": true}


def test_a_variant_is_encoded_by_its_content() -> None:
    expected = ["13" + f"{len(inner) // 2:02x}" + inner for inner in ("00", "1400", "020135")]
    assert cells(variants(b"\x00", b"\x02\x00\x00", b"\x0c\x05", None), "variant") == [*expected, "00"]


def test_the_fields_of_a_variant_object_are_in_the_order_of_their_names() -> None:
    inner = "0c016100" + "0c0162" + "010474727565"
    assert cells(variants(OBJECT), "variant") == ["130f140d" + inner]


@pytest.mark.parametrize("name", ["arrow.parquet.variant", "parquet.variant"])
def test_a_variant_may_be_an_extension_type(name: str) -> None:
    kind = VariantType(STORAGE, name)
    assert cells(pa.ExtensionArray.from_storage(kind, variants(OBJECT)), "variant") == cells(
        variants(OBJECT), "variant"
    )


def test_an_extension_name_in_the_metadata_of_the_field_is_used() -> None:
    noted = pa.field("c", STORAGE, metadata={"ARROW:extension:name": "arrow.parquet.variant"})
    batch = pa.record_batch([variants(b"\x00")], schema=pa.schema([noted]))
    assert ReferenceEngine().encode(plan_for("variant"), CONTENT, batch) == [bytes.fromhex("130100")]
    with pytest.raises(InputError) as caught:
        ReferenceEngine().encode(plan_for(struct_of(metadata="binary", value="binary")), CONTENT, batch)
    assert caught.value.reason == "cast_refused"


def test_the_storage_of_a_variant_may_also_be_a_plain_struct() -> None:
    assert cells(variants(b"\x00"), struct_of(metadata="binary", value="binary")) == [
        "100c0f07" + NAMES.hex() + "0f0100"
    ]


def test_names_that_become_one_in_portable_mode_are_refused() -> None:
    composed, decomposed = "\u00e9".encode(), "e\u0301".encode()
    metadata = bytes((1, 2, 0, 3, 5)) + decomposed + composed
    value = bytes((0x02, 2, 0, 1, 0, 1, 2, 0, 0))
    array = variants(value, metadata=metadata)
    assert len(cells(array, "variant")) == 1
    assert refusal(array, "variant", Mode.PORTABLE).reason == "variant_key_duplicate"


# --- Refusals ---

DEC_4 = pa.decimal128(10, 4)
BAD_TEXT = pa.array([b"ok", b"\xed\xa0\x80"], pa.binary()).view(pa.string())
BAD_INDEX = ARROW.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["x"]), safe=False)
BAD_OFFSETS = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(struct.pack("=4i", 0, 2, 1, 3)), pa.py_buffer(b"abc")]
)
NULL_KEY = ARROW.MapArray.from_arrays(
    pa.array([0, 1], pa.int32()), dictionary(pa.array([None], pa.string()), [0]), pa.array([1])
)
TWO_KEYS = pa.array([[("e\u0301", 1), ("\u00e9", 2)]], pa.map_(pa.string(), pa.int64()))
FLOAT_VARIANT, DECIMAL_VARIANT = b"\x38" + bytes(4), b"\x20\x00" + bytes(4)
JSON = pa.array(["{}"], pa.json_())
NO_FIELD = pa.array([{"a": 1}])
REFUSED: list[tuple[str, Any, object, Mode]] = [
    ("decimal_not_exact", pa.array([Decimal("1.5001")], DEC_4), "decimal(10,4)@2", Mode.PORTABLE),
    ("decimal_too_wide", pa.array([Decimal("123.0000")], DEC_4), "decimal(4,4)@2", Mode.PORTABLE),
    ("decimal_too_wide", raw(pa.decimal64(3, 0), 1000), "decimal(3,0)", Mode.STORED),
    ("string_not_utf8", BAD_TEXT, "string", Mode.STORED),
    ("string_unassigned_code_point", pa.array(["\U000e0000"]), "string", Mode.PORTABLE),
    ("value_out_of_range", raw(pa.time64("us"), 86_400_000_000), "time", Mode.STORED),
    ("value_out_of_range", raw(pa.time32("s"), -1, code="i"), "time", Mode.STORED),
    ("value_out_of_range", raw(pa.timestamp("s"), 2**62), "timestamp", Mode.STORED),
    ("value_out_of_range", raw(pa.date64(), 1), "date", Mode.STORED),
    ("value_out_of_range", raw(pa.date64(), 2**31 * 86_400_000), "date", Mode.STORED),
    ("value_out_of_range", raw(pa.date32(), 2**31 - 1, code="i"), "timestamp", Mode.STORED),
    ("value_out_of_range", raw(pa.date32(), 106_752, code="i"), "timestamp_ns", Mode.STORED),
    ("map_key_null", NULL_KEY, map_of("string", "long"), Mode.STORED),
    ("map_key_duplicate", TWO_KEYS, map_of("string", "long"), Mode.PORTABLE),
    ("portable_float", variants(FLOAT_VARIANT), "variant", Mode.PORTABLE),
    ("portable_scale_undeclared", variants(DECIMAL_VARIANT), "variant", Mode.PORTABLE),
    ("string_not_utf8", variants(b"\x05\xff"), "variant", Mode.STORED),
    ("variant_malformed", variants(b"\x58"), "variant", Mode.STORED),
    ("variant_malformed", pa.array([{"metadata": None, "value": b"\x00"}], STORAGE), "variant", Mode.STORED),
    ("variant_shredded", pa.array([None], SHREDDED), "variant", Mode.STORED),
    ("arrow_type_unsupported", JSON, "string", Mode.STORED),
    ("arrow_type_unsupported", pa.array([1], pa.duration("s")), "long", Mode.STORED),
    ("arrow_type_unsupported", pa.array([], pa.decimal128(5, -2)), "decimal(5,0)", Mode.STORED),
    ("arrow_type_unsupported", pa.array([[1]], pa.list_(pa.duration("s"))), list_of("long"), Mode.STORED),
    ("arrow_invalid", BAD_INDEX, "string", Mode.STORED),
    ("arrow_invalid", BAD_OFFSETS, "string", Mode.STORED),
    ("column_missing", NO_FIELD, struct_of(a="long", b="long"), Mode.STORED),
    ("column_unexpected", NO_FIELD, struct_of(), Mode.STORED),
    ("cast_refused", variants(b"\x00"), "binary", Mode.STORED),
]


@for_each(("reason", "array", "kind", "mode"), REFUSED)
def test_an_invalid_value_is_refused_with_its_reason(reason: str, array: Any, kind: object, mode: Mode) -> None:
    error = refusal(array, kind, mode)
    assert error.reason == reason
    assert str(error.details["column"]).partition(".")[0] == "c"


CAST_REFUSED: list[tuple[Any, object]] = [
    (pa.int64(), "int"),
    (pa.float64(), "float"),
    (pa.int32(), "string"),
    (pa.int32(), "decimal(10,0)"),
    (pa.uint64(), "long"),
    (pa.uint64(), "decimal(19,0)"),
    (pa.decimal128(10, 2), "decimal(9,2)"),
    (pa.decimal128(10, 2), "decimal(12,3)"),
    (pa.timestamp("us"), "timestamptz"),
    (pa.timestamp("us", "UTC"), "timestamp"),
    (pa.timestamp("us"), "timestamp_ns"),
    (pa.timestamp("ns"), "timestamp"),
    (pa.time64("ns"), "time"),
    (pa.date32(), "timestamptz"),
    (pa.binary(16), "binary"),
    (pa.binary(15), "uuid"),
    (pa.uuid(), "fixed(16)"),
    (pa.binary(), "string"),
    (pa.string(), "binary"),
    (pa.list_(pa.int64()), list_of("int")),
    (pa.list_(pa.int64()), "long"),
    (pa.map_(pa.int64(), pa.int64()), map_of("int", "long")),
    (pa.struct([("a", pa.int64())]), struct_of(a="int")),
]


@for_each(("source", "target"), CAST_REFUSED, ids=str)
def test_a_cast_outside_the_closed_list_is_refused_before_any_row(source: Any, target: object) -> None:
    assert refusal(pa.array([], source), target).reason == "cast_refused"


def test_casts_of_the_closed_list_are_done_at_every_depth() -> None:
    array = pa.array([[[(1, 1.5)]]], pa.list_(pa.map_(pa.int32(), pa.float32())))
    assert cells(array, list_of(map_of("long", "double"))) == ["11" + "0f" + "120d" + "020131" + "05083ff8000000000000"]


def test_a_date_becomes_a_timestamp_at_midnight() -> None:
    array = raw(pa.date32(), -1, code="i")
    assert cells(array, "timestamp") == [text_cell("08", "-86400000000")]
    assert cells(array, "timestamp_ns") == [text_cell("0a", "-86400000000000")]


def test_portable_decimals_of_any_scale_are_encoded_at_the_declared_one() -> None:
    wide, narrow = pa.array([Decimal("1.5000")], DEC_4), pa.array([Decimal("1.5")], pa.decimal128(2, 1))
    kind = "decimal(10,3)@2"
    assert cells(wide, kind, Mode.PORTABLE) == cells(narrow, kind, Mode.PORTABLE) == [text_cell("03", "1.50")]


def test_a_null_in_a_required_column_is_refused_with_column_and_row() -> None:
    error = refusal(pa.array([1, None]), "long", required=True)
    assert (error.reason, error.details["column"], error.details["row"]) == ("null_in_required", "c", 1)


def test_an_error_inside_a_nested_value_names_its_path_row_and_type() -> None:
    array = pa.array([None, [[1], [None]]], pa.list_(INT_LIST))
    error = refusal(array, list_of(list_of("int", required=True)))
    assert str(error) == (
        "column 'c.element.element' (int), row 1: a required value is null: expected a value, got null"
    )


def test_unknown_is_refused_for_a_required_type() -> None:
    assert refusal(pa.nulls(0), "int", required=True).reason == "cast_refused"


def test_values_under_a_null_are_ignored() -> None:
    hidden = ARROW.StructArray.from_arrays([BAD_TEXT], ["a"], mask=pa.array([False, True]))
    assert cells(hidden, struct_of(a="string")) == ["10040c026f6b", "00"]
    valid = pa.py_buffer(b"\x01")
    masked = pa.Array.from_buffers(pa.string(), 2, [valid, *BAD_TEXT.buffers()[1:]])
    assert cells(masked, "string", Mode.PORTABLE) == ["0c026f6b", "00"]


def test_a_dictionary_value_that_no_row_uses_is_ignored() -> None:
    assert cells(ARROW.DictionaryArray.from_arrays(pa.array([0], pa.int8()), BAD_TEXT), "string") == ["0c026f6b"]


def encode_named(names: list[str], schema_names: list[str], projected: list[str]) -> list[bytes]:
    fields = [{"name": name, "required": False, "type": "long"} for name in schema_names]
    schema = Schema.from_json({"fields": fields, "type": "struct"})
    batch = pa.record_batch([pa.array([at]) for at in range(len(names))], names=names)
    return ReferenceEngine().encode(Plan(schema, (identity(schema, projected),)), ProjectionName.IDENTITY, batch)


def test_columns_are_in_code_point_order_of_their_names() -> None:
    assert encode_named(["b", "a", "B"], ["a", "b", "B"], ["a", "b", "B"]) == [b"\x02\x012\x02\x011\x02\x010"]


def test_other_columns_of_the_target_may_be_present() -> None:
    assert encode_named(["a", "b"], ["a", "b"], ["b"]) == [b"\x02\x011"]


@pytest.mark.parametrize(
    ("reason", "names"),
    [("column_missing", ["b"]), ("column_unexpected", ["a", "b", "c"]), ("column_duplicate", ["a", "b", "b"])],
)
def test_columns_that_do_not_fit_the_target_are_refused(reason: str, names: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        encode_named(names, ["a", "b"], ["a"])
    assert caught.value.reason == reason


def test_a_row_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.digest.reference.ROW_SIZE_MAX_BYTES", 100)
    assert len(cells(pa.array(["x" * 98]), "string")[0]) == 200
    for array, kind in [
        (pa.array(["x" * 99]), "string"),
        (pa.array([["x" * 49] * 2]), list_of("string")),
        (pa.array([[(1, "x" * 49), (2, "x" * 49)]], pa.map_(pa.int32(), pa.string())), map_of("int", "string")),
    ]:
        assert refusal(array, kind).reason == "row_too_large"


def test_lists_that_share_elements_are_refused_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.digest.reference.ROW_SIZE_MAX_BYTES", 10_000)
    array: Any = pa.array([1, 1], pa.int32())
    kind: object = "int"
    two = pa.array([2, 2], pa.int32())
    for _ in range(40):
        array = ARROW.ListViewArray.from_arrays(pa.array([0, 0], pa.int32()), two, array)
        kind = list_of(kind)
    assert refusal(array, kind).reason == "row_too_large"
