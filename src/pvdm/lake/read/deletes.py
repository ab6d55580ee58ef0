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

FILE_PATH_ID: Final = 2_147_483_546
POSITION_ID: Final = 2_147_483_545
ROW_ID: Final = 2_147_483_544

_Key: TypeAlias = tuple[int, frozenset[tuple[int, object]]]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A live delete file. `referenced` is its data file if it is for one only.

    A deletion vector is `length` bytes of its file from `offset` on. An equality delete is `hidden` from engines that
    do not apply it to the data file, since the manifests say that none of its rows can match.
    """

    location: str
    size: int
    record_count: int
    content: FileContent
    sequence_number: int
    equality_ids: tuple[int, ...] = ()
    referenced: str | None = None
    vector: bool = False
    offset: int | None = None
    length: int | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class ScanFile:
    """A live data file, and the delete files that apply to it.

    `constants` has the values of identity partitions by column id. `record_count`, `sha256` and `first_split` are what
    the table or a manifest of files says; they are compared with the bytes when the file is read.
    """

    location: str
    size: int
    record_count: int | None
    constants: IdMap[Value] = field(default_factory=IdMap)
    deletes: tuple[DeleteFile, ...] = ()
    sha256: str | None = None
    first_split: int = 0


def delete_file(entry: ManifestEntry) -> DeleteFile:
    """The delete file that a manifest's entry lists."""
    file = entry.data_file
    if not entry.sequence_number:
        got = f"none, or 0, for {file.file_path}"[:400]
        raise Code.DELETE_SEQUENCE_MISSING(expected="a data sequence number from 1 on", got=got)
    return DeleteFile(
        location=file.file_path,
        size=file.file_size_in_bytes,
        record_count=file.record_count,
        content=file.content,
        sequence_number=entry.sequence_number,
        equality_ids=tuple(sorted(set(file.equality_ids or ()))),
        referenced=_referenced(file),
        vector=file.is_deletion_vector,
        offset=file.content_offset,
        length=file.content_size_in_bytes,
    )


class DeleteIndex:
    """The delete files of a snapshot by the data file that they may apply to."""

    def __init__(self, slots: Slots | None = None) -> None:
        """`slots` are the table's columns by id."""
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

    def add(
        self, file: DeleteFile, spec: PartitionSpec, partition: IdMap[Value], metrics: DataFile | None = None
    ) -> None:
        """Add a delete file. Equality deletes of an unpartitioned spec apply to every file."""
        if metrics is not None and file.content is FileContent.EQUALITY_DELETES:
            self._metrics[file] = metrics
        if file.vector:
            self._add_vector(file, (spec.spec_id, tuple_key(partition)))
        elif file.content is FileContent.EQUALITY_DELETES and spec.is_unpartitioned:
            self._everywhere.append(file)
        elif file.referenced is not None:
            self._by_path[file.referenced].append(file)
        else:
            self._by_partition[(spec.spec_id, tuple_key(partition))].append(file)

    def of(
        self,
        location: str,
        sequence_number: int,
        spec_id: int,
        partition: IdMap[Value],
        metrics: DataFile | None = None,
    ) -> tuple[DeleteFile, ...]:
        """The delete files that apply to the data file with this entry."""
        key = (spec_id, tuple_key(partition))
        candidates = (*self._everywhere, *self._by_partition.get(key, ()), *self._by_path.get(location, ()))
        found = tuple(self._marked(each, metrics) for each in candidates if _applies(each, sequence_number))
        vector, filed = self._vectors.get(location, (None, key))
        if vector is None:
            return found
        if filed != key or not _applies(vector, sequence_number):
            expected = f"the data file's partition, and a sequence number from {sequence_number} on"
            got = f"sequence number {vector.sequence_number} in {vector.location}"[:400]
            raise Code.DELETION_VECTOR_REFUSED(reason="deletion_vector_misfiled", expected=expected, got=got)
        return (*found, vector)

    def _marked(self, file: DeleteFile, data: DataFile | None) -> DeleteFile:
        """The file, marked as hidden if engines that use the bounds in manifests do not apply it."""
        own = self._metrics.get(file)
        if own is None or data is None or not may_be_left_out(file.equality_ids, self._slots, data, own):
            return file
        return replace(file, hidden=True)

    def _add_vector(self, file: DeleteFile, key: _Key) -> None:
        location = file.referenced or ""
        if location in self._vectors:
            got = location[:400]
            raise Code.DELETION_VECTOR_REFUSED(reason="deletion_vector_twice", expected="one at most", got=got)
        self._vectors[location] = file, key


def _applies(delete: DeleteFile, sequence_number: int) -> bool:
    """Whether a delete applies: equality deletes to older files only, positions also to files of the same commit."""
    if delete.content is FileContent.EQUALITY_DELETES:
        return sequence_number < delete.sequence_number
    return sequence_number <= delete.sequence_number


def _referenced(file: DataFile) -> str | None:
    """The referenced data file, or the path that both bounds of the path column have."""
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
        raise Code.DELETE_PATH_INVALID(got=file.file_path) from None


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
    """Whether Iceberg's index may leave the delete file out for this data file, because their metrics exclude a match.

    Spark and Trino use bounds and counts of both entries before they open a delete file. If these are wrong, they show
    rows that are deleted.
    """
    return any(_differs(field_id, slots[field_id], data, deletes) for field_id in ids if field_id in slots)


def _differs(field_id: int, slot: Field | Inner, data: DataFile, deletes: DataFile) -> bool:
    if _may_have_null(field_id, slot, data) and _may_have_null(field_id, slot, deletes):
        return False
    for one, other in ((data, deletes), (deletes, data)):
        if _is_all_null(field_id, slot, one) and not _may_have_null(field_id, slot, other):
            return True
    return _lie_apart(field_id, slot.type, data, deletes)


def _may_have_null(field_id: int, slot: Field | Inner, file: DataFile) -> bool:
    return not slot.required and (file.null_value_counts is None or file.null_value_counts.get(field_id, 1) > 0)


def _is_all_null(field_id: int, slot: Field | Inner, file: DataFile) -> bool:
    if slot.required or file.null_value_counts is None or file.value_counts is None:
        return False
    nulls = file.null_value_counts.get(field_id)
    return nulls is not None and nulls == file.value_counts.get(field_id)


def _lie_apart(field_id: int, kind: Type, data: DataFile, deletes: DataFile) -> bool:
    ends = [
        None if each is None else each.get(field_id)
        for file in (data, deletes)
        for each in (file.lower_bounds, file.upper_bounds)
    ]
    if any(end is None for end in ends):
        return False
    if kind == _UUID:
        return True  # Iceberg's versions compare them as signed or as unsigned
    try:
        lower, upper, first, last = (decode_promoted(kind, end or b"") for end in ends)
        return compare(kind, lower, last) > 0 or compare(kind, first, upper) > 0
    except InputError:
        return True  # not a value of the type, or NaN: engines may differ
