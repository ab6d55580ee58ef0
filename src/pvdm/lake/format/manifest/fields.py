"""The fields of manifests and manifest lists by id and format version, and the schemas for writing them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pvdm.errors import Code
from pvdm.lake.format.avro.schema import ArrayNode, Node, PrimitiveNode, RecordNode
from pvdm.lake.format.partition_spec import UNKNOWN, PartitionSpec
from pvdm.lake.format.partition_value import avro_type, inner_node
from pvdm.lake.format.schema.logical import type_to_iceberg
from pvdm.model.schema import Type


@dataclass(frozen=True, slots=True)
class Mapped:
    """A map from int, stored as an array of key-value records."""

    key_id: int
    value_id: int
    value: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of required elements."""

    element_id: int
    element: str | Struct


@dataclass(frozen=True, slots=True)
class Struct:
    """A record of known fields."""

    fields: tuple[Known, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    """The partition tuple: its fields come from the spec."""

    fields: tuple[tuple[int, str, Type], ...]


KnownType: TypeAlias = str | Mapped | Listed | Struct | Tuple


@dataclass(frozen=True, slots=True)
class Known:
    """A field of the specification."""

    field_id: int
    name: str
    type: KnownType
    required: bool
    doc: str | None = None


FIELD_SUMMARY: Final = Struct(
    (
        Known(509, "contains_null", "boolean", True, "True if any file has a null partition value"),
        Known(518, "contains_nan", "boolean", False, "True if any file has a nan partition value"),
        Known(510, "lower_bound", "binary", False, "Partition lower bound for all files"),
        Known(511, "upper_bound", "binary", False, "Partition upper bound for all files"),
    )
)
LIST: Final = {
    known.field_id: known
    for known in (
        Known(500, "manifest_path", "string", True, "Location URI with FS scheme"),
        Known(501, "manifest_length", "long", True, "Total file size in bytes"),
        Known(502, "partition_spec_id", "int", True, "Spec ID used to write"),
        Known(517, "content", "int", False, "Contents of the manifest: 0=data, 1=deletes"),
        Known(515, "sequence_number", "long", False, "Sequence number when the manifest was added"),
        Known(516, "min_sequence_number", "long", False, "Lowest sequence number in the manifest"),
        Known(503, "added_snapshot_id", "long", True, "Snapshot ID that added the manifest"),
        Known(504, "added_files_count", "int", False, "Added entry count"),
        Known(505, "existing_files_count", "int", False, "Existing entry count"),
        Known(506, "deleted_files_count", "int", False, "Deleted entry count"),
        Known(512, "added_rows_count", "long", False, "Added rows count"),
        Known(513, "existing_rows_count", "long", False, "Existing rows count"),
        Known(514, "deleted_rows_count", "long", False, "Deleted rows count"),
        Known(507, "partitions", Listed(508, FIELD_SUMMARY), False, "Summary for each partition"),
        Known(519, "key_metadata", "binary", False, "Encryption key metadata blob"),
        Known(520, "first_row_id", "long", False, "Starting row ID to assign to new rows in ADDED data files"),
    )
}
_LIST_V1: Final = (500, 501, 502, 503, 504, 505, 506, 507, 512, 513, 514, 519)
_LIST_V2: Final = (500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 507, 519)
_LIST_REQUIRED_V2: Final = frozenset({517, 515, 516, 504, 505, 506, 512, 513, 514})

_VALUE_COUNTS_DOC: Final = "Map of column id to total count, including null and NaN"
_NAN_COUNTS_DOC: Final = "Map of column id to number of NaN values in the column"
_REFERENCED_DOC: Final = "Fully qualified location (URI with FS scheme) of a data file that all deletes reference"
FILE: Final = {
    known.field_id: known
    for known in (
        Known(134, "content", "int", False, "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"),
        Known(100, "file_path", "string", True, "Location URI with FS scheme"),
        Known(101, "file_format", "string", True, "File format name: avro, orc, or parquet"),
        Known(103, "record_count", "long", True, "Number of records in the file"),
        Known(104, "file_size_in_bytes", "long", True, "Total file size in bytes"),
        Known(105, "block_size_in_bytes", "long", False),
        Known(106, "file_ordinal", "int", False),
        Known(107, "sort_columns", Listed(112, "int"), False),
        Known(108, "column_sizes", Mapped(117, 118, "long"), False, "Map of column id to total size on disk"),
        Known(109, "value_counts", Mapped(119, 120, "long"), False, _VALUE_COUNTS_DOC),
        Known(110, "null_value_counts", Mapped(121, 122, "long"), False, "Map of column id to null value count"),
        Known(137, "nan_value_counts", Mapped(138, 139, "long"), False, _NAN_COUNTS_DOC),
        Known(111, "distinct_counts", Mapped(123, 124, "long"), False),
        Known(125, "lower_bounds", Mapped(126, 127, "binary"), False, "Map of column id to lower bound"),
        Known(128, "upper_bounds", Mapped(129, 130, "binary"), False, "Map of column id to upper bound"),
        Known(131, "key_metadata", "binary", False, "Encryption key metadata blob"),
        Known(132, "split_offsets", Listed(133, "long"), False, "Splittable offsets"),
        Known(135, "equality_ids", Listed(136, "int"), False, "Equality comparison field IDs"),
        Known(140, "sort_order_id", "int", False, "Sort order ID"),
        Known(142, "first_row_id", "long", False, "The first row ID assigned to the first row in the data file"),
        Known(143, "referenced_data_file", "string", False, _REFERENCED_DOC),
        Known(144, "content_offset", "long", False, "The offset in the file where the content starts"),
        Known(145, "content_size_in_bytes", "long", False, "The length of referenced content stored in the file"),
    )
}
PARTITION: Final = 102
_STATISTICS: Final = (108, 109, 110, 137, 125, 128, 131, 132)
_FILE_V1: Final = (100, 101, PARTITION, 103, 104, 105, *_STATISTICS, 140)
_FILE_V2: Final = (134, 100, 101, PARTITION, 103, 104, *_STATISTICS, 135, 140, 143)
_FILE_V3: Final = (134, 100, 101, PARTITION, 103, 104, *_STATISTICS, 135, 140, 142, 143, 144, 145)
_PARTITION_DOC: Final = "Partition data tuple, schema based on the partition spec"

ENTRY: Final = {
    known.field_id: known
    for known in (
        Known(0, "status", "int", True),
        Known(1, "snapshot_id", "long", False),
        Known(3, "sequence_number", "long", False),
        Known(4, "file_sequence_number", "long", False),
    )
}
DATA_FILE: Final = 2


def list_fields(version: int) -> Struct:
    """The fields of a manifest list in the order of the file."""
    if version == 1:
        return Struct(tuple(LIST[each] for each in _LIST_V1))
    ids = _LIST_V2 if version == 2 else (*_LIST_V2, 520)
    return Struct(tuple(replace(LIST[each], required=each in list_required(version)) for each in ids))


def list_required(version: int) -> frozenset[int]:
    """The ids of the fields that a manifest list of this version must have."""
    always = frozenset(known.field_id for known in LIST.values() if known.required)
    return always if version == 1 else always | _LIST_REQUIRED_V2


def entry_fields(version: int, spec: PartitionSpec, types: Iterable[Type | None]) -> Struct:
    """The fields of a manifest in the order of the file."""
    partition = tuple(
        (field.field_id, field.name, UNKNOWN if kind is None else kind)
        for field, kind in zip(spec.fields, types, strict=True)
    )
    doc = None if version == 1 else _PARTITION_DOC
    tuple_field = Known(PARTITION, "partition", Tuple(partition), True, doc)
    ids = {1: _FILE_V1, 2: _FILE_V2, 3: _FILE_V3}[version]
    required = {134, 105}
    fields = tuple(
        tuple_field if each == PARTITION else replace(FILE[each], required=FILE[each].required or each in required)
        for each in ids
    )
    numbers = (ENTRY[0], ENTRY[1]) if version == 1 else tuple(ENTRY.values())
    return Struct((*numbers, Known(DATA_FILE, "data_file", Struct(fields), True)))


def avro_text(struct: Struct, name: str) -> str:
    """The Avro schema as Iceberg's Java library writes it."""
    return json.dumps(_avro_record(struct, name, set()), separators=(",", ":"), ensure_ascii=False)


_AVRO_PLAIN: Final = {"binary": "bytes"}


def _avro_record(struct: Struct | Tuple, name: str, defined: set[str]) -> dict[str, Any]:
    if isinstance(struct, Tuple):
        parts = [_tuple_field(each, defined) for each in struct.fields]
    else:
        parts = [_avro_field(known, defined) for known in struct.fields]
    return {"type": "record", "name": name, "fields": parts}


def _tuple_field(part: tuple[int, str, Type], defined: set[str]) -> dict[str, Any]:
    field_id, name, kind = part
    plain = avro_type(kind, defined)
    written = avro_name(name)
    return {
        "name": written,
        "type": plain if plain == "null" else ["null", plain],
        "default": None,
        **({} if written == name else {"iceberg-field-name": name}),
        "field-id": field_id,
    }


def _avro_field(known: Known, defined: set[str]) -> dict[str, Any]:
    kind = _avro_type(known, defined)
    return {
        "name": known.name,
        "type": kind if known.required else ["null", kind],
        **({} if known.doc is None else {"doc": known.doc}),
        **({} if known.required else {"default": None}),
        "field-id": known.field_id,
    }


def _avro_type(known: Known, defined: set[str]) -> Any:
    match known.type:
        case str(plain):
            return _AVRO_PLAIN.get(plain, plain)
        case Mapped(key_id, value_id, value):
            pair = [
                {"name": "key", "type": "int", "field-id": key_id},
                {"name": "value", "type": _AVRO_PLAIN.get(value, value), "field-id": value_id},
            ]
            items = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": pair}
            return {"type": "array", "items": items, "logicalType": "map"}
        case Listed(element_id, str(element)):
            return {"type": "array", "items": element, "element-id": element_id}
        case Listed(element_id, Struct() as element):
            record = _avro_record(element, f"r{element_id}", defined)
            return {"type": "array", "items": record, "element-id": element_id}
        case Struct() | Tuple() as struct:
            return _avro_record(struct, f"r{known.field_id}", defined)


def avro_name(name: str) -> str:
    """A valid Avro field name, made from UTF-16 units as Iceberg's Java library does."""
    data = name.encode("utf-16-be")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    return "".join(_avro_unit(unit, at == 0) for at, unit in enumerate(units))


def _avro_unit(unit: int, first: bool) -> str:
    text = chr(unit)
    category = unicodedata.category(text)
    if text == "_" or category.startswith("L") or (category == "Nd" and not first):
        return text
    return f"_{text}" if category == "Nd" else f"_x{unit:X}"


def iceberg_text(struct: Struct) -> str:
    """The file's Iceberg schema, which Java writes into the header as `iceberg.schema`."""
    value = {"type": "struct", "schema-id": 0, "fields": [_iceberg_field(known) for known in struct.fields]}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _iceberg_field(known: Known) -> dict[str, Any]:
    return {
        "id": known.field_id,
        "name": known.name,
        "required": known.required,
        "type": _iceberg_type(known.type),
        **({} if known.doc is None else {"doc": known.doc}),
    }


def _iceberg_type(kind: KnownType) -> Any:
    match kind:
        case str():
            return kind
        case Mapped(key_id, value_id, value):
            return {
                "type": "map",
                "key-id": key_id,
                "key": "int",
                "value-id": value_id,
                "value": value,
                "value-required": True,
            }
        case Listed(element_id, element):
            return {
                "type": "list",
                "element-id": element_id,
                "element": _iceberg_type(element),
                "element-required": True,
            }
        case Struct(fields):
            return {"type": "struct", "fields": [_iceberg_field(known) for known in fields]}
        case Tuple(parts):
            fields_json = [
                {"id": field_id, "name": name, "required": False, "type": type_to_iceberg(part)}
                for field_id, name, part in parts
            ]
            return {"type": "struct", "fields": fields_json}


def locate(record: RecordNode, known: Mapping[int, Known]) -> dict[int, int]:
    """The position of each known field in a record. Raises if a known id has another type."""
    found: dict[int, int] = {}
    for position, field in enumerate(record.fields):
        declared = None if field.field_id is None else known.get(field.field_id)
        if declared is None:
            continue
        if not _fits(declared.type, inner_node(field.type)):
            raise Code.MANIFEST_INVALID(
                f"field {declared.field_id} ({declared.name}) has another type",
                reason="manifest_field_type_mismatch",
                expected=str(declared.type),
                got=repr(field.type)[:120],
            )
        found[declared.field_id] = position
    return found


_FITTING: Final = {"long": {"int", "long"}, "binary": {"bytes"}}


def _fits(kind: KnownType, node: Node) -> bool:
    match kind, node:
        case str(plain), PrimitiveNode(written):
            return written in _FITTING.get(plain, {plain})
        case Mapped(key_id, value_id, value), ArrayNode(RecordNode((key, paired)), _, "map"):
            named = key.field_id in {None, key_id} and paired.field_id in {None, value_id}
            return named and key.type == PrimitiveNode("int") and _fits(value, paired.type)
        case Listed(element_id, element), ArrayNode(items, written_id):
            if written_id not in {None, element_id}:
                return False
            if isinstance(element, Struct):
                return isinstance(items, RecordNode)
            # PyIceberg writes the ids of equality deletes as long; their range is checked where they are read.
            return _fits("long" if element == "int" else element, items)
        case _:
            return False
