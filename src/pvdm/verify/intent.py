"""The intended rows of a chunk: the pinned source through the contract's filter and mapping, and their digests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from pvdm.digest import Digester, Keys, Partial, Plan, combine_each, kernel_engine
from pvdm.errors import Code
from pvdm.lake.format.schema.logical import type_to_iceberg
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.resolve import promote, repeat_value
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract, DataProductContract, MappedColumn, map_columns
from pvdm.model.filter.expression import columns_of
from pvdm.model.printable import quoted
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import ListType, MapType, Schema, StructType
from pvdm.verify.chunk_files import chunk_filter
from pvdm.verify.fetch import Fetcher
from pvdm.verify.filtering import filter_rows
from pvdm.verify.source import PinnedSource


def digest_plan(contract: DataProductContract, target: Schema) -> Plan:
    """The contract's identity and content projections over the target's schema."""
    declared = contract.projections
    return Plan(target, (identity(target, declared.identity), content(target, exclude=dict(declared.excluded))))


def require_mapping(contract: DataProductContract, source: Schema, plan: Plan) -> tuple[MappedColumn, ...]:
    """The contract's mapping over this source. It must fill every hashed column, and only columns of the target."""
    mapped = map_columns(contract.boundary.columns, source)
    filled = {each.target for each in mapped}
    hashed = {column for projection in plan.projections for column in projection.columns}
    missing, unknown = sorted(hashed - filled), sorted(filled - set(plan.schema.names))
    if missing or unknown:
        raise Code.MAPPING_INVALID(
            reason="mapping_target_differs",
            expected=f"a source for {missing[0]!a}" if missing else "columns of the target",
            got="none" if missing else ascii(unknown[0]),
            hint=_unfilled_hint(contract, missing[0]) if missing else _unknown_hint(contract, unknown[0], mapped),
            column=missing[0] if missing else unknown[0],
        )
    return mapped


def _unfilled_hint(contract: DataProductContract, column: str) -> str:
    source, target = contract.boundary.source.table or "the source", contract.boundary.target
    step = f"add the column to {source} first, then to {target} (docs/schema-changes.md)"
    if contract.boundary.columns is not None:
        name = quoted(column[:80])
        step = f"list {name} in boundary.columns of the contract, with the column of {source} that fills it"
    return f"{step}; or exclude it under projections.content.exclude with a reason"


def _unknown_hint(contract: DataProductContract, column: str, mapped: Sequence[MappedColumn]) -> str:
    name, target = quoted(column[:80]), contract.boundary.target
    if contract.boundary.columns is not None:
        return f"leave {name} out of boundary.columns, or add the column to {target} in the same migration"
    kind = next(each.type for each in mapped if each.target == column)
    is_nested = isinstance(kind, StructType | ListType | MapType)
    option = "--updates FILE" if is_nested else f"--add-column {name}:{type_to_iceberg(kind)}"
    return (
        f"without boundary.columns a contract takes every column of its source: an operator adds {name} to the target "
        f"(`pvdm migrate propose {target} {option}`), or lists boundary.columns without it"
    )


class IntentDigest:
    """The digests of an intent's rows. Each thread adds files with its own function (`file_adder`)."""

    def __init__(self, intent: Intent, plan: Plan, keys: Keys) -> None:
        self._intent = intent
        self._plan = plan
        self._keys = keys
        self._digesters: list[Digester] = []
        # The schema is checked even if a chunk has no files.
        self._add_digester().update(intent.empty())

    def file_adder(self, fetch: Fetcher) -> Callable[[ScanFile], None]:
        """A function that adds the rows of a file, for use in one thread."""
        digester = self._add_digester()

        def add(file: ScanFile) -> None:
            for batch in self._intent.rows(file, fetch):
                digester.update(batch)

        return add

    def partials(self) -> dict[ProjectionName, Partial]:
        """The digests of all rows that were added."""
        return combine_each([digester.partials() for digester in self._digesters])

    def _add_digester(self) -> Digester:
        self._digesters.append(Digester(self._plan, self._keys, engine=kernel_engine()))
        return self._digesters[-1]


class Intent:
    """The rows that one chunk should publish, with the target's mapped columns, or only the `columns` among them."""

    def __init__(
        self,
        bound: BoundContract,
        source: PinnedSource,
        chunk: ChunkDefinition,
        plan: Plan,
        columns: Collection[str] | None = None,
    ) -> None:
        schema = source.scan.schema
        mapped = require_mapping(bound.contract, schema, plan)
        self._mapped = tuple(each for each in mapped if columns is None or each.target in columns)
        self._where = chunk_filter(bound.where(schema), chunk.expression, schema)
        self._targets = [each.target for each in self._mapped]
        # The last schema whose batches needed no widening, and the positions of the mapped columns in it.
        self._unwidened: tuple[pa.Schema, list[int]] | None = None
        mapped_columns = {each.source for each in self._mapped}
        widened = {each.source for each in self._mapped if each.type != schema.column(each.source).type}
        filtered = set(columns_of(self._where))
        # Columns that are only digested may keep the file's encoding. The caller shows `columns`, so those are decoded.
        stored = mapped_columns - widened - filtered if columns is None else ()
        self._source = source.select(mapped_columns | filtered, stored=stored)

    def rows(self, file: ScanFile, fetch: Fetcher) -> Iterator[pa.RecordBatch]:
        """The intended rows of one of the source's files."""
        for batch in self._source.batches(file, fetch):
            yield self.map_batch(batch)

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The intended rows of a batch of the source, which must have the columns `source_columns`."""
        return self._map_columns(filter_rows(batch, self._where))

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The source's columns that are read."""
        return self._source.scan.schema.names

    def find_source_column(self, target: str) -> str:
        """The source's name of a target column; any other name is returned unchanged."""
        return next((each.source for each in self._mapped if each.target == target), target)

    def empty(self) -> pa.RecordBatch:
        """A batch without rows, in the columns of `rows`."""
        return empty_batch(self._mapped, self._source.scan.schema)

    def _map_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._unwidened is not None and batch.schema.equals(self._unwidened[0]):
            columns = batch.columns
            return pa.RecordBatch.from_arrays([columns[index] for index in self._unwidened[1]], names=self._targets)
        arrays: list[Any] = [batch.column(each.source) for each in self._mapped]
        widened: list[Any] = [promote(array, each.type) for array, each in zip(arrays, self._mapped, strict=True)]
        if all(new is old for new, old in zip(widened, arrays, strict=True)):
            # Whether a column is widened depends on its type alone, so the next batch of these types needs no check.
            self._unwidened = batch.schema, [batch.schema.get_field_index(each.source) for each in self._mapped]
        return pa.RecordBatch.from_arrays(widened, names=self._targets)


def empty_batch(mapped: Sequence[MappedColumn], source: Schema) -> pa.RecordBatch:
    """A batch without rows, in the mapped columns of a source with this schema."""
    arrays: list[Any] = [promote(repeat_value(None, source.column(each.source).type, 0), each.type) for each in mapped]
    return pa.RecordBatch.from_arrays(arrays, names=[each.target for each in mapped])
