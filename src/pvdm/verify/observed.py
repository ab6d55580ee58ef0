"""A staged file as it is: digested and measured in one pass, its entry rebuilt, the producer's claims judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pvdm.digest import Digester
from pvdm.digest.parquet import FileRequest, LeafFacts, ParquetFacts, PublishedFacts
from pvdm.errors import Code, VerificationError
from pvdm.lake.format.manifest.entry import DataFile, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.fields import avro_name
from pvdm.lake.format.schema.bounds import MetricsMode, is_ordered, lower_bound, upper_bound
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.schema.single_value import Value, decode_value
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.metrics_modes import metrics_modes
from pvdm.lake.read.entries import header_of
from pvdm.model.schema import Field, Type
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.claims import judge_claims
from pvdm.verify.fetch import FETCH_SIZE_MAX_BYTES, Fetched
from pvdm.verify.findings import Finding
from pvdm.verify.partitioning import buckets_asked, partition_of

# Codes of the kernel that speak of columns and their types; everything else that it refuses is damage.
_SCHEMA_CODES: Final = frozenset(
    {
        Code.ARROW_TYPE_UNSUPPORTED,
        Code.CAST_REFUSED,
        Code.COLUMN_DUPLICATE,
        Code.COLUMN_MISSING,
        Code.COLUMN_UNEXPECTED,
        Code.NESTING_TOO_DEEP,
        Code.NULL_IN_REQUIRED,
        Code.PARQUET_TYPE_UNSUPPORTED,
        Code.VARIANT_SHREDDED,
    }
)


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen; `file` is the entry to publish, at its staged path, and None where the file was refused.

    `recipe` tells how to make the file to publish, where it is not the staged one.
    """

    file: DataFile | None
    rows: int
    findings: tuple[Finding, ...]
    recipe: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Table:
    """What a table says of its files."""

    types: Mapping[int, Type]
    modes: Mapping[int, MetricsMode]


def observe(
    digester: Digester,
    fetched: Fetched,
    metadata: TableMetadata,
    entry: ManifestEntry,
    *,
    rewrite: bool,
    footer_published: bool,
) -> Observed:
    """Every row of the fetched bytes once: into the digester, and into the facts of the entry.

    With `rewrite` the entry is that of the file which the Steward makes of the staged one. With `footer_published` the
    producer's own footer is published, and stricter rules hold. A refused file voids the digester, so each file wants
    its own; their partials are combined.
    """
    path = entry.data_file.file_path
    spec = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA).spec
    schema = to_model(metadata.current_schema)
    listed = entry.data_file.record_count
    request = FileRequest(
        schema,
        needed=_with_default(metadata),
        buckets=buckets_asked(spec),
        rows_max=listed,
        names=_names_in_files(metadata) if rewrite else {},
        footer_published=footer_published,
    )
    try:
        facts = digester.read_parquet(fetched.data, request, rewrite=rewrite)
    except VerificationError as error:
        return Observed(None, 0, (Finding.of(class_of(error.reason), error, path),))
    try:
        partition = partition_of(spec, schema, facts)
    except VerificationError as error:
        return Observed(None, facts.rows, (Finding.of(FailureClass.METADATA, error, path),))
    types = {slot.field_id: slot.type for _, slot in schema.walk() if slot.field_id is not None}
    table = _Table(types, metrics_modes(metadata))
    rebuilt = replace(_rebuilt(path, len(fetched.data), facts, table), partition=partition)
    findings = tuple(replace(each, file=path) for each in judge_claims(entry.data_file, rebuilt, facts, types))
    if facts.published is None:
        return Observed(rebuilt, facts.rows, findings)
    if facts.published.size > FETCH_SIZE_MAX_BYTES:
        return Observed(None, facts.rows, (*findings, _too_large(facts.published.size, path)))
    return Observed(_as_published(rebuilt, facts.published), facts.rows, findings, facts.published.recipe)


def _too_large(size: int, path: str) -> Finding:
    """The gate and an audit read a published file again to hash it; this one would be too large for them."""
    error = VerificationError(
        Code.PARQUET_TOO_LARGE,
        "the file to publish is too large",
        expected=f"at most {FETCH_SIZE_MAX_BYTES} bytes",
        got=f"{size} bytes",
    )
    return Finding.of(FailureClass.PHYSICAL, error, path)


def _as_published(rebuilt: DataFile, published: PublishedFacts) -> DataFile:
    """The entry with what is different in the file that the Steward makes: sizes and offsets."""
    sizes, listed = published.column_sizes, rebuilt.column_sizes or ()
    return replace(
        rebuilt,
        file_size_in_bytes=published.size,
        column_sizes=_ids((each, sizes[each]) for each in listed if each in sizes),
        split_offsets=published.split_offsets or None,
    )


def _names_in_files(metadata: TableMetadata) -> dict[int, str]:
    """The name of every struct field in Parquet files, as Iceberg's Java library makes it, in the table's order."""
    schema = metadata.current_schema
    named = {each.field_id: avro_name(each.name) for _, each in to_model(schema).walk() if isinstance(each, Field)}
    return {field_id: named[field_id] for field_id in schema.fields if field_id in named}


def _with_default(metadata: TableMetadata) -> tuple[int, ...]:
    """Readers put these columns' defaults where a file lacks them; the digest would have seen null."""
    return tuple(
        field.field_id for field in metadata.current_schema.fields.values() if field.initial_default is not None
    )


def class_of(code: str) -> FailureClass:
    """What a refusal of the kernel's reader is about: a file's columns and their types, its entry, or its bytes."""
    if code == Code.RECORD_COUNT_LIES:
        return FailureClass.METADATA
    is_schema = code in _SCHEMA_CODES or code.startswith("field_")
    return FailureClass.SCHEMA if is_schema else FailureClass.PHYSICAL


def _rebuilt(path: str, size: int, facts: ParquetFacts, table: _Table) -> DataFile:
    """The entry from what was seen alone; a sort order, row ids and whatever else was not proved are left out."""
    counted = [(each, leaf) for each, leaf in facts.leaves.items() if leaf.present and table.modes[each].counts]
    bounds = [(each, _ends(leaf, table.types[each], table.modes[each])) for each, leaf in counted]
    return DataFile(
        file_path=path,
        file_format="PARQUET",
        record_count=facts.rows,
        file_size_in_bytes=size,
        column_sizes=_ids(
            (each, found)
            for each, found in facts.column_sizes.items()
            if each in table.modes and table.modes[each].counts
        ),
        value_counts=_ids((each, leaf.values) for each, leaf in counted),
        null_value_counts=_ids((each, leaf.nulls) for each, leaf in counted),
        nan_value_counts=_ids((each, leaf.nans) for each, leaf in counted if leaf.nans is not None),
        lower_bounds=_ids((each, low) for each, (low, _) in bounds if low is not None),
        upper_bounds=_ids((each, high) for each, (_, high) in bounds if high is not None),
        split_offsets=facts.split_offsets or None,
    )


def _ends(leaf: LeafFacts, kind: Type, mode: MetricsMode) -> tuple[bytes | None, bytes | None]:
    if leaf.lower is None or leaf.upper is None or not is_ordered(kind):
        return None, None
    # Engines hold -0.0 and +0.0 to be equal, and compare them with bounds as if they were not.
    low = lower_bound(kind, _zero(decode_value(kind, leaf.lower), -0.0), mode)
    value = _zero(decode_value(kind, leaf.upper), 0.0)
    if leaf.upper_cut and (mode.length is None or mode.length >= len(value)):
        # Only the start of the value is known, and it is no upper bound by itself.
        mode = replace(mode, length=len(value) - 1)
    return low, upper_bound(kind, value, mode)


def _zero(value: Value, signed: float) -> Value:
    """The value, or the zero that is to stand for both."""
    return signed if isinstance(value, float) and value == 0 else value


_T = TypeVar("_T")


def _ids(pairs: Iterable[tuple[int, _T]]) -> IdMap[_T]:
    return IdMap(sorted(pairs, key=lambda pair: pair[0]))
