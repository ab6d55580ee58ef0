"""Which metrics a table keeps for each column, as Iceberg's Java library decides it."""

from __future__ import annotations

from typing import Any

from pvdm.lake.format.schema.bounds import TRUNCATE_16, MetricsMode
from pvdm.lake.format.table.metrics_modes import metrics_modes
from tests.support.for_each import for_each
from tests.support.lake.metadata import Doc, column
from tests.support.verify.staged import metadata

NONE, COUNTS, FULL = (MetricsMode.parse(text) for text in ("none", "counts", "full"))
STRUCT: Doc = {"type": "struct", "fields": [column(4, "x"), column(5, "y")]}
LIST: Doc = {"type": "list", "element-id": 7, "element": "long", "element-required": False}
MAP: Doc = {"type": "map", "key-id": 9, "key": "long", "value-id": 10, "value": "long", "value-required": False}
WIDE = [column(at, f"c{at}") for at in range(1, 111)]


def modes(*fields: Doc, sorted_by: tuple[int, str] | None = None, **properties: str) -> dict[int, MetricsMode]:
    changes: dict[str, Any] = {"properties": {key.replace("_", "."): text for key, text in properties.items()}}
    if sorted_by is not None:
        field = {"source-id": sorted_by[0], "transform": sorted_by[1], "direction": "asc", "null-order": "nulls-first"}
        changes |= {
            "sort-orders": [{"order-id": 0, "fields": []}, {"order-id": 1, "fields": [field]}],
            "default-sort-order-id": 1,
        }
    return dict(metrics_modes(metadata(*fields, **changes)))


def test_every_column_of_a_narrow_table_is_cut_at_sixteen() -> None:
    found = modes(column(1, "a"), column(3, "s", STRUCT), column(6, "l", LIST))
    assert set(found) == {1, 3, 4, 5, 6, 7}
    assert set(found.values()) == {TRUNCATE_16}


def test_only_the_first_hundred_columns_of_a_wide_table_have_metrics() -> None:
    found = modes(*WIDE)
    assert {at for at, mode in found.items() if mode == TRUNCATE_16} == set(range(1, 101))
    assert {at for at, mode in found.items() if mode == NONE} == set(range(101, 111))


def columns_with_bounds(limit: int, *fields: Doc) -> set[int]:
    table = metadata(*fields, properties={"write.metadata.metrics.max-inferred-column-defaults": str(limit)})
    return {at for at, mode in metrics_modes(table).items() if mode == TRUNCATE_16}


@for_each(("limit", "found"), [(1, {1}), (2, {1, 2}), (3, {1, 2, 4}), (4, {1, 2, 4, 5}), (5, {1, 2, 3, 4, 5})])
def test_fields_of_a_struct_count_after_the_columns_beside_it(limit: int, found: set[int]) -> None:
    assert columns_with_bounds(limit, column(1, "a"), column(3, "s", STRUCT), column(2, "b")) == found


@for_each(("limit", "found"), [(1, {2}), (2, {2, 7}), (3, {2, 7, 9}), (4, {2, 6, 7, 8, 9, 10})])
def test_elements_keys_and_values_count_and_their_lists_and_maps_do_not(limit: int, found: set[int]) -> None:
    assert columns_with_bounds(limit, column(6, "l", LIST), column(8, "m", MAP), column(2, "b")) == found


@for_each("text", ["-1", "many", "", "²"])
def test_a_limit_that_is_no_number_is_ignored(text: str) -> None:
    table = metadata(*WIDE, properties={"write.metadata.metrics.max-inferred-column-defaults": text})
    assert sum(mode == TRUNCATE_16 for mode in metrics_modes(table).values()) == 100


def test_a_declared_default_applies_to_every_column_of_a_wide_table() -> None:
    assert set(modes(*WIDE, write_metadata_metrics_default="counts").values()) == {COUNTS}


def test_a_column_has_its_own_mode_by_its_full_name() -> None:
    fields = [column(1, "a"), column(3, "s", STRUCT)]
    table = metadata(
        *fields,
        properties={
            "write.metadata.metrics.column.a": "none",
            "write.metadata.metrics.column.s.x": "full",
            "write.metadata.metrics.column.unknown": "full",
            "write.metadata.metrics.default": "counts",
        },
    )
    assert metrics_modes(table) == {1: NONE, 3: COUNTS, 4: FULL, 5: COUNTS}


def test_an_unknown_mode_is_ignored() -> None:
    table = metadata(
        column(1, "a"),
        column(2, "b"),
        properties={"write.metadata.metrics.default": "some", "write.metadata.metrics.column.b": "truncate(0)"},
    )
    assert metrics_modes(table) == {1: TRUNCATE_16, 2: TRUNCATE_16}


@for_each(
    ("default", "transform", "mode"),
    [
        ("none", "identity", TRUNCATE_16),
        ("counts", "truncate[2]", TRUNCATE_16),
        ("full", "identity", FULL),
        ("none", "bucket[4]", NONE),
    ],
)
def test_a_column_that_files_are_sorted_by_has_bounds(default: str, transform: str, mode: MetricsMode) -> None:
    found = modes(column(1, "a"), sorted_by=(1, transform), write_metadata_metrics_default=default)
    assert found == {1: mode}


def test_a_sorted_column_beyond_the_limit_has_bounds() -> None:
    assert modes(*WIDE, sorted_by=(105, "identity"))[105] == TRUNCATE_16


def test_a_columns_own_mode_overrides_the_sort_order() -> None:
    found = modes(column(1, "a"), sorted_by=(1, "identity"), write_metadata_metrics_column_a="none")
    assert found == {1: NONE}
