"""Which delete files apply to which data files: sequence numbers, partitions and named files, as Iceberg has it."""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pvdm.errors import Code, InputError
from pvdm.lake.format.manifest.entry import DataFile, FileContent, IdMap, ManifestEntry
from pvdm.lake.format.partition.spec import PartitionSpec
from pvdm.lake.format.schema.single_value import Value
from pvdm.lake.read.hidden_deletes import Metrics, Slots, may_be_left_out

FILE_PATH_ID: Final = 2_147_483_546
POSITION_ID: Final = 2_147_483_545
ROW_ID: Final = 2_147_483_544

_Key: TypeAlias = tuple[int, frozenset[tuple[int, object]]]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A live delete file; `referenced` is the one data file that it is for, where it is for one only.

    A deletion vector is a part of its file: `length` bytes from `offset` on. `hidden` are equality deletes that some
    engines do not apply to the data file, since manifests say that none of its rows can match.
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


def delete_file(entry: ManifestEntry) -> DeleteFile:
    """The delete file that a manifest's entry lists."""
    file = entry.data_file
    if not entry.sequence_number:
        raise _refused(
            Code.DELETE_SEQUENCE_MISSING,
            "a delete file has no sequence number, so that Iceberg's own index passes over it",
            "a data sequence number from 1 on",
            f"none, or 0, for {file.file_path}",
        )
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
    """The delete files of a snapshot, found by the data file that they may apply to."""

    def __init__(self, slots: Slots | None = None) -> None:
        """`slots` are the table's columns by id."""
        self._slots: Slots = slots or {}
        self._metrics: dict[DeleteFile, Metrics] = {}
        self._everywhere: list[DeleteFile] = []
        self._by_path: defaultdict[str, list[DeleteFile]] = defaultdict(list)
        self._by_partition: defaultdict[_Key, list[DeleteFile]] = defaultdict(list)
        self._vectors: dict[str, tuple[DeleteFile, _Key]] = {}

    @property
    def vectors(self) -> dict[str, DeleteFile]:
        """The deletion vectors by the data files that they are for."""
        return {location: file for location, (file, _) in self._vectors.items()}

    def add(
        self, file: DeleteFile, spec: PartitionSpec, partition: IdMap[Value], metrics: Metrics | None = None
    ) -> None:
        """Equality deletes of an unpartitioned spec are for every file; all others for a partition or for one file."""
        if metrics is not None and file.content is FileContent.EQUALITY_DELETES:
            self._metrics[file] = metrics
        if file.vector:
            self._add_vector(file, _key(spec.spec_id, partition))
        elif file.content is FileContent.EQUALITY_DELETES and _is_unpartitioned(spec):
            self._everywhere.append(file)
        elif file.referenced is not None:
            self._by_path[file.referenced].append(file)
        else:
            self._by_partition[_key(spec.spec_id, partition)].append(file)

    def of(
        self,
        location: str,
        sequence_number: int,
        spec_id: int,
        partition: IdMap[Value],
        metrics: Metrics | None = None,
    ) -> tuple[DeleteFile, ...]:
        """The delete files that apply to a data file, of which its entry says this."""
        key = _key(spec_id, partition)
        candidates = (*self._everywhere, *self._by_partition.get(key, ()), *self._by_path.get(location, ()))
        found = tuple(self._marked(each, metrics) for each in candidates if _applies(each, sequence_number))
        vector, filed = self._vectors.get(location, (None, key))
        if vector is None:
            return found
        if filed != key or not _applies(vector, sequence_number):
            raise _refused(
                "deletion_vector_misfiled",
                "a deletion vector is older than its data file, or lies in another partition",
                f"the data file's partition, and a sequence number from {sequence_number} on",
                f"sequence number {vector.sequence_number} in {vector.location}",
            )
        return (*found, vector)

    def _marked(self, file: DeleteFile, data: Metrics | None) -> DeleteFile:
        """The file, marked as hidden where engines that believe the manifests do not apply it."""
        own = self._metrics.get(file)
        if own is None or data is None or not may_be_left_out(file.equality_ids, self._slots, data, own):
            return file
        return replace(file, hidden=True)

    def _add_vector(self, file: DeleteFile, key: _Key) -> None:
        location = file.referenced or ""
        if location in self._vectors:
            raise _refused("deletion_vector_twice", "a data file has two deletion vectors", "one at most", location)
        self._vectors[location] = file, key


def _refused(code: str, message: str, expected: str, got: str) -> InputError:
    return InputError(code, message, expected=expected, got=got[:400])


def _applies(delete: DeleteFile, sequence_number: int) -> bool:
    """Rows by their values only from older files; rows by their place also from files of the same commit."""
    if delete.content is FileContent.EQUALITY_DELETES:
        return sequence_number < delete.sequence_number
    return sequence_number <= delete.sequence_number


def _referenced(file: DataFile) -> str | None:
    """The named data file, or the one path that both bounds of the path column give."""
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


def _is_unpartitioned(spec: PartitionSpec) -> bool:
    return all(field.transform.name == "void" for field in spec.fields)


def _key(spec_id: int, partition: IdMap[Value]) -> _Key:
    return spec_id, frozenset((field_id, _comparable(value)) for field_id, value in partition.items())


def _comparable(value: Value) -> object:
    """NaN is itself, and negative zero is not zero, as Java compares them."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    return value
