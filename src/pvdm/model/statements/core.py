"""The core of a proof: what was verified, where it goes and the verdict; equal bytes for every honest notary."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pvdm.model.canonical_json import Value, dump
from pvdm.model.fields import (
    Fields,
    decimal,
    invalid,
    require_form,
    require_long,
    require_number,
    require_pairs,
    require_random,
    require_sequence,
    require_sha256,
    require_text,
)
from pvdm.model.projection import Exclusion, Projection, ProjectionName
from pvdm.model.schema import COLUMNS_MAX
from pvdm.model.statements.files import FileSet
from pvdm.model.statements.table import SOURCES_MAX, SourceSnapshot, TableRef
from pvdm.model.statements.verdict import Verdict

ATTEMPT_NUMBER_MAX: Final = 1_000_000
CHECKS_MAX: Final = 1_000
MODES: Final = ("stored", "portable")
CONSTRUCTIONS: Final = ("hmac-sha256", "blake3")


class Operation(Enum):
    """What a publication does to the boundary: rows added, partitions replaced, or everything replaced."""

    APPEND = "append"
    OVERWRITE_PARTITIONS = "overwrite-partitions"
    OVERWRITE = "overwrite"


class Profile(Enum):
    """How intent is established: A, T or O of the paper."""

    A = "A"
    T = "T"
    O = "O"  # noqa: E741 - the paper's letter


class ExtractionPath(Enum):
    """Who read the rows: our own reader, or Spark's."""

    DIRECT = "direct"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the publication goes, and the table's facts on which it was judged."""

    table: TableRef
    branch: str
    base_snapshot_id: int | None
    operation: Operation
    partition: tuple[tuple[str, str | None], ...]
    schema_fingerprint: str
    spec_id: int
    format_version: int

    def __post_init__(self) -> None:
        require_text(self.branch, "the branch")
        if self.base_snapshot_id is not None:
            require_long(self.base_snapshot_id, "the base snapshot")
        require_pairs(self.partition, "the partition")
        require_sha256(self.schema_fingerprint, "the schema fingerprint")
        require_number(self.spec_id, "the partition spec", most=2**31 - 1)
        require_number(self.format_version, "the format version", least=1, most=3)

    def to_json(self) -> dict[str, Value]:
        """The target in a proof; a base of null is a table that shows nothing yet."""
        return {
            "table": self.table.to_json(),
            "branch": self.branch,
            "base_snapshot_id": decimal(self.base_snapshot_id),
            "operation": self.operation.value,
            "partition": dict(self.partition),
            "schema_fingerprint": self.schema_fingerprint,
            "spec_id": self.spec_id,
            "format_version": self.format_version,
        }

    @classmethod
    def from_json(cls, value: Value) -> Target:
        """The target that `to_json` wrote."""
        keys = ("table", "branch", "base_snapshot_id", "operation", "partition", "schema_fingerprint", "spec_id")
        fields = Fields(value, "the target", (*keys, "format_version"))
        return cls(
            TableRef.from_json(fields.value("table")),
            fields.text("branch"),
            fields.optional_decimal("base_snapshot_id"),
            fields.choice("operation", Operation),
            fields.pairs("partition"),
            fields.text("schema_fingerprint"),
            fields.number("spec_id"),
            fields.number("format_version"),
        )


@dataclass(frozen=True, slots=True)
class Staged:
    """The attempt's own branch and the snapshot that was verified; null where nothing was staged."""

    branch: str
    snapshot_id: int | None

    def __post_init__(self) -> None:
        require_text(self.branch, "the staging branch")
        if self.snapshot_id is not None:
            require_long(self.snapshot_id, "the staged snapshot")

    def to_json(self) -> dict[str, Value]:
        """The staged snapshot in a proof."""
        return {"branch": self.branch, "snapshot_id": decimal(self.snapshot_id)}

    @classmethod
    def from_json(cls, value: Value) -> Staged:
        """What `to_json` wrote."""
        fields = Fields(value, "what was staged", ("branch", "snapshot_id"))
        return cls(fields.text("branch"), fields.optional_decimal("snapshot_id"))


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows intended and rows staged; null is a number that a FAIL could not find out."""

    intent: int | None
    staged: int | None

    def __post_init__(self) -> None:
        for count in (self.intent, self.staged):
            if count is not None:
                require_long(count, "a row count")

    def to_json(self) -> dict[str, Value]:
        """The counts in a proof."""
        return {"intent": decimal(self.intent), "staged": decimal(self.staged)}

    @classmethod
    def from_json(cls, value: Value) -> RowCounts:
        """What `to_json` wrote."""
        fields = Fields(value, "the row counts", ("intent", "staged"))
        return cls(fields.optional_decimal("intent"), fields.optional_decimal("staged"))


@dataclass(frozen=True, slots=True)
class Method:
    """How rows were read and hashed."""

    profile: Profile
    mode: str
    construction: str
    extraction: ExtractionPath
    extraction_version: str

    def __post_init__(self) -> None:
        # The names belong to pvdm.digest.plan, which this room may not call; a test holds both lists together.
        if self.mode not in MODES:
            raise invalid("the mode", " or ".join(MODES), repr(self.mode[:64]))
        if self.construction not in CONSTRUCTIONS:
            raise invalid("the construction", " or ".join(CONSTRUCTIONS), repr(self.construction[:64]))
        require_form(self.extraction_version, "name", "the extraction version")

    def to_json(self) -> dict[str, Value]:
        """The method in a proof."""
        return {
            "profile": self.profile.value,
            "mode": self.mode,
            "construction": self.construction,
            "extraction": self.extraction.value,
            "extraction_version": self.extraction_version,
        }

    @classmethod
    def from_json(cls, value: Value) -> Method:
        """What `to_json` wrote."""
        keys = ("profile", "mode", "construction", "extraction", "extraction_version")
        fields = Fields(value, "the method", keys)
        return cls(
            fields.choice("profile", Profile),
            fields.text("mode"),
            fields.text("construction"),
            fields.choice("extraction", ExtractionPath),
            fields.text("extraction_version"),
        )


@dataclass(frozen=True, slots=True)
class ProvedProjection:
    """One projection with its columns, its reasoned exclusions and the fingerprint of its schema."""

    projection: Projection
    schema_fingerprint: str

    def __post_init__(self) -> None:
        require_sequence(self.projection.columns, "the columns of a projection", least=1, most=COLUMNS_MAX)
        excluded = [gone.column for gone in self.projection.excluded]
        require_sequence(excluded, "the excluded columns", least=0, most=COLUMNS_MAX)
        for gone in self.projection.excluded:
            require_text(gone.reason, "the reason of an exclusion")
        if both := sorted(set(excluded).intersection(self.projection.columns)):
            raise invalid("the excluded columns", "none of the projected ones", repr(both[0]))
        require_sha256(self.schema_fingerprint, "the fingerprint of a projection")

    def to_json(self) -> dict[str, Value]:
        """The projection in a proof."""
        return {
            "name": self.projection.name.value,
            "columns": list(self.projection.columns),
            "excluded": [{"column": gone.column, "reason": gone.reason} for gone in self.projection.excluded],
            "schema_fingerprint": self.schema_fingerprint,
        }

    @classmethod
    def from_json(cls, value: Value) -> ProvedProjection:
        """What `to_json` wrote."""
        fields = Fields(value, "a projection", ("name", "columns", "excluded", "schema_fingerprint"))
        excluded = []
        for each in fields.items("excluded"):
            gone = Fields(each, "an exclusion", ("column", "reason"))
            excluded.append(Exclusion(gone.text("column"), gone.text("reason")))
        name = fields.choice("name", ProjectionName)
        return cls(Projection(name, fields.texts("columns"), tuple(excluded)), fields.text("schema_fingerprint"))


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which attempt at which chunk of which workload, under which contract and plan."""

    contract_sha256: str
    parameters: tuple[tuple[str, str | None], ...]
    workload_id: str
    plan_sha256: str
    chunk_id: str
    attempt_id: str
    number: int
    nonce: str

    def __post_init__(self) -> None:
        require_sha256(self.contract_sha256, "the contract hash")
        require_pairs(self.parameters, "the parameters")
        require_form(self.workload_id, "id", "the workload id")
        require_sha256(self.plan_sha256, "the plan hash")
        require_text(self.chunk_id, "the chunk id")
        require_random(self.attempt_id, "the attempt id")
        require_number(self.number, "the attempt's number", least=1, most=ATTEMPT_NUMBER_MAX)
        require_random(self.nonce, "the nonce")

    def to_json(self) -> dict[str, Value]:
        """The attempt in a proof."""
        return {
            "contract_sha256": self.contract_sha256,
            "parameters": dict(self.parameters),
            "workload_id": self.workload_id,
            "plan_sha256": self.plan_sha256,
            "chunk_id": self.chunk_id,
            "attempt_id": self.attempt_id,
            "number": self.number,
            "nonce": self.nonce,
        }

    @classmethod
    def from_json(cls, value: Value) -> Attempt:
        """What `to_json` wrote."""
        keys = ("contract_sha256", "parameters", "workload_id", "plan_sha256", "chunk_id", "attempt_id", "number")
        fields = Fields(value, "the attempt", (*keys, "nonce"))
        return cls(
            fields.text("contract_sha256"),
            fields.pairs("parameters"),
            fields.text("workload_id"),
            fields.text("plan_sha256"),
            fields.text("chunk_id"),
            fields.text("attempt_id"),
            fields.number("number"),
            fields.text("nonce"),
        )


@dataclass(frozen=True, slots=True)
class ProofCore:
    """Everything that notaries must agree on."""

    attempt: Attempt
    target: Target
    staged: Staged
    files: FileSet
    rows: RowCounts
    sources: tuple[SourceSnapshot, ...]
    method: Method
    projections: tuple[ProvedProjection, ...]
    checks: tuple[str, ...]
    verdict: Verdict

    def __post_init__(self) -> None:
        order = [(source.table.catalog, source.table.uuid, source.snapshot_id) for source in self.sources]
        if not 1 <= len(order) <= SOURCES_MAX or order != sorted(set(order)):
            raise invalid("the sources", f"1 to {SOURCES_MAX} distinct ones, in order", str(len(order)))
        names = [proved.projection.name.value for proved in self.projections]
        require_sequence(names, "the projections", least=1, most=len(ProjectionName))
        require_sequence(self.checks, "the checks", least=0, most=CHECKS_MAX)
        for check in self.checks:
            require_form(check, "name", "a check")
        if self.target.operation is Operation.APPEND and self.files.removed:
            raise invalid("the removed files", "none in an append", str(len(self.files.removed)))

    def to_json(self) -> dict[str, Value]:
        """The core of the predicate."""
        return {
            "attempt": self.attempt.to_json(),
            "target": self.target.to_json(),
            "staged": self.staged.to_json(),
            "files": self.files.to_json(),
            "rows": self.rows.to_json(),
            "sources": [source.to_json() for source in self.sources],
            "method": self.method.to_json(),
            "projections": [proved.to_json() for proved in self.projections],
            "checks": list(self.checks),
            "verdict": self.verdict.to_json(),
        }

    def to_bytes(self) -> bytes:
        """The canonical bytes that notaries must agree on."""
        return dump(self.to_json())

    @classmethod
    def from_json(cls, value: Value) -> ProofCore:
        """The core that `to_json` wrote."""
        keys = ("attempt", "target", "staged", "files", "rows", "sources", "method", "projections", "checks", "verdict")
        fields = Fields(value, "the core", keys)
        return cls(
            Attempt.from_json(fields.value("attempt")),
            Target.from_json(fields.value("target")),
            Staged.from_json(fields.value("staged")),
            FileSet.from_json(fields.value("files")),
            RowCounts.from_json(fields.value("rows")),
            tuple(SourceSnapshot.from_json(source) for source in fields.items("sources")),
            Method.from_json(fields.value("method")),
            tuple(ProvedProjection.from_json(proved) for proved in fields.items("projections")),
            fields.texts("checks"),
            Verdict.from_json(fields.value("verdict")),
        )
