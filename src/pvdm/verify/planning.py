"""Plans the chunks of a workload, so that each row is in exactly one of them, and derives its claims.

A claim is on the id of its column, never on its name. A claim on a proved column of the target is about the target's
own rows: it names the target's field id, and holds for any source. A claim on another column names the source and the
column's id there, and cannot be compared with claims of another source.

A column that was dropped and added again has another id. Its old claims cannot be compared with new ones, and count as
overlapping, since rows that were published under the old id show null under the new one.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa

from pvdm.errors import Code
from pvdm.lake.format.schema.logical import type_to_iceberg
from pvdm.lake.read.resolve import arrow_type
from pvdm.model.canonical_json import dump
from pvdm.model.chunk import (
    CHUNK_DEFINITION_MAX_BYTES,
    ChunkDefinition,
    ChunkPlan,
    escaped,
    readable_id,
    require_chunks,
)
from pvdm.model.contract import BoundContract, Chunking, ChunkingBy
from pvdm.model.filter import expression as ex
from pvdm.model.filter.bind import bind, column_type, require_ordered, require_simple
from pvdm.model.filter.claim import Claim
from pvdm.model.filter.claim_filter import read_claim
from pvdm.model.filter.literal import canonical_literal, literal_text, parse_literal
from pvdm.model.schema import Kind, PrimitiveType, Schema, Type
from pvdm.verify.fetch import Fetch
from pvdm.verify.filtering import kept, plain_column
from pvdm.verify.source import PinnedSource


@dataclass(frozen=True, slots=True, order=True)
class _Listed:
    """A value that has its own chunk: `text` of a literal, or null or NaN (`special`)."""

    special: str
    text: str


_NULL = _Listed("null", "")
_NAN = _Listed("nan", "")


def plan_chunks(
    chunking: Chunking,
    schema: Schema,
    *,
    values: Iterable[Sequence[ex.LiteralValue | None]] = (),
    files: Sequence[tuple[str, int]] = (),
    most: int,
) -> ChunkPlan:
    """The plan for a source of this schema.

    `values`: for chunking by partition, the combinations of its columns' values in the source, in the form of literals
    (days, microseconds, `Decimal`, `UUID`); all other rows are in the last chunk. `files`: for chunking by files,
    location and size of every data file.
    """
    match chunking.by:
        case ChunkingBy.NONE:
            chunks = [ChunkDefinition("all", str(ex.Always()), None)]
        case ChunkingBy.PARTITION:
            chunks = _by_partition(chunking.columns, schema, values, most)
        case ChunkingBy.FILES:
            chunks = _by_files(files, chunking.max_bytes or 0, most)
        case ChunkingBy.RANGE:
            chunks = _by_range(str(chunking.column), chunking.bounds, schema, most)
    require_chunks(len(chunks), most)
    return ChunkPlan(tuple(chunks))


def chunk_filter(where: ex.Expression, chunk: ChunkDefinition, schema: Schema) -> ex.Expression:
    """The contract's bound filter and the chunk's own, as one bound filter over the source."""
    own = bind(chunk.expression, schema, {})
    if isinstance(own, ex.Always):
        return where
    return own if isinstance(where, ex.Always) else ex.And((where, own))


def _by_partition(
    columns: tuple[str, ...], schema: Schema, values: Iterable[Sequence[ex.LiteralValue | None]], most: int
) -> list[ChunkDefinition]:
    kinds = [column_type(schema, column) for column in columns]
    for column, kind in zip(columns, kinds, strict=True):
        require_simple(column, kind)
    found: set[tuple[_Listed, ...]] = set()
    for each in values:
        listed = [_listed(value, kind) for value, kind in zip(each, kinds, strict=True)]
        # A value without a spelling, such as an infinity, is left to the last chunk.
        if (known := tuple(one for one in listed if one is not None)) and len(known) == len(columns):
            found.add(known)
            require_chunks(len(found) + 1, most)
    wanted = sorted(found)
    chunks = [
        ChunkDefinition(
            readable_id(tuple((escaped(name), _shown(one)) for name, one in zip(columns, each, strict=True))),
            str(_joined(ex.And, [_is(*one) for one in zip(columns, kinds, each, strict=True)])),
            None,
        )
        for each in wanted
    ]
    rest = _other_than(columns, kinds, wanted)
    chunks.append(ChunkDefinition(readable_id(tuple((escaped(name), "~other") for name in columns)), str(rest), None))
    return chunks


def _listed(value: ex.LiteralValue | None, kind: Type) -> _Listed | None:
    if value is None:
        return _NULL
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    text = literal_text(value, kind)
    # Parsed again, so that two spellings of one value (-0.0, 1.50) are one chunk.
    return None if text is None else _Listed("", str(literal_text(parse_literal(text, kind), kind)))


def _shown(one: _Listed) -> str:
    return f"~{one.special}" if one.special else escaped(one.text)


def _spelling(one: _Listed, kind: Type) -> ex.Text | ex.Number | ex.Boolean:
    made = canonical_literal(parse_literal(one.text, kind), kind)
    if made is None:
        raise AssertionError("what a text spells has a spelling")
    return made


def _is(column: str, kind: Type, one: _Listed) -> ex.Expression:
    if one == _NULL:
        return ex.IsNull(column)
    return ex.IsNan(column) if one == _NAN else ex.Compare(column, ex.Operator.EQUAL, _spelling(one, kind))


def _other_than(columns: tuple[str, ...], kinds: list[Type], listed: list[tuple[_Listed, ...]]) -> ex.Expression:
    """Every row whose values are not listed (in order); true, and never unknown, for null.

    `not (a or b)` would be unknown for null. So the first column has another value, or it has a listed one and the
    other columns differ from those listed beside it.
    """
    if not listed:
        return ex.Always()
    firsts = sorted({each[0] for each in listed})
    parts = [_none_of(columns[0], kinds[0], firsts)]
    if len(columns) > 1:
        for first, group in itertools.groupby(listed, key=lambda each: each[0]):
            beside = [each[1:] for each in group]
            parts.append(ex.And((_is(columns[0], kinds[0], first), _other_than(columns[1:], kinds[1:], beside))))
    return _joined(ex.Or, parts)


def _none_of(column: str, kind: Type, listed: list[_Listed]) -> ex.Expression:
    literals = tuple(_spelling(one, kind) for one in listed if not one.special)
    parts: list[ex.Expression] = [ex.IsNull(column, negated=True)]
    if literals:
        parts.append(ex.OneOf(column, literals, negated=True))
    if _NAN in listed:
        parts.append(ex.IsNan(column, negated=True))
    present = _joined(ex.And, parts)
    return present if _NULL in listed else ex.Or((ex.IsNull(column), present))


def _joined(kind: type[ex.And] | type[ex.Or], parts: Sequence[ex.Expression]) -> ex.Expression:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _by_range(column: str, bounds: tuple[str, ...], schema: Schema, most: int) -> list[ChunkDefinition]:
    """Half-open ranges between the bounds; NaN is above every bound, and null has its own chunk."""
    kind = column_type(schema, column)
    require_ordered(column, kind)
    require_chunks(len(bounds) + 2, most)
    texts = _rising(bounds, kind)
    edges = [None, *texts, None]
    chunks = []
    for lower, upper in itertools.pairwise(edges):
        parts: list[ex.Expression] = []
        if lower is not None:
            parts.append(ex.Compare(column, ex.Operator.GREATER_OR_EQUAL, _spelling(_Listed("", lower), kind)))
        if upper is not None:
            parts.append(ex.Compare(column, ex.Operator.LESS, _spelling(_Listed("", upper), kind)))
        # Escaped values have no brackets and commas, so an empty text differs from no bound.
        name = f"{'(' if lower is None else '[' + escaped(lower)},{'' if upper is None else escaped(upper)})"
        where = _joined(ex.And, parts) if parts else ex.IsNull(column, negated=True)
        chunks.append(ChunkDefinition(readable_id(((escaped(column), name),)), str(where), None))
    chunks.append(ChunkDefinition(readable_id(((escaped(column), "~null"),)), str(ex.IsNull(column)), None))
    return chunks


def _rising(bounds: tuple[str, ...], kind: Type) -> list[str]:
    found = [parse_literal(text, kind) for text in bounds]
    for position in range(1, len(found)):
        # Both are of one type, which has an order; code points of texts are in the order of their UTF-8 bytes.
        if not found[position - 1] < found[position]:  # type: ignore[operator]
            raise Code.CHUNK_BOUNDS_UNORDERED(
                expected=f"a bound above {bounds[position - 1][:80]!a}", got=ascii(bounds[position][:80])
            )
    return [str(literal_text(value, kind)) for value in found]


def _by_files(files: Sequence[tuple[str, int]], max_bytes: int, most: int) -> list[ChunkDefinition]:
    """Files in the order of their locations, as many in a chunk as fit; a larger file is alone."""
    ordered = sorted(files)
    for (before, _), (after, _) in itertools.pairwise(ordered):
        if before == after:
            raise Code.SOURCE_FILE_REPEATED(got=ascii(after[:200]))
    groups: list[list[str]] = [[]]
    size = listed = 0
    for location, file_size in ordered:
        written = len(dump(location)) + 1
        if groups[-1] and (size + file_size > max_bytes or listed + written > CHUNK_DEFINITION_MAX_BYTES - 1_024):
            groups.append([])
            require_chunks(len(groups), most)
            size = listed = 0
        groups[-1].append(location)
        size, listed = size + file_size, listed + written
    hashes = [hashlib.sha256(dump(group)).hexdigest()[:16] for group in groups]
    return [
        ChunkDefinition(f"files-{at:05d}-{sha256}", None, tuple(group))
        for at, (group, sha256) in enumerate(zip(groups, hashes, strict=True), start=1)
    ]


def plan_workload(bound: BoundContract, source: PinnedSource, fetch: Fetch) -> ChunkPlan:
    """Plan the chunks of the filtered source; chunking by partition reads its rows once for their values."""
    contract = bound.contract
    chunking, most = contract.chunking, contract.limits.chunks
    schema = source.scan.schema
    where = bound.where(schema)
    values: Iterator[tuple[ex.LiteralValue | None, ...]] = iter(())
    if chunking.by is ChunkingBy.PARTITION:
        values = _values(chunking.columns, where, source, fetch, most)
    files = [(each.location, each.size) for each in source.scan.files]
    return plan_chunks(chunking, schema, values=values, files=files, most=most)


def _values(
    columns: tuple[str, ...], where: ex.Expression, source: PinnedSource, fetch: Fetch, most: int
) -> Iterator[tuple[ex.LiteralValue | None, ...]]:
    """Each combination of the columns' values in the filtered rows, once a file."""
    kinds = [column_type(source.scan.schema, column) for column in columns]
    narrow = source.reading({*columns, *ex.columns_of(where)})
    names = [str(at) for at in range(len(columns))]  # Arrow reads some names of columns as paths
    for file in narrow.scan.files:
        seen: pa.Table | None = None
        for batch in narrow.batches(file, fetch):
            rows = kept(batch, where)
            arrays = [_numbers(rows, *each) for each in zip(columns, kinds, strict=True)]
            table = pa.Table.from_arrays(arrays, names=names)
            table = table if seen is None else pa.concat_tables([seen, table])
            seen = table.group_by(names).aggregate([])
            # NaNs of several bit patterns, and both zeros, are distinct here, so the plan checks the exact limit.
            if seen.num_rows > 2 * most + 16:
                require_chunks(seen.num_rows, most)
        if seen is None:
            continue
        for row in zip(*(each.to_pylist() for each in seen.columns), strict=True):
            yield tuple(_literal(value, kind) for value, kind in zip(row, kinds, strict=True))


def _numbers(batch: pa.RecordBatch, column: str, kind: Type) -> Any:
    """The column, with dates and times as numbers, since Python's dates end at the year 9999."""
    array = plain_column(batch, column, kind)
    wanted: Any = arrow_type(kind)
    if pa.types.is_date32(wanted):
        return array.view(pa.int32())
    if pa.types.is_temporal(wanted):
        return array.view(pa.int64())
    return array


def _literal(value: Any, kind: Type) -> ex.LiteralValue | None:
    if value is not None and kind == PrimitiveType(Kind.UUID):
        return UUID(bytes=value)
    found: ex.LiteralValue | None = value
    return found


def claim_of(bound: BoundContract, source_schema: Schema) -> Claim:
    """The claim of the workload by its filter: at least all rows that it can publish."""
    column = bound.contract.boundary.claim
    if column is None:
        return Claim.everything()
    kind = type_to_iceberg(column_type(source_schema, column))
    return read_claim(bound.where(source_schema), column, kind, lambda literal: ex.typed(literal).value)


def with_source_column(bound: BoundContract, claim: Claim, source_uuid: str, source: Schema) -> Claim:
    """The claim on its column of this source; columns of a set of files have names only."""
    column = bound.contract.boundary.claim
    if column is None:
        return claim
    field_id = source.column(column).field_id
    if bound.contract.boundary.source.manifest is not None or field_id is None:
        return claim.of_column(f"source {source_uuid} column {column}")
    return claim.of_column(f"source {source_uuid} field {field_id}")


def with_target_column(bound: BoundContract, claim: Claim, target: Schema) -> Claim:
    """The claim on the target's column that its source column fills; unchanged where no such column is proved.

    Of several such columns the one with the lowest id counts.
    """
    boundary = bound.contract.boundary
    if boundary.claim is None:
        return claim
    columns = boundary.mapping.columns
    filled = {boundary.claim} if columns is None else {c.target for c in columns if c.source == boundary.claim}
    filled -= {name for name, _ in bound.contract.projections.excluded}
    found = [each.field_id for each in target.fields if each.name in filled and each.field_id is not None]
    return claim.of_column(f"target field {min(found)}") if found else claim
