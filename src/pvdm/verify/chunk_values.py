"""Reads the values of the source's rows that decide a plan, file by file, so that planning can go on after any file."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.resolve import arrow_type, pc
from pvdm.model.chunk import require_chunks, require_value_size, require_values_size
from pvdm.model.contract import BoundContract, Chunking, ChunkingBy
from pvdm.model.filter import expression as ex
from pvdm.model.filter.bind import bind, column_type
from pvdm.model.schema import Kind, PrimitiveType, Schema, Type
from pvdm.verify.fetch import Fetcher
from pvdm.verify.filtering import decode_and_cast, filter_rows
from pvdm.verify.source import PinnedSource

_HAS_LENGTHS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def reads_rows(chunking: Chunking) -> bool:
    """Whether a plan depends on the source's rows."""
    return chunking.by in {ChunkingBy.PARTITION, ChunkingBy.RANGE}


class ChunkValues:
    """Finds the distinct values of the chunking columns in the filtered rows of one file or several.

    The result is a table with one column for each chunking column. Its names are positions, since Arrow reads some
    names as paths. For chunking by range, only a null is found, because the ranges do not depend on the rows.
    """

    def __init__(self, bound: BoundContract, source: PinnedSource) -> None:
        schema = source.scan.schema
        self._chunking, self._most = bound.contract.chunking, bound.contract.limits.chunks
        self._columns = _columns_of(self._chunking)
        self._kinds = [column_type(schema, column) for column in self._columns]
        self._where = bound.where(schema)
        self._source = source.select({*self._columns, *ex.columns_of(self._where)})

    @property
    def files(self) -> Sequence[ScanFile]:
        """The source's files, always in the same order."""
        return self._source.scan.files

    @property
    def none(self) -> pa.Table:
        """The values of no file."""
        types: list[Any] = [arrow_type(kind) for kind in self._kinds]
        return pa.schema([(str(at), kind) for at, kind in enumerate(types)]).empty_table()

    def read(self, file: ScanFile, fetch: Fetcher) -> Iterator[pa.Table]:
        """The values in one file, batch by batch, since the values of a whole file may not fit into memory."""
        for batch in self._source.batches(file, fetch):
            rows = filter_rows(batch, self._where)
            arrays = [decode_and_cast(rows, *each) for each in zip(self._columns, self._kinds, strict=True)]
            yield self.join([pa.Table.from_arrays(arrays, schema=self.none.schema)])

    def join(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The distinct values in all of these tables. Raises if there are more values than a plan can have."""
        found = self._find_distinct(pa.concat_tables(tables))
        require_values_size(found.nbytes)
        return found

    def _find_distinct(self, together: pa.Table) -> pa.Table:
        if self._chunking.by is ChunkingBy.RANGE:
            return together.filter(pc.is_null(together.column(0))).slice(0, 1)
        # Checked before the grouping, which copies the values.
        require_value_size(max(map(_longest_value, together.columns)))
        distinct = together.group_by(together.column_names).aggregate([])
        # Twice the limit: different NaNs, and the two zeros, count apart here. `plan_chunks` checks the exact limit.
        if distinct.num_rows > 2 * self._most + 16:
            require_chunks(distinct.num_rows, self._most)
        return distinct


class FoundValues:
    """The values found so far, to which several threads add. `add` raises if a plan cannot have so many values."""

    def __init__(self, values: ChunkValues, table: pa.Table) -> None:
        self._values = values
        self._lock = threading.Lock()
        self.table = table

    def add(self, tables: Iterator[pa.Table]) -> None:
        """Add the values of each of these tables."""
        for table in tables:
            with self._lock:
                self.table = self._values.join([self.table, table])


def list_combinations(
    chunking: Chunking, schema: Schema, values: pa.Table
) -> Iterator[tuple[ex.LiteralValue | None, ...]]:
    """Each combination of values in the form of literals."""
    kinds = [column_type(schema, column) for column in _columns_of(chunking)]
    columns = [_as_numbers(column, kind) for column, kind in zip(values.columns, kinds, strict=True)]
    for row in zip(*(each.to_pylist() for each in columns), strict=True):
        yield tuple(
            UUID(bytes=value) if value is not None and kind == PrimitiveType(Kind.UUID) else value
            for value, kind in zip(row, kinds, strict=True)
        )


def has_rows(chunking: Chunking, schema: Schema, values: pa.Table, chunk: ex.Expression) -> bool:
    """Whether a chunk's filter is true for some of the values, by the code that filters rows for verification."""
    named = values.rename_columns(list(_columns_of(chunking)))
    where = bind(chunk, schema, {})
    return any(filter_rows(batch, where).num_rows for batch in named.to_batches())


def _columns_of(chunking: Chunking) -> tuple[str, ...]:
    return (str(chunking.column),) if chunking.by is ChunkingBy.RANGE else chunking.columns


def _longest_value(column: Any) -> int:
    """The bytes of the column's longest value; 0 for numbers, dates and times."""
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    if not any(check(kind) for check in _HAS_LENGTHS):
        return 0
    return pc.max(pc.binary_length(column)).as_py() or 0


def _as_numbers(column: Any, kind: Type) -> Any:
    """The column, with dates and times as numbers, since Python's dates end at the year 9999."""
    array_type: Any = arrow_type(kind)
    if pa.types.is_date32(array_type):
        return column.cast(pa.int32())
    if pa.types.is_temporal(array_type):
        return column.cast(pa.int64())
    return column
