"""Whether source, contract and target fit together, decided by schemas and footers before anything is staged."""

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
from pvdm.errors import Code, InputError, PvdmError, VerificationError
from pvdm.lake.format.schema.logical import to_model, type_to_iceberg
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.entries import partition_types
from pvdm.lake.read.scan import Scan, scan_batches
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract, ChunkingBy, DataProductContract, ParameterRef, columns_read, resolve
from pvdm.model.filter.bind import column_type, require_bindable, require_spellable
from pvdm.model.filter.claim import Claim
from pvdm.model.filter.literal import parse_literal
from pvdm.model.projection import content
from pvdm.model.schema import FixedType, GeoType, Kind, PrimitiveType, Schema
from pvdm.model.statements.core import ExtractionPath
from pvdm.verify.fetch import Files
from pvdm.verify.intent import Intent, digest_plan, no_rows, require_mapping
from pvdm.verify.planning import plan_chunks
from pvdm.verify.source import INT96_HINT, PinnedSource, source_readable, unusable

# Types that Spark's reader gives as another type or not at all, so that digests would differ from the stored values.
_NOT_EXTRACTED: Final = frozenset(
    {Kind.TIME, Kind.TIME_NS, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS, Kind.UNKNOWN, Kind.UUID, Kind.VARIANT}
)


def require_extractable(schema: Schema, whose: str) -> None:
    """Refuse columns that Spark's reader does not give in the table's own type."""
    for path, slot in schema.walk():
        kind = slot.type
        if isinstance(kind, FixedType | GeoType) or (isinstance(kind, PrimitiveType) and kind.kind in _NOT_EXTRACTED):
            raise Code.EXTRACTION_TYPE_UNSUPPORTED(
                f"Spark's reader does not give column {path!a} of the {whose} as it is stored",
                got=str(kind),
                column=path,
            )


def require_contract_fit(contract: DataProductContract, source: Schema, target: Schema) -> None:
    """Refuse a contract under which no workload can be opened, whatever its parameters and the source's rows are.

    It is checked before a contract comes into force and before each workload is opened.
    """
    with _name_place("projections", "name a column of the target, in its own spelling"):
        plan = digest_plan(contract, target)
        require_identity(target, contract.projections.identity)
    require_source_fit(contract, source)
    with _name_place("boundary.columns"):
        mapped = require_mapping(contract, source, plan)
        engine, batch = default_engine(), no_rows(mapped, source)
        for projection in plan.projections:
            engine.encode(plan, projection.name, batch)


def require_source_fit(contract: DataProductContract, source: Schema) -> None:
    """Refuse a contract that needs columns or types that its source does not have."""
    boundary, chunking = contract.boundary, contract.chunking
    with _name_place("boundary.columns"):
        resolve(boundary.mapping, source)
    with _name_place("boundary.where"):
        require_bindable(boundary.where, source, {each.name: each.type.type for each in contract.parameters})
    if boundary.claim is not None:
        with _name_place("boundary.claim"):
            Claim.value(boundary.claim, type_to_iceberg(column_type(source, boundary.claim)), None)
    with _name_place("chunking"):
        if chunking.by is not ChunkingBy.FILES:
            plan_chunks(chunking, source, values=(), files=(), most=contract.limits.chunks)


def require_extraction_fit(contract: DataProductContract, source: Schema, target: Schema) -> None:
    """Refuse columns that Spark's reader does not give as stored, under a contract with `extraction: spark`."""
    if contract.extraction is not ExtractionPath.SPARK:
        return
    require_extractable(target, "target")
    wanted = columns_read(contract, target.names) & set(source.names)
    require_extractable(source.select(wanted), "source")


def require_identity(target: Schema, names: Sequence[str]) -> None:
    """Refuse a variant in the identity, since keys must be comparable and printable."""
    for path, slot in target.select(names).walk():
        if slot.type == PrimitiveType(Kind.VARIANT):
            raise Code.IDENTITY_TYPE_UNSUPPORTED(
                f"column {path!a} cannot be part of the identity", got=str(slot.type), column=path
            )


def require_partition_fit(contract: DataProductContract, target: TableMetadata) -> None:
    """Refuse declared partition values that no partition of the target can have."""
    declared = contract.boundary.partition
    parameters = {each.name: each.type.type for each in contract.parameters}
    with _name_place("boundary.partition"):
        types = partition_types(target, [name for name, _ in declared])
        for name, value in declared:
            _, kind = types[name]
            if isinstance(value, ParameterRef):
                require_spellable(value.name, parameters[value.name], name, kind)
            elif value is not None:
                parse_literal(value, kind)


@contextlib.contextmanager
def _name_place(place: str, hint: str | None = None) -> Iterator[None]:
    """Add the place in the contract to a refusal."""
    try:
        yield
    except InputError as error:
        hint = hint or f"correct {place} of the contract"
        raise error.with_context(f"{place} does not fit: {error.message}", hint=hint, path=place) from None


FOOTER_MAX_BYTES: Final = 67_108_864
_MAGIC: Final = b"PAR1"
_TAIL: Final = 8
_map: Final[Any] = pa.map_  # its stubs know no field in the place of a type


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's columns as Arrow types with field ids; `int96` are those with timestamps of that deprecated type."""

    schema: pa.Schema
    int96: frozenset[str]

    @property
    def key(self) -> bytes:
        """The same for files of the same columns."""
        return bytes(self.schema.serialize()) + repr(sorted(self.int96)).encode()

    def sample_file(self) -> bytes:
        """A Parquet file of one null row with these columns: a reader of it can read the file as well."""
        schema = pa.schema([_nullable(field) for field in self.schema])
        out = io.BytesIO()
        row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
        pq.write_table(row, out, store_schema=False)
        return out.getvalue()


def read_footer(location: str, files: Files) -> Footer:
    """Read the columns of a file from its end alone; raises `parquet_unreadable`."""
    tail = files.end(location, _TAIL)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL or tail[4:] != _MAGIC or length > FOOTER_MAX_BYTES:
        raise _unreadable(location, "another ending than a Parquet file has")
    data = _MAGIC + files.end(location, length + _TAIL)
    try:
        opened = pq.ParquetFile(pa.BufferReader(data))
        schema = opened.schema.to_arrow_schema()
        leaves = [opened.metadata.schema.column(at) for at in range(opened.metadata.num_columns)]
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(location, str(error).partition("\n")[0][:200]) from None
    old = frozenset(each.path.partition(".")[0] for each in leaves if each.physical_type == "INT96")
    return Footer(schema.remove_metadata(), old)


def _nullable(field: Any) -> Any:
    """The same column, nullable at any depth."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(kind.field(at)) for at in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = _map(kind.key_field, _nullable(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_nullable(kind.value_field))
    return field.with_type(kind).with_nullable(True)


def _unreadable(location: str, got: str) -> VerificationError:
    return VerificationError(
        Code.PARQUET_UNREADABLE, f"{location} cannot be read", expected="a Parquet file", got=got, file=location
    )


_WHOLE: Final = ChunkDefinition("all", "true", None)
_CORRECT: Final = "correct the file, or the manifest's schema, and write the manifest again"


def require_usable(bound: BoundContract, source: PinnedSource, target: Schema, files: Files) -> None:
    """Refuse a source whose columns can never become the target's.

    Of a set of files every footer is read. Of a table only the schema is checked, since it may have many files.
    """
    kernel_engine()  # raises where it is not installed
    try:
        require_contract_fit(bound.contract, source.scan.schema, target)
        plan = digest_plan(bound.contract, target)
        intent = Intent(bound, source, _WHOLE, plan)
    except InputError as error:
        raise unusable(error, _newer_column(error, source)) from None
    require_extraction_fit(bound.contract, source.scan.schema, target)
    if source.scan.named is None:
        return
    known: set[bytes] = set()
    for file in source.scan.files:
        with source_readable():
            footer = read_footer(file.location, files)
        if footer.key not in known:
            _require_columns(intent, plan, file, footer)
            known.add(footer.key)


def _newer_column(error: InputError, source: PinnedSource) -> str | None:
    """The hint where the table has the column now, but its pinned snapshot is older than the column."""
    if source.metadata is None:
        return None
    pinned = set(source.scan.schema.names)
    newer = [name for name in to_model(source.metadata.current_schema).names if name not in pinned]
    named = next((name for name in newer if ascii(name) in f"{error.expected} {error.got}"), None)
    if named is None:
        return None
    return (
        f"{source.ref.name} has a column {named!a} now, but its pinned snapshot {source.snapshot_id} has an older "
        "schema without it: write to the source once more, so that a snapshot has the column, and open a workload then"
    )


def _require_columns(intent: Intent, plan: Plan, file: ScanFile, footer: Footer) -> None:
    """Read a sample file with these columns as the file itself will be read; raises what that will raise."""
    try:
        data = footer.sample_file()
    except pa.ArrowException:
        return  # Arrow cannot write such columns; the kernel checks them when it reads the file
    sample = replace(file, size=len(data), sha256=None, record_count=None)
    _require_accepted(plan, intent.rows(sample, lambda _: data), file.location, footer, intent.source_of)


def require_schema(schema: Schema, location: str, footer: Footer) -> None:
    """Refuse a file whose columns cannot be read as the schema says, under any contract."""
    plan = Plan(schema, (content(schema),))
    try:
        data = footer.sample_file()
    except pa.ArrowException as error:
        refused = Code.ARROW_TYPE_UNSUPPORTED(
            f"{location}: a column has a type that cannot be checked",
            expected="types that Iceberg has",
            got=str(error).partition("\n")[0][:200],
        )
        raise unusable(refused, _CORRECT) from None
    file = ScanFile(location, len(data), None)
    scan = Scan(schema, frozenset(), (file,), {}, named=schema)
    _require_accepted(plan, scan_batches(scan, file, lambda _: data, read_batches), location, footer, lambda name: name)


def _require_accepted(
    plan: Plan, batches: Iterator[pa.RecordBatch], location: str, footer: Footer, source_of: Callable[[str], str]
) -> None:
    """Refuse batches that cannot be read, or whose types the plan refuses; `source_of` gives a column's own name."""
    engine = kernel_engine()
    try:
        for batch in batches:
            for projection in plan.projections:
                engine.encode(plan, projection.name, batch.slice(0, 0))
    except (VerificationError, InputError) as error:
        column = source_of(str(error.details.get("column", "")).partition(".")[0])
        raise _refused(error, column, location, footer) from None


def _refused(error: PvdmError, column: str, location: str, footer: Footer) -> InputError:
    top = column.partition(".")[0]
    if top in footer.int96:
        return int96(location, top)
    found = unusable(error, error.hint or _CORRECT)
    if location not in found.message:
        found.message = f"{location}: {found.message}"
    found.details["file"] = location
    return found


def int96(location: str, column: str) -> InputError:
    """The error for timestamps of the type that Spark writes by default."""
    message = f"{location}: column {column[:80]!a} has timestamps of type INT96, which have no exact type"
    expected = "timestamps in microseconds (INT64)"
    return InputError(
        "source_int96", message, expected=expected, got="INT96", hint=INT96_HINT, file=location, column=column
    )
