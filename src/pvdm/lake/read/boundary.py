"""The live files that an operation replaces, and whether a file lies inside the partition that a workload stays in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pvdm.errors import Code
from pvdm.lake.format.manifest.entry import DataFile, ManifestContent
from pvdm.lake.format.partition.value import tuple_key, value_key
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import FileReader, header_of, listed_manifests, read_listed
from pvdm.model.filter.literal import parse_literal
from pvdm.model.schema import Type
from pvdm.model.statements.core import Operation

_Partition = Sequence[tuple[str, str | None]]


def boundary_files(
    metadata: TableMetadata,
    base_id: int | None,
    operation: Operation,
    partition: _Partition,
    added: Sequence[DataFile],
    reader: FileReader,
) -> frozenset[str]:
    """The live data files of the base that the operation replaces, by their paths as the base spells them."""
    if operation is Operation.APPEND or base_id is None:
        return frozenset()
    live = _live(metadata, base_id, reader)
    if operation is Operation.OVERWRITE:
        found = live
    elif partition:
        declared = _declared(metadata, partition)
        found = ((spec_id, file) for spec_id, file in live if _has(declared, file))
    else:
        found = _of_same_partitions(metadata, live, added)
    return frozenset(file.file_path for _, file in found)


def inside(metadata: TableMetadata, partition: _Partition, file: DataFile) -> bool:
    """Whether a file of the table's own spec has the declared partition values; where none is declared all have."""
    declared = _declared(metadata, partition)
    return all(value_key(file.partition[field_id]) == key for field_id, key in declared.items())


def _of_same_partitions(
    metadata: TableMetadata, live: Iterator[tuple[int, DataFile]], added: Sequence[DataFile]
) -> Iterator[tuple[int, DataFile]]:
    """As Spark's overwritePartitions does it: files of other specs stay."""
    spec = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA).spec
    keys = {tuple_key(file.partition) for file in added}
    # A table without partitions is one partition, whatever its older files were filed under.
    single = all(field.transform.name == "void" for field in spec.fields) and bool(added)
    for spec_id, file in live:
        if single or (spec_id == spec.spec_id and tuple_key(file.partition) in keys):
            yield spec_id, file


def _has(declared: Mapping[int, Any], file: DataFile) -> bool:
    missing = declared.keys() - file.partition.keys()
    if missing:
        raise Code.BOUNDARY_UNCLEAR(expected=f"live files partitioned by field {min(missing)}", got=file.file_path)
    return all(value_key(file.partition[field_id]) == key for field_id, key in declared.items())


def partition_types(metadata: TableMetadata, names: Iterable[str]) -> dict[str, tuple[int, Type]]:
    """Id and type of the partition fields that a contract declares values of; what is none of the table is refused.

    A field is named as the spec names it, or by the column that it copies.
    """
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
    known: dict[str, tuple[int, Type]] = {}
    for field, kind in zip(header.spec.fields, header.partition_types(), strict=True):
        if kind is None:
            continue
        if field.transform.name == "identity" and len(field.source_ids) == 1:
            column = metadata.current_schema.fields.get(field.source_ids[0])
            known[column.name if column else field.name] = field.field_id, kind
        known[field.name] = field.field_id, kind
    for name in names:
        if name not in known:
            raise Code.PARTITION_UNKNOWN(
                expected=", ".join(known) or "no partition",
                got=ascii(name[:80])[1:-1],
                hint="boundary.partition of the contract names fields of the target's partition spec",
            )
    return {name: known[name] for name in names}


def _declared(metadata: TableMetadata, partition: _Partition) -> dict[int, Any]:
    """The declared values by partition field."""
    types = partition_types(metadata, [name for name, _ in partition])
    return {
        types[name][0]: value_key(None if text is None else parse_literal(text, types[name][1]))
        for name, text in partition
    }


def _live(metadata: TableMetadata, base_id: int, reader: FileReader) -> Iterator[tuple[int, DataFile]]:
    base = metadata.snapshot(base_id)
    if base is None:
        raise Code.SNAPSHOT_UNKNOWN("the table has no such snapshot", got=str(base_id))
    for listed in listed_manifests(metadata, base, reader):
        if listed.content is ManifestContent.DATA:
            for entry in read_listed(metadata, listed, reader).entries:
                if entry.is_live:
                    yield listed.partition_spec_id, entry.data_file
