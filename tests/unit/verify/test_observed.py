"""Staged files: the manifest entry that is rebuilt from a file, and false claims of the producer's own entry."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.lake.format.manifest.entry import DataFile, FileContent, IdMap
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.schema import Kind, PrimitiveType
from pvdm.model.statements.verdict import FailureClass
from tests.support.for_each import for_each
from tests.support.lake.manifests import refused
from tests.support.lake.metadata import Doc, column
from tests.support.lake.scans import table_of
from tests.support.parquet.edit import with_variants
from tests.support.verify.staged import COLUMNS, codes, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

ROWS = (
    {"id": 1, "town": "Rome", "amount": 2.5},
    {"id": 7, "town": None, "amount": math.nan},
    {"id": 3, "town": "Castrop-Rauxel am Emscherland", "amount": -0.0},
)


def long_bytes(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def double_bytes(number: float) -> bytes:
    return struct.pack("<d", number)


def file_of(table: TableMetadata, rows: Sequence[Mapping[str, Any]] = ROWS, **options: Any) -> bytes:
    schema = to_model(table.current_schema)
    variants = [field.name for field in schema.fields if field.type == PrimitiveType(Kind.VARIANT)]
    return with_variants(parquet(table_of(schema, rows), **options), *variants)


def bound_of(bounds: Mapping[int, bytes] | None, field_id: int) -> bytes | None:
    assert bounds is not None
    return bounds.get(field_id)


def entry_of(table: TableMetadata, rows: Sequence[Mapping[str, Any]] = ROWS, **options: Any) -> DataFile:
    found = observe_file(file_of(table, rows, **options), table)
    assert found.findings == ()
    assert found.data_file is not None
    return found.data_file


def test_an_entry_is_rebuilt_from_the_file() -> None:
    table = metadata()
    data = file_of(table)
    file = observe_file(data, table).data_file
    assert file is not None
    assert (file.file_path, file.file_format) == ("file:///lake/t/a.parquet", "PARQUET")
    assert (file.record_count, file.file_size_in_bytes, file.content) == (3, len(data), FileContent.DATA)
    assert dict(file.value_counts or {}) == {1: 3, 2: 3, 3: 3}
    assert dict(file.null_value_counts or {}) == {1: 0, 2: 1, 3: 0}
    assert dict(file.nan_value_counts or {}) == {3: 1}
    assert dict(file.lower_bounds or {}) == {1: long_bytes(1), 2: b"Castrop-Rauxel a", 3: double_bytes(-0.0)}
    assert dict(file.upper_bounds or {}) == {1: long_bytes(7), 2: b"Rome", 3: double_bytes(2.5)}


def test_offsets_and_sizes_are_those_of_the_footer() -> None:
    table = metadata()
    data = file_of(table, ROWS * 10, row_group_size=7)
    file = observe_file(data, table).data_file
    footer = pq.read_metadata(pa.BufferReader(data))
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    assert file is not None
    assert file.split_offsets == tuple(
        min(each.column(0).data_page_offset, each.column(0).dictionary_page_offset or 2**62) for each in groups
    )
    assert dict(file.column_sizes or {}) == {
        at + 1: sum(each.column(at).total_compressed_size for each in groups) for at in range(3)
    }


@for_each(
    ("claims", "code"),
    [
        ({"file_size_in_bytes": 10}, "file_size_lies"),
        ({"record_count": 2}, "record_count_lies"),
        ({"split_offsets": (4, 90)}, "split_offsets_lie"),
        ({"split_offsets": (5,)}, "split_offsets_lie"),
        ({"value_counts": IdMap([(1, 2)])}, "value_count_lies"),
        ({"null_value_counts": IdMap([(2, 0)])}, "null_count_lies"),
        ({"null_value_counts": IdMap([(1, 1)])}, "null_count_lies"),
        ({"nan_value_counts": IdMap([(3, 0)])}, "nan_count_lies"),
        ({"nan_value_counts": IdMap([(1, 1)])}, "nan_count_lies"),
        ({"lower_bounds": IdMap([(1, long_bytes(2))])}, "lower_bound_lies"),
        ({"upper_bounds": IdMap([(1, long_bytes(6))])}, "upper_bound_lies"),
        ({"lower_bounds": IdMap([(2, b"D")])}, "lower_bound_lies"),
        ({"upper_bounds": IdMap([(2, b"Rom")])}, "upper_bound_lies"),
        ({"upper_bounds": IdMap([(2, b"Castrop-Rauxel a")])}, "upper_bound_lies"),
        ({"lower_bounds": IdMap([(3, double_bytes(0.0))])}, "lower_bound_lies"),
        ({"lower_bounds": IdMap([(3, double_bytes(math.nan))])}, "lower_bound_lies"),
        ({"upper_bounds": IdMap([(3, double_bytes(2.25))])}, "upper_bound_lies"),
        ({"lower_bounds": IdMap([(1, b"\0")])}, "lower_bound_lies"),
        ({"upper_bounds": IdMap([(2, b"\xff")])}, "upper_bound_lies"),
    ],
)
def test_a_false_claim_of_the_manifest_is_found(claims: dict[str, Any], code: str) -> None:
    table = metadata()
    found = observe_file(file_of(table), table, **claims)
    assert [(each.failure, each.code, each.file) for each in found.findings] == [
        (FailureClass.METADATA, code, "file:///lake/t/a.parquet")
    ]


@for_each(
    "claims",
    [
        {"split_offsets": ()},
        {"value_counts": IdMap([(1, 3)]), "null_value_counts": IdMap([(2, 1)]), "nan_value_counts": IdMap([(3, 1)])},
        {"nan_value_counts": IdMap([(1, 0)])},
        {"lower_bounds": IdMap([(1, long_bytes(1)), (2, b"C"), (3, double_bytes(-math.inf))])},
        {"upper_bounds": IdMap([(1, long_bytes(10**9)), (2, b"S"), (3, double_bytes(2.5))])},
        {"lower_bounds": IdMap([(1, (0).to_bytes(4, "little"))])},
        {"value_counts": IdMap([(99, 5)]), "lower_bounds": IdMap([(99, b"x")])},
    ],
)
def test_absent_true_or_loose_claims_are_accepted(claims: dict[str, Any]) -> None:
    table = metadata()
    assert observe_file(file_of(table), table, **claims).findings == ()


def test_loose_bounds_and_unproved_claims_are_not_in_the_rebuilt_entry() -> None:
    table = metadata()
    claims: dict[str, Any] = {
        "upper_bounds": IdMap([(1, long_bytes(10**9)), (99, b"x")]),
        "sort_order_id": 3,
        "first_row_id": 9,
        "column_sizes": IdMap([(1, 1)]),
        "distinct_counts": IdMap([(1, 1)]),
        "key_metadata": b"k",
        "referenced_data_file": "x",
    }
    file = observe_file(file_of(table), table, **claims).data_file
    assert file == entry_of(table)
    assert bound_of(file.upper_bounds, 1) == long_bytes(7)
    assert (file.sort_order_id, file.first_row_id, file.distinct_counts, file.key_metadata) == (None, None, None, None)


def test_a_wrong_partition_is_found() -> None:
    table = metadata(spec=[{"name": "id", "transform": "bucket[4]", "source-id": 1, "field-id": 1000}])
    data = file_of(table, [{"id": 34}])
    assert codes(observe_file(data, table, partition=IdMap([(1000, 2)])).findings) == ["partition_lies"]
    assert codes(observe_file(data, table, partition=IdMap([(1000, None)])).findings) == ["partition_lies"]
    assert observe_file(data, table, partition=IdMap([(1000, 3)])).findings == ()


def test_rows_of_two_partitions_in_one_file_are_refused() -> None:
    table = metadata(spec=[{"name": "town", "transform": "identity", "source-id": 2, "field-id": 1000}])
    found = observe_file(file_of(table), table, partition=IdMap([(1000, "Rome")]))
    assert (found.data_file, codes(found.findings)) == (None, ["partition_mixed"])


def table_by_town(transform: str) -> TableMetadata:
    return metadata(spec=[{"name": "p", "transform": transform, "source-id": 2, "field-id": 1000}])


def test_a_partition_value_that_is_too_long_is_refused_and_its_start_is_enough_for_a_prefix() -> None:
    rows = [{"id": 1, "town": "é" * 40_000}]
    table = table_by_town("identity")
    assert codes(observe_file(file_of(table, rows), table, partition=IdMap([(1000, "é")])).findings) == [
        "partition_value_too_long"
    ]
    table = table_by_town("truncate[1]")
    assert observe_file(file_of(table, rows), table, partition=IdMap([(1000, "é")])).findings == ()
    table = table_by_town("truncate[40000]")
    assert codes(observe_file(file_of(table, rows), table, partition=IdMap([(1000, "é")])).findings) == [
        "partition_value_too_long"
    ]


def test_a_value_outside_of_the_range_of_its_transform_is_refused() -> None:
    table = metadata(spec=[{"name": "p", "transform": "truncate[10]", "source-id": 1, "field-id": 1000}])
    data = file_of(table, [{"id": -(2**63)}])
    assert codes(observe_file(data, table, partition=IdMap([(1000, 0)])).findings) == ["partition_value_invalid"]


@for_each(
    ("amounts", "value"),
    [
        ([math.nan, math.nan], math.nan),
        ([None, None], None),
        ([0.0, 0.0], 0.0),
        ([-0.0], -0.0),
        ([1.5, 1.5], 1.5),
    ],
)
def test_a_column_of_one_value_determines_the_partition(amounts: list[float | None], value: float | None) -> None:
    table = metadata(spec=[{"name": "p", "transform": "identity", "source-id": 3, "field-id": 1000}])
    data = file_of(table, [{"id": 1, "amount": each} for each in amounts])
    assert observe_file(data, table, partition=IdMap([(1000, value)])).findings == ()
    assert codes(observe_file(data, table, partition=IdMap([(1000, 7.0)])).findings) == ["partition_lies"]


@for_each("amounts", [[math.nan, 1.0], [math.nan, None], [1.0, None], [0.0, -0.0], [1.0, 2.0]])
def test_a_file_with_values_of_two_partitions_is_refused(amounts: list[float | None]) -> None:
    table = metadata(spec=[{"name": "p", "transform": "identity", "source-id": 3, "field-id": 1000}])
    data = file_of(table, [{"id": 1, "amount": each} for each in amounts])
    assert codes(observe_file(data, table, partition=IdMap([(1000, amounts[0])])).findings) == ["partition_mixed"]


@pytest.mark.parametrize("rows", [["a", "b"], ["a", None]])
def test_a_file_with_values_of_two_buckets_is_refused(rows: list[str | None]) -> None:
    table = table_by_town("bucket[1000]")
    data = file_of(table, [{"id": 1, "town": each} for each in rows])
    assert codes(observe_file(data, table, partition=IdMap([(1000, 0)])).findings) == ["partition_mixed"]


def test_a_void_partition_is_null_for_any_rows() -> None:
    table = table_by_town("void")
    assert observe_file(file_of(table), table, partition=IdMap([(1000, None)])).findings == ()


def test_an_unknown_transform_is_an_error_and_no_finding() -> None:
    table = table_by_town("zorder")
    with refused("partition_transform_unknown"):
        observe_file(file_of(table), table, partition=IdMap([(1000, None)]))


def test_a_file_without_rows_in_a_partitioned_table_is_refused() -> None:
    table = metadata(spec=[{"name": "town", "transform": "identity", "source-id": 2, "field-id": 1000}])
    assert codes(observe_file(file_of(table, []), table, partition=IdMap([(1000, "Rome")])).findings) == [
        "partition_of_no_rows"
    ]


def test_a_file_without_rows_has_counts_and_no_bounds() -> None:
    file = entry_of(metadata(), [])
    assert (file.record_count, dict(file.value_counts or {}), dict(file.lower_bounds or {})) == (
        0,
        {1: 0, 2: 0, 3: 0},
        {},
    )


def test_a_column_without_a_value_has_counts_and_no_bounds() -> None:
    rows = [{"id": 1, "amount": math.nan}, {"id": 2, "amount": math.nan}]
    file = entry_of(metadata(), rows)
    assert set(file.lower_bounds or {}) == set(file.upper_bounds or {}) == {1}
    assert dict(file.nan_value_counts or {}) == {3: 2}


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_bounds_at_a_zero_include_both_zeros(zero: float) -> None:
    file = entry_of(metadata(), [{"id": 1, "amount": zero}])
    assert (bound_of(file.lower_bounds, 3), bound_of(file.upper_bounds, 3)) == (double_bytes(-0.0), double_bytes(0.0))


def test_any_bounds_of_a_column_without_a_value_are_accepted() -> None:
    table = metadata()
    claims = {"lower_bounds": IdMap([(2, b"a")]), "upper_bounds": IdMap([(2, b"b")])}
    assert observe_file(file_of(table, [{"id": 1}]), table, **claims).findings == ()


def drop_column(table: pa.Table, name: str) -> pa.Table:
    return table.drop_columns([name])


def test_a_column_that_the_file_lacks_has_no_metrics() -> None:
    table = metadata()
    data = parquet(drop_column(table_of(to_model(table.current_schema), ROWS), "town"))
    file = observe_file(data, table).data_file
    assert file is not None
    for facts in (file.value_counts, file.null_value_counts, file.lower_bounds, file.column_sizes):
        assert set(facts or {}) == {1, 3}


def test_a_null_count_of_a_column_that_the_file_lacks_must_be_every_row() -> None:
    table = metadata()
    data = parquet(drop_column(table_of(to_model(table.current_schema), ROWS), "town"))
    assert observe_file(data, table, null_value_counts=IdMap([(2, 3)])).findings == ()
    assert codes(observe_file(data, table, null_value_counts=IdMap([(2, 0)])).findings) == ["null_count_lies"]


def test_a_file_without_a_column_that_has_a_default_is_refused() -> None:
    fields = [*COLUMNS[:1], {**COLUMNS[1], "initial-default": "Rome"}, COLUMNS[2]]
    table = metadata(*fields, version=3)
    data = parquet(drop_column(table_of(to_model(table.current_schema), ROWS), "town"))
    found = observe_file(data, table)
    assert [(each.failure, each.code) for each in found.findings] == [(FailureClass.SCHEMA, "field_default_missing")]
    assert observe_file(file_of(table), table).findings == ()


@for_each(
    ("mode", "counted", "bounds"),
    [
        ("none", False, None),
        ("counts", True, None),
        ("truncate(4)", True, (b"Cast", b"Rome")),
        ("truncate(3)", True, (b"Cas", b"Ron")),
        ("full", True, (b"Castrop-Rauxel am Emscherland", b"Rome")),
    ],
)
def test_metrics_follow_the_columns_metrics_mode(mode: str, counted: bool, bounds: tuple[bytes, bytes] | None) -> None:
    table = metadata(properties={"write.metadata.metrics.column.town": mode})
    file = entry_of(table)
    for facts in (file.value_counts, file.null_value_counts, file.column_sizes):
        assert (2 in (facts or {})) is counted
    assert (bound_of(file.lower_bounds, 2), bound_of(file.upper_bounds, 2)) == (bounds or (None, None))


def test_numbers_and_times_are_exact_in_every_mode_with_bounds() -> None:
    table = metadata(properties={"write.metadata.metrics.default": "truncate(1)"})
    assert bound_of(entry_of(table).lower_bounds, 1) == long_bytes(1)


@pytest.mark.parametrize(("last", "upper"), [("\U0010ffff", None), ("퟿", b"\xee\x80\x80")])
def test_an_upper_bound_that_cannot_be_incremented_is_left_out(last: str, upper: bytes | None) -> None:
    table = metadata(properties={"write.metadata.metrics.column.town": "truncate(1)"})
    file = entry_of(table, [{"id": 1, "town": last + "x"}])
    assert bound_of(file.upper_bounds, 2) == upper


def test_bounds_of_a_very_long_value_are_cut_in_mode_full_and_contain_it() -> None:
    table = metadata(properties={"write.metadata.metrics.default": "full"})
    value = "é" * 40_000
    file = entry_of(table, [{"id": 1, "town": value}])
    lower, upper = bound_of(file.lower_bounds, 2), bound_of(file.upper_bounds, 2)
    assert lower == ("é" * 32_768).encode()
    assert upper is not None
    assert lower < value.encode() < upper


def test_bounds_of_a_very_long_value_are_checked_by_its_beginning() -> None:
    table = metadata()
    value = "é" * 40_000
    data = file_of(table, [{"id": 1, "town": value}])
    claims = {"lower_bounds": IdMap([(2, value.encode())]), "upper_bounds": IdMap([(2, value.encode())])}
    assert observe_file(data, table, **claims).findings == ()
    assert codes(observe_file(data, table, lower_bounds=IdMap([(2, b"\xc3\xaa")])).findings) == ["lower_bound_lies"]


NESTED: Doc = {
    "type": "struct",
    "fields": [column(5, "x", "int"), column(6, "deep", {"type": "struct", "fields": [column(7, "y", "string")]})],
}
LIST: Doc = {"type": "list", "element-id": 9, "element": "long", "element-required": False}


def test_fields_of_structs_have_metrics_and_elements_of_lists_have_none() -> None:
    table = metadata(column(1, "id"), column(4, "s", NESTED), column(8, "l", LIST))
    rows: list[Doc] = [
        {"id": 1, "s": {"x": 5, "deep": {"y": "b"}}, "l": [1, 2]},
        {"id": 2, "s": {"x": None, "deep": None}, "l": []},
        {"id": 3, "s": None, "l": None},
    ]
    file = entry_of(table, rows)
    assert dict(file.value_counts or {}) == {1: 3, 5: 3, 7: 3}
    assert dict(file.null_value_counts or {}) == {1: 0, 5: 2, 7: 2}
    assert bound_of(file.lower_bounds, 7) == b"b"
    assert set(file.column_sizes or {}) == {1, 5, 7, 9}


@pytest.mark.parametrize(("field_id", "code"), [(5, "null_count_lies"), (7, "null_count_lies")])
def test_a_false_claim_about_a_nested_field_is_found(field_id: int, code: str) -> None:
    table = metadata(column(1, "id"), column(4, "s", NESTED))
    data = file_of(table, [{"id": 1, "s": None}])
    assert codes(observe_file(data, table, null_value_counts=IdMap([(field_id, 0)])).findings) == [code]


def test_variants_geometries_and_unknowns_have_counts_and_no_bounds() -> None:
    table = metadata(
        column(1, "id"), column(2, "v", "variant"), column(3, "g", "geometry"), column(4, "u", "unknown"), version=3
    )
    variant = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x05"}
    file = entry_of(table, [{"id": 1, "v": variant, "g": b"\x01"}, {"id": 2}])
    assert dict(file.null_value_counts or {}) == {1: 0, 2: 1, 3: 1, 4: 2}
    assert set(file.lower_bounds or {}) == set(file.upper_bounds or {}) == {1}


@pytest.mark.parametrize("field_id", [2, 3])
def test_bounds_of_types_without_an_order_are_left_out(field_id: int) -> None:
    table = metadata(column(2, "v", "variant"), column(3, "g", "geometry"), version=3)
    found = observe_file(file_of(table, [{}]), table, lower_bounds=IdMap([(field_id, b"anything")]))
    assert found.findings == ()
    assert found.data_file is not None
    assert dict(found.data_file.lower_bounds or {}) == {}


def test_only_the_first_100_columns_of_a_wide_table_have_metrics() -> None:
    fields = [column(at, f"c{at:03d}") for at in range(1, 121)]
    file = entry_of(metadata(*fields), [{f"c{at:03d}": at for at in range(1, 121)}])
    assert set(file.value_counts or {}) == set(range(1, 101))
