"""The fields of manifests and manifest lists by id and format version, and the schemas for writing them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pvdm.errors import Code
from pvdm.lake.format.avro.schema import ArrayNode, Node, PrimitiveNode, RecordNode
from pvdm.lake.format.partition_spec import INT, UNKNOWN, PartitionSpec
from pvdm.lake.format.partition_value import avro_type, inner_node
from pvdm.lake.format.schema.logical import DocumentedField, field_to_iceberg
from pvdm.model.schema import Field, Inner, Kind, ListType, MapType, PrimitiveType, StructType, Type

_BOOLEAN: Final = PrimitiveType(Kind.BOOLEAN)
_LONG: Final = PrimitiveType(Kind.LONG)
_STRING: Final = PrimitiveType(Kind.STRING)
_BINARY: Final = PrimitiveType(Kind.BINARY)


def _known(field_id: int, name: str, kind: Type, required: bool, doc: str | None = None) -> DocumentedField:
    return DocumentedField(name, kind, required, field_id, doc)


def _by_id(*fields: DocumentedField) -> dict[int, DocumentedField]:
    return {field.field_id: field for field in fields if field.field_id is not None}


def _map(key_id: int, value_id: int, value: Type) -> MapType:
    """A map from int, which manifests store as an array of key-value records."""
    return MapType(Inner(INT, True, key_id), Inner(value, True, value_id))


def _list(element_id: int, element: Type) -> ListType:
    return ListType(Inner(element, True, element_id))


SUMMARY: Final = _by_id(
    _known(509, "contains_null", _BOOLEAN, True, "True if any file has a null partition value"),
    _known(518, "contains_nan", _BOOLEAN, False, "True if any file has a nan partition value"),
    _known(510, "lower_bound", _BINARY, False, "Partition lower bound for all files"),
    _known(511, "upper_bound", _BINARY, False, "Partition upper bound for all files"),
)
LIST: Final = _by_id(
    _known(500, "manifest_path", _STRING, True, "Location URI with FS scheme"),
    _known(501, "manifest_length", _LONG, True, "Total file size in bytes"),
    _known(502, "partition_spec_id", INT, True, "Spec ID used to write"),
    _known(517, "content", INT, False, "Contents of the manifest: 0=data, 1=deletes"),
    _known(515, "sequence_number", _LONG, False, "Sequence number when the manifest was added"),
    _known(516, "min_sequence_number", _LONG, False, "Lowest sequence number in the manifest"),
    _known(503, "added_snapshot_id", _LONG, True, "Snapshot ID that added the manifest"),
    _known(504, "added_files_count", INT, False, "Added entry count"),
    _known(505, "existing_files_count", INT, False, "Existing entry count"),
    _known(506, "deleted_files_count", INT, False, "Deleted entry count"),
    _known(512, "added_rows_count", _LONG, False, "Added rows count"),
    _known(513, "existing_rows_count", _LONG, False, "Existing rows count"),
    _known(514, "deleted_rows_count", _LONG, False, "Deleted rows count"),
    _known(507, "partitions", _list(508, StructType(tuple(SUMMARY.values()))), False, "Summary for each partition"),
    _known(519, "key_metadata", _BINARY, False, "Encryption key metadata blob"),
    _known(520, "first_row_id", _LONG, False, "Starting row ID to assign to new rows in ADDED data files"),
)
_LIST_V1: Final = (500, 501, 502, 503, 504, 505, 506, 507, 512, 513, 514, 519)
_LIST_V2: Final = (500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 507, 519)
_LIST_REQUIRED_V2: Final = frozenset({517, 515, 516, 504, 505, 506, 512, 513, 514})

_VALUE_COUNTS_DOC: Final = "Map of column id to total count, including null and NaN"
_NAN_COUNTS_DOC: Final = "Map of column id to number of NaN values in the column"
_REFERENCED_DOC: Final = "Fully qualified location (URI with FS scheme) of a data file that all deletes reference"
FILE: Final = _by_id(
    _known(134, "content", INT, False, "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"),
    _known(100, "file_path", _STRING, True, "Location URI with FS scheme"),
    _known(101, "file_format", _STRING, True, "File format name: avro, orc, or parquet"),
    _known(103, "record_count", _LONG, True, "Number of records in the file"),
    _known(104, "file_size_in_bytes", _LONG, True, "Total file size in bytes"),
    _known(105, "block_size_in_bytes", _LONG, False),
    _known(106, "file_ordinal", INT, False),
    _known(107, "sort_columns", _list(112, INT), False),
    _known(108, "column_sizes", _map(117, 118, _LONG), False, "Map of column id to total size on disk"),
    _known(109, "value_counts", _map(119, 120, _LONG), False, _VALUE_COUNTS_DOC),
    _known(110, "null_value_counts", _map(121, 122, _LONG), False, "Map of column id to null value count"),
    _known(137, "nan_value_counts", _map(138, 139, _LONG), False, _NAN_COUNTS_DOC),
    _known(111, "distinct_counts", _map(123, 124, _LONG), False),
    _known(125, "lower_bounds", _map(126, 127, _BINARY), False, "Map of column id to lower bound"),
    _known(128, "upper_bounds", _map(129, 130, _BINARY), False, "Map of column id to upper bound"),
    _known(131, "key_metadata", _BINARY, False, "Encryption key metadata blob"),
    _known(132, "split_offsets", _list(133, _LONG), False, "Splittable offsets"),
    _known(135, "equality_ids", _list(136, INT), False, "Equality comparison field IDs"),
    _known(140, "sort_order_id", INT, False, "Sort order ID"),
    _known(142, "first_row_id", _LONG, False, "The first row ID assigned to the first row in the data file"),
    _known(143, "referenced_data_file", _STRING, False, _REFERENCED_DOC),
    _known(144, "content_offset", _LONG, False, "The offset in the file where the content starts"),
    _known(145, "content_size_in_bytes", _LONG, False, "The length of referenced content stored in the file"),
)
PARTITION: Final = 102
_STATISTICS: Final = (108, 109, 110, 137, 125, 128, 131, 132)
_FILE_V1: Final = (100, 101, PARTITION, 103, 104, 105, *_STATISTICS, 140)
_FILE_V2: Final = (134, 100, 101, PARTITION, 103, 104, *_STATISTICS, 135, 140, 143)
_FILE_V3: Final = (134, 100, 101, PARTITION, 103, 104, *_STATISTICS, 135, 140, 142, 143, 144, 145)
_PARTITION_DOC: Final = "Partition data tuple, schema based on the partition spec"

ENTRY: Final = _by_id(
    _known(0, "status", INT, True),
    _known(1, "snapshot_id", _LONG, False),
    _known(3, "sequence_number", _LONG, False),
    _known(4, "file_sequence_number", _LONG, False),
)
DATA_FILE: Final = 2


def list_fields(version: int) -> StructType:
    """The fields of a manifest list in the order of the file."""
    if version == 1:
        return StructType(tuple(LIST[each] for each in _LIST_V1))
    ids = _LIST_V2 if version == 2 else (*_LIST_V2, 520)
    return StructType(tuple(replace(LIST[each], required=each in list_required(version)) for each in ids))


def list_required(version: int) -> frozenset[int]:
    """The ids of the fields that a manifest list of this version must have."""
    always = frozenset(field_id for field_id, known in LIST.items() if known.required)
    return always if version == 1 else always | _LIST_REQUIRED_V2


def entry_fields(version: int, spec: PartitionSpec, types: Iterable[Type | None]) -> StructType:
    """The fields of a manifest in the order of the file."""
    partition = []
    for field, kind in zip(spec.fields, types, strict=True):
        avro_type(kind or UNKNOWN, set())  # raises for a type that partition values do not have
        partition.append(Field(field.name, kind or UNKNOWN, field_id=field.field_id))
    doc = None if version == 1 else _PARTITION_DOC
    tuple_field = _known(PARTITION, "partition", StructType(tuple(partition)), True, doc)
    ids = {1: _FILE_V1, 2: _FILE_V2, 3: _FILE_V3}[version]
    required = {134, 105}
    fields = tuple(
        tuple_field if each == PARTITION else replace(FILE[each], required=FILE[each].required or each in required)
        for each in ids
    )
    numbers = (ENTRY[0], ENTRY[1]) if version == 1 else tuple(ENTRY.values())
    return StructType((*numbers, _known(DATA_FILE, "data_file", StructType(fields), True)))


def avro_text(struct: StructType, name: str) -> str:
    """The Avro schema as Iceberg's Java library writes it."""
    return _dump(_avro_record(struct.fields, name, set()))


def iceberg_text(struct: StructType) -> str:
    """The file's Iceberg schema, which Java writes into the header as `iceberg.schema`."""
    fields = [field_to_iceberg(field, field.name) for field in struct.fields]
    return _dump({"type": "struct", "schema-id": 0, "fields": fields})


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _avro_record(fields: Iterable[Field], name: str, defined: set[str]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_avro_field(field, defined) for field in fields]}


def _avro_field(field: Field, defined: set[str]) -> dict[str, Any]:
    name, kind = avro_name(field.name), _avro_type(field.type, field.field_id, defined)
    doc = field.doc if isinstance(field, DocumentedField) else None
    return {
        "name": name,
        "type": kind if field.required or kind == "null" else ["null", kind],
        **({} if doc is None else {"doc": doc}),
        **({} if field.required else {"default": None}),
        **({} if name == field.name else {"iceberg-field-name": field.name}),
        "field-id": field.field_id,
    }


def _avro_type(kind: Type, field_id: int | None, defined: set[str]) -> Any:
    match kind:
        case StructType(fields):
            return _avro_record(fields, f"r{field_id}", defined)
        case ListType(element):
            items = _avro_type(element.type, element.field_id, defined)
            return {"type": "array", "items": items, "element-id": element.field_id}
        case MapType(key, value):
            pair = [
                {"name": name, "type": avro_type(part.type, defined), "field-id": part.field_id}
                for name, part in (("key", key), ("value", value))
            ]
            items = {"type": "record", "name": f"k{key.field_id}_v{value.field_id}", "fields": pair}
            return {"type": "array", "items": items, "logicalType": "map"}
        case _:
            return avro_type(kind, defined)


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


def locate(record: RecordNode, known: Mapping[int, Field]) -> dict[int, int]:
    """The position of each known field in a record. Raises if a known id has another type."""
    found: dict[int, int] = {}
    for position, field in enumerate(record.fields):
        if field.field_id is None or field.field_id not in known:
            continue
        declared = known[field.field_id]
        if not _fits(declared.type, inner_node(field.type)):
            raise Code.MANIFEST_INVALID(
                f"field {field.field_id} ({declared.name}) has another type",
                reason="manifest_field_type_mismatch",
                expected=str(declared.type),
                got=repr(field.type)[:120],
            )
        found[field.field_id] = position
    return found


_FITTING: Final = {"long": {"int", "long"}, "binary": {"bytes"}}


def _fits(kind: Type, node: Node) -> bool:
    match kind, node:
        case PrimitiveType(Kind(value=plain)), PrimitiveNode(written):
            return written in _FITTING.get(plain, {plain})
        case MapType(key, value), ArrayNode(RecordNode((first, second)), _, "map"):
            named = first.field_id in {None, key.field_id} and second.field_id in {None, value.field_id}
            return named and first.type == PrimitiveNode("int") and _fits(value.type, second.type)
        case ListType(element), ArrayNode(items, written_id):
            if written_id not in {None, element.field_id}:
                return False
            if isinstance(element.type, StructType):
                return isinstance(items, RecordNode)
            # PyIceberg writes the ids of equality deletes as long; their range is checked where they are read.
            return _fits(_LONG if element.type == INT else element.type, items)
        case _:
            return False
