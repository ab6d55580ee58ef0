"""Plans the chunks of a workload, so that each row is in exactly one of them, and derives the workload's claim.

A claim is the part of the target that an append reserves: a value or range of one column, or everything. If the
claimed source column fills a proved target column, the claim names that column's field id, and holds for any source.
Else it names the source and the column's id (in a set of files, its name), and cannot be compared with other sources'.

A column that was dropped and added again has another id. Its claims under the old id and under the new one count as
overlapping, whatever their ranges: rows published under the old id no longer have the values that were claimed.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeAlias

import pyarrow as pa

from pvdm.errors import Code
from pvdm.lake.format.schema.logical import type_to_iceberg
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
from pvdm.model.filter.bind import column_type, require_ordered, require_simple
from pvdm.model.filter.claim import Claim
from pvdm.model.filter.claim_filter import read_claim
from pvdm.model.filter.literal import canonical_literal, literal_text, parse_literal
from pvdm.model.schema import Schema, Type
from pvdm.verify.chunk_files import FilePruning, chunk_filter, hash_source
from pvdm.verify.chunk_values import has_rows, list_combinations
from pvdm.verify.source import PinnedSource

LastChunkCheck: TypeAlias = Callable[[ex.Expression, Sequence[ChunkDefinition]], bool]
"""Whether a plan needs a last chunk with this filter, in addition to the other chunks."""


@dataclass(frozen=True, slots=True, order=True)
class _ChunkValue:
    """A column's value in the definition of a chunk: the `text` of a literal, or "null" or "nan" as `special`."""

    special: str
    text: str


_NULL = _ChunkValue("null", "")
_NAN = _ChunkValue("nan", "")


def plan_chunks(
    chunking: Chunking,
    schema: Schema,
    *,
    values: Iterable[Sequence[ex.LiteralValue | None]] = (),
    files: Sequence[tuple[str, int]] = (),
    most: int,
    is_needed: LastChunkCheck = lambda _, __: True,
) -> ChunkPlan:
    """The plan for a source of this schema, with at most `most` chunks.

    Chunking by partition needs `values`: the combinations of its columns' values in the source, in the form of literals
    (days, microseconds, `Decimal`, `UUID`). Chunking by files needs `files`: location and size of every data file.

    The last chunk by partition or range has all rows that are in no other chunk. It is left out if `is_needed` is
    false for its filter and the other chunks, unless it is the only chunk.
    """
    match chunking.by:
        case ChunkingBy.NONE:
            chunks = [ChunkDefinition("all", str(ex.Always()), None)]
        case ChunkingBy.PARTITION:
            chunks = _plan_by_partition(chunking.columns, schema, values, most, is_needed)
        case ChunkingBy.FILES:
            chunks = _plan_by_files(files, chunking.max_bytes or 0, most)
        case ChunkingBy.RANGE:
            chunks = _plan_by_range(str(chunking.column), chunking.bounds, schema, most, is_needed)
    require_chunks(len(chunks), most)
    return ChunkPlan(tuple(chunks))


def _plan_by_partition(
    columns: tuple[str, ...],
    schema: Schema,
    values: Iterable[Sequence[ex.LiteralValue | None]],
    most: int,
    is_needed: LastChunkCheck,
) -> list[ChunkDefinition]:
    kinds = [column_type(schema, column) for column in columns]
    for column, kind in zip(columns, kinds, strict=True):
        require_simple(column, kind)
    combinations: set[tuple[_ChunkValue, ...]] = set()
    for row in values:
        optional = [_to_chunk_value(value, kind) for value, kind in zip(row, kinds, strict=True)]
        combination = tuple(value for value in optional if value is not None)
        # A value without a literal, such as an infinity, is left to the last chunk.
        if combination and len(combination) == len(row):
            combinations.add(combination)
            require_chunks(len(combinations), most)
    ordered = sorted(combinations)
    chunks = []
    for combination in ordered:
        pairs = tuple((escaped(name), _text_for_id(value)) for name, value in zip(columns, combination, strict=True))
        predicates = [_equals(*each) for each in zip(columns, kinds, combination, strict=True)]
        chunks.append(ChunkDefinition(readable_id(pairs), str(_join_predicates(ex.And, predicates)), None))
    rest = _other_than(columns, kinds, ordered)
    # The filter of all other rows lists every value. If it is too long for a definition, this raises only if the last
    # chunk is needed.
    if not chunks or is_needed(rest, chunks):
        name = readable_id(tuple((escaped(name), "~other") for name in columns))
        chunks.append(ChunkDefinition(name, str(rest), None))
    return chunks


def _to_chunk_value(value: ex.LiteralValue | None, kind: Type) -> _ChunkValue | None:
    if value is None:
        return _NULL
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    text = literal_text(value, kind)
    # Parsed again, so that two spellings of one value (-0.0, 1.50) are one chunk.
    return None if text is None else _ChunkValue("", str(literal_text(parse_literal(text, kind), kind)))


def _text_for_id(value: _ChunkValue) -> str:
    return f"~{value.special}" if value.special else escaped(value.text)


def _to_literal(text: str, kind: Type) -> ex.Text | ex.Number | ex.Boolean:
    literal = canonical_literal(parse_literal(text, kind), kind)
    if literal is None:
        raise AssertionError("the text is no literal, but was made from one")
    return literal


def _equals(column: str, kind: Type, value: _ChunkValue) -> ex.Expression:
    if value == _NULL:
        return ex.IsNull(column)
    return ex.IsNan(column) if value == _NAN else ex.Compare(column, ex.Operator.EQUAL, _to_literal(value.text, kind))


def _other_than(
    columns: tuple[str, ...], kinds: list[Type], combinations: list[tuple[_ChunkValue, ...]]
) -> ex.Expression:
    """A filter for all rows with another combination of values. For null it is true or false, never unknown.

    `not (a or b)` would be unknown for null. So the filter says: the first column has a value that is in no
    combination; or its value is in some combinations, and the other columns differ from those.
    """
    if not combinations:
        return ex.Always()
    parts = [_none_of(columns[0], kinds[0], sorted({each[0] for each in combinations}))]
    if len(columns) > 1:
        for first, group in itertools.groupby(combinations, key=lambda each: each[0]):
            others = _other_than(columns[1:], kinds[1:], [each[1:] for each in group])
            parts.append(ex.And((_equals(columns[0], kinds[0], first), others)))
    return _join_predicates(ex.Or, parts)


def _none_of(column: str, kind: Type, values: list[_ChunkValue]) -> ex.Expression:
    """A filter for the rows whose column has none of these values. For null it is true or false, never unknown."""
    literals = tuple(_to_literal(value.text, kind) for value in values if not value.special)
    parts: list[ex.Expression] = [ex.IsNull(column, negated=True)]
    if literals:
        parts.append(ex.OneOf(column, literals, negated=True))
    if _NAN in values:
        parts.append(ex.IsNan(column, negated=True))
    not_null = _join_predicates(ex.And, parts)
    return not_null if _NULL in values else ex.Or((ex.IsNull(column), not_null))


def _join_predicates(kind: type[ex.And] | type[ex.Or], parts: Sequence[ex.Expression]) -> ex.Expression:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _plan_by_range(
    column: str, bounds: tuple[str, ...], schema: Schema, most: int, is_needed: LastChunkCheck
) -> list[ChunkDefinition]:
    """Half-open ranges between the bounds; NaN is above every bound, and null has its own chunk."""
    kind = column_type(schema, column)
    require_ordered(column, kind)
    require_chunks(len(bounds) + 1, most)
    chunks = []
    for lower, upper in itertools.pairwise([None, *_require_ascending(bounds, kind), None]):
        parts: list[ex.Expression] = []
        if lower is not None:
            parts.append(ex.Compare(column, ex.Operator.GREATER_OR_EQUAL, _to_literal(lower, kind)))
        if upper is not None:
            parts.append(ex.Compare(column, ex.Operator.LESS, _to_literal(upper, kind)))
        # For example `[10,20)`. `(,20)` has no lower bound; the lower bound of `[,20)` is an empty text.
        start = "(" if lower is None else f"[{escaped(lower)}"
        name = f"{start},{'' if upper is None else escaped(upper)})"
        where = _join_predicates(ex.And, parts) if parts else ex.IsNull(column, negated=True)
        chunks.append(ChunkDefinition(readable_id(((escaped(column), name),)), str(where), None))
    null = ex.IsNull(column)
    if is_needed(null, chunks):
        chunks.append(ChunkDefinition(readable_id(((escaped(column), "~null"),)), str(null), None))
    return chunks


def _require_ascending(bounds: tuple[str, ...], kind: Type) -> list[str]:
    """The canonical texts of the bounds. Raises unless each bound is above the one before."""
    values = [parse_literal(text, kind) for text in bounds]
    for position in range(1, len(values)):
        # Both values have one ordered type. Texts are in the order of code points, which is that of their UTF-8 bytes.
        if not values[position - 1] < values[position]:  # type: ignore[operator]
            expected, got = f"a bound above {bounds[position - 1][:80]!a}", ascii(bounds[position][:80])
            raise Code.WORKLOAD_INVALID(reason="chunk_bounds_unordered", expected=expected, got=got)
    return [str(literal_text(value, kind)) for value in values]


def _plan_by_files(files: Sequence[tuple[str, int]], max_bytes: int, most: int) -> list[ChunkDefinition]:
    """Put files into chunks, in the order of their locations. A file above `max_bytes` is alone in its chunk."""
    ordered = sorted(files)
    for (before, _), (after, _) in itertools.pairwise(ordered):
        if before == after:
            raise Code.WORKLOAD_INVALID(reason="source_file_repeated", got=ascii(after[:200]))
    groups: list[list[str]] = [[]]
    size = definition_size = 0
    for location, file_size in ordered:
        entry_size = len(dump(location)) + 1
        # 1,024 bytes of the definition are left for the chunk's id and the keys of its JSON.
        is_full = size + file_size > max_bytes or definition_size + entry_size > CHUNK_DEFINITION_MAX_BYTES - 1_024
        if groups[-1] and is_full:
            groups.append([])
            require_chunks(len(groups), most)
            size = definition_size = 0
        groups[-1].append(location)
        size, definition_size = size + file_size, definition_size + entry_size
    return [
        ChunkDefinition(f"files-{number:05d}-{hashlib.sha256(dump(group)).hexdigest()[:16]}", None, tuple(group))
        for number, group in enumerate(groups, start=1)
    ]


@dataclass(frozen=True, slots=True)
class ReadSource:
    """What planning has read from the source: the values that decide the plan, and the hash of each file in order."""

    values: pa.Table
    file_hashes: Sequence[bytes]


def plan_workload(bound: BoundContract, source: PinnedSource, read: ReadSource | None) -> ChunkPlan:
    """Plan the chunks of the filtered source. `read` is None if the plan needs no values (`reads_rows`).

    The last chunk, of all other rows, is left out if its filter is true for none of the values: it would be verified
    and published without a row. But it is needed if no other chunk reads a file that it reads. A chunk binds the plan
    to the bytes of its files, and a file that no chunk reads could have had other bytes.
    """
    chunking, schema = bound.contract.chunking, source.scan.schema
    files, where = source.scan.files, bound.where(schema)
    pruning = FilePruning(schema, files)

    def find_files(own: ex.Expression) -> list[int]:
        return pruning.find(chunk_filter(where, own, schema))

    def is_needed(last: ex.Expression, others: Sequence[ChunkDefinition]) -> bool:
        if read is None or has_rows(chunking, schema, read.values, last):
            return True
        remaining = set(find_files(last))
        for chunk in others:
            if not remaining:
                break
            remaining.difference_update(find_files(chunk.expression))
        return bool(remaining)

    combinations: Iterable[Sequence[ex.LiteralValue | None]] = ()
    if read is not None and chunking.by is ChunkingBy.PARTITION:
        combinations = list_combinations(chunking, schema, read.values)
    listed = [(each.location, each.size) for each in files]
    most = bound.contract.limits.chunks
    plan = plan_chunks(chunking, schema, values=combinations, files=listed, most=most, is_needed=is_needed)
    if chunking.by is ChunkingBy.NONE:
        return plan  # its chunk has every row, whatever the source's files are
    hash_files = lru_cache(partial(_hash_files, source.listing_sha256, read))  # many chunks may read the same files
    return ChunkPlan(
        tuple(replace(each, source_sha256=hash_files(tuple(find_files(each.expression)))) for each in plan)
    )


def _hash_files(listing_sha256: str, read: ReadSource | None, files: tuple[int, ...]) -> str:
    """The hash that binds a chunk to these files. It covers the files' bytes if planning has read them."""
    return hash_source(listing_sha256, () if read is None else (read.file_hashes[index] for index in files))


def claim_of(bound: BoundContract, source_schema: Schema) -> Claim:
    """The workload's claim, from the contract's filter. It covers at least all rows that the workload can publish."""
    column = bound.contract.boundary.claim
    if column is None:
        return Claim.everything()
    kind = type_to_iceberg(column_type(source_schema, column))
    return read_claim(bound.where(source_schema), column, kind, lambda literal: ex.require_typed(literal).value)


def with_source_column(bound: BoundContract, claim: Claim, source_uuid: str, source: Schema) -> Claim:
    """The claim with its column named by source and field id; for a set of files, by source and column name."""
    column = bound.contract.boundary.claim
    if column is None:
        return claim
    field_id = source.column(column).field_id
    if bound.contract.boundary.source.manifest is not None or field_id is None:
        return claim.of_column(f"source {source_uuid} column {column}")
    return claim.of_column(f"source {source_uuid} field {field_id}")


def with_target_column(bound: BoundContract, claim: Claim, target: Schema) -> Claim:
    """The claim with its column named by the target column that the source column fills.

    If it fills several proved columns, the claim names the one with the lowest id. If it fills none, the claim stays.
    """
    boundary = bound.contract.boundary
    if boundary.claim is None:
        return claim
    columns = boundary.columns
    filled = {boundary.claim} if columns is None else {c.target for c in columns if c.source == boundary.claim}
    filled -= {name for name, _ in bound.contract.projections.excluded}
    field_ids = [each.field_id for each in target.fields if each.name in filled and each.field_id is not None]
    return claim.of_column(f"target field {min(field_ids)}") if field_ids else claim
