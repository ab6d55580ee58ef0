"""Plans chunks from the pinned source, so that every row of it is in just one: null, NaN and unlisted values too."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pvdm.errors import Code
from pvdm.model.canonical_json import dump
from pvdm.model.chunk import (
    CHUNK_DEFINITION_MAX_BYTES,
    ChunkDefinition,
    ChunkPlan,
    escaped,
    readable_id,
    require_chunks,
)
from pvdm.model.contract import Chunking, ChunkingBy
from pvdm.model.filter.bind import bind, column_type, require_ordered, require_simple
from pvdm.model.filter.expression import (
    Always,
    And,
    Boolean,
    Compare,
    Expression,
    IsNan,
    IsNull,
    LiteralValue,
    Number,
    OneOf,
    Operator,
    Or,
    Text,
)
from pvdm.model.filter.literal import literal_text, parse_literal, spelled
from pvdm.model.schema import Schema, Type

_Spelling: TypeAlias = Text | Number | Boolean


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file of the pinned source."""

    location: str
    size: int


@dataclass(frozen=True, slots=True, order=True)
class _Listed:
    """A value that a chunk is made for: `text` of a literal, or null or NaN (`special`)."""

    special: str
    text: str


_NULL = _Listed("null", "")
_NAN = _Listed("nan", "")


def plan_chunks(
    chunking: Chunking,
    schema: Schema,
    *,
    values: Iterable[Sequence[LiteralValue | None]] = (),
    files: Sequence[SourceFile] = (),
    most: int,
) -> ChunkPlan:
    """The plan for a source of this schema.

    `values`: for chunking by partition, the combinations of its columns' values that were found in the source, each as
    literals have them (days, microseconds, `Decimal`, `UUID`); what is not among them is in the last chunk. `files`:
    for chunking by files, every data file of the pinned source.
    """
    match chunking.by:
        case ChunkingBy.NONE:
            chunks = [ChunkDefinition("all", str(Always()), None)]
        case ChunkingBy.PARTITION:
            chunks = _by_partition(chunking.columns, schema, values, most)
        case ChunkingBy.FILES:
            chunks = _by_files(files, chunking.max_bytes or 0, most)
        case ChunkingBy.RANGE:
            chunks = _by_range(str(chunking.column), chunking.bounds, schema, most)
    require_chunks(len(chunks), most)
    return ChunkPlan(tuple(chunks))


def chunk_filter(where: Expression, chunk: ChunkDefinition, schema: Schema) -> Expression:
    """The contract's bound filter and the chunk's own, as one bound filter over the source."""
    own = bind(chunk.expression, schema, {})
    if isinstance(own, Always):
        return where
    return own if isinstance(where, Always) else And((where, own))


def _by_partition(
    columns: tuple[str, ...], schema: Schema, values: Iterable[Sequence[LiteralValue | None]], most: int
) -> list[ChunkDefinition]:
    kinds = [column_type(schema, column) for column in columns]
    for column, kind in zip(columns, kinds, strict=True):
        require_simple(column, kind)
    found: set[tuple[_Listed, ...]] = set()
    for each in values:
        listed = [_listed(value, kind) for value, kind in zip(each, kinds, strict=True)]
        # What has no spelling, such as an infinity, is left to the chunk of everything else.
        if (known := tuple(one for one in listed if one is not None)) and len(known) == len(columns):
            found.add(known)
            require_chunks(len(found) + 1, most)
    wanted = sorted(found)
    chunks = [
        ChunkDefinition(
            readable_id(tuple((escaped(name), _shown(one)) for name, one in zip(columns, each, strict=True))),
            str(_joined(And, [_is(*one) for one in zip(columns, kinds, each, strict=True)])),
            None,
        )
        for each in wanted
    ]
    rest = _other_than(columns, kinds, wanted)
    chunks.append(ChunkDefinition(readable_id(tuple((escaped(name), "~other") for name in columns)), str(rest), None))
    return chunks


def _listed(value: LiteralValue | None, kind: Type) -> _Listed | None:
    if value is None:
        return _NULL
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    text = literal_text(value, kind)
    # Read back, so that two spellings of one value (-0.0, 1.50) are one chunk.
    return None if text is None else _Listed("", str(literal_text(parse_literal(text, kind), kind)))


def _shown(one: _Listed) -> str:
    return f"~{one.special}" if one.special else escaped(one.text)


def _spelling(one: _Listed, kind: Type) -> _Spelling:
    made = spelled(parse_literal(one.text, kind), kind)
    if made is None:
        raise AssertionError("what a text spells has a spelling")
    return made


def _is(column: str, kind: Type, one: _Listed) -> Expression:
    if one == _NULL:
        return IsNull(column)
    return IsNan(column) if one == _NAN else Compare(column, Operator.EQUAL, _spelling(one, kind))


def _other_than(columns: tuple[str, ...], kinds: list[Type], listed: list[tuple[_Listed, ...]]) -> Expression:
    """Every row whose values are not listed (in order), never unknown where it should be true.

    `not (a or b)` would be unknown for null: so the first column has another value, or it has a listed one and the
    other columns are not as listed beside it.
    """
    if not listed:
        return Always()
    firsts = sorted({each[0] for each in listed})
    parts = [_none_of(columns[0], kinds[0], firsts)]
    if len(columns) > 1:
        for first, group in itertools.groupby(listed, key=lambda each: each[0]):
            beside = [each[1:] for each in group]
            parts.append(And((_is(columns[0], kinds[0], first), _other_than(columns[1:], kinds[1:], beside))))
    return _joined(Or, parts)


def _none_of(column: str, kind: Type, listed: list[_Listed]) -> Expression:
    literals = tuple(_spelling(one, kind) for one in listed if not one.special)
    parts: list[Expression] = [IsNull(column, negated=True)]
    if literals:
        parts.append(OneOf(column, literals, negated=True))
    if _NAN in listed:
        parts.append(IsNan(column, negated=True))
    present = _joined(And, parts)
    return present if _NULL in listed else Or((IsNull(column), present))


def _joined(kind: type[And] | type[Or], parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _by_range(column: str, bounds: tuple[str, ...], schema: Schema, most: int) -> list[ChunkDefinition]:
    """Half-open ranges from each bound to the next; NaN is above every bound, and null has its own chunk."""
    kind = column_type(schema, column)
    require_ordered(column, kind)
    require_chunks(len(bounds) + 2, most)
    texts = _rising(bounds, kind)
    edges = [None, *texts, None]
    chunks = []
    for lower, upper in itertools.pairwise(edges):
        parts: list[Expression] = []
        if lower is not None:
            parts.append(Compare(column, Operator.GREATER_OR_EQUAL, _spelling(_Listed("", lower), kind)))
        if upper is not None:
            parts.append(Compare(column, Operator.LESS, _spelling(_Listed("", upper), kind)))
        # As in mathematics; brackets and the comma are in no escaped value, so an empty text is told from no bound.
        name = f"{'(' if lower is None else '[' + escaped(lower)},{'' if upper is None else escaped(upper)})"
        where = _joined(And, parts) if parts else IsNull(column, negated=True)
        chunks.append(ChunkDefinition(readable_id(((escaped(column), name),)), str(where), None))
    chunks.append(ChunkDefinition(readable_id(((escaped(column), "~null"),)), str(IsNull(column)), None))
    return chunks


def _rising(bounds: tuple[str, ...], kind: Type) -> list[str]:
    found = [parse_literal(text, kind) for text in bounds]
    for position in range(1, len(found)):
        if not _below(found[position - 1], found[position]):
            raise Code.CHUNK_BOUNDS_UNORDERED(
                expected=f"a bound above {bounds[position - 1][:80]!a}", got=ascii(bounds[position][:80])
            )
    return [str(literal_text(value, kind)) for value in found]


def _below(lower: LiteralValue, upper: LiteralValue) -> bool:
    if isinstance(lower, str) and isinstance(upper, str):
        return lower.encode() < upper.encode()
    return lower < upper  # type: ignore[operator]  # both are of one type, which has an order


def _by_files(files: Sequence[SourceFile], max_bytes: int, most: int) -> list[ChunkDefinition]:
    """Files in the order of their locations, as many together as fit; a larger one is alone."""
    ordered = sorted(files, key=lambda each: each.location)
    for before, after in itertools.pairwise(ordered):
        if before.location == after.location:
            raise Code.SOURCE_FILE_REPEATED(got=ascii(after.location[:200]))
    groups: list[list[str]] = [[]]
    size = listed = 0
    for each in ordered:
        written = len(dump(each.location)) + 1
        if groups[-1] and (size + each.size > max_bytes or listed + written > CHUNK_DEFINITION_MAX_BYTES - 1_024):
            groups.append([])
            require_chunks(len(groups), most)
            size = listed = 0
        groups[-1].append(each.location)
        size, listed = size + each.size, listed + written
    return [ChunkDefinition(_files_id(at, group), None, tuple(group)) for at, group in enumerate(groups, start=1)]


def _files_id(position: int, group: list[str]) -> str:
    return f"files-{position:05d}-{hashlib.sha256(dump(group)).hexdigest()[:16]}"
