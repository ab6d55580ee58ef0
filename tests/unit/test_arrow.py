"""Schemas from Arrow schemas: types, nullability and the field ids of Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest.arrow import schema_from_arrow
from pvdm.errors import InputError
from pvdm.model.schema import type_from_json
from tests.support.for_each import for_each
from tests.support.rows.one_column import STORAGE, VariantType, map_of, struct_of


def field_id_metadata(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


def test_a_schema_is_converted_from_arrow_with_its_field_ids() -> None:
    element = pa.field("element", pa.dictionary(pa.int8(), pa.string()), metadata=field_id_metadata(3))
    columns = [
        pa.field("a", pa.uint64(), nullable=False, metadata=field_id_metadata(1)),
        pa.field("b", pa.list_(element), metadata=field_id_metadata(2)),
    ]
    inner = {"id": 3, "required": False, "type": "string"}
    assert schema_from_arrow(pa.schema(columns)).to_json() == {
        "fields": [
            {"id": 1, "name": "a", "required": True, "type": "decimal(20,0)"},
            {"id": 2, "name": "b", "required": False, "type": {"element": inner, "type": "list"}},
        ],
        "type": "struct",
    }


@for_each(
    ("kind", "expected"),
    [
        (STORAGE, struct_of(metadata="binary", value="binary")),
        (VariantType(STORAGE, "arrow.parquet.variant"), "variant"),
        (pa.uuid(), "uuid"),
        (pa.null(), "unknown"),
        (pa.timestamp("ms", "UTC"), "timestamptz"),
        (pa.map_(pa.string(), pa.binary(3)), map_of("string", "fixed(3)")),
        (pa.run_end_encoded(pa.int32(), pa.date64()), "date"),
    ],
    ids=str,
)
def test_a_type_is_converted_from_arrow(kind: Any, expected: object) -> None:
    assert schema_from_arrow(pa.schema([("c", kind)])).column("c").type == type_from_json(expected)


def schema_of_depth(levels: int) -> Any:
    kind: Any = pa.int32()
    for _ in range(levels - 1):
        kind = pa.list_(kind)
    return pa.schema([("c", kind)])


SCHEMAS_REFUSED: list[tuple[str, Callable[[], Any]]] = [
    ("nesting_too_deep", lambda: schema_of_depth(65)),
    ("arrow_type_unsupported", lambda: pa.schema([("c", pa.month_day_nano_interval())])),
    ("schema_invalid", lambda: pa.schema([pa.field("c", pa.int8(), metadata={"PARQUET:field_id": "-1"})])),
    (
        "schema_invalid",
        lambda: pa.schema([pa.field("a", pa.int8(), metadata=field_id_metadata(1)), pa.field("b", pa.int8())]),
    ),
]


@for_each(("reason", "make"), SCHEMAS_REFUSED)
def test_an_unsupported_arrow_schema_is_refused(reason: str, make: Callable[[], Any]) -> None:
    with pytest.raises(InputError) as caught:
        schema_from_arrow(make())
    assert caught.value.reason == reason


def test_a_schema_of_the_deepest_nesting_is_converted() -> None:
    assert len(list(schema_from_arrow(schema_of_depth(64)).walk())) == 64
