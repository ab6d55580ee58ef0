"""Partition specs: how they are read, the result type of every transform on every source type, and its values."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from pvdm.lake.format.manifest.fields import avro_name
from pvdm.lake.format.partition_spec import PartitionSpec, Transform, apply_transform, bucket_hash
from pvdm.lake.format.partition_value import avro_value_type, decimal_bytes
from pvdm.lake.format.schema.logical import schema_from_text, type_from_iceberg, type_to_iceberg
from pvdm.model.schema import (
    DecimalType,
    FixedType,
    GeoType,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
    Type,
)
from tests.support.for_each import for_each
from tests.support.lake.manifests import refused

INT, DATE = PrimitiveType(Kind.INT), PrimitiveType(Kind.DATE)
TYPES: dict[str, Type] = {
    **{kind.value: PrimitiveType(kind) for kind in Kind if kind is not Kind.TIME_NS},
    "decimal": DecimalType(9, 2),
    "fixed": FixedType(4),
    "geometry": GeoType("OGC:CRS84"),
    "geography": GeoType("OGC:CRS84", "spherical"),
    "struct": StructType(()),
    "list": ListType(Inner(INT)),
    "map": MapType(Inner(INT, required=True), Inner(INT)),
}
TIMESTAMPS = {"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
PRIMITIVE = set(TYPES) - {"variant", "geometry", "geography", "struct", "list", "map"}
SOURCES = {
    "identity": PRIMITIVE,
    "bucket[16]": TIMESTAMPS | {"int", "long", "decimal", "date", "time", "string", "uuid", "fixed", "binary"},
    "truncate[4]": {"int", "long", "decimal", "string", "binary"},
    "year": TIMESTAMPS | {"date"},
    "month": TIMESTAMPS | {"date"},
    "day": TIMESTAMPS | {"date"},
    "hour": TIMESTAMPS,
    "void": set(TYPES),
}
RESULTS = {"bucket[16]": INT, "year": INT, "month": INT, "day": DATE, "hour": INT}


@for_each("source", TYPES)
@for_each("transform", SOURCES)
def test_a_transform_has_its_result_type_or_is_refused_for_each_source_type(transform: str, source: str) -> None:
    if source in SOURCES[transform]:
        assert Transform.parse(transform).result_type(TYPES[source]) == RESULTS.get(transform, TYPES[source])
    else:
        with refused("partition_source_refused"):
            Transform.parse(transform).result_type(TYPES[source])


@for_each(("transform", "result"), [("bucket[16]", INT), ("day", DATE), ("identity", None), ("void", None)])
def test_the_result_type_without_a_source_is_known_only_if_it_is_fixed(transform: str, result: Type | None) -> None:
    assert Transform.parse(transform).result_type(None) == result


@for_each("text", ["identity", "bucket[16]", "truncate[4]", "void", "zorder[3]", "Custom"])
def test_a_transform_keeps_its_text(text: str) -> None:
    assert str(Transform.parse(text)) == text


def test_the_case_of_a_known_transform_does_not_matter() -> None:
    assert Transform.parse("Bucket[4]") == Transform.parse("bucket[4]")


@for_each(
    "text",
    [
        "{}",
        "[1]",
        '[{"name":"a","source-id":1}]',
        '[{"name":"","transform":"void","source-id":1}]',
        '[{"name":"a","transform":"void"}]',
        json.dumps([{"name": "x" * 1_025, "transform": "void", "source-id": 1}]),
        '[{"name":"a","transform":"void","source-ids":[]}]',
        '[{"name":"a","transform":"void","source-id":-1}]',
        '[{"name":"a","transform":"void","source-id":1,"field-id":null}]',
        '[{"name":"a","transform":"bucket[0]","source-id":1}]',
        '[{"name":"a","transform":"bucket[9999999999]","source-id":1}]',
        '[{"name":"a","transform":"void","source-id":1},{"name":"a","transform":"day","source-id":1}]',
    ],
)
def test_an_invalid_spec_is_refused(text: str) -> None:
    with refused("partition_spec_invalid"):
        PartitionSpec.from_text(0, text)


def test_a_lone_surrogate_in_a_spec_is_refused() -> None:
    with refused("lake_json_text_invalid"):
        PartitionSpec.from_text(0, '[{"name":"\\ud800","transform":"void","source-id":1}]')


def test_a_spec_of_too_many_fields_is_refused() -> None:
    fields = [{"name": f"n{at}", "transform": "void", "source-id": 1} for at in range(1_001)]
    with refused("partition_too_many_fields"):
        PartitionSpec.from_text(0, json.dumps(fields))


def test_fields_without_ids_are_numbered_from_a_thousand() -> None:
    text = '[{"name":"a","transform":"void","source-id":1},{"name":"b","transform":"void","source-id":1}]'
    assert [field.field_id for field in PartitionSpec.from_text(0, text).fields] == [1000, 1001]


def test_a_spec_is_written_as_it_was_read() -> None:
    text = (
        '[{"name":"á","transform":"day","source-id":2,"field-id":1000},'
        '{"name":"z","transform":"zorder[2]","source-ids":[1,2],"field-id":1001}]'
    )
    assert PartitionSpec.from_text(0, text).to_text() == text


A_UUID = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
STAMP = 1_510_871_468_000_000


@for_each(
    ("source", "value", "expected"),
    [
        ("int", 34, 2_017_239_379),
        ("long", 34, 2_017_239_379),
        ("decimal", Decimal("14.20"), -500_754_589),
        ("date", 17_486, -653_330_422),
        ("time", 81_068_000_000, -662_762_989),
        ("timestamp", STAMP, -2_047_944_441),
        ("timestamptz", STAMP + 1, -1_207_196_810),
        ("timestamp_ns", (STAMP + 1) * 1_000 + 1, -1_207_196_810),
        ("timestamptz_ns", STAMP * 1_000, -2_047_944_441),
        ("string", "iceberg", 1_210_000_089),
        ("uuid", A_UUID, 1_488_055_340),
        ("fixed", b"\x00\x01\x02\x03", -188_683_207),
        ("binary", b"\x00\x01\x02\x03", -188_683_207),
    ],
)
def test_bucket_hashes_equal_those_of_icebergs_appendix_b(source: str, value: Any, expected: int) -> None:
    assert bucket_hash(TYPES[source], value) == expected % 2**32


def days(year: int, month: int, day: int) -> int:
    return (date(year, month, day) - date(1970, 1, 1)).days


@for_each(
    ("transform", "source", "value", "expected"),
    [
        ("identity", "string", "x", "x"),
        ("bucket[16]", "int", 34, 3),
        ("bucket[16]", "string", "iceberg", 9),
        ("truncate[10]", "int", -1, -10),
        ("truncate[10]", "long", 19, 10),
        ("truncate[50]", "decimal", Decimal("10.65"), Decimal("10.50")),
        ("truncate[50]", "decimal", Decimal("-10.65"), Decimal("-11.00")),
        ("truncate[3]", "string", "ic𝄞berg", "ic𝄞"),
        ("truncate[3]", "binary", b"\x01\x02\x03\x04", b"\x01\x02\x03"),
        ("year", "date", days(1969, 12, 31), -1),
        ("month", "date", days(1969, 12, 31), -1),
        ("month", "date", days(2024, 3, 1), 54 * 12 + 2),
        ("year", "date", 2**31 - 1, 5_879_610),
        ("day", "timestamp", -1, -1),
        ("day", "timestamptz_ns", 86_400_000_000_000, 1),
        ("hour", "timestamp", -1, -1),
        ("hour", "timestamp_ns", 3_600_000_000_000, 1),
        ("year", "timestamptz", STAMP, 47),
        ("void", "string", "x", None),
        ("day", "date", None, None),
    ],
)
def test_a_transform_is_applied_as_the_specification_says(
    transform: str, source: str, value: Any, expected: Any
) -> None:
    assert apply_transform(Transform.parse(transform), TYPES[source], value) == expected


def test_applying_an_unknown_transform_is_refused() -> None:
    with refused("partition_transform_unknown"):
        apply_transform(Transform.parse("zorder[2]"), INT, 1)


@pytest.mark.parametrize(
    ("transform", "source", "value"),
    [
        ("truncate[10]", "int", -(2**31)),
        ("truncate[99]", "decimal", Decimal("-9999999.99")),
        ("hour", "timestamp", 2**63 - 1),
    ],
)
def test_a_result_outside_its_type_is_refused(transform: str, source: str, value: Any) -> None:
    with refused("single_value_invalid"):
        apply_transform(Transform.parse(transform), TYPES[source], value)


@for_each(
    ("text", "kind"),
    [
        ("decimal(9, 2)", DecimalType(9, 2)),
        ("fixed[16]", FixedType(16)),
        ("timestamptz_ns", PrimitiveType(Kind.TIMESTAMPTZ_NS)),
        ("geometry", GeoType("OGC:CRS84")),
        ("geometry(srid:4326)", GeoType("srid:4326")),
        ("geography", GeoType("OGC:CRS84", "spherical")),
        ("geography(srid:4326)", GeoType("srid:4326", "spherical")),
        ("geography(srid:4326, karney)", GeoType("srid:4326", "karney")),
    ],
)
def test_a_type_is_converted_from_and_to_its_name(text: str, kind: Type) -> None:
    assert (type_from_iceberg(text), type_to_iceberg(kind)) == (kind, text)


@for_each(
    "text",
    [
        '"int"',
        "[]",
        '{"type":"struct"}',
        '{"type":"struct","fields":[{"name":"a","required":true,"type":"int"}]}',
        '{"type":"struct","fields":[{"id":1,"name":"a","required":"no","type":"int"}]}',
        '{"type":"struct","fields":[{"id":1,"name":"a","required":true,"type":{"type":"list","element":"int"}}]}',
        '{"type":"struct","schema-id":"3","fields":[]}',
    ],
)
def test_an_invalid_schema_is_refused(text: str) -> None:
    with refused("iceberg_schema_invalid"):
        schema_from_text(text)


@for_each("name", ["decimal(39, 2)", "time_ns", "geography(x, flat)", "a word"])
def test_a_type_that_iceberg_does_not_have_is_refused(name: str) -> None:
    with refused("iceberg_type_unknown"):
        type_from_iceberg(name)


def test_a_schema_that_nests_too_deeply_is_refused() -> None:
    inner: Any = "int"
    for at in range(80):
        inner = {"type": "list", "element-id": at + 2, "element-required": False, "element": inner}
    fields = [{"id": 1, "name": "a", "required": False, "type": inner}]
    with refused("iceberg_schema_too_deep"):
        schema_from_text(json.dumps({"type": "struct", "fields": fields}))


def test_converting_a_nested_type_to_a_name_is_refused() -> None:
    with refused("iceberg_schema_invalid"):
        type_to_iceberg(TYPES["struct"])


@for_each(("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (18, 8), (19, 9), (38, 16)])
def test_a_decimal_takes_the_fewest_bytes_that_hold_its_precision(precision: int, size: int) -> None:
    assert decimal_bytes(precision) == size


def test_a_named_avro_type_is_written_once_and_then_by_name() -> None:
    defined: set[str] = set()
    avro = [avro_value_type(FixedType(4), defined) for _ in range(2)]
    assert avro == [{"type": "fixed", "name": "fixed_4", "size": 4}, "fixed_4"]


@pytest.mark.parametrize("source", ["geometry", "variant", "struct"])
def test_an_avro_type_for_a_type_without_partition_values_is_refused(source: str) -> None:
    with refused("partition_type_mismatch"):
        avro_value_type(TYPES[source], set())


@for_each(
    ("name", "avro"),
    [
        ("day", "day"),
        ("a-b", "a_x2Db"),
        ("9lives", "_9lives"),
        ("été", "été"),
        ("a b", "a_x20b"),
        ("😎", "_xD83D_xDE0E"),
    ],
)
def test_a_name_that_avro_forbids_is_changed_as_java_changes_it(name: str, avro: str) -> None:
    assert avro_name(name) == avro
