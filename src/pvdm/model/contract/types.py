"""A contract as the rest of the code has it: judged, frozen, with the hash of the file that it came from."""

from __future__ import annotations

from collections.abc import Mapping as Pairs
from dataclasses import dataclass
from enum import Enum

from pvdm.errors import Code, InputError
from pvdm.model.fields import require_pairs
from pvdm.model.filter.bind import bind
from pvdm.model.filter.empty_claim import find_empty_range
from pvdm.model.filter.expression import Expression
from pvdm.model.filter.literal import literal_text, parse_literal
from pvdm.model.role import Role
from pvdm.model.schema import Kind, PrimitiveType, Schema, Type
from pvdm.model.statements.core import ExtractionPath, Operation, Profile
from pvdm.model.statements.proof import Storage


class Atomicity(Enum):
    """What becomes visible at once."""

    CHUNK = "chunk"
    WORKLOAD = "workload"


class OnFail(Enum):
    """Where staged files go whose verdict is FAIL."""

    QUARANTINE = "quarantine"
    DELETE = "delete"


class ChunkingBy(Enum):
    """How the source is cut."""

    NONE = "none"
    PARTITION = "partition"
    FILES = "files"
    RANGE = "range"


class ParameterType(Enum):
    """What a parameter's text must spell."""

    STRING = "string"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"

    @property
    def type(self) -> Type:
        """The type whose literals it takes."""
        return PrimitiveType(Kind(self.value))


@dataclass(frozen=True, slots=True)
class Product:
    """Whose data product it is."""

    domain: str
    product: str
    owner: str
    description: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that every workload brings, bound into its proofs."""

    name: str
    type: ParameterType
    description: str


@dataclass(frozen=True, slots=True)
class ParameterRef:
    """A parameter that stands for a partition value."""

    name: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where the intended rows are: a table of the catalog, or Parquet files that a manifest lists with their hashes.

    `uuid` is the one table of that name which an operator has approved by signing the contract; None where any is.
    """

    table: str | None
    manifest: str | None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the target: which source column fills it, and the wider type it gets, if any."""

    source: str
    target: str
    type: Type | None


@dataclass(frozen=True, slots=True)
class Mapping:
    """The target's columns in their order; None takes every source column under its own name."""

    columns: tuple[Column, ...] | None


@dataclass(frozen=True, slots=True)
class DomainTransactionBoundary:
    """What one workload may touch: source, filter, mapping, target, operation, partition."""

    source: Source
    where: Expression
    mapping: Mapping
    target: str
    operation: Operation
    partition: tuple[tuple[str, str | ParameterRef | None], ...]
    claim: str | None


@dataclass(frozen=True, slots=True)
class Chunking:
    """How the source is cut into parts that are staged, verified and proved one by one."""

    by: ChunkingBy
    columns: tuple[str, ...]
    max_bytes: int | None
    column: str | None
    bounds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Projections:
    """The key columns, and the columns that content leaves out, each for a reason."""

    identity: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Governance:
    """What happens on FAIL, who may see keys of rows, and what a publication needs beside a PASS."""

    on_fail: OnFail
    sample_keys: tuple[Role, ...]
    attestation_required: bool
    threshold: int
    attempts_max: int
    proof_lifetime_seconds: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What one workload may be at most."""

    chunks: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DataProductContract:
    """A judged contract, made by `parse_contract` only; `sha256` is that of the file's own bytes, which proofs bind."""

    sha256: str
    product: Product
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

    def bind(self, given: Pairs[str, str]) -> BoundContract:
        """The contract for one workload: a value for each declared parameter, of its type, and no other.

        Raises `claim_empty` where these values leave nothing of the claim column, whatever its type in the source.
        """
        declared = {each.name: each for each in self.parameters}
        if set(given) != set(declared):
            raise Code.PARAMETERS_DIFFER(
                expected=", ".join(sorted(declared)) or "none",
                got=", ".join(ascii(name[:80])[1:-1] for name in sorted(given)) or "none",
                hint=_parameters_hint(sorted(declared)),
            )
        pairs = tuple((name, _canonical(given[name], declared[name])) for name in sorted(given))
        require_pairs(pairs, "the parameters")
        column = self.boundary.claim
        empty = None if column is None else find_empty_range(self.boundary.where, column, dict(pairs))
        if empty is not None:
            raise empty
        return BoundContract(self, pairs)


def _parameters_hint(declared: list[str]) -> str:
    if not declared:
        return "leave --param out: the contract has no parameters"
    return f"give each of them once: {' '.join(f'--param {name}=VALUE' for name in declared)}"


@dataclass(frozen=True, slots=True)
class BoundContract:
    """A contract with its parameters' values, in order of their names and each in its one spelling."""

    contract: DataProductContract
    parameters: tuple[tuple[str, str], ...]

    def where(self, source: Schema) -> Expression:
        """The filter, bound to the source's schema."""
        return bind(self.contract.boundary.where, source, dict(self.parameters))

    @property
    def partition(self) -> tuple[tuple[str, str | None], ...]:
        """The partition values, parameters put in."""
        values = dict(self.parameters)
        return tuple(
            (name, values[each.name] if isinstance(each, ParameterRef) else each)
            for name, each in self.contract.boundary.partition
        )


def _canonical(text: str, declared: Parameter) -> str:
    kind = declared.type.type
    try:
        found = literal_text(parse_literal(text, kind), kind)
    except InputError as error:
        raise Code.PARAMETER_INVALID(
            f"parameter {declared.name} cannot be accepted",
            expected=error.expected,
            got=error.got,
            parameter=declared.name,
        ) from None
    if found is None:
        raise AssertionError("what a text spells has a spelling")
    return found
