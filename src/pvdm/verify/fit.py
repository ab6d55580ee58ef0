"""Checks schemas and Parquet footers before anything is staged: source, contract and target must fit together."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.digest import Plan, default_engine, kernel_engine
from pvdm.digest.parquet import read_batches
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.format.schema.logical import to_model, type_to_iceberg
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.entries import declared_partition_fields
from pvdm.lake.read.scan import Scan, scan_batches
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract, ChunkingBy, DataProductContract, ParameterRef, columns_read
from pvdm.model.contract.types import map_columns
from pvdm.model.filter.bind import column_type, require_bindable, require_literal_type
from pvdm.model.filter.claim import Claim
from pvdm.model.filter.literal import parse_literal
from pvdm.model.projection import content
from pvdm.model.schema import FixedType, GeoType, Kind, PrimitiveType, Schema
from pvdm.model.statements.core import ExtractionPath
from pvdm.verify.fetch import Files
from pvdm.verify.intent import Intent, digest_plan, empty_batch, require_mapping
from pvdm.verify.planning import plan_chunks
from pvdm.verify.source import INT96_HINT, PinnedSource, translate_read_errors, unusable_error

# Types that Spark's reader returns as another type or not at all, so that digests would differ from the stored values.
_NOT_EXTRACTED: Final = frozenset(
    {Kind.TIME, Kind.TIME_NS, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS, Kind.UNKNOWN, Kind.UUID, Kind.VARIANT}
)


def require_extractable(schema: Schema, whose: str) -> None:
    """Refuse columns that Spark's reader does not return in the table's own type. `whose` is for the message."""
    for path, slot in schema.walk():
        kind = slot.type
        if isinstance(kind, FixedType | GeoType) or (isinstance(kind, PrimitiveType) and kind.kind in _NOT_EXTRACTED):
            message = f"Spark's reader does not return column {path!a} of the {whose} as it is stored"
            raise Code.EXTRACTION_UNSUPPORTED(message, reason="extraction_type_unsupported", got=str(kind), column=path)


def require_contract_fit(contract: DataProductContract, source: Schema, target: Schema) -> None:
    """Refuse a contract under which no workload can be opened, for any parameters and any rows of the source."""
    plan = require_projections_fit(contract, target)
    require_source_fit(contract, source)
    with _in_contract("boundary.columns"):
        mapped = require_mapping(contract, source, plan)
        engine, batch = default_engine(), empty_batch(mapped, source)
        for projection in plan.projections:
            engine.encode(plan, projection.name, batch)  # raises if a mapped type is not the target's


def require_projections_fit(contract: DataProductContract, target: Schema) -> Plan:
    """The digest plan. Raises if the target lacks a column of the projections, or the identity has a variant."""
    with _in_contract("projections", "name a column of the target, in its own spelling"):
        plan = digest_plan(contract, target)
        require_identity(target, contract.projections.identity)
    return plan


def require_source_fit(contract: DataProductContract, source: Schema) -> None:
    """Refuse a contract that needs columns or types that its source does not have."""
    boundary, chunking = contract.boundary, contract.chunking
    with _in_contract("boundary.columns"):
        map_columns(boundary.columns, source)
    with _in_contract("boundary.where"):
        require_bindable(boundary.where, source, {each.name: PrimitiveType(each.type) for each in contract.parameters})
    if boundary.claim is not None:
        with _in_contract("boundary.claim"):
            Claim.value(boundary.claim, type_to_iceberg(column_type(source, boundary.claim)), None)
    with _in_contract("chunking"):
        if chunking.by is not ChunkingBy.FILES:
            plan_chunks(chunking, source, most=contract.limits.chunks)


def require_extraction_fit(contract: DataProductContract, source: Schema, target: Schema) -> None:
    """Under `extraction: spark`, refuse columns that Spark's reader does not return as stored."""
    if contract.extraction is not ExtractionPath.SPARK:
        return
    require_extractable(target, "target")
    require_extractable(source.select(columns_read(contract, target.names) & set(source.names)), "source")


def require_identity(target: Schema, names: Sequence[str]) -> None:
    """Refuse a variant in the identity: keys are compared and printed."""
    for path, slot in target.select(names).walk():
        if slot.type == PrimitiveType(Kind.VARIANT):
            message = f"column {path!a} cannot be part of the identity"
            raise Code.IDENTITY_TYPE_UNSUPPORTED(message, got=str(slot.type), column=path)


def require_partition_fit(contract: DataProductContract, target: TableMetadata) -> None:
    """Refuse declared partition values that no partition of the target can have."""
    declared = contract.boundary.partition
    parameters = {each.name: PrimitiveType(each.type) for each in contract.parameters}
    with _in_contract("boundary.partition"):
        types = declared_partition_fields(target, [name for name, _ in declared])
        for name, value in declared:
            _, kind = types[name]
            if isinstance(value, ParameterRef):
                require_literal_type(value.name, parameters[value.name], name, kind)
            elif value is not None:
                parse_literal(value, kind)


def require_partition_values(bound: BoundContract, target: TableMetadata) -> None:
    """Refuse parameters that give a declared partition a value which is not of its field's type."""
    types = declared_partition_fields(target, [name for name, _ in bound.partition])
    with _in_contract("boundary.partition", "give the parameters values of the partition field's type"):
        for name, text in bound.partition:
            if text is not None:
                parse_literal(text, types[name][1])


@contextlib.contextmanager
def _in_contract(path: str, hint: str | None = None) -> Iterator[None]:
    """If an `InputError` is raised inside, add `path` to it: the part of the contract that does not fit."""
    try:
        yield
    except InputError as error:
        hint = hint or f"correct {path} of the contract"
        raise error.with_context(f"{path} does not fit: {error.message}", hint=hint, path=path) from None


FOOTER_MAX_BYTES: Final = 67_108_864
_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8  # length of the footer, then the magic
_map_type: Final[Any] = pa.map_  # its stubs accept types only, no fields


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's columns as Arrow types with field ids. `int96` has the names of columns of that deprecated type."""

    schema: pa.Schema
    int96: frozenset[str]

    @property
    def key(self) -> bytes:
        """Bytes that are equal for files with the same columns."""
        return bytes(self.schema.serialize()) + repr(sorted(self.int96)).encode()

    def sample_file(self) -> bytes:
        """A Parquet file with these columns and one row of nulls, to test whether the columns can be read."""
        schema = pa.schema([_make_nullable(field) for field in self.schema])
        out = io.BytesIO()
        row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
        pq.write_table(row, out, store_schema=False)
        return out.getvalue()


def read_footer(location: str, files: Files) -> Footer:
    """Read the columns of a file; only the end of the file is read. Raises `parquet_unreadable`."""
    tail = files.read_end(location, _TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL_BYTES or tail[4:] != _MAGIC or length > FOOTER_MAX_BYTES:
        raise _unreadable_error(location, "a file that does not end with a Parquet footer")
    data = _MAGIC + files.read_end(location, length + _TAIL_BYTES)
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data))
        schema = parquet.schema.to_arrow_schema()
        leaves = [parquet.metadata.schema.column(index) for index in range(parquet.metadata.num_columns)]
    except (pa.ArrowException, OSError) as error:
        raise _unreadable_error(location, str(error).partition("\n")[0][:200]) from None
    int96 = frozenset(leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96")
    return Footer(schema.remove_metadata(), int96)


def _make_nullable(field: Any) -> Any:
    """The same column, with all its inner fields nullable too."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_make_nullable(kind.field(index)) for index in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = _map_type(kind.key_field, _make_nullable(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_make_nullable(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_make_nullable(kind.value_field))
    return field.with_type(kind).with_nullable(True)


def _unreadable_error(location: str, got: str) -> VerificationError:
    message = f"{location} cannot be read"
    return VerificationError("parquet_unreadable", message, expected="a Parquet file", got=got, file=location)


_ALL_ROWS: Final = ChunkDefinition("all", "true", None)
_CORRECT_FILE: Final = "correct the file, or the manifest's schema, and write the manifest again"


def require_usable(bound: BoundContract, source: PinnedSource, target: Schema, files: Files) -> None:
    """Refuse a source whose columns can never be mapped to the target's.

    For a set of files every footer is read. For a table only the schema is checked, since it may have many files.
    """
    kernel_engine()  # raises if the kernel is not installed
    try:
        require_contract_fit(bound.contract, source.scan.schema, target)
        plan = digest_plan(bound.contract, target)
        intent = Intent(bound, source, _ALL_ROWS, plan)
    except InputError as error:
        raise unusable_error(error, _newer_column_hint(error, source)) from None
    require_extraction_fit(bound.contract, source.scan.schema, target)
    if source.scan.named is None:  # a table, not a set of files
        return
    checked: set[bytes] = set()
    for file in source.scan.files:
        with translate_read_errors():
            footer = read_footer(file.location, files)
        if footer.key not in checked:  # one check is enough for files with the same columns
            _require_columns(intent, plan, file, footer)
            checked.add(footer.key)


def _newer_column_hint(error: InputError, source: PinnedSource) -> str | None:
    """A hint, if the error names a column that the source table got after its pinned snapshot."""
    if source.metadata is None:
        return None
    for name in to_model(source.metadata.current_schema).names:
        if name not in source.scan.schema.names and ascii(name) in f"{error.expected} {error.got}":
            return (
                f"{source.ref.name} has a column {name!a} now, but its pinned snapshot {source.snapshot_id} has an "
                "older schema without it: write to the source once more, so that a snapshot has the column, and then "
                "open a workload"
            )
    return None


def _require_columns(intent: Intent, plan: Plan, file: ScanFile, footer: Footer) -> None:
    """Read a sample file with these columns as the file itself will be read, and raise the same errors."""
    try:
        data = footer.sample_file()
    except pa.ArrowException:
        return  # Arrow cannot write such columns; the kernel checks them when it reads the file
    sample = replace(file, size=len(data), sha256=None, record_count=None)
    _require_accepted(plan, intent.rows(sample, lambda _: data), file.location, footer, intent.find_source_column)


def require_schema(schema: Schema, location: str, footer: Footer) -> None:
    """Refuse a file that no contract can use, because its columns cannot be read as the schema says."""
    plan = Plan(schema, (content(schema),))
    try:
        data = footer.sample_file()
    except pa.ArrowException as error:
        message, got = f"{location}: a column has a type that cannot be checked", str(error).partition("\n")[0][:200]
        expected = "types that Iceberg has"
        refused = Code.COLUMNS_MISMATCH(message, reason="arrow_type_unsupported", expected=expected, got=got)
        raise unusable_error(refused, _CORRECT_FILE) from None
    file = ScanFile(location, len(data), None)
    scan = Scan(schema, frozenset(), (file,), {}, named=schema)
    _require_accepted(plan, scan_batches(scan, file, lambda _: data, read_batches), location, footer, lambda name: name)


def _require_accepted(
    plan: Plan, batches: Iterator[pa.RecordBatch], location: str, footer: Footer, to_source: Callable[[str], str]
) -> None:
    """Refuse unreadable batches, and types that the plan refuses. `to_source` gives the source's name of a column."""
    engine = kernel_engine()
    try:
        for batch in batches:
            for projection in plan.projections:
                # The row of the sample is left out: its nulls would be refused in a required column.
                engine.encode(plan, projection.name, batch.slice(0, 0))
    except (VerificationError, InputError) as error:
        # The error may name an inner field, such as `a.b`. Its column is `a`.
        column = to_source(str(error.details.get("column", "")).partition(".")[0]).partition(".")[0]
        if column in footer.int96:
            raise int96_error(location, column) from None
        refused = unusable_error(error, error.hint or _CORRECT_FILE)
        if location not in refused.message:
            refused.message = f"{location}: {refused.message}"
        refused.details["file"] = location
        raise refused from None


def int96_error(location: str, column: str) -> InputError:
    """The error for timestamps of type INT96, which Spark writes by default."""
    message = f"{location}: column {column[:80]!a} has timestamps of type INT96, which have no exact type"
    expected = "timestamps in microseconds (INT64)"
    return InputError(
        "source_int96", message, expected=expected, got="INT96", hint=INT96_HINT, file=location, column=column
    )
