"""Schemas: their JSON and fingerprint, what they refuse, and declared scales."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pvdm.digest import Mode, Plan, fingerprint
from pvdm.errors import InputError
from pvdm.model.projection import content, identity
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
    type_from_json,
    type_to_json,
)
from tests.support.for_each import for_each

STRING = PrimitiveType(Kind.STRING)
LONG = PrimitiveType(Kind.LONG)
PAYMENTS = Schema(
    (Field("payment_id", LONG, required=True), Field("amount", DecimalType(10, 2)), Field("note", STRING))
)
EVERY_TYPE: list[Type] = [
    *(PrimitiveType(kind) for kind in Kind),
    DecimalType(38, 10),
    DecimalType(10, 4, 2),
    FixedType(7),
    GeoType("OGC:CRS84"),
    GeoType("OGC:CRS84", "spherical"),
    StructType((Field("b", STRING), Field("a", LONG, required=True))),
    ListType(Inner(STRING, required=True)),
    MapType(Inner(STRING, required=True), Inner(ListType(Inner(LONG)))),
]


def nested_lists(levels: int) -> Type:
    kind: Type = LONG
    for _ in range(levels - 1):
        kind = ListType(Inner(kind))
    return kind


def reason_of(make: Any) -> str:
    with pytest.raises(InputError) as caught:
        make()
    return caught.value.reason


def test_the_fingerprint_is_the_one_of_the_specification() -> None:
    assert fingerprint(PAYMENTS).hex() == "6ba36dca8e1b35e3cde5f1abaf0d3409936bee76199f649b969029c3b6f257a3"


def test_the_order_of_columns_does_not_change_the_fingerprint() -> None:
    assert fingerprint(Schema(PAYMENTS.fields[::-1])) == fingerprint(PAYMENTS)


@for_each(
    "other",
    [
        Schema((*PAYMENTS.fields[:2], Field("memo", STRING))),
        Schema((*PAYMENTS.fields[:2], Field("note", PrimitiveType(Kind.BINARY)))),
        Schema((*PAYMENTS.fields[:2], Field("note", STRING, required=True))),
        Schema((PAYMENTS.fields[0], Field("amount", DecimalType(10, 3)), PAYMENTS.fields[2])),
        Schema((PAYMENTS.fields[0], Field("amount", DecimalType(11, 2)), PAYMENTS.fields[2])),
        Schema((*PAYMENTS.fields[:2], Field("note", ListType(Inner(STRING))))),
        Schema(tuple(Field(f.name, f.type, f.required, number) for number, f in enumerate(PAYMENTS.fields))),
    ],
    ids=["name", "type", "nullability", "scale", "precision", "nesting", "field ids"],
)
def test_every_change_of_the_schema_changes_the_fingerprint(other: Schema) -> None:
    assert fingerprint(other) != fingerprint(PAYMENTS)


@for_each("kind", EVERY_TYPE, ids=str)
def test_a_type_is_read_back_from_its_json(kind: Type) -> None:
    read_back = type_from_json(json.loads(json.dumps(type_to_json(kind))))
    assert type_to_json(read_back) == type_to_json(kind)


def test_field_ids_are_read_back_from_json() -> None:
    schema = Schema((Field("l", ListType(Inner(LONG, field_id=2)), field_id=1),))
    assert Schema.from_json(schema.to_json()) == schema


@for_each(
    "value",
    [
        None,
        3,
        "long",
        [],
        {},
        {"type": "struct"},
        {"type": "struct", "fields": {}},
        {"type": "struct", "fields": [], "more": 1},
        {"type": "struct", "fields": [{"name": "a", "type": "long"}]},
        {"type": "struct", "fields": [{"name": "a", "required": 1, "type": "long"}]},
        {"type": "struct", "fields": [{"name": 7, "required": True, "type": "long"}]},
        {"type": "struct", "fields": [{"required": True, "type": "long"}]},
        {"type": "struct", "fields": [{"id": True, "name": "a", "required": True, "type": "long"}]},
        {"type": "struct", "fields": [{"id": None, "name": "a", "required": True, "type": "long"}]},
        {"type": "struct", "fields": [{"name": "a", "required": True, "type": "long", "doc": "x"}]},
    ],
)
def test_json_that_is_no_schema_is_refused(value: object) -> None:
    assert reason_of(lambda: Schema.from_json(value)) == "schema_invalid"


@for_each("name", ["", "Long", "decimal(10)", "decimal(10,2)@", "decimal(10, 2)", "fixed", "fixed(-1)"])
def test_an_unknown_type_name_is_refused(name: str) -> None:
    assert reason_of(lambda: type_from_json(name)) == "schema_type_unknown"


@for_each(
    "make",
    [
        lambda: DecimalType(0, 0),
        lambda: DecimalType(77, 0),
        lambda: DecimalType(5, 6),
        lambda: DecimalType(5, -1),
        lambda: DecimalType(5, 2, 6),
        lambda: FixedType(0),
        lambda: FixedType(268_435_457),
        lambda: GeoType(""),
        lambda: Field("", LONG),
        lambda: Field("x" * 1_025, LONG),
        lambda: Field("\ud800", LONG),
        lambda: Field("a", LONG, field_id=-1),
        lambda: Schema((Field("a", LONG), Field("a", STRING))),
        lambda: StructType((Field("a", LONG), Field("a", STRING))),
        lambda: MapType(Inner(STRING), Inner(LONG)),
        lambda: Schema((Field("a", LONG, field_id=1), Field("b", LONG))),
        lambda: Schema((Field("l", ListType(Inner(LONG)), field_id=1),)),
        lambda: Schema(tuple(Field(f"c{number}", LONG) for number in range(10_001))),
    ],
)
def test_a_schema_outside_the_limits_is_refused(make: Any) -> None:
    assert reason_of(make) == "schema_invalid"


def test_sixty_four_levels_are_accepted() -> None:
    assert Schema((Field("deep", nested_lists(64)),)).names == ("deep",)


def test_sixty_five_levels_are_refused() -> None:
    assert reason_of(lambda: Schema((Field("deep", nested_lists(65)),))) == "nesting_too_deep"


def test_json_that_nests_too_deeply_is_refused_before_it_is_built() -> None:
    value: object = "long"
    for _ in range(500):
        value = {"type": "list", "element": {"required": False, "type": value}}
    schema = {"type": "struct", "fields": [{"name": "a", "required": False, "type": value}]}
    assert reason_of(lambda: Schema.from_json(schema)) == "nesting_too_deep"


def test_names_that_differ_only_in_normalization_are_two_names() -> None:
    assert len(Schema((Field("é", LONG), Field("e\u0301", LONG))).names) == 2


def test_walk_yields_every_depth_with_its_path() -> None:
    schema = Schema((Field("m", MapType(Inner(STRING, required=True), Inner(StructType((Field("x", LONG),))))),))
    assert [path for path, _ in schema.walk()] == ["m", "m.key", "m.value", "m.value.x"]


def test_select_keeps_the_named_columns_in_canonical_order() -> None:
    assert PAYMENTS.select(["payment_id", "amount"]).names == ("amount", "payment_id")


def test_scales_are_declared_by_path_at_any_depth() -> None:
    schema = Schema((Field("l", ListType(Inner(StructType((Field("d", DecimalType(10, 4)),))))),))
    declared = dict(schema.with_scales({"l.element.d": 2}).walk())["l.element.d"]
    assert declared.type == DecimalType(10, 4, 2)


@pytest.mark.parametrize("path", ["note", "ghost", "amount.element"])
def test_a_scale_of_a_column_that_is_no_decimal_is_refused(path: str) -> None:
    assert reason_of(lambda: PAYMENTS.with_scales({path: 2})) == "schema_invalid"


@for_each(
    "kind",
    [
        PrimitiveType(Kind.FLOAT),
        PrimitiveType(Kind.DOUBLE),
        GeoType("OGC:CRS84"),
        GeoType("OGC:CRS84", "spherical"),
        ListType(Inner(PrimitiveType(Kind.DOUBLE))),
        MapType(Inner(STRING, required=True), Inner(StructType((Field("x", PrimitiveType(Kind.FLOAT)),)))),
    ],
    ids=["float", "double", "geometry", "geography", "in a list", "in a struct in a map"],
)
def test_portable_mode_refuses_raw_floats_at_any_depth(kind: Type) -> None:
    schema = Schema((Field("a", kind),))
    assert reason_of(lambda: Plan(schema, (content(schema),), Mode.PORTABLE)) == "portable_float"


def test_portable_mode_checks_projected_columns_only() -> None:
    schema = Schema((Field("id", LONG), Field("x", PrimitiveType(Kind.DOUBLE))))
    assert Plan(schema, (identity(schema, ["id"]),), Mode.PORTABLE).mode is Mode.PORTABLE


def test_portable_mode_refuses_a_decimal_without_declared_scale() -> None:
    assert reason_of(lambda: Plan(PAYMENTS, (content(PAYMENTS),), Mode.PORTABLE)) == "portable_scale_undeclared"


def test_portable_mode_refuses_an_undeclared_scale_inside_a_list() -> None:
    schema = Schema((Field("l", ListType(Inner(DecimalType(10, 2)))),))
    assert reason_of(lambda: Plan(schema, (content(schema),), Mode.PORTABLE)) == "portable_scale_undeclared"


def test_portable_mode_accepts_a_declared_scale() -> None:
    schema = PAYMENTS.with_scales({"amount": 2})
    assert Plan(schema, (content(schema),), Mode.PORTABLE).schema == schema


def test_stored_mode_refuses_a_declared_scale() -> None:
    schema = PAYMENTS.with_scales({"amount": 2})
    assert reason_of(lambda: Plan(schema, (content(schema),), Mode.STORED)) == "schema_invalid"


def test_a_plan_without_projection_is_refused() -> None:
    assert reason_of(lambda: Plan(PAYMENTS, ())) == "projection_empty"


def test_a_plan_with_a_projection_twice_is_refused() -> None:
    assert reason_of(lambda: Plan(PAYMENTS, (content(PAYMENTS), content(PAYMENTS)))) == "projection_invalid"


@pytest.mark.parametrize("slot", [Field, lambda _, kind, required: Inner(kind, required)], ids=["field", "inner"])
def test_a_required_unknown_is_refused(slot: Callable[..., object]) -> None:
    with pytest.raises(InputError) as reason_of:
        slot("x", PrimitiveType(Kind.UNKNOWN), True)
    assert reason_of.value.reason == "schema_invalid"


def test_a_name_that_arrow_would_cut_short_is_refused() -> None:
    with pytest.raises(InputError) as reason_of:
        Field("a\0b", PrimitiveType(Kind.LONG))
    assert reason_of.value.reason == "schema_invalid"
