"""Chunk plans and claims of a workload, from its bound contract and the pinned source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa

from pvdm.lake.format.schema.logical import type_to_iceberg
from pvdm.lake.read.resolve import arrow_type
from pvdm.model.chunk import ChunkPlan, require_chunks
from pvdm.model.contract import BoundContract, ChunkingBy
from pvdm.model.filter.bind import column_type, require_simple
from pvdm.model.filter.claim import Claim
from pvdm.model.filter.claim_filter import read_claim
from pvdm.model.filter.expression import Expression, Literal, LiteralValue, Typed, columns_of
from pvdm.model.schema import Kind, PrimitiveType, Schema, Type
from pvdm.verify.chunks import SourceFile, plan_chunks
from pvdm.verify.filtering import kept, plain_column
from pvdm.verify.source import PinnedSource


def plan_workload(bound: BoundContract, source: PinnedSource, fetch: Callable[[str], bytes]) -> ChunkPlan:
    """The chunks of the filtered source; for chunking by partition its rows are read once for their values."""
    contract = bound.contract
    chunking, most = contract.chunking, contract.limits.chunks
    schema = source.scan.schema
    where = bound.where(schema)
    values: Iterator[tuple[LiteralValue | None, ...]] = iter(())
    if chunking.by is ChunkingBy.PARTITION:
        values = _values(chunking.columns, where, source, fetch, most)
    files = [SourceFile(each.location, each.size) for each in source.scan.files]
    return plan_chunks(chunking, schema, values=values, files=files, most=most)


def _values(
    columns: tuple[str, ...], where: Expression, source: PinnedSource, fetch: Callable[[str], bytes], most: int
) -> Iterator[tuple[LiteralValue | None, ...]]:
    """Each combination of the columns' values in the filtered rows, once a file; Arrow finds them."""
    kinds = [column_type(source.scan.schema, column) for column in columns]
    for column, kind in zip(columns, kinds, strict=True):
        require_simple(column, kind)
    narrow = source.reading({*columns, *columns_of(where)})
    for file in narrow.scan.files:
        found = _Distinct(columns, kinds, most)
        for batch in narrow.batches(file, fetch):
            found.add(kept(batch, where))
        yield from found.values()


class _Distinct:
    """Combinations of values seen so far; as many as a plan may have, and no more are kept."""

    def __init__(self, columns: tuple[str, ...], kinds: list[Type], most: int) -> None:
        self._columns, self._kinds, self._most = columns, kinds, most
        self._seen: pa.Table | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""
        arrays = [_counted(batch, *each) for each in zip(self._columns, self._kinds, strict=True)]
        names = [str(at) for at in range(len(arrays))]
        table = pa.Table.from_arrays(arrays, names=names)
        if self._seen is not None:
            table = pa.concat_tables([self._seen, table])
        self._seen = table.group_by(names).aggregate([])
        # NaN of several bit patterns and both zeros count apart here, so the plan's own limit is the exact one.
        if self._seen.num_rows > 2 * self._most + 16:
            require_chunks(self._seen.num_rows, self._most)

    def values(self) -> Iterator[tuple[LiteralValue | None, ...]]:
        """The combinations as literals have them."""
        if self._seen is None:
            return
        columns = [column.to_pylist() for column in self._seen.columns]
        for row in zip(*columns, strict=True):
            yield tuple(_literal(value, kind) for value, kind in zip(row, self._kinds, strict=True))


def _counted(batch: pa.RecordBatch, column: str, kind: Type) -> Any:
    """The column as numbers where its literals are: Arrow would make dates of them, within the years that it knows."""
    array = plain_column(batch, column, kind)
    wanted: Any = arrow_type(kind)
    if pa.types.is_date32(wanted):
        return array.view(pa.int32())
    if pa.types.is_temporal(wanted):
        return array.view(pa.int64())
    return array


def _literal(value: Any, kind: Type) -> LiteralValue | None:
    if value is not None and kind == PrimitiveType(Kind.UUID):
        return UUID(bytes=value)
    found: LiteralValue | None = value
    return found


def claim_of(bound: BoundContract, source_schema: Schema) -> Claim:
    """What the workload may publish at most, read off its filter; never less than it publishes."""
    column = bound.contract.boundary.claim
    if column is None:
        return Claim.everything()
    kind = type_to_iceberg(column_type(source_schema, column))
    return read_claim(bound.where(source_schema), column, kind, _value)


def _value(literal: Literal) -> LiteralValue:
    if not isinstance(literal, Typed):
        raise AssertionError("a bound filter has typed literals")
    return literal.value
