"""Which metrics a table keeps for each of its columns: the rules of Iceberg's Java library (MetricsConfig)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pvdm.errors import InputError
from pvdm.lake.format.partition.spec import Transform
from pvdm.lake.format.schema.bounds import TRUNCATE_16, MetricsMode
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.schema import Field, Inner, ListType, MapType, StructType, Type

_DEFAULT: Final = "write.metadata.metrics.default"
_COLUMN: Final = "write.metadata.metrics.column."
_INFERRED: Final = "write.metadata.metrics.max-inferred-column-defaults"
_INFERRED_DEFAULT: Final = 100
_NONE: Final = MetricsMode(counts=False, bounds=False)
_ORDERED: Final = frozenset({"identity", "truncate", "year", "month", "day", "hour"})


def metrics_modes(metadata: TableMetadata) -> Mapping[int, MetricsMode]:
    """The mode of every column of the current schema at any depth, by field id."""
    schema, properties = metadata.current_schema, metadata.properties
    fields = to_model(schema).fields
    found: dict[int, MetricsMode]
    if _DEFAULT in properties:
        default = _mode(properties[_DEFAULT], TRUNCATE_16)
        found = dict.fromkeys(schema.fields, default)
    elif sum(1 for _ in _counted(fields)) <= (most := _most(properties)):
        default = TRUNCATE_16
        found = dict.fromkeys(schema.fields, default)
    else:
        default = _NONE
        found = dict.fromkeys(schema.fields, default)
        for field_id, _ in zip(_eligible(fields), range(most), strict=False):
            found[field_id] = TRUNCATE_16
    for order_field in metadata.default_sort_order.fields:
        if Transform.parse(order_field.transform).name in _ORDERED and order_field.source_id in found:
            found[order_field.source_id] = default if default.bounds else TRUNCATE_16
    for key, text in properties.items():
        column = schema.ids.get(key.removeprefix(_COLUMN)) if key.startswith(_COLUMN) else None
        if column is not None and schema.fields[column].name == key.removeprefix(_COLUMN):
            found[column] = _mode(text, default)
    return found


def _mode(text: str, fallback: MetricsMode) -> MetricsMode:
    """A mode that nobody knows is passed over, as writers do."""
    try:
        return MetricsMode.parse(text)
    except InputError:
        return fallback


def _most(properties: Mapping[str, str]) -> int:
    text = properties.get(_INFERRED, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _INFERRED_DEFAULT


def _counted(fields: Sequence[Field]) -> Iterator[int]:
    """What counts towards the limit: structs and plain columns, and the elements, keys and values of plain ones."""
    for field in fields:
        match field.type:
            case ListType() | MapType():
                pass
            case _:
                yield 1
        yield from _counted_inside(field.type)


def _counted_inside(kind: Type) -> Iterator[int]:
    match kind:
        case StructType(fields):
            yield from _counted(fields)
        case ListType(element):
            yield from [1] if _is_plain(element.type) else _counted_inside(element.type)
        case MapType(key, value):
            yield from [1, 1] if _is_plain(value.type) else ()
            yield from _counted_inside(key.type)
            yield from _counted_inside(value.type)


def _is_plain(kind: Type) -> bool:
    return not isinstance(kind, StructType | ListType | MapType)


def _eligible(fields: Sequence[Field]) -> Iterator[int]:
    """Columns in the order in which the limit gives them metrics: those of a struct before those nested in it."""
    yield from (field.field_id for field in fields if _is_plain(field.type) and field.field_id is not None)
    for field in fields:
        yield from _eligible_inside(field.type)


def _eligible_inside(kind: Type) -> Iterator[int]:
    match kind:
        case StructType(fields):
            yield from _eligible(fields)
        case ListType(element):
            yield from _eligible_parts(element)
        case MapType(key, value):
            yield from _eligible_parts(key, value)


def _eligible_parts(*parts: Inner) -> Iterator[int]:
    yield from (part.field_id for part in parts if _is_plain(part.type) and part.field_id is not None)
    for part in parts:
        yield from _eligible_inside(part.type)
