"""The source's files that a chunk reads, and the hash that binds a planned chunk to the bytes of these files.

A plan omits rows that planning does not find in the source's files. So a chunk is verified only if the listing of the
source, and the bytes of the files that the chunk reads, are those that the plan was made from.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from pvdm.errors import Code
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.resolve import arrow_type, pc
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.filter.bind import bind
from pvdm.model.filter.expression import Always, And, Expression, Or, columns_of
from pvdm.model.schema import Schema
from pvdm.verify.fetch import HashedFile, root_of
from pvdm.verify.filtering import compute_mask
from pvdm.verify.source import PinnedSource

FILE_HASH_BYTES: Final = 32
_FILE_DOMAIN: Final = b"pvdm/planned-file/v1\0"
_SOURCE_DOMAIN: Final = b"pvdm/planned-source/v1\0"


def chunk_filter(where: Expression, own: Expression, schema: Schema) -> Expression:
    """The contract's bound filter `where` and a chunk's `own` filter, as one bound filter over the source."""
    own = bind(own, schema, {})
    if isinstance(own, Always):
        return where
    return own if isinstance(where, Always) else And((where, own))


def files_of_chunk(bound: BoundContract, source: PinnedSource, chunk: ChunkDefinition) -> tuple[ScanFile, ...]:
    """The source's files that may have rows of the chunk."""
    schema = source.scan.schema
    files = source.scan.files if chunk.files is None else _find_files(source, chunk.files)
    chosen = FilePruning(schema, files).find(chunk_filter(bound.where(schema), chunk.expression, schema))
    return tuple(files[index] for index in chosen)


class FilePruning:
    """Finds the files that may have rows for which a filter is true.

    A file is left out only if the values of its identity partitions rule it out. All rows of the file have these values
    in the partition columns; the reader of a file raises if a row does not.
    """

    def __init__(self, schema: Schema, files: Sequence[ScanFile]) -> None:
        self._unpartitioned: list[int] = []
        self._groups: list[tuple[Any, pa.RecordBatch]] = []  # the indices of files, and their partition values
        groups: dict[frozenset[int], list[int]] = {}
        for index, file in enumerate(files):
            groups.setdefault(frozenset(file.constants), []).append(index)  # `constants`: by column id
        for ids, group in groups.items():
            fields = [field for field in schema.fields if field.field_id in ids]
            if not fields:
                self._unpartitioned += group
                continue
            arrays: list[Any] = []
            for field in fields:
                values = [files[index].constants[field.field_id] for index in group if field.field_id is not None]
                array_type: Any = arrow_type(field.type)
                # Arrow gets UUIDs as bytes.
                arrays.append(pa.array([getattr(value, "bytes", value) for value in values], array_type))
            batch = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
            self._groups.append((pa.array(group), batch))

    def find(self, where: Expression) -> list[int]:
        """The indices of the files, in order. The filter is bound."""
        chosen = list(self._unpartitioned)
        for indices, batch in self._groups:
            chosen += indices.filter(_may_match(batch, where)).to_pylist()
        return sorted(chosen)


def hash_file(listing_sha256: str, fetched: Iterable[HashedFile]) -> bytes:
    """The hash of a data file and its delete files, as they were read under this listing of the source."""
    return hashlib.sha256(_FILE_DOMAIN + bytes.fromhex(listing_sha256) + bytes.fromhex(root_of(fetched))).digest()


def hash_source(listing_sha256: str, file_hashes: Iterable[bytes]) -> str:
    """The hash that binds a chunk to the source's listing and to the files of these hashes, in the scan's order."""
    return hashlib.sha256(_SOURCE_DOMAIN + bytes.fromhex(listing_sha256) + b"".join(file_hashes)).hexdigest()


def _find_files(source: PinnedSource, locations: Sequence[str]) -> tuple[ScanFile, ...]:
    files = {file.location: file for file in source.scan.files}
    for location in locations:
        if location not in files:
            raise Code.CHUNK_FILE_UNKNOWN(got=ascii(location[:200]))
    return tuple(files[location] for location in locations)


def _may_match(partitions: pa.RecordBatch, where: Expression) -> Any:
    """For each file (a row of `partitions`): whether the filter can be true for one of its rows.

    A part of the filter that uses another column counts as true.
    """
    if set(columns_of(where)) <= set(partitions.schema.names):
        return pc.fill_null(compute_mask(partitions, where), False)
    match where:
        case And(parts):
            return functools.reduce(pc.and_, (_may_match(partitions, part) for part in parts))
        case Or(parts):
            return functools.reduce(pc.or_, (_may_match(partitions, part) for part in parts))
        case _:
            return compute_mask(partitions, Always())
