"""Reads a staged file in one pass: digests it, rebuilds its manifest entry, and checks the producer's entry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pvdm.digest import Digester
from pvdm.digest.file_facts import FileRequest, LeafFacts, ParquetFacts, PublishedFacts
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.format.manifest.entry import DataFile, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.fields import avro_name
from pvdm.lake.format.partition_spec import PartitionField, PartitionSpec, apply_transform, source_types
from pvdm.lake.format.partition_value import tuple_key, value_key
from pvdm.lake.format.schema.bounds import MetricsMode, compare, decode_bound, is_ordered, lower_bound, upper_bound
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.schema.single_value import Value, decode_value
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.metrics_modes import metrics_modes
from pvdm.lake.read.entries import header_of
from pvdm.model.schema import Field, GeoType, Kind, PrimitiveType, Schema, Type
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.fetch import FETCH_SIZE_MAX_BYTES, Fetched
from pvdm.verify.findings import Finding

_CODE_POINT_MAX_BYTES: Final = 4
_UNORDERED: Final = (PrimitiveType(Kind.VARIANT), PrimitiveType(Kind.UNKNOWN))


def list_bucket_requests(spec: PartitionSpec) -> tuple[tuple[int, int], ...]:
    """Column id and bucket count of each bucket field. For each, the kernel reports the bucket numbers that it saw."""
    return tuple(
        (field.source_ids[0], field.transform.parameter or 1)
        for field in spec.fields
        if field.transform.name == "bucket"
    )


def compute_partition(spec: PartitionSpec, schema: Schema, facts: ParquetFacts) -> IdMap[Value]:
    """The partition tuple of the file. Raises if the file has rows of two partitions, or is partitioned but empty."""
    types = source_types(schema)
    bucket_fields = [field for field in spec.fields if field.transform.name == "bucket"]
    buckets = {field.field_id: each for field, each in zip(bucket_fields, facts.buckets, strict=True)}
    return IdMap(
        [(field.field_id, _partition_value(field, types, facts, buckets.get(field.field_id))) for field in spec.fields]
    )


def _partition_value(
    field: PartitionField, types: Mapping[int, Type], facts: ParquetFacts, buckets: frozenset[int | None] | None
) -> Value:
    """The value of one partition field. `buckets` are the bucket numbers of a bucket field, otherwise None."""
    if not field.transform.is_known or len(field.source_ids) != 1:
        message = f"partition {field.name} has a transform that cannot be applied"
        raise Code.PARTITION_SPEC_INVALID(message, reason="partition_transform_unknown", got=str(field.transform)[:120])
    if field.transform.name == "void":
        return None
    if facts.rows == 0:
        raise Code.PARTITION_MISMATCH(reason="partition_of_no_rows", got="no rows")
    if buckets is not None:
        return _require_single(field, *buckets)
    source = field.source_ids[0]
    return _partition_from_bounds(field, types[source], facts.leaves[source])


def _require_single(field: PartitionField, first: Value, *others: Value) -> Value:
    for other in others:
        if value_key(first) != value_key(other):
            message = f"a file holds rows of more than one partition of {field.name}"
            raise Code.PARTITION_MISMATCH(message, reason="partition_mixed", got=f"{first!r} and {other!r}")
    return first


def _partition_from_bounds(field: PartitionField, kind: Type, leaf: LeafFacts) -> Value:
    """The partition of a column's values. The least and the greatest value must have the same partition.

    Values between them have the same partition, since every transform except bucket keeps the order.
    """
    if not leaf.present or leaf.nulls == leaf.values:
        return None
    partitions: list[Value] = [None] if leaf.nulls else []
    if leaf.nans:
        partitions.append(math.nan)
    if leaf.lower is not None and leaf.upper is not None:
        for data, cut in ((leaf.lower, leaf.lower_cut), (leaf.upper, leaf.upper_cut)):
            _require_long_enough(field, cut=cut, size=len(data))
            partitions.append(_transform(field, kind, data))
    return _require_single(field, *partitions)


def _transform(field: PartitionField, kind: Type, data: bytes) -> Value:
    try:
        return apply_transform(field.transform, kind, decode_value(kind, data))
    except InputError as error:
        # Truncate rounds down, and the result may not fit the type.
        message, expected, got = f"a value has no partition of {field.name}", error.expected, error.got
        raise Code.PARTITION_MISMATCH(message, reason="partition_value_invalid", expected=expected, got=got) from None


def _require_long_enough(field: PartitionField, *, cut: bool, size: int) -> None:
    """Refuse a value of which only the first bytes are known (`cut`), unless the transform needs no more of it."""
    width = (field.transform.parameter or 1) * _CODE_POINT_MAX_BYTES
    if cut and not (field.transform.name == "truncate" and width <= size):
        message, expected = f"a value of partition {field.name} is too long", f"at most {size} bytes"
        raise Code.PARTITION_MISMATCH(message, reason="partition_value_too_long", expected=expected, got="more")


def check_manifest_facts(
    claimed: DataFile, observed: DataFile, facts: ParquetFacts, types: Mapping[int, Type]
) -> Iterator[Finding]:
    """Findings for wrong facts in the producer's entry, which is `claimed`.

    Absent facts are not checked; counts must be equal; bounds must enclose all values.
    """
    exact = [
        ("file_size_lies", "the size of a file", observed.file_size_in_bytes, claimed.file_size_in_bytes),
        ("record_count_lies", "the record count of a file", facts.rows, claimed.record_count),
    ]
    for code, what, seen, claim in exact:
        if seen != claim:
            yield _wrong_claim_finding(code, what, seen, claim)
    if claimed.split_offsets and claimed.split_offsets != facts.split_offsets:
        what = "the split offsets of a file"
        yield _wrong_claim_finding("split_offsets_lie", what, facts.split_offsets, claimed.split_offsets)
    if tuple_key(claimed.partition) != tuple_key(observed.partition):
        yield _wrong_claim_finding("partition_lies", "the partition of a file", observed.partition, claimed.partition)
    for field_id, leaf in facts.leaves.items():
        yield from _check_counts(claimed, field_id, leaf)
        yield from _check_bounds(claimed, field_id, leaf, types[field_id])


def _check_counts(claimed: DataFile, field_id: int, leaf: LeafFacts) -> Iterator[Finding]:
    for code, what, claims, seen in (
        ("value_count_lies", "value", claimed.value_counts, leaf.values),
        ("null_count_lies", "null", claimed.null_value_counts, leaf.nulls),
        ("nan_count_lies", "NaN", claimed.nan_value_counts, leaf.nans or 0),
    ):
        claim = None if claims is None else claims.get(field_id)
        if claim is not None and claim != seen:
            yield _wrong_claim_finding(code, f"the {what} count of column {field_id}", seen, claim)


def _check_bounds(claimed: DataFile, field_id: int, leaf: LeafFacts, kind: Type) -> Iterator[Finding]:
    if isinstance(kind, GeoType) or kind in _UNORDERED:
        return
    for side, claims, seen, cut in (
        ("lower", claimed.lower_bounds, leaf.lower, leaf.lower_cut),
        ("upper", claimed.upper_bounds, leaf.upper, leaf.upper_cut),
    ):
        claim = None if claims is None else claims.get(field_id)
        # A cut value cannot be compared beyond its known start.
        if claim is None or (cut and seen is not None and claim.startswith(seen)):
            continue
        try:
            bound = decode_bound(kind, claim)
        except InputError as error:
            message = f"the {side} bound of column {field_id} is no value of its type"
            yield Finding(FailureClass.METADATA, f"{side}_bound_lies", message, error.expected, error.got)
            continue
        # A column without values is inside any bounds.
        if seen is not None:
            order = compare(kind, bound, decode_value(kind, seen))
            is_wrong = order > 0 if side == "lower" else order < 0
            if is_wrong:
                what = f"the {side} bound of column {field_id}"
                yield _wrong_claim_finding(f"{side}_bound_lies", what, seen.hex(), claim.hex())


def _wrong_claim_finding(code: str, what: str, seen: object, claim: object) -> Finding:
    message = f"{what} is not what the manifest says"
    return Finding(FailureClass.METADATA, code, message, expected=str(seen), got=str(claim))


# Reasons of the kernel about columns and their types, beside those that start with `field_`.
_SCHEMA_REASONS: Final = frozenset(
    """
    arrow_type_unsupported cast_refused column_duplicate column_missing column_unexpected nesting_too_deep
    null_in_required parquet_type_unsupported variant_shredded
    """.split()  # noqa: SIM905 - a list would have one reason a line
)


@dataclass(frozen=True, slots=True)
class FileObservation:
    """What is in a file. `data_file` is the entry to publish, with the staged path; None if the file was refused.

    `recipe` says how to make the file to publish from the staged one. It is None if the staged file is published.
    """

    data_file: DataFile | None
    findings: tuple[Finding, ...]
    recipe: bytes | None = None


def observe(
    digester: Digester,
    fetched: Fetched,
    metadata: TableMetadata,
    entry: ManifestEntry,
    *,
    rewrite: bool,
    footer_published: bool,
) -> FileObservation:
    """Read every row of the fetched bytes once: digest it, and collect the facts of the entry.

    With `rewrite` the entry is for the file that the Steward makes of the staged one. With `footer_published` stricter
    rules apply, since the producer's footer itself is published. A digester cannot be used after a refused file, so
    each file needs its own digester.
    """
    path = entry.data_file.file_path
    spec = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA).spec
    schema = to_model(metadata.current_schema)
    request = FileRequest(
        schema,
        needed=_columns_with_default(metadata),
        buckets=list_bucket_requests(spec),
        rows_max=entry.data_file.record_count,
        published_names=_names_in_files(metadata) if rewrite else {},
        footer_published=footer_published,
    )
    try:
        facts = digester.read_parquet(fetched.data, request, rewrite=rewrite)
    except VerificationError as error:
        return FileObservation(None, (Finding.of(failure_class_of(error.reason), error, path),))
    try:
        partition = compute_partition(spec, schema, facts)
    except VerificationError as error:
        return FileObservation(None, (Finding.of(FailureClass.METADATA, error, path),))
    types = {slot.field_id: slot.type for _, slot in schema.walk() if slot.field_id is not None}
    rebuilt = _rebuild(path, len(fetched.data), partition, facts, types, metrics_modes(metadata))
    findings = tuple(replace(each, file=path) for each in check_manifest_facts(entry.data_file, rebuilt, facts, types))
    if facts.published is None:
        return FileObservation(rebuilt, findings)
    if facts.published.size > FETCH_SIZE_MAX_BYTES:
        # The gate and an audit read a published file again to hash it.
        most, got = f"at most {FETCH_SIZE_MAX_BYTES} bytes", f"{facts.published.size} bytes"
        message = "the file to publish is too large"
        too_large = Finding(FailureClass.PHYSICAL, "parquet_too_large", message, most, got, path)
        return FileObservation(None, (*findings, too_large))
    return FileObservation(_as_published(rebuilt, facts.published), findings, facts.published.recipe)


def _as_published(rebuilt: DataFile, published: PublishedFacts) -> DataFile:
    """The entry with sizes and offsets of the file that the Steward makes."""
    sizes, listed = published.column_sizes, rebuilt.column_sizes or ()
    return replace(
        rebuilt,
        file_size_in_bytes=published.size,
        column_sizes=_to_id_map((each, sizes[each]) for each in listed if each in sizes),
        split_offsets=published.split_offsets or None,
    )


def _names_in_files(metadata: TableMetadata) -> dict[int, str]:
    """The name of every struct field in Parquet files, as Iceberg's Java library writes it, in the table's order."""
    schema = metadata.current_schema
    named = {each.field_id: avro_name(each.name) for _, each in to_model(schema).walk() if isinstance(each, Field)}
    return {field_id: named[field_id] for field_id in schema.fields if field_id in named}


def _columns_with_default(metadata: TableMetadata) -> tuple[int, ...]:
    """Columns with an initial default. Files must have them: for a missing column, readers show the default."""
    fields = metadata.current_schema.fields.values()
    return tuple(field.field_id for field in fields if field.initial_default is not None)


def failure_class_of(reason: str) -> FailureClass:
    """The failure class of an error of the kernel's reader, by the error's reason."""
    if reason == Code.RECORD_COUNT_LIES:
        return FailureClass.METADATA
    is_schema = reason in _SCHEMA_REASONS or reason.startswith("field_")
    return FailureClass.SCHEMA if is_schema else FailureClass.PHYSICAL


def _rebuild(
    path: str,
    size: int,
    partition: IdMap[Value],
    facts: ParquetFacts,
    types: Mapping[int, Type],
    modes: Mapping[int, MetricsMode],
) -> DataFile:
    """The entry, from the observed facts only. Sort order, row ids and all other unproved fields are left out."""
    counted = [(each, leaf) for each, leaf in facts.leaves.items() if leaf.present and modes[each].keeps_counts]
    bounds = [(each, _make_bounds(leaf, types[each], modes[each])) for each, leaf in counted]
    return DataFile(
        file_path=path,
        file_format="PARQUET",
        record_count=facts.rows,
        file_size_in_bytes=size,
        partition=partition,
        column_sizes=_to_id_map(
            (each, found) for each, found in facts.column_sizes.items() if each in modes and modes[each].keeps_counts
        ),
        value_counts=_to_id_map((each, leaf.values) for each, leaf in counted),
        null_value_counts=_to_id_map((each, leaf.nulls) for each, leaf in counted),
        nan_value_counts=_to_id_map((each, leaf.nans) for each, leaf in counted if leaf.nans is not None),
        lower_bounds=_to_id_map((each, low) for each, (low, _) in bounds if low is not None),
        upper_bounds=_to_id_map((each, high) for each, (_, high) in bounds if high is not None),
        split_offsets=facts.split_offsets or None,
    )


def _make_bounds(leaf: LeafFacts, kind: Type, mode: MetricsMode) -> tuple[bytes | None, bytes | None]:
    """The lower and the upper bound of a column; None if it has none."""
    if leaf.lower is None or leaf.upper is None or not is_ordered(kind):
        return None, None
    # Engines treat -0.0 and +0.0 as equal, but compare them with bounds as different.
    low = lower_bound(kind, _replace_zero(decode_value(kind, leaf.lower), -0.0), mode)
    value = _replace_zero(decode_value(kind, leaf.upper), 0.0)
    if leaf.upper_cut and (mode.length is None or mode.length >= len(value)):
        # Only the start of the value is known. Shorten it by one so that `upper_bound` truncates and increments.
        mode = replace(mode, length=len(value) - 1)
    return low, upper_bound(kind, value, mode)


def _replace_zero(value: Value, zero: float) -> Value:
    """The value; for -0.0 and +0.0 the given zero."""
    return zero if isinstance(value, float) and value == 0 else value


_T = TypeVar("_T")


def _to_id_map(pairs: Iterable[tuple[int, _T]]) -> IdMap[_T]:
    return IdMap(sorted(pairs, key=lambda pair: pair[0]))
