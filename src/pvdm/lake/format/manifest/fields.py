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
from pvdm.lake.format.partition_value import avro_value_type, inner_node
from pvdm.lake.format.schema.logical import DocumentedField, to_iceberg
from pvdm.model.schema import Field, Inner, Kind, ListType, MapType, PrimitiveType, StructType, Type

_BOOLEAN: Final = PrimitiveType(Kind.BOOLEAN)
_LONG: Final = PrimitiveType(Kind.LONG)
_STRING: Final = PrimitiveType(Kind.STRING)
_BINARY: Final = PrimitiveType(Kind.BINARY)


def _field(field_id: int, name: str, type_: Type, required: bool, doc: str | None = None) -> DocumentedField:
    return DocumentedField(name, type_, required, field_id, doc)


class _PartitionTupleField(Field):
    """A field of the partition tuple. Unlike a column its name may be any text, since Arrow does not read it."""

    def __post_init__(self) -> None:
        """Skip the checks of `Field`: the name comes from the partition spec."""


def _by_id(*fields: DocumentedField) -> dict[int, DocumentedField]:
    return {field.field_id: field for field in fields if field.field_id is not None}


def _map(key_id: int, value_id: int, value: Type) -> MapType:
    """A map from int, which manifests store as an array of key-value records."""
    return MapType(Inner(INT, True, key_id), Inner(value, True, value_id))


def _list(element_id: int, element: Type) -> ListType:
    return ListType(Inner(element, True, element_id))


# The fields by id. The boolean of a field says whether it is required.
SUMMARY: Final = _by_id(
    _field(509, "contains_null", _BOOLEAN, True, "True if any file has a null partition value"),
    _field(518, "contains_nan", _BOOLEAN, False, "True if any file has a nan partition value"),
    _field(510, "lower_bound", _BINARY, False, "Partition lower bound for all files"),
    _field(511, "upper_bound", _BINARY, False, "Partition upper bound for all files"),
)
LIST: Final = _by_id(
    _field(500, "manifest_path", _STRING, True, "Location URI with FS scheme"),
    _field(501, "manifest_length", _LONG, True, "Total file size in bytes"),
    _field(502, "partition_spec_id", INT, True, "Spec ID used to write"),
    _field(517, "content", INT, False, "Contents of the manifest: 0=data, 1=deletes"),
    _field(515, "sequence_number", _LONG, False, "Sequence number when the manifest was added"),
    _field(516, "min_sequence_number", _LONG, False, "Lowest sequence number in the manifest"),
    _field(503, "added_snapshot_id", _LONG, True, "Snapshot ID that added the manifest"),
    _field(504, "added_files_count", INT, False, "Added entry count"),
    _field(505, "existing_files_count", INT, False, "Existing entry count"),
    _field(506, "deleted_files_count", INT, False, "Deleted entry count"),
    _field(512, "added_rows_count", _LONG, False, "Added rows count"),
    _field(513, "existing_rows_count", _LONG, False, "Existing rows count"),
    _field(514, "deleted_rows_count", _LONG, False, "Deleted rows count"),
    _field(507, "partitions", _list(508, StructType(tuple(SUMMARY.values()))), False, "Summary for each partition"),
    _field(519, "key_metadata", _BINARY, False, "Encryption key metadata blob"),
    _field(520, "first_row_id", _LONG, False, "Starting row ID to assign to new rows in ADDED data files"),
)
# By format version: the field ids in the order in which Iceberg's Java library writes the fields.
_LIST_V1: Final = (500, 501, 502, 503, 504, 505, 506, 507, 512, 513, 514, 519)
_LIST_V2: Final = (500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 507, 519)
_LIST_V3: Final = (*_LIST_V2, 520)
_LIST_REQUIRED_V2: Final = frozenset({517, 515, 516, 504, 505, 506, 512, 513, 514})

_VALUE_COUNTS_DOC: Final = "Map of column id to total count, including null and NaN"
_NAN_COUNTS_DOC: Final = "Map of column id to number of NaN values in the column"
_REFERENCED_DOC: Final = "Fully qualified location (URI with FS scheme) of a data file that all deletes reference"
FILE: Final = _by_id(
    _field(134, "content", INT, False, "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"),
    _field(100, "file_path", _STRING, True, "Location URI with FS scheme"),
    _field(101, "file_format", _STRING, True, "File format name: avro, orc, or parquet"),
    _field(103, "record_count", _LONG, True, "Number of records in the file"),
    _field(104, "file_size_in_bytes", _LONG, True, "Total file size in bytes"),
    _field(105, "block_size_in_bytes", _LONG, False),
    _field(106, "file_ordinal", INT, False),
    _field(107, "sort_columns", _list(112, INT), False),
    _field(108, "column_sizes", _map(117, 118, _LONG), False, "Map of column id to total size on disk"),
    _field(109, "value_counts", _map(119, 120, _LONG), False, _VALUE_COUNTS_DOC),
    _field(110, "null_value_counts", _map(121, 122, _LONG), False, "Map of column id to null value count"),
    _field(137, "nan_value_counts", _map(138, 139, _LONG), False, _NAN_COUNTS_DOC),
    _field(111, "distinct_counts", _map(123, 124, _LONG), False),
    _field(125, "lower_bounds", _map(126, 127, _BINARY), False, "Map of column id to lower bound"),
    _field(128, "upper_bounds", _map(129, 130, _BINARY), False, "Map of column id to upper bound"),
    _field(131, "key_metadata", _BINARY, False, "Encryption key metadata blob"),
    _field(132, "split_offsets", _list(133, _LONG), False, "Splittable offsets"),
    _field(135, "equality_ids", _list(136, INT), False, "Equality comparison field IDs"),
    _field(140, "sort_order_id", INT, False, "Sort order ID"),
    _field(142, "first_row_id", _LONG, False, "The first row ID assigned to the first row in the data file"),
    _field(143, "referenced_data_file", _STRING, False, _REFERENCED_DOC),
    _field(144, "content_offset", _LONG, False, "The offset in the file where the content starts"),
    _field(145, "content_size_in_bytes", _LONG, False, "The length of referenced content stored in the file"),
)
PARTITION_FIELD: Final = 102  # its id
_OPTIONAL_FIELDS: Final = (108, 109, 110, 137, 125, 128, 131, 132)
_FILE_V1: Final = (100, 101, PARTITION_FIELD, 103, 104, 105, *_OPTIONAL_FIELDS, 140)
_FILE_V2: Final = (134, 100, 101, PARTITION_FIELD, 103, 104, *_OPTIONAL_FIELDS, 135, 140, 143)
_FILE_V3: Final = (134, 100, 101, PARTITION_FIELD, 103, 104, *_OPTIONAL_FIELDS, 135, 140, 142, 143, 144, 145)
_PARTITION_DOC: Final = "Partition data tuple, schema based on the partition spec"

ENTRY: Final = _by_id(
    _field(0, "status", INT, True),
    _field(1, "snapshot_id", _LONG, False),
    _field(3, "sequence_number", _LONG, False),
    _field(4, "file_sequence_number", _LONG, False),
)
DATA_FILE_FIELD: Final = 2  # its id


def list_fields(version: int) -> StructType:
    """The fields of a manifest list in the order of the file."""
    ids = {1: _LIST_V1, 2: _LIST_V2, 3: _LIST_V3}[version]
    required = list_required(version)
    return StructType(tuple(replace(LIST[each], required=each in required) for each in ids))


def list_required(version: int) -> frozenset[int]:
    """The ids of the fields that a manifest list of this version must have."""
    in_all_versions = frozenset(field_id for field_id, field in LIST.items() if field.required)
    return in_all_versions if version == 1 else in_all_versions | _LIST_REQUIRED_V2


def entry_fields(version: int, spec: PartitionSpec, types: Iterable[Type | None]) -> StructType:
    """The fields of a manifest in the order of the file. `types` has the partition fields' types (None: `unknown`)."""
    partition = []
    for field, type_ in zip(spec.fields, types, strict=True):
        avro_value_type(type_ or UNKNOWN, set())  # raises for a type that partition values do not have
        partition.append(_PartitionTupleField(field.name, type_ or UNKNOWN, field_id=field.field_id))
    doc = None if version == 1 else _PARTITION_DOC
    ids = {1: _FILE_V1, 2: _FILE_V2, 3: _FILE_V3}[version]
    by_id = {**FILE, PARTITION_FIELD: _field(PARTITION_FIELD, "partition", StructType(tuple(partition)), True, doc)}
    # Writers always write the content (134) and, in format 1, the block size (105).
    file_fields = tuple(replace(by_id[each], required=by_id[each].required or each in (134, 105)) for each in ids)
    first_fields = (ENTRY[0], ENTRY[1]) if version == 1 else tuple(ENTRY.values())  # status and snapshot_id
    return StructType((*first_fields, _field(DATA_FILE_FIELD, "data_file", StructType(file_fields), True)))


def avro_text(struct: StructType, name: str) -> str:
    """The JSON of the Avro schema as Iceberg's Java library writes it."""
    return _dump(_avro_record(struct.fields, name, set()))


def iceberg_text(struct: StructType) -> str:
    """The file's Iceberg schema, which Iceberg's Java library writes into the header as `iceberg.schema`."""
    return _dump(to_iceberg(struct))


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _avro_record(fields: Iterable[Field], name: str, defined: set[str]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_avro_field(field, defined) for field in fields]}


def _avro_field(field: Field, defined: set[str]) -> dict[str, Any]:
    name, avro_type = avro_name(field.name), _avro_field_type(field.type, field.field_id, defined)
    doc = field.doc if isinstance(field, DocumentedField) else None
    return {
        "name": name,
        "type": avro_type if field.required or avro_type == "null" else ["null", avro_type],
        **({} if doc is None else {"doc": doc}),
        **({} if field.required else {"default": None}),
        **({} if name == field.name else {"iceberg-field-name": field.name}),
        "field-id": field.field_id,
    }


def _avro_field_type(type_: Type, field_id: int | None, defined: set[str]) -> Any:
    match type_:
        case StructType(fields):
            return _avro_record(fields, f"r{field_id}", defined)
        case ListType(element):
            items = _avro_field_type(element.type, element.field_id, defined)
            return {"type": "array", "items": items, "element-id": element.field_id}
        case MapType(key, value):
            pair = (Field("key", key.type, True, key.field_id), Field("value", value.type, True, value.field_id))
            items = _avro_record(pair, f"k{key.field_id}_v{value.field_id}", defined)
            return {"type": "array", "items": items, "logicalType": "map"}
        case _:
            return avro_value_type(type_, defined)


def avro_name(name: str) -> str:
    """A valid Avro field name. Other characters are escaped by UTF-16 unit, as Iceberg's Java library does."""
    data = name.encode("utf-16-be")
    units = [int.from_bytes(data[start : start + 2], "big") for start in range(0, len(data), 2)]
    return "".join(_escape_unit(unit, is_first=i == 0) for i, unit in enumerate(units))


def _escape_unit(unit: int, *, is_first: bool) -> str:
    text = chr(unit)
    category = unicodedata.category(text)
    if text == "_" or category.startswith("L") or (category == "Nd" and not is_first):
        return text
    return f"_{text}" if category == "Nd" else f"_x{unit:X}"  # a digit in the first place gets a `_`


def locate_fields(record: RecordNode, known: Mapping[int, Field]) -> dict[int, int]:
    """The position of each known field in a record. Raises if a known id has another type."""
    positions: dict[int, int] = {}
    for position, field in enumerate(record.fields):
        if field.field_id is None or field.field_id not in known:
            continue
        declared = known[field.field_id]
        if not _can_hold(inner_node(field.type), declared.type):
            words = f"field {field.field_id} ({declared.name}) has another type"
            reason, expected, got = "manifest_field_type_mismatch", str(declared.type), repr(field.type)[:120]
            raise Code.MANIFEST_INVALID(words, reason=reason, expected=expected, got=got)
        positions[field.field_id] = position
    return positions


# Key: an Iceberg type. Value: the Avro types that may store it. Other types need the Avro type of the same name.
_AVRO_TYPES: Final = {"long": {"int", "long"}, "binary": {"bytes"}}


def _can_hold(node: Node, type_: Type) -> bool:
    """Whether the Avro type can store values of the type. An id in the Avro type must be that of the field."""
    match type_, node:
        case PrimitiveType(Kind(value=name)), PrimitiveNode(stored_as):
            return stored_as in _AVRO_TYPES.get(name, {name})
        case MapType(key, value), ArrayNode(RecordNode((first, second)), _, "map"):
            ids_match = first.field_id in {None, key.field_id} and second.field_id in {None, value.field_id}
            return ids_match and first.type == PrimitiveNode("int") and _can_hold(second.type, value.type)
        case ListType(element), ArrayNode(items, element_id):
            if element_id not in {None, element.field_id}:
                return False
            if isinstance(element.type, StructType):
                return isinstance(items, RecordNode)
            # PyIceberg writes the ids of equality deletes as long; their range is checked where they are read.
            return _can_hold(items, _LONG if element.type == INT else element.type)
        case _:
            return False
