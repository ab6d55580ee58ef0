"""Schemas in Iceberg's JSON: what is refused, when two are equal, and their conversion to pvdm's own model."""

from __future__ import annotations

import pytest

from pvdm.errors import InputError
from pvdm.lake.format.json_document import Json, Node, Number
from pvdm.lake.format.schema.document import FIELD_ID_LAST, SCHEMA_NESTING_MAX, TableSchema, check_version, parse_schema
from pvdm.lake.format.schema.logical import to_iceberg, to_model
from pvdm.model.schema import Field, Inner, Kind, ListType, MapType, PrimitiveType, Schema, StructType
from tests.support.for_each import for_each
from tests.support.lake.metadata import Doc, column, schema

TYPES = [
    "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns",
    "timestamptz_ns", "string", "uuid", "binary", "unknown", "variant", "decimal(38, 2)", "fixed[16]",
    "geometry(OGC:CRS84)", "geography(EPSG:4326, karney)",
]  # fmt: skip


def schema_with(*fields: Doc, **more: object) -> TableSchema:
    return parse_schema(Node(schema(0, *fields, **more), "$"))


def list_of(element: object, field_id: int = 90, *, required: bool = True) -> Doc:
    return {"type": "list", "element-id": field_id, "element": element, "element-required": required}


def map_of(key: object, value: object) -> Doc:
    return {"type": "map", "key-id": 91, "key": key, "value-id": 92, "value": value, "value-required": False}


def struct_of(*fields: Doc) -> Doc:
    return {"type": "struct", "fields": list(fields)}


def reason_of(*fields: Doc, **more: object) -> str:
    with pytest.raises(InputError) as caught:
        schema_with(*fields, **more)
    return caught.value.reason


@for_each("name", TYPES)
def test_every_type_is_converted_to_the_model_and_back(name: str) -> None:
    found = schema_with(column(1, "c", name))
    assert to_iceberg(to_model(found))["fields"] == [column(1, "c", name)]


def test_nested_types_are_converted_to_the_model_and_back() -> None:
    fields = [
        column(1, "l", list_of("int", required=False)),
        column(2, "m", map_of("string", struct_of(column(3, "x", list_of("date", 93)))), required=True),
    ]
    found = schema_with(*fields)
    assert to_iceberg(to_model(found)) == {"type": "struct", "schema-id": 0, "fields": fields}


def test_the_model_has_ids_names_and_required_flags() -> None:
    found = schema_with(column(1, "m", map_of("string", struct_of(column(3, "x", list_of("date", 93))))))
    inner = StructType((Field("x", ListType(Inner(PrimitiveType(Kind.DATE), True, 93)), False, 3),))
    key = Inner(PrimitiveType(Kind.STRING), True, 91)
    assert to_model(found) == Schema((Field("m", MapType(key, Inner(inner, False, 92)), False, 1),))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Schema((Field("t", PrimitiveType(Kind.TIME_NS), False, 1),)), "schema_not_iceberg"),
        (Schema((Field("t", PrimitiveType(Kind.INT)),)), "schema_ids_missing"),
    ],
)
def test_a_model_that_iceberg_cannot_express_is_refused(model: Schema, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        to_iceberg(model)
    assert caught.value.reason == reason


@for_each(
    ("text", "type_name"),
    [
        ("LONG", "long"),
        ("decimal( 9 ,2 )", "decimal(9, 2)"),
        ("fixed[ 4 ]", "fixed[4]"),
        ("geometry", "geometry(OGC:CRS84)"),
        ("geography", "geography(OGC:CRS84, spherical)"),
        ("Geography( EPSG:1 , Thomas )", "geography(EPSG:1, thomas)"),
        ("geometry ( a b\t)", "geometry(a b)"),
        ("geography(a)b)", "geography(a)b, spherical)"),
    ],
)
def test_a_type_is_read_in_any_spelling_of_iceberg(text: str, type_name: str) -> None:
    assert str(schema_with(column(1, "c", text)).fields[1].type) == type_name


@for_each(
    "name",
    [
        "text",
        "decimal(39,2)",
        "decimal(0,0)",
        "decimal(3,4)",
        "fixed[0]",
        "fixed(4)",
        "geometry()",
        "geometry(a)b)",
        "geography(a,b,c)",
        "struct",
        "geometry( )",
        "geography( ,karney)",
        "geography(EPSG:1, flat)",
        "",
    ],
)
def test_an_unknown_type_is_refused_by_name(name: str) -> None:
    assert reason_of(column(1, "c", name)) == "iceberg_type_unknown"


@for_each(
    ("fields", "reason"),
    [
        ([column(1, "a"), column(1, "b")], "schema_field_id_duplicate"),
        ([column(1, "a"), column(2, "l", list_of("int", 1))], "schema_field_id_duplicate"),
        ([column(1, "a"), column(2, "a")], "schema_field_name_duplicate"),
        ([column(1, "a.b"), column(2, "a", struct_of(column(3, "b")))], "schema_field_name_duplicate"),
        ([column(FIELD_ID_LAST + 1, "a")], "schema_field_id_reserved"),
        ([column(-1, "a")], "schema_field_id_reserved"),
        ([column(1, "a", "unknown", required=True)], "schema_unknown_required"),
        ([column(1, "a", list_of("unknown"))], "schema_unknown_required"),
        ([column(1, "")], "lake_value_invalid"),
        ([column(1, "a", 7)], "lake_value_invalid"),
        ([column(1, "a", {"type": "set"})], "lake_value_invalid"),
        ([{"id": 1, "name": "a", "type": "int"}], "lake_field_missing"),
        ([column(1, "a", required="yes")], "lake_value_invalid"),
    ],
)
def test_a_schema_that_can_be_read_in_two_ways_is_refused(fields: list[Doc], reason: str) -> None:
    assert reason_of(*fields) == reason


def test_a_schema_that_is_no_struct_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        parse_schema(Node(list_of("int"), "$"))
    assert caught.value.reason == "lake_value_invalid"


def test_a_schema_that_nests_too_deeply_is_refused() -> None:
    kind: Json = "int"
    for level in range(SCHEMA_NESTING_MAX):
        kind = list_of(kind, 100 + level)
    assert reason_of(column(1, "a", kind)) == "schema_too_deep"


@for_each(
    "fields",
    [
        [column(2, "b")],
        [column(1, "a")],
        [column(1, "a", "double", required=True)],
        [column(1, "a", struct_of(), required=True)],
        [column(1, "a", "variant", required=True)],
        [column(2, "s", struct_of(column(1, "a", required=True)))],
        [column(2, "l", list_of(struct_of(column(1, "a", required=True))), required=True)],
    ],
)
def test_a_field_that_cannot_identify_rows_is_refused(fields: list[Doc]) -> None:
    assert reason_of(*fields, **{"identifier-field-ids": [1]}) == "schema_identifier_invalid"


def test_a_required_field_in_required_structs_identifies_rows() -> None:
    inner = struct_of(column(1, "a", required=True))
    found = schema_with(column(2, "s", inner, required=True), **{"identifier-field-ids": [1]})
    assert found.identifier_field_ids == {1}


@for_each("name", ["timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geography"])
def test_a_type_of_format_3_is_refused_before_it(name: str) -> None:
    with pytest.raises(InputError) as caught:
        check_version(schema_with(column(1, "c", name)), 2)
    assert caught.value.reason == "schema_type_version"


def test_an_initial_default_is_refused_before_format_3() -> None:
    with pytest.raises(InputError) as caught:
        check_version(schema_with(column(1, "c", "int", **{"initial-default": 1})), 2)
    assert caught.value.reason == "schema_default_version"


GOOD_DEFAULTS: list[tuple[str, Json]] = [
    ("boolean", True), ("int", -(2**31)), ("long", 2**63 - 1), ("float", Number("1.0")), ("double", Number("1E9")),
    ("string", "x"), ("decimal(9, 2)", "14.20"), ("decimal(2, 2)", "-0.20"), ("date", "2017-11-16"),
    ("time", "22:31:08.123456"),
    ("timestamp", "2017-11-16T22:31:08.123456"), ("timestamptz", "2017-11-16T22:31:08.123456+00:00"),
    ("timestamp_ns", "2017-11-16T22:31:08.123456789"), ("timestamptz_ns", "2017-11-16T22:31:08.123456789+00:00"),
    ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"), ("fixed[2]", "0aFF"), ("binary", ""),
]  # fmt: skip
BAD_DEFAULTS: list[tuple[object, Json]] = [
    ("boolean", 1), ("int", 2**31), ("int", Number("1.0")), ("long", True), ("float", 1), ("double", "1.0"),
    ("string", 1), ("decimal(9, 2)", "14.2"), ("decimal(3, 2)", "14.20"), ("decimal(9, 2)", "NaN"),
    ("decimal(9, 2)", "x"), ("date", "2017-13-16"), ("time", "24:00"), ("timestamp", "2017-11-16T22:31:08+00:00"),
    ("timestamptz", "2017-11-16T22:31:08+01:00"), ("uuid", "f79c3e09"), ("fixed[2]", "0aFF00"), ("binary", "abc"),
    ("variant", 1), ("unknown", 1), (struct_of(), {}), ("int", None), (struct_of(), None),
    ("date", "2017-02-30"), ("date", "+12017-02-03"), ("timestamp_ns", "2300-01-01T00:00:00"),
    ("double", Number("1e999")), ("double", Number("0e99999999999999999999")), ("double", Number("1e-99999")),
    ("float", Number("1e39")), ("float", Number("-0")), ("decimal(9, 2)", "1_0.00"), ("decimal(9, 2)", " 1.00"),
    ("decimal(9, 2)", "١.٠٠"), ("time", "٢٢:31"),
]  # fmt: skip


@for_each(("kind", "value"), GOOD_DEFAULTS)
def test_a_default_in_the_form_of_its_type_is_accepted(kind: str, value: Json) -> None:
    found = schema_with(column(1, "c", kind, **{"initial-default": value, "write-default": value}))
    assert found.fields[1].initial_default is not None


@for_each("key", ["initial-default", "write-default"])
@for_each(("kind", "value"), BAD_DEFAULTS)
def test_a_default_of_another_form_is_refused(kind: object, value: Json, key: str) -> None:
    assert reason_of(column(1, "c", kind, **{key: value})) == "schema_default_invalid"


def test_a_full_name_above_the_limit_is_refused() -> None:
    inner = column(2, "x" * 23)
    assert schema_with(column(1, "a" * 1_000, struct_of(inner))).fields[2].name.endswith("a.xxxxxxxxxxxxxxxxxxxxxxx")
    assert reason_of(column(1, "a" * 1_001, struct_of(inner))) == "schema_name_too_long"


def test_a_field_is_found_by_its_full_and_short_name() -> None:
    found = schema_with(
        column(1, "l", list_of(struct_of(column(2, "x")))), column(3, "m", map_of("int", struct_of(column(4, "y"))))
    )
    names = ("l.element.x", "l.x", "m.value.y", "m.y", "m.key", "l.element")
    assert [getattr(found.find(name), "field_id", None) for name in names] == [2, 2, 4, 4, 91, 90]


def test_a_real_name_is_preferred_to_an_equal_short_name() -> None:
    found = schema_with(column(1, "l", list_of(struct_of(column(2, "x")))), column(3, "l.x"))
    assert getattr(found.find("l.x"), "field_id", None) == 3


SAME: list[tuple[Doc, Doc]] = [
    (column(1, "c", "decimal(9,2)"), column(1, "c", "decimal(9, 2)")),
    (column(1, "c", doc=None), column(1, "c")),
    (
        column(1, "c", "double", **{"write-default": Number("1.50")}),
        column(1, "c", "double", **{"write-default": Number("1.5")}),
    ),
    (
        column(1, "c", "double", **{"write-default": Number("15e-1")}),
        column(1, "c", "double", **{"write-default": Number("1.5")}),
    ),
    (column(1, "l", list_of("INT")), column(1, "l", list_of("int"))),
]
OTHER: list[tuple[Doc, Doc]] = [
    (column(1, "c"), column(2, "c")),
    (column(1, "c"), column(1, "d")),
    (column(1, "c"), column(1, "c", required=True)),
    (column(1, "c", doc="a"), column(1, "c")),
    (column(1, "c", "int"), column(1, "c", "long")),
    (column(1, "l", list_of("int")), column(1, "l", list_of("int", 91))),
    (column(1, "c", "int", **{"write-default": 1}), column(1, "c", "int")),
    (column(1, "c", **{"x-mark": 1}), column(1, "c", **{"x-mark": True})),
    (
        column(1, "c", "double", **{"write-default": Number("1.0000000000000002")}),
        column(1, "c", "double", **{"write-default": Number("1.0")}),
    ),
    (
        column(1, "l", {**list_of("int"), "write-default": Number("1e998")}),
        column(1, "l", {**list_of("int"), "write-default": Number("1e999")}),
    ),
]


@for_each(("left", "right"), SAME)
def test_schemas_with_the_same_meaning_are_equal(left: Doc, right: Doc) -> None:
    assert schema_with(left).meaning == schema_with(right).meaning


@for_each(("left", "right"), OTHER)
def test_schemas_with_any_difference_are_not_equal(left: Doc, right: Doc) -> None:
    assert schema_with(left).meaning != schema_with(right).meaning


def test_identifier_fields_count_without_their_order() -> None:
    fields = [column(1, "a", required=True), column(2, "b", required=True)]
    one = schema_with(*fields, **{"identifier-field-ids": [2, 1]})
    other = schema_with(*fields, **{"identifier-field-ids": [1, 2]})
    assert (one.meaning == other.meaning, one.meaning == schema_with(*fields).meaning) == (True, False)


def test_a_column_with_an_unknown_field_named_key_is_read() -> None:
    assert schema_with(column(1, "c", key="no type")).meaning == schema_with(column(1, "c", key="no type")).meaning
