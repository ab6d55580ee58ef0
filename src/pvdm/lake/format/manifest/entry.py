"""Manifest entries and the files that they list, as typed values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.avro.schema import RecordNode
from pvdm.lake.format.manifest.fields import DATA_FILE_FIELD, ENTRY, FILE, PARTITION_FIELD, locate_fields
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.format.partition_value import from_avro, infer_type, inner_node, require_type
from pvdm.lake.format.schema.single_value import Value
from pvdm.model.schema import Type

LOCATION_MAX_BYTES: Final = 8_192


class ManifestContent(IntEnum):
    """The kind of files that a manifest lists."""

    DATA = 0
    DELETES = 1


class FileContent(IntEnum):
    """The content of a listed file."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


class EntryStatus(IntEnum):
    """What happened to the file in the snapshot that wrote the entry."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


_V = TypeVar("_V")


class IdMap(Mapping[int, _V], Generic[_V]):
    """An immutable map from field id to value, in the order of the file."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[int, _V]] = ()) -> None:
        all_pairs = tuple(pairs)
        self._values = dict(all_pairs)
        if len(self._values) != len(all_pairs):
            raise Code.MANIFEST_INVALID(reason="manifest_map_key_repeated", got="an id twice")

    def __getitem__(self, key: int) -> _V:
        return self._values[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"IdMap({self._values!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data or delete file as a manifest lists it. None means null or absent."""

    file_path: str
    file_format: str
    record_count: int
    file_size_in_bytes: int
    content: FileContent = FileContent.DATA
    partition: IdMap[Value] = field(default_factory=IdMap)
    column_sizes: IdMap[int] | None = None
    value_counts: IdMap[int] | None = None
    null_value_counts: IdMap[int] | None = None
    nan_value_counts: IdMap[int] | None = None
    lower_bounds: IdMap[bytes] | None = None
    upper_bounds: IdMap[bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    block_size_in_bytes: int | None = None
    file_ordinal: int | None = None
    sort_columns: tuple[int, ...] | None = None
    distinct_counts: IdMap[int] | None = None

    @property
    def is_deletion_vector(self) -> bool:
        """Whether this is a deletion vector, which is a blob in a Puffin file."""
        return self.file_format.lower() == "puffin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One entry. Numbers that are None are inherited from the manifest list (`inherit`)."""

    status: EntryStatus
    data_file: DataFile
    snapshot_id: int | None = None
    sequence_number: int | None = None
    file_sequence_number: int | None = None

    @property
    def is_live(self) -> bool:
        """Whether the file is part of the snapshot."""
        return self.status is not EntryStatus.DELETED


def count_entries(entries: Sequence[ManifestEntry]) -> dict[str, int]:
    """The files and rows of each status, by the names that these counts have in a manifest list."""
    counts: dict[str, int] = {}
    for status in (EntryStatus.ADDED, EntryStatus.EXISTING, EntryStatus.DELETED):
        rows = [entry.data_file.record_count for entry in entries if entry.status is status]
        counts |= {f"{status.name.lower()}_files_count": len(rows), f"{status.name.lower()}_rows_count": sum(rows)}
    return counts


def _refused(reason: str, expected: str, got: object, message: str | None = None) -> PvdmError:
    return Code.MANIFEST_INVALID(message, reason=reason, expected=expected, got=repr(got)[:120])


class EntryReader:
    """Reads the entries of one manifest. The positions of the known fields are found once, by field id."""

    def __init__(self, schema: RecordNode, spec: PartitionSpec, types: tuple[Type | None, ...]) -> None:
        positions = locate_fields(schema, ENTRY)
        self._entry_positions = {ENTRY[field_id].name: position for field_id, position in positions.items()}
        position = schema.position(DATA_FILE_FIELD)
        file_node = None if position is None else schema.fields[position].type
        if position is None or not isinstance(file_node, RecordNode):
            raise _missing("data_file", DATA_FILE_FIELD)
        self._data_file_position = position
        self._file_positions = locate_fields(file_node, FILE)
        for field_id, declared in FILE.items():
            if declared.required and field_id not in self._file_positions:
                raise _missing(declared.name, field_id)
        if "status" not in self._entry_positions:
            raise _missing("status", 0)
        self._partition_position, self.partition_fields = _locate_partition(file_node, spec, types)
        self._void_ids = frozenset(field.field_id for field in spec.fields if field.transform.name == "void")

    def read_entry(self, raw: Raw, content: ManifestContent) -> ManifestEntry:
        """The entry of one record."""
        status = _to_enum(EntryStatus, self._read_number(raw, "status"), "status")
        data_file = self._read_data_file(raw[self._data_file_position])
        _check_content(data_file, content)
        return ManifestEntry(
            status=status,
            data_file=data_file,
            snapshot_id=self._read_number(raw, "snapshot_id"),
            sequence_number=self._read_sequence_number(raw, "sequence_number"),
            file_sequence_number=self._read_sequence_number(raw, "file_sequence_number"),
        )

    def _read_number(self, raw: Raw, name: str) -> int | None:
        position = self._entry_positions.get(name)
        return None if position is None else raw[position]

    def _read_sequence_number(self, raw: Raw, name: str) -> int | None:
        return _require_not_negative(name, self._read_number(raw, name))

    def _read_data_file(self, raw: Raw) -> DataFile:
        values: dict[str, Any] = {}
        for field_id, position in self._file_positions.items():
            declared, value = FILE[field_id], raw[position]
            if value is not None:
                values[declared.name] = value
            elif declared.required:
                raise _missing(declared.name, field_id)
        for name in _COUNT_MAPS:
            for _, count in values.get(name, ()):
                _require_not_negative(name, count)
        for name in _NOT_NEGATIVE:
            _require_not_negative(name, values.get(name))
        for name in (*_COUNT_MAPS, "lower_bounds", "upper_bounds"):
            if name in values:
                values[name] = IdMap(values[name])
        for name in ("file_path", "referenced_data_file"):
            _check_location(name, values.get(name))
        values["content"] = _to_enum(FileContent, values.get("content", 0), "content")
        values["partition"] = self._read_partition(raw)
        return DataFile(**values)

    def _read_partition(self, raw: Raw) -> IdMap[Value]:
        if self._partition_position is None:
            return IdMap()
        values = raw[self._partition_position]
        if values is None:
            raise _missing("partition", PARTITION_FIELD)
        fields = self.partition_fields.items()
        partition = IdMap((field_id, from_avro(type_, values[position])) for field_id, (position, type_) in fields)
        for field_id in self._void_ids:
            if partition[field_id] is not None:
                got = repr(partition[field_id])[:120]
                raise Code.PARTITION_SPEC_INVALID(reason="partition_void_not_null", expected="null", got=got)
        return partition


_COUNT_MAPS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "distinct_counts")
_NOT_NEGATIVE: Final = ("record_count", "file_size_in_bytes", "first_row_id", "content_offset", "content_size_in_bytes")


def _missing(name: str, field_id: int) -> PvdmError:
    words = f"field {field_id} ({name}) is missing or null"
    return Code.MANIFEST_INVALID(words, reason="manifest_field_missing", expected="a value", got="none")


_E = TypeVar("_E", bound=IntEnum)


def _to_enum(enum: type[_E], value: Any, name: str) -> _E:
    try:
        return enum(value)
    except ValueError:
        members = ", ".join(str(int(each)) for each in enum)
        raise _refused("manifest_code_unknown", members, value, f"{name} has an unknown value") from None


def _require_not_negative(name: str, value: int | None) -> int | None:
    if value is not None and value < 0:
        raise _refused("manifest_number_negative", "0 or more", value, f"{name} is negative")
    return value


def _check_location(name: str, value: str | None) -> None:
    if value is not None and not 1 <= len(value.encode()) <= LOCATION_MAX_BYTES:
        sizes = f"1 to {LOCATION_MAX_BYTES} bytes"
        raise _refused("manifest_location_refused", sizes, value, f"{name} is empty or too long")


def _check_content(data_file: DataFile, content: ManifestContent) -> None:
    if (data_file.content is FileContent.DATA) != (content is ManifestContent.DATA):
        expected = f"files of a {content.name.lower()} manifest"
        raise _refused("manifest_content_conflict", expected, data_file.content.name)
    ids = data_file.equality_ids
    if data_file.content is FileContent.EQUALITY_DELETES and not ids:
        raise _refused("manifest_equality_ids_missing", "equality_ids", None)
    if any(not 0 < each < 2**31 for each in ids or ()):
        raise _refused("manifest_equality_id_invalid", "1 to 2^31 − 1", ids)
    offset, size = data_file.content_offset, data_file.content_size_in_bytes
    if data_file.is_deletion_vector and None in (offset, size, data_file.referenced_data_file):
        expected = "referenced_data_file, content_offset and content_size_in_bytes"
        raise _refused("manifest_deletion_vector_incomplete", expected, (offset, size))
    if offset is not None and size is None:
        raise _refused("manifest_content_size_missing", "content_size_in_bytes", None)


def _locate_partition(
    file_node: RecordNode, spec: PartitionSpec, types: tuple[Type | None, ...]
) -> tuple[int | None, dict[int, tuple[int, Type]]]:
    """The position of the partition tuple; and by field id, the position and type of each value inside the tuple.

    Raises unless the tuple has exactly the spec's fields. An unpartitioned manifest may have no tuple.
    """
    tuple_position = file_node.position(PARTITION_FIELD)
    node = None if tuple_position is None else inner_node(file_node.fields[tuple_position].type)
    if node is None and not spec.fields:
        return None, {}
    if not isinstance(node, RecordNode):
        raise _missing("partition", PARTITION_FIELD)
    positions = {field.field_id: position for position, field in enumerate(node.fields)}
    spec_ids = {field.field_id for field in spec.fields}
    if positions.keys() != spec_ids:
        raise _refused("manifest_partition_mismatch", repr(sorted(spec_ids)), list(positions))
    located: dict[int, tuple[int, Type]] = {}
    for partition_field, type_ in zip(spec.fields, types, strict=True):
        position = positions[partition_field.field_id]
        avro_node = inner_node(node.fields[position].type)
        if type_ is None or partition_field.transform.name == "void":
            located[partition_field.field_id] = (position, infer_type(avro_node))
        else:
            require_type(type_, avro_node)
            located[partition_field.field_id] = (position, type_)
    return tuple_position, located
