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

_DEFAULT_PROPERTY: Final = "write.metadata.metrics.default"
_COLUMN_PREFIX: Final = "write.metadata.metrics.column."
_INFERRED_MAX_PROPERTY: Final = "write.metadata.metrics.max-inferred-column-defaults"
_INFERRED_MAX_DEFAULT: Final = 100
_NO_METRICS: Final = MetricsMode(keeps_counts=False, keeps_bounds=False)
_ORDER_PRESERVING: Final = frozenset({"identity", "truncate", "year", "month", "day", "hour"})


def metrics_modes(metadata: TableMetadata) -> Mapping[int, MetricsMode]:
    """The mode of every column of the current schema at any depth, by field id."""
    schema, properties = metadata.current_schema, metadata.properties
    columns = StructType(to_model(schema).fields)
    default, inferred_columns = TRUNCATE_16, 0
    if _DEFAULT_PROPERTY in properties:
        default = _parse_mode(properties[_DEFAULT_PROPERTY], TRUNCATE_16)
    elif _count_columns(columns) > (inferred_max := _read_inferred_max(properties)):
        # Only the first columns of a wide table get metrics.
        default, inferred_columns = _NO_METRICS, inferred_max
    modes = dict.fromkeys(schema.fields, default)
    modes |= dict.fromkeys(islice(_list_plain_columns(columns), inferred_columns), TRUNCATE_16)
    for sort_field in metadata.default_sort_order.fields:
        if Transform.parse(sort_field.transform).name in _ORDER_PRESERVING and sort_field.source_id in modes:
            modes[sort_field.source_id] = default if default.keeps_bounds else TRUNCATE_16
    for key, text in properties.items():
        name = key.removeprefix(_COLUMN_PREFIX)
        column = schema.find(name) if key.startswith(_COLUMN_PREFIX) else None
        # `find` also finds short names, which Iceberg ignores here.
        if column is not None and column.name == name:
            modes[column.field_id] = _parse_mode(text, default)
    return modes


def _parse_mode(text: str, fallback: MetricsMode) -> MetricsMode:
    """The mode that a property names, or `fallback` if the mode is unknown, as in Iceberg's writers."""
    try:
        return MetricsMode.parse(text)
    except InputError:
        return fallback


def _read_inferred_max(properties: Mapping[str, str]) -> int:
    text = properties.get(_INFERRED_MAX_PROPERTY, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _INFERRED_MAX_DEFAULT


def _count_columns(type_: Type) -> int:
    """The number of columns that count for the limit.

    These are fields that are not lists or maps, plain elements of lists, and key and value of maps with plain values.
    """
    match type_:
        case StructType(fields):
            counted = [each for each in fields if not isinstance(each.type, ListType | MapType)]
            return len(counted) + sum(_count_columns(each.type) for each in fields)
        case ListType(element):
            return 1 if _is_plain(element.type) else _count_columns(element.type)
        case MapType(key, value):
            own = 2 if _is_plain(value.type) else 0
            return own + _count_columns(key.type) + _count_columns(value.type)
        case _:
            return 0


def _is_plain(type_: Type) -> bool:
    return not isinstance(type_, StructType | ListType | MapType)


def _list_plain_columns(type_: Type) -> Iterator[int]:
    """The ids of plain columns in the order in which they get metrics: a struct's own fields before nested ones."""
    parts: Sequence[Field | Inner]
    match type_:
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
        yield from _list_plain_columns(part.type)
