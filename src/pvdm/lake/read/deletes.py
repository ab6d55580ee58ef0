"""The delete files of a snapshot, and which of them apply to a data file by Iceberg's rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pvdm.errors import Code, InputError
from pvdm.lake.format.manifest.entry import DataFile, FileContent, IdMap, ManifestEntry
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.format.partition_value import tuple_key
from pvdm.lake.format.schema.bounds import compare
from pvdm.lake.format.schema.single_value import Value, decode_promoted
from pvdm.model.schema import Field, Inner, Kind, PrimitiveType, Schema, Type

# Reserved field ids of the columns of a position delete file.
FILE_PATH_ID: Final = 2_147_483_546
POSITION_ID: Final = 2_147_483_545
DELETED_ROW_ID: Final = 2_147_483_544

# The id of a partition spec, and the `tuple_key` of a partition.
_Key: TypeAlias = tuple[int, frozenset[tuple[int, object]]]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A live delete file. `referenced` is its data file, if it is for one data file only.

    A deletion vector is `length` bytes of its file from `offset` on. An equality delete is hidden if the manifests
    say that no row of the data file can match: engines that use the manifests' bounds never open it.
    """

    location: str
    size: int
    record_count: int
    content: FileContent
    sequence_number: int
    equality_ids: tuple[int, ...] = ()
    referenced: str | None = None
    is_vector: bool = False
    offset: int | None = None
    length: int | None = None
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class ScanFile:
    """A live data file, and the delete files that apply to it.

    `constants` has the values of identity partitions by column id. `record_count`, `sha256`, and the offset
    `first_split` come from the table or from a list of files, and are compared with the bytes when the file is read.
    """

    location: str
    size: int
    record_count: int | None
    constants: IdMap[Value] = field(default_factory=IdMap)
    deletes: tuple[DeleteFile, ...] = ()
    sha256: str | None = None
    first_split: int = 0


def to_delete_file(entry: ManifestEntry) -> DeleteFile:
    """The delete file that a manifest's entry lists."""
    file = entry.data_file
    if not entry.sequence_number:
        got, expected = f"none, or 0, for {file.file_path}"[:400], "a data sequence number from 1 on"
        raise Code.DELETES_REFUSED(reason="delete_sequence_missing", expected=expected, got=got)
    return DeleteFile(
        location=file.file_path,
        size=file.file_size_in_bytes,
        record_count=file.record_count,
        content=file.content,
        sequence_number=entry.sequence_number,
        equality_ids=tuple(sorted(set(file.equality_ids or ()))),
        referenced=_referenced(file),
        is_vector=file.is_deletion_vector,
        offset=file.content_offset,
        length=file.content_size_in_bytes,
    )


class DeleteIndex:
    """The delete files of a snapshot by the data file that they may apply to."""

    def __init__(self, slots: Slots | None = None) -> None:
        """`slots` are the table's columns at any depth, by id."""
        self._slots: Slots = slots or {}
        self._metrics: dict[DeleteFile, DataFile] = {}
        self._everywhere: list[DeleteFile] = []
        self._by_path: defaultdict[str, list[DeleteFile]] = defaultdict(list)
        self._by_partition: defaultdict[_Key, list[DeleteFile]] = defaultdict(list)
        self._vectors: dict[str, tuple[DeleteFile, _Key]] = {}

    @property
    def vectors(self) -> dict[str, DeleteFile]:
        """The deletion vectors by the data files that they are for."""
        return {location: file for location, (file, _) in self._vectors.items()}

    def add(self, entry: ManifestEntry, spec: PartitionSpec) -> None:
        """Add a delete file. Equality deletes of an unpartitioned spec apply to every file."""
        file, key = to_delete_file(entry), (spec.spec_id, tuple_key(entry.data_file.partition))
        if file.content is FileContent.EQUALITY_DELETES:
            self._metrics[file] = entry.data_file
        if file.is_vector:
            location = file.referenced or ""
            if location in self._vectors:
                raise Code.DELETES_REFUSED(reason="deletion_vector_twice", expected="one at most", got=location[:400])
            self._vectors[location] = file, key
        elif file.content is FileContent.EQUALITY_DELETES and spec.is_unpartitioned:
            self._everywhere.append(file)
        elif file.referenced is not None:
            self._by_path[file.referenced].append(file)
        else:
            self._by_partition[key].append(file)

    def find_for(self, entry: ManifestEntry, spec_id: int) -> tuple[DeleteFile, ...]:
        """The delete files that apply to the data file with this entry."""
        data, sequence_number = entry.data_file, entry.sequence_number or 0
        key = (spec_id, tuple_key(data.partition))
        candidates = (*self._everywhere, *self._by_partition.get(key, ()), *self._by_path.get(data.file_path, ()))
        found = tuple(self._mark_hidden(each, data) for each in candidates if _applies(each, sequence_number))
        vector, vector_key = self._vectors.get(data.file_path, (None, key))
        if vector is None:
            return found
        if vector_key != key or not _applies(vector, sequence_number):
            expected = f"the data file's partition, and a sequence number from {sequence_number} on"
            got = f"sequence number {vector.sequence_number} in {vector.location}"[:400]
            raise Code.DELETES_REFUSED(reason="deletion_vector_misfiled", expected=expected, got=got)
        return (*found, vector)

    def _mark_hidden(self, file: DeleteFile, data: DataFile) -> DeleteFile:
        """The delete file. It is hidden if engines that use manifest bounds do not apply it to this data file."""
        metrics = self._metrics.get(file)
        if metrics is None or not may_be_left_out(file.equality_ids, self._slots, data, metrics):
            return file
        return replace(file, is_hidden=True)


def _applies(delete: DeleteFile, sequence_number: int) -> bool:
    """Whether a delete applies: by equality to older files only, by position also to files of the same commit."""
    if delete.content is FileContent.EQUALITY_DELETES:
        return sequence_number < delete.sequence_number
    return sequence_number <= delete.sequence_number


def _referenced(file: DataFile) -> str | None:
    """The only data file of a position delete file: the listed one, or the path in both bounds of the path column."""
    if file.content is not FileContent.POSITION_DELETES:
        return None
    if file.referenced_data_file is not None:
        return file.referenced_data_file
    path = (file.lower_bounds or IdMap()).get(FILE_PATH_ID)
    if path is None or path != (file.upper_bounds or IdMap()).get(FILE_PATH_ID):
        return None
    try:
        return path.decode()
    except UnicodeDecodeError:
        raise Code.DELETES_REFUSED(reason="delete_path_invalid", got=file.file_path) from None


Slots = Mapping[int, Field | Inner]
_UUID: Final = PrimitiveType(Kind.UUID)


def slots_of(schemas: Sequence[Schema]) -> dict[int, Field | Inner]:
    """Every column at any depth by id, from the first schema that has it."""
    found: dict[int, Field | Inner] = {}
    for schema in schemas:
        for _, slot in schema.walk():
            if slot.field_id is not None:
                found.setdefault(slot.field_id, slot)
    return found


def may_be_left_out(ids: Sequence[int], slots: Slots, data: DataFile, deletes: DataFile) -> bool:
    """Whether engines may leave the delete file out for this data file, because the metrics of both exclude a match.

    Spark and Trino use bounds and counts of both entries before they open a delete file. With wrong bounds or
    counts they show deleted rows.
    """
    return any(_excludes_match(field_id, slots[field_id], data, deletes) for field_id in ids if field_id in slots)


def _excludes_match(field_id: int, slot: Field | Inner, data: DataFile, deletes: DataFile) -> bool:
    """Whether the metrics of this column say that no row of the data file can equal a key."""
    data_null, deletes_null = (_may_have_null(field_id, slot, file) for file in (data, deletes))
    if data_null and deletes_null:
        return False
    if _is_all_null(field_id, slot, data) and not deletes_null:
        return True
    if _is_all_null(field_id, slot, deletes) and not data_null:
        return True
    return _bounds_are_disjoint(field_id, slot.type, data, deletes)


def _may_have_null(field_id: int, slot: Field | Inner, file: DataFile) -> bool:
    return not slot.required and (file.null_value_counts is None or file.null_value_counts.get(field_id, 1) > 0)


def _is_all_null(field_id: int, slot: Field | Inner, file: DataFile) -> bool:
    if slot.required or file.null_value_counts is None or file.value_counts is None:
        return False
    nulls = file.null_value_counts.get(field_id)
    return nulls is not None and nulls == file.value_counts.get(field_id)


def _bounds_are_disjoint(field_id: int, type_: Type, data: DataFile, deletes: DataFile) -> bool:
    bounds = [
        None if each is None else each.get(field_id)
        for each in (data.lower_bounds, data.upper_bounds, deletes.lower_bounds, deletes.upper_bounds)
    ]
    if None in bounds:
        return False
    if type_ == _UUID:
        return True  # some versions of Iceberg compare UUIDs as signed, others as unsigned
    try:
        data_low, data_high, deletes_low, deletes_high = (decode_promoted(type_, bound or b"") for bound in bounds)
        return compare(type_, data_low, deletes_high) > 0 or compare(type_, deletes_low, data_high) > 0
    except InputError:
        return True  # not a value of the type, or NaN: engines may differ
