"""Which metrics a table keeps for each of its columns: the rules of Iceberg's Java library (MetricsConfig)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from pvdm.errors import InputError
from pvdm.lake.format.partition_spec import Transform
from pvdm.lake.format.schema.bounds import TRUNCATE_16, MetricsMode
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.schema import Field, Inner, ListType, MapType, StructType, Type

_DEFAULT: Final = "write.metadata.metrics.default"
_COLUMN: Final = "write.metadata.metrics.column."
_INFERRED: Final = "write.metadata.metrics.max-inferred-column-defaults"
_INFERRED_DEFAULT: Final = 100
_NONE: Final = MetricsMode(keeps_counts=False, keeps_bounds=False)
_ORDERED: Final = frozenset({"identity", "truncate", "year", "month", "day", "hour"})


def metrics_modes(metadata: TableMetadata) -> Mapping[int, MetricsMode]:
    """The mode of every column of the current schema at any depth, by field id."""
    schema, properties = metadata.current_schema, metadata.properties
    columns = StructType(to_model(schema).fields)
    default, inferred = TRUNCATE_16, 0
    if _DEFAULT in properties:
        default = _mode(properties[_DEFAULT], TRUNCATE_16)
    elif _count(columns) > (most := _most(properties)):
        default, inferred = _NONE, most
    found = dict.fromkeys(schema.fields, default)
    found |= dict.fromkeys(islice(_eligible(columns), inferred), TRUNCATE_16)
    for order_field in metadata.default_sort_order.fields:
        if Transform.parse(order_field.transform).name in _ORDERED and order_field.source_id in found:
            found[order_field.source_id] = default if default.keeps_bounds else TRUNCATE_16
    for key, text in properties.items():
        column = schema.ids.get(key.removeprefix(_COLUMN)) if key.startswith(_COLUMN) else None
        if column is not None and schema.fields[column].name == key.removeprefix(_COLUMN):
            found[column] = _mode(text, default)
    return found


def _mode(text: str, fallback: MetricsMode) -> MetricsMode:
    """The mode of a property; writers ignore one that is not known."""
    try:
        return MetricsMode.parse(text)
    except InputError:
        return fallback


def _most(properties: Mapping[str, str]) -> int:
    text = properties.get(_INFERRED, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _INFERRED_DEFAULT


def _count(kind: Type) -> int:
    """The columns that count for the limit: structs, plain columns, and elements, keys and values of plain types."""
    match kind:
        case StructType(fields):
            return sum(_count(each.type) + (not isinstance(each.type, ListType | MapType)) for each in fields)
        case ListType(element):
            return 1 if _is_plain(element.type) else _count(element.type)
        case MapType(key, value):
            return 2 * _is_plain(value.type) + _count(key.type) + _count(value.type)
        case _:
            return 0


def _is_plain(kind: Type) -> bool:
    return not isinstance(kind, StructType | ListType | MapType)


def _eligible(kind: Type) -> Iterator[int]:
    """The plain columns in the order in which they get metrics: those of a struct before those nested in it."""
    parts: Sequence[Field | Inner]
    match kind:
        case StructType(fields):
            parts = fields
        case ListType(element):
            parts = (element,)
        case MapType(key, value):
            parts = (key, value)
        case _:
            return
    yield from (part.field_id for part in parts if _is_plain(part.type) and part.field_id is not None)
    for part in parts:
        yield from _eligible(part.type)
