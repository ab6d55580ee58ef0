"""The partition that a file lies in, derived from what it holds: every row must give the same tuple."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from pvdm.digest.parquet import LeafFacts, ParquetFacts
from pvdm.errors import Code, InputError
from pvdm.lake.format.manifest.entry import IdMap
from pvdm.lake.format.partition_spec import PartitionField, PartitionSpec, Transform, apply, source_types
from pvdm.lake.format.partition_value import value_key
from pvdm.lake.format.schema.single_value import Value, decode_value
from pvdm.model.schema import Schema, Type

_CODE_POINT_MAX_BYTES: Final = 4


def buckets_asked(spec: PartitionSpec) -> tuple[tuple[int, int], ...]:
    """What the kernel has to tell beside the bounds: the buckets of these columns, in the order of the spec."""
    return tuple(
        (field.source_ids[0], field.transform.parameter or 1)
        for field in spec.fields
        if field.transform.name == "bucket"
    )


def partition_of(spec: PartitionSpec, schema: Schema, facts: ParquetFacts) -> IdMap[Value]:
    """The tuple of the one partition that all rows lie in; rows of two, or no row at all, are refused."""
    sources = source_types(schema)
    buckets = iter(facts.buckets)
    found = []
    for field in spec.fields:
        seen = next(buckets) if field.transform.name == "bucket" else None
        found.append((field.field_id, _value(field, sources, facts, seen)))
    return IdMap(found)


def _value(
    field: PartitionField, sources: Mapping[int, Type], facts: ParquetFacts, seen: frozenset[int | None] | None
) -> Value:
    if not field.transform.known or len(field.source_ids) != 1:
        raise Code.PARTITION_SPEC_INVALID(
            f"partition {field.name} has a transform that cannot be applied",
            reason="partition_transform_unknown",
            got=str(field.transform)[:120],
        )
    if field.transform.name == "void":
        return None
    if facts.rows == 0:
        raise Code.PARTITION_MISMATCH(reason="partition_of_no_rows", got="no rows")
    if seen is not None:
        return _one(field, *seen)
    source = field.source_ids[0]
    return _monotone(field, sources[source], facts.leaves[source])


def _one(field: PartitionField, first: Value, *others: Value) -> Value:
    for other in others:
        if value_key(first) != value_key(other):
            raise Code.PARTITION_MISMATCH(
                f"a file holds rows of more than one partition of {field.name}",
                reason="partition_mixed",
                got=f"{first!r} and {other!r}",
            )
    return first


def _monotone(field: PartitionField, kind: Type, leaf: LeafFacts) -> Value:
    """Every transform but bucket keeps the order: what the least and the greatest value give, all between them give."""
    if not leaf.present or leaf.nulls == leaf.values:
        return None
    found: list[Value] = [None] if leaf.nulls else []
    if leaf.nans:
        found.append(math.nan)
    if leaf.lower is not None and leaf.upper is not None:
        for data, cut in ((leaf.lower, leaf.lower_cut), (leaf.upper, leaf.upper_cut)):
            _require_whole(field, cut=cut, size=len(data))
            found.append(_applied(field, kind, data))
    return _one(field, *found)


def _applied(field: PartitionField, kind: Type, data: bytes) -> Value:
    try:
        return apply(field.transform, kind, decode_value(kind, data))
    except InputError as error:
        # Next to the ends of a type a value may have no partition: nothing below the least number is a multiple.
        raise Code.PARTITION_MISMATCH(
            f"a value has no partition of {field.name}",
            reason="partition_value_invalid",
            expected=error.expected,
            got=error.got,
        ) from None


def _require_whole(field: PartitionField, *, cut: bool, size: int) -> None:
    """The start of a long value is enough for a prefix of it, and for nothing else."""
    if cut and not (field.transform.name == "truncate" and _width(field.transform) <= size):
        raise Code.PARTITION_MISMATCH(
            f"a value of partition {field.name} is too long",
            reason="partition_value_too_long",
            expected=f"at most {size} bytes",
            got="more",
        )


def _width(transform: Transform) -> int:
    return (transform.parameter or 1) * _CODE_POINT_MAX_BYTES
