"""Manifest entries and the files that they list: frozen typed views beside the record as it was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from pvdm.errors import Code, InputError
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.avro.schema import Node, RecordNode
from pvdm.lake.format.manifest.fields import DATA_FILE, ENTRY, PARTITION, file_known, locate
from pvdm.lake.format.partition.spec import PartitionSpec
from pvdm.lake.format.partition.value import from_raw, inferred_type, inner_node, require_type
from pvdm.lake.format.schema.single_value import Value
from pvdm.model.schema import Type

LOCATION_MAX_BYTES: Final = 8_192


class ManifestContent(IntEnum):
    """What a manifest lists."""

    DATA = 0
    DELETES = 1


class FileContent(IntEnum):
    """What a listed file holds."""

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
    """Values by field id, in the order in which they are written; it cannot be changed."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[int, _V]] = ()) -> None:
        listed = tuple(pairs)
        self._values = dict(listed)
        if len(self._values) != len(listed):
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

    def __reduce__(self) -> tuple[Any, ...]:
        return IdMap, (tuple(self._values.items()),)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data or delete file as a manifest lists it; None is null or absent, which the raw record tells apart."""

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
        """Whether the entry names a blob in a Puffin file."""
        return self.file_format.lower() == "puffin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One entry; numbers that are None are inherited from the manifest list."""

    status: EntryStatus
    data_file: DataFile
    snapshot_id: int | None = None
    sequence_number: int | None = None
    file_sequence_number: int | None = None
    raw: Raw = field(default=None, compare=False, repr=False)

    @property
    def is_live(self) -> bool:
        """Whether the file is part of the snapshot."""
        return self.status is not EntryStatus.DELETED


def _refused(code: str, what: str, expected: str, got: object) -> InputError:
    return InputError(code, what, expected=expected, got=repr(got)[:120])


class EntryReader:
    """Finds the known fields of one manifest's schema by id, once, and makes typed views of its records."""

    def __init__(self, schema: RecordNode, spec: PartitionSpec, types: tuple[Type | None, ...]) -> None:
        self._entry = locate(schema, ENTRY)
        at = schema.position(DATA_FILE)
        file_node = None if at is None else schema.fields[at].type
        if at is None or not isinstance(file_node, RecordNode):
            raise _missing("data_file", DATA_FILE)
        self._file_at = at
        self._known = file_known()
        self._file = locate(file_node, self._known)
        for field_id in (100, 101, 103, 104):
            if field_id not in self._file:
                raise _missing(self._known[field_id].name, field_id)
        if 0 not in self._entry:
            raise _missing("status", 0)
        self._partition_at, self.partition = _partition_of(file_node, spec, types)
        self._void = frozenset(field.field_id for field in spec.fields if field.transform.name == "void")

    def declares(self, field_id: int) -> bool:
        """Whether the manifest's schema has the field at all."""
        return field_id in self._entry or field_id in self._file

    def entry(self, raw: Raw, content: ManifestContent) -> ManifestEntry:
        """The typed view of one record."""
        status = _member(EntryStatus, self._number(raw, 0), "status")
        file_raw = raw[self._file_at]
        data_file = self._data_file(file_raw)
        _check_content(data_file, content)
        return ManifestEntry(
            status=status,
            data_file=data_file,
            snapshot_id=self._number(raw, 1),
            sequence_number=_not_negative("sequence_number", self._number(raw, 3)),
            file_sequence_number=_not_negative("file_sequence_number", self._number(raw, 4)),
            raw=raw,
        )

    def _number(self, raw: Raw, field_id: int) -> int | None:
        at = self._entry.get(field_id)
        return None if at is None else raw[at]

    def _data_file(self, raw: Raw) -> DataFile:
        found: dict[str, Any] = {}
        for field_id, at in self._file.items():
            known, value = self._known[field_id], raw[at]
            if value is None:
                if known.required:
                    raise _missing(known.name, field_id)
                continue
            found[known.name] = value
        for name in _COUNTS:
            if name in found:
                found[name] = _counts(name, found[name])
        for name in _NUMBERS:
            _not_negative(name, found.get(name))
        for name in ("lower_bounds", "upper_bounds"):
            if name in found:
                found[name] = IdMap(found[name])
        for name in ("file_path", "referenced_data_file"):
            _check_location(name, found.get(name))
        found["content"] = _member(FileContent, found.get("content", 0), "content")
        found["partition"] = self._tuple(raw)
        return DataFile(**found)

    def _tuple(self, raw: Raw) -> IdMap[Value]:
        if self._partition_at is None:
            return IdMap()
        values = raw[self._partition_at]
        if values is None:
            raise _missing("partition", PARTITION)
        found = IdMap((field_id, from_raw(kind, values[at])) for field_id, (at, kind) in self.partition.items())
        for field_id in self._void:
            if found[field_id] is not None:
                raise _refused("partition_void_not_null", "a void transform has a value", "null", found[field_id])
        return found


_COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "distinct_counts")
_NUMBERS: Final = ("record_count", "file_size_in_bytes", "first_row_id", "content_offset", "content_size_in_bytes")


def _missing(name: str, field_id: int) -> InputError:
    return InputError(
        "manifest_field_missing", f"field {field_id} ({name}) is missing or null", expected="a value", got="none"
    )


_E = TypeVar("_E", bound=IntEnum)


def _member(kind: type[_E], value: Any, name: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        members = ", ".join(str(int(each)) for each in kind)
        raise _refused("manifest_code_unknown", f"{name} has a value without meaning", members, value) from None


def _not_negative(name: str, value: int | None) -> int | None:
    if value is not None and value < 0:
        raise _refused("manifest_number_negative", f"{name} is negative", "0 or more", value)
    return value


def _counts(name: str, pairs: tuple[tuple[int, int], ...]) -> IdMap[int]:
    for _, count in pairs:
        _not_negative(name, count)
    return IdMap(pairs)


def _check_location(name: str, value: str | None) -> None:
    if value is not None and not 1 <= len(value.encode()) <= LOCATION_MAX_BYTES:
        raise _refused(
            "manifest_location_refused", f"{name} is empty or too long", f"1 to {LOCATION_MAX_BYTES} bytes", value
        )


def _check_content(data_file: DataFile, content: ManifestContent) -> None:
    if (data_file.content is FileContent.DATA) != (content is ManifestContent.DATA):
        raise _refused(
            "manifest_content_conflict",
            "a manifest lists a file of the other kind",
            f"files of a {content.name.lower()} manifest",
            data_file.content.name,
        )
    if data_file.content is FileContent.EQUALITY_DELETES and not data_file.equality_ids:
        raise _refused("manifest_equality_ids_missing", "an equality delete file names no fields", "equality_ids", None)
    if any(not 0 < each < 2**31 for each in data_file.equality_ids or ()):
        raise _refused(
            "manifest_equality_id_invalid", "an equality id is not a field id", "1 to 2^31 − 1", data_file.equality_ids
        )
    blob = (data_file.content_offset, data_file.content_size_in_bytes)
    if data_file.is_deletion_vector and (None in blob or data_file.referenced_data_file is None):
        raise _refused(
            "manifest_deletion_vector_incomplete",
            "a deletion vector does not say where it is or what it is for",
            "referenced_data_file, content_offset and content_size_in_bytes",
            blob,
        )
    if blob[0] is not None and blob[1] is None:
        raise _refused("manifest_content_size_missing", "a content offset has no size", "content_size_in_bytes", None)


def _required(kind: Type | None, written: Node) -> Type:
    assert kind is not None  # noqa: S101  else it is inferred
    require_type(kind, written)
    return kind


def _partition_of(
    file_node: RecordNode, spec: PartitionSpec, types: tuple[Type | None, ...]
) -> tuple[int | None, dict[int, tuple[int, Type]]]:
    """Where the tuple's values are and what they are; the tuple has the spec's fields and no other."""
    at = file_node.position(PARTITION)
    node = None if at is None else inner_node(file_node.fields[at].type)
    if node is None and not spec.fields:
        return None, {}
    if not isinstance(node, RecordNode):
        raise _missing("partition", PARTITION)
    ids = {field.field_id for field in node.fields}
    wanted = {field.field_id for field in spec.fields}
    if ids != wanted:
        raise _refused(
            "manifest_partition_mismatch",
            "the partition tuple does not have the fields of the spec",
            repr(sorted(wanted)),
            [field.field_id for field in node.fields],
        )
    found: dict[int, tuple[int, Type]] = {}
    for field_spec, kind in zip(spec.fields, types, strict=True):
        position = node.position(field_spec.field_id)
        assert position is not None  # noqa: S101  the sets of ids are equal
        written = inner_node(node.fields[position].type)
        inferred = kind is None or field_spec.transform.name == "void"
        found[field_spec.field_id] = (position, inferred_type(written) if inferred else _required(kind, written))
    return at, found
