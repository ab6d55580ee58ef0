"""The parsed contract as values, its parameters' values, and its column mapping applied to a source's schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from pvdm.errors import Code, InputError, expect
from pvdm.model.contract.document import Metadata
from pvdm.model.fields import require_pairs
from pvdm.model.filter.bind import bind
from pvdm.model.filter.claim_filter import find_empty_range
from pvdm.model.filter.expression import Expression, columns_of
from pvdm.model.filter.literal import literal_text, parse_literal
from pvdm.model.role import Role
from pvdm.model.schema import DecimalType, Kind, PrimitiveType, Schema, Type, type_from_json
from pvdm.model.statements.core import ExtractionPath, Operation, Profile
from pvdm.model.statements.proof import Storage

ICEBERG_PRECISION: Final = 38  # the most digits of a decimal in Iceberg
WIDENINGS: Final[dict[Type, Type]] = {
    PrimitiveType(Kind.INT): PrimitiveType(Kind.LONG),
    PrimitiveType(Kind.FLOAT): PrimitiveType(Kind.DOUBLE),
}
_DECIMAL: Final = re.compile(r"decimal\(\d{1,2}, ?\d{1,2}\)", re.ASCII)


class Atomicity(StrEnum):
    """What becomes visible in one commit."""

    CHUNK = "chunk"
    WORKLOAD = "workload"


class OnFail(Enum):
    """What happens to staged files whose verdict is FAIL."""

    QUARANTINE = "quarantine"
    DELETE = "delete"


class ChunkingBy(Enum):
    """By what the source is cut into chunks."""

    NONE = "none"
    PARTITION = "partition"
    FILES = "files"
    RANGE = "range"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that every workload gives, as the text of a literal of this type. Proofs contain it."""

    name: str
    type: Kind


@dataclass(frozen=True, slots=True)
class ParameterRef:
    """A parameter used as a partition value."""

    name: str


@dataclass(frozen=True, slots=True)
class Source:
    """The source of the intended rows: a table of the catalog, or Parquet files that a manifest lists with hashes.

    `uuid` is the table's UUID, if the contract names it. Otherwise, if rows of a table of this name were published to
    the target before, the source must be the table from which they were published last.
    """

    table: str | None  # None: the source is files
    manifest: str | None  # the location; None: the source is a table
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the target: its source column, and its wider type; without one it keeps the source's type."""

    source: str
    target: str
    type: Type | None


@dataclass(frozen=True, slots=True)
class DomainTransactionBoundary:
    """What one workload may touch. `columns` are the target's, in order; None means every source column as it is."""

    source: Source
    where: Expression
    columns: tuple[Column, ...] | None
    target: str
    operation: Operation
    partition: tuple[tuple[str, str | ParameterRef | None], ...]  # columns with their values
    claim: str | None  # the source column whose values workloads claim; None: each claims everything


@dataclass(frozen=True, slots=True)
class Chunking:
    """How the source is cut into chunks. Which fields are set depends on `by`."""

    by: ChunkingBy
    columns: tuple[str, ...]  # for PARTITION
    max_bytes: int | None  # for FILES
    column: str | None  # for RANGE
    bounds: tuple[str, ...]  # for RANGE


@dataclass(frozen=True, slots=True)
class Projections:
    """The key columns (identity), and the columns that the content projection leaves out, each with its reason."""

    identity: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Governance:
    """What happens on FAIL, which roles see keys of rows, and what a publication needs besides a PASS."""

    on_fail: OnFail
    sample_keys: tuple[Role, ...]
    threshold: int
    attempts_max: int
    automatic_repairs: int  # so many failed attempts at a chunk are followed by a new attempt of the same run
    proof_lifetime_seconds: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one workload's plan, and of each attempt."""

    chunks: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DataProductContract:
    """A valid contract. Only `parse_contract` creates it. `sha256` is the hash of the file; proofs contain it."""

    sha256: str
    product: Metadata
    parameters: tuple[Parameter, ...]
    boundary: DomainTransactionBoundary
    chunking: Chunking
    projections: Projections
    profile: Profile
    atomicity: Atomicity
    extraction: ExtractionPath
    storage: Storage
    governance: Governance
    limits: Limits

    def bind(self, given: Mapping[str, str]) -> BoundContract:
        """The contract with these parameter values. Raises if they do not fit, or if no row can pass the filter."""
        declared = {each.name: each for each in self.parameters}
        if set(given) != set(declared):
            wanted = ", ".join(sorted(declared)) or "none"
            got = ", ".join(ascii(name[:80])[1:-1] for name in sorted(given)) or "none"
            hint = _parameters_hint(sorted(declared))
            raise Code.PARAMETERS_INVALID(reason="parameters_differ", expected=wanted, got=got, hint=hint)
        pairs = tuple((name, _canonicalize(given[name], declared[name])) for name in sorted(given))
        require_pairs(pairs, "the parameters")
        column = self.boundary.claim
        empty_range = None if column is None else find_empty_range(self.boundary.where, column, dict(pairs))
        if empty_range is not None:
            raise empty_range
        return BoundContract(self, pairs)

    def claim_warning(self, before: DataProductContract) -> str | None:
        """A warning if this contract appends and replaces one that overwrites: its workloads have claimed no rows."""
        if before.boundary.operation is Operation.APPEND or self.boundary.operation is not Operation.APPEND:
            return None
        return (
            "workloads that overwrote rows have claimed nothing: rows that were published under the old contract can "
            "be appended again under another workload id, and would then be in the table twice"
        )


def _parameters_hint(declared: list[str]) -> str:
    if not declared:
        return "leave --param out: the contract has no parameters"
    return f"give each of them once: {' '.join(f'--param {name}=VALUE' for name in declared)}"


@dataclass(frozen=True, slots=True)
class BoundContract:
    """A contract with its parameters' values in canonical form, in order of their names."""

    contract: DataProductContract
    parameters: tuple[tuple[str, str], ...]

    def where(self, source: Schema) -> Expression:
        """The filter, bound to the source's schema."""
        return bind(self.contract.boundary.where, source, dict(self.parameters))

    @property
    def partition(self) -> tuple[tuple[str, str | None], ...]:
        """The partition values, with the values of parameters."""
        values = dict(self.parameters)
        declared = self.contract.boundary.partition
        return tuple((name, values[each.name] if isinstance(each, ParameterRef) else each) for name, each in declared)


def _canonicalize(text: str, declared: Parameter) -> str:
    data_type = PrimitiveType(declared.type)
    try:
        canonical = literal_text(parse_literal(text, data_type), data_type)
    except InputError as error:
        message = f"parameter {declared.name} cannot be accepted"
        raise Code.PARAMETERS_INVALID(
            message, reason="parameter_invalid", expected=error.expected, got=error.got, parameter=declared.name
        ) from None
    return expect(canonical, "a parsed literal has a canonical text")


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column of the source, with its name and its type in the target."""

    source: str
    target: str
    type: Type


def parse_wider_type(text: str) -> Type:
    """The type of this name. Raises `mapping_not_lossless` if it is not one that a mapping can widen a column to."""
    if text in ("long", "double"):
        return type_from_json(text)
    if _DECIMAL.fullmatch(text):
        try:
            wider = type_from_json(text.replace(" ", ""))
        except InputError:
            raise Code.MAPPING_INVALID(reason="mapping_not_lossless", got=ascii(text)) from None
        if isinstance(wider, DecimalType) and wider.precision <= ICEBERG_PRECISION:
            return wider
    raise Code.MAPPING_INVALID(reason="mapping_not_lossless", got=ascii(text[:64]))


def map_columns(columns: Iterable[Column] | None, source: Schema) -> tuple[MappedColumn, ...]:
    """The target's columns in the contract's order, for a source with this schema. Raises if the two do not fit."""
    if columns is None:
        columns = tuple(Column(name, name, None) for name in source.names)
    return tuple(MappedColumn(each.source, each.target, _resolve_type(each, source)) for each in columns)


def columns_read(contract: DataProductContract, target: Iterable[str]) -> frozenset[str]:
    """Every source column that the contract reads. `target` are the names of the target's columns."""
    boundary, chunking = contract.boundary, contract.chunking
    mapped = target if boundary.columns is None else (each.source for each in boundary.columns)
    others = (*chunking.columns, *(each for each in (chunking.column, boundary.claim) if each is not None))
    return frozenset({*mapped, *columns_of(boundary.where), *others})


def _resolve_type(column: Column, source: Schema) -> Type:
    """The column's type in the target. Raises if the source lacks the column, or its type cannot be widened so."""
    if column.source not in source.names:
        name, known = ascii(column.source[:80]), f"one of {', '.join(source.names)}"[:400]
        message = f"the source has no column {name}, which the contract takes for {column.target[:80]!a}"
        raise Code.MAPPING_INVALID(
            message, reason="mapping_column_unknown", expected=known, got=name, column=column.source
        )
    source_type = source.column(column.source).type
    if column.type is None or column.type == source_type:
        return source_type
    if WIDENINGS.get(source_type) == column.type:
        return column.type
    match source_type, column.type:
        case DecimalType(precision, scale), DecimalType(wider, same) if wider > precision and same == scale:
            return column.type
    got = f"{source_type} to {column.type} for {column.source[:80]!a}"
    raise Code.MAPPING_INVALID(reason="mapping_not_lossless", got=got)
