"""The core of a proof: what was verified, where it is published, and the verdict. It is the same for all notaries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from pvdm.model.codec import (
    DecimalText,
    Document,
    FieldType,
    Id,
    Name,
    Pairs,
    Random,
    Sha256,
    Text,
    documents,
    form,
    number_between,
    one_of,
    sorted_texts,
)
from pvdm.model.fields import Fields, invalid, require_sequence, require_text
from pvdm.model.projection import Projection, ProjectionName
from pvdm.model.schema import COLUMNS_MAX
from pvdm.model.statements.table import SOURCES_MAX, FormatVersion, SourceSnapshot, SpecId, TableRef
from pvdm.model.statements.verdict import Verdict

ATTEMPT_NUMBER_MAX: Final = 1_000_000
CHECKS_MAX: Final = 1_000
FILES_MAX: Final = 20_000
# pvdm.digest.plan defines these names, but this package may not import it. A test compares both lists.
MODES: Final = ("stored", "portable")
CONSTRUCTIONS: Final = ("hmac-sha256", "blake3")


class Operation(Enum):
    """What a publication does to the target: add rows, replace partitions, or replace everything."""

    APPEND = "append"
    OVERWRITE_PARTITIONS = "overwrite-partitions"
    OVERWRITE = "overwrite"


class Profile(Enum):
    """How the intended rows are defined. The letters are the paper's (docs/concepts.md)."""

    A = "A"
    T = "T"
    O = "O"  # noqa: E741 - the paper's letter


class ExtractionPath(Enum):
    """Which reader read the rows: only the Steward's own (direct), or Spark's too."""

    DIRECT = "direct"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Target(Document, title="the target"):
    """Where the publication goes, and how the table was at verification. Without a base snapshot `main` was empty."""

    table: TableRef
    branch: Text
    base_snapshot_id: DecimalText | None
    operation: Operation
    partition: Pairs
    schema_fingerprint: Sha256
    spec_id: SpecId
    format_version: FormatVersion


@dataclass(frozen=True, slots=True)
class StagedBranch(Document, title="what was staged"):
    """The attempt's branch, and the snapshot on it that was verified (None if nothing was staged)."""

    branch: Text
    snapshot_id: DecimalText | None


@dataclass(frozen=True, slots=True)
class AddedFile(Document, title="an added file"):
    """A verified data file: path, size and SHA-256 of the staged file, and of the published file.

    With storage `copied` the Steward publishes a file of its own, with the staged page bodies. Otherwise the staged
    file is published. Only storage `sealed` has a `version_id`: the version of the object that the Steward hashed.
    """

    staged_path: Text
    staged_size_bytes: DecimalText
    staged_sha256: Sha256
    published_path: Text
    published_size_bytes: DecimalText
    published_sha256: Sha256
    version_id: Annotated[str | None, FieldType(Fields.text, check=require_text, required=False)] = None

    def require_consistent(self) -> None:
        """A file that is published in place has the same bytes."""
        if self.staged_path == self.published_path and self.staged_size_and_hash != self.published_size_and_hash:
            raise invalid("a file that is published in place", "one size and one hash", "two")

    @classmethod
    def in_place(cls, path: str, size_bytes: int, sha256: str, version_id: str | None = None) -> AddedFile:
        """A staged file that is published as it is, where it is."""
        return cls(path, size_bytes, sha256, path, size_bytes, sha256, version_id)

    @property
    def staged_size_and_hash(self) -> tuple[int, str]:
        """Size and SHA-256 of the file that the producer wrote."""
        return self.staged_size_bytes, self.staged_sha256

    @property
    def published_size_and_hash(self) -> tuple[int, str]:
        """Size and SHA-256 of the file that consumers read."""
        return self.published_size_bytes, self.published_sha256


@dataclass(frozen=True, slots=True)
class FileSet(Document, title="the files"):
    """The files that an attempt adds, in order of published path, and the paths that it removes from `main`."""

    added: Annotated[tuple[AddedFile, ...], documents(AddedFile, 0, FILES_MAX)]
    removed: Annotated[tuple[str, ...], sorted_texts(0, FILES_MAX, each=require_text)] = ()

    def require_consistent(self) -> None:
        """Added files are in order, no path occurs twice, and no file that is published in place is also removed."""
        published = [file.published_path for file in self.added]
        staged = [file.staged_path for file in self.added]
        require_sequence(published, "the added files", least=0, most=FILES_MAX)
        require_sequence(sorted(staged), "the staged paths", least=0, most=FILES_MAX)
        if removed_and_added := sorted(set(self.removed).intersection(published, staged)):
            raise invalid("the removed files", "none of the added ones", removed_and_added[0])

    @property
    def staged_hashes(self) -> tuple[str, ...]:
        """The SHA-256 of each staged file, sorted. Files with equal bytes repeat a hash."""
        return tuple(sorted(file.staged_sha256 for file in self.added))

    @property
    def published_hashes(self) -> tuple[str, ...]:
        """The SHA-256 of each published file, sorted. Files with equal bytes repeat a hash."""
        return tuple(sorted(file.published_sha256 for file in self.added))


@dataclass(frozen=True, slots=True)
class RowCounts(Document, title="the row counts"):
    """Rows intended and rows staged. None means that they could not be counted; only a FAIL has it."""

    intent: DecimalText | None
    staged: DecimalText | None


@dataclass(frozen=True, slots=True)
class Method(Document, title="the method"):
    """How rows were read (`extraction`, with its version) and hashed (`mode`, `construction`: spec/digest.md)."""

    profile: Profile
    mode: Annotated[str, one_of(*MODES)]
    construction: Annotated[str, one_of(*CONSTRUCTIONS)]
    extraction: ExtractionPath
    extraction_version: Name


_PROJECTION_KEYS: Final = ("name", "columns", "excluded")


def _read_projection(fields: Fields, _key: str) -> Projection:
    return Projection.from_json({key: fields.value(key) for key in _PROJECTION_KEYS})


def _require_projection(projection: Projection, what: str) -> None:
    """Columns and exclusions are in order, exclusions have reasons, and no excluded column is projected."""
    require_sequence(projection.columns, "the columns of a projection", least=1, most=COLUMNS_MAX)
    excluded = [exclusion.column for exclusion in projection.excluded]
    require_sequence(excluded, "the excluded columns", least=0, most=COLUMNS_MAX)
    for exclusion in projection.excluded:
        require_text(exclusion.reason, "the reason of an exclusion")
    if projected := sorted(set(excluded).intersection(projection.columns)):
        raise invalid(f"excluded columns in {what}", "none of the projected ones", repr(projected[0]))


_PROJECTION: Final = FieldType(_read_projection, Projection.to_json, _require_projection, keys=_PROJECTION_KEYS)


@dataclass(frozen=True, slots=True)
class ProvedProjection(Document, title="a projection"):
    """One projection with its columns, its exclusions and their reasons, and the fingerprint of its schema."""

    projection: Annotated[Projection, _PROJECTION]
    schema_fingerprint: Sha256


@dataclass(frozen=True, slots=True)
class Attempt(Document, title="the attempt"):
    """Which attempt at which chunk of which workload, under which contract and plan."""

    contract_sha256: Sha256
    parameters: Pairs
    workload_id: Id
    plan_sha256: Sha256
    chunk_id: Text
    attempt_id: Random
    number: Annotated[int, number_between(1, ATTEMPT_NUMBER_MAX)]
    nonce: Random


@dataclass(frozen=True, slots=True)
class ProofCore(Document, title="the core"):
    """Everything that notaries must agree on. `checks` are the names of the checks that were run."""

    attempt: Attempt
    target: Target
    staged: StagedBranch
    files: FileSet
    rows: RowCounts
    sources: tuple[SourceSnapshot, ...]
    method: Method
    projections: tuple[ProvedProjection, ...]
    checks: Annotated[tuple[str, ...], sorted_texts(0, CHECKS_MAX, each=form("name"))]
    verdict: Verdict

    def require_consistent(self) -> None:
        """Sources and projections are distinct and in order, and an append removes nothing."""
        order = [(source.table.catalog, source.table.uuid, source.snapshot_id) for source in self.sources]
        if not 1 <= len(order) <= SOURCES_MAX or order != sorted(set(order)):
            raise invalid("the sources", f"1 to {SOURCES_MAX} distinct ones, in order", str(len(order)))
        names = [proved.projection.name.value for proved in self.projections]
        require_sequence(names, "the projections", least=1, most=len(ProjectionName))
        if self.target.operation is Operation.APPEND and self.files.removed:
            raise invalid("the removed files", "none in an append", str(len(self.files.removed)))
