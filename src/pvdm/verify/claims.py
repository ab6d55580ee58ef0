"""A producer's word of a file against what the file holds: absent is no claim, a count is exact, a bound contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from pvdm.digest.parquet import LeafFacts, ParquetFacts
from pvdm.errors import InputError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.partition_value import tuple_key
from pvdm.lake.format.schema.bounds import compare, decode_bound
from pvdm.lake.format.schema.single_value import decode_value
from pvdm.model.schema import GeoType, Kind, PrimitiveType, Type
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import Finding

_T = TypeVar("_T")


def judge_claims(
    claimed: DataFile, observed: DataFile, facts: ParquetFacts, types: Mapping[int, Type]
) -> Iterator[Finding]:
    """What the producer said and does not hold; its word of columns that nothing is known of is not carried over."""
    yield from _exact("file_size_lies", "the size of a file", observed.file_size_in_bytes, claimed.file_size_in_bytes)
    yield from _exact("record_count_lies", "the record count of a file", facts.rows, claimed.record_count)
    if claimed.split_offsets:
        yield from _exact(
            "split_offsets_lie", "the split offsets of a file", facts.split_offsets, claimed.split_offsets
        )
    if tuple_key(claimed.partition) != tuple_key(observed.partition):
        yield _lie("partition_lies", "the partition of a file", observed.partition, claimed.partition)
    for field_id, leaf in facts.leaves.items():
        yield from _counts(claimed, field_id, leaf)
        yield from _bounds(claimed, field_id, leaf, types[field_id])


def _counts(claimed: DataFile, field_id: int, leaf: LeafFacts) -> Iterator[Finding]:
    for code, what, claims, seen in (
        ("value_count_lies", "value", claimed.value_counts, leaf.values),
        ("null_count_lies", "null", claimed.null_value_counts, leaf.nulls),
        ("nan_count_lies", "NaN", claimed.nan_value_counts, leaf.nans or 0),
    ):
        claim = _of(claims, field_id)
        if claim is not None:
            yield from _exact(code, f"the {what} count of column {field_id}", seen, claim)


def _bounds(claimed: DataFile, field_id: int, leaf: LeafFacts, kind: Type) -> Iterator[Finding]:
    if not _is_bounded(kind):
        return
    for lower, claims, seen, cut in (
        (True, claimed.lower_bounds, leaf.lower, leaf.lower_cut),
        (False, claimed.upper_bounds, leaf.upper, leaf.upper_cut),
    ):
        claim = _of(claims, field_id)
        if claim is None or (cut and seen is not None and claim.startswith(seen)):
            continue
        side = "lower" if lower else "upper"
        try:
            bound = decode_bound(kind, claim)
        except InputError as error:
            yield Finding(
                FailureClass.METADATA,
                f"{side}_bound_lies",
                f"the {side} bound of column {field_id} is no value of its type",
                error.expected,
                error.got,
            )
            continue
        # A column without any value is inside whatever bounds.
        if seen is not None:
            order = compare(kind, bound, decode_value(kind, seen))
            if order > 0 if lower else order < 0:
                yield _lie(f"{side}_bound_lies", f"the {side} bound of column {field_id}", seen.hex(), claim.hex())


def _is_bounded(kind: Type) -> bool:
    """Whether bounds of the type can be told from its values by their order."""
    return not isinstance(kind, GeoType) and kind not in (PrimitiveType(Kind.VARIANT), PrimitiveType(Kind.UNKNOWN))


def _of(claims: Mapping[int, _T] | None, field_id: int) -> _T | None:
    return None if claims is None else claims.get(field_id)


def _exact(code: str, what: str, seen: object, claim: object) -> Iterator[Finding]:
    if seen != claim:
        yield _lie(code, what, seen, claim)


def _lie(code: str, what: str, seen: object, claim: object) -> Finding:
    return Finding(
        FailureClass.METADATA, code, f"{what} is not what the manifest says", expected=str(seen), got=str(claim)
    )
