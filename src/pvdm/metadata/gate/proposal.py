"""The input of the gate (proofs, verified files and ledger records) and its result."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.workloads import Workload
from pvdm.model.canonical_json import Value
from pvdm.model.codec import Count, Document, UncheckedDecimalText
from pvdm.model.contract import BoundContract
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef

# After these refusals the same staged files are verified again: the proof has expired, or the table has changed.
VERIFY_AGAIN_CODES: Final = frozenset(
    {
        Code.PROOF_EXPIRED,
        Code.PROOF_WRONG_SCHEMA,
        Code.PROOF_WRONG_SPEC,
        Code.PROOF_WRONG_FORMAT,
        Code.BASE_LEFT_MAIN,
        Code.BOUNDARY_MOVED,
        Code.DELETES_NEWER,
    }
)
# Errors about the table itself, as its catalog shows it. They say nothing about what was staged and proved.
TABLE_IN_DOUBT_CODES: Final = frozenset(
    {
        Code.LOCATION_OUTSIDE,
        Code.LOCATION_RESERVED,
        Code.METADATA_FILE_CHANGED,
        Code.METADATA_FILE_FOREIGN,
        Code.METADATA_FILE_MISSING,
        Code.UPSTREAM_WRONG,
    }
)


@contextlib.contextmanager
def translate_table_errors() -> Iterator[None]:
    """Turn an error about the table itself, as its catalog shows it, into `table_in_doubt`."""
    try:
        yield
    except PvdmError as error:
        if error.code in TABLE_IN_DOUBT_CODES:
            raise table_in_doubt(error) from error
        raise


def require_staged_shown(metadata: TableMetadata, snapshot_id: int | None, *, upstream: str | None) -> None:
    """Raise `table_in_doubt` if the table's upstream does not show the staged snapshot: its answer may be stale."""
    if upstream is None or snapshot_id is None or metadata.snapshot(snapshot_id) is not None:
        return
    raise Code.TABLE_IN_DOUBT(got=f"the upstream catalog {upstream} does not show the staged snapshot {snapshot_id}")


def table_in_doubt(error: PvdmError) -> PvdmError:
    """The error for a table whose catalog or files do not agree with the ledger. The attempt keeps its state."""
    doubt = Code.TABLE_IN_DOUBT(got=f"{error.reason}: {error.message}")
    doubt.details.update(error.details)
    return doubt


@dataclass(frozen=True, slots=True)
class LoggedEnvelope:
    """A signed statement as the ledger stores it, with the index and the time of its log entry."""

    kind: StatementKind
    envelope: bytes
    index: int
    at_micros: int


@dataclass(frozen=True, slots=True)
class Waiver:
    """A break-glass override, and all proofs of the FAIL that it waives. The FAIL is of an earlier attempt."""

    override: LoggedEnvelope
    failed: tuple[LoggedEnvelope, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One chunk: its attempt, every notary's proof for its nonce, and the manifest entries that verification built."""

    attempt: Attempt
    nonce: str  # of the verification result in the ledger; `core_sha256` and `files` come from this result too
    core_sha256: str  # the hash of the core, the part of a proof on which all notaries must agree
    proofs: tuple[LoggedEnvelope, ...]
    files: tuple[DataFile, ...]  # the manifest entries, with the published paths
    waiver: Waiver | None = None  # for a FAIL that an operator overrides


@dataclass(frozen=True, slots=True)
class Proposal:
    """One publication: a chunk, or under atomicity `workload` every chunk with the statement that binds them."""

    workload: Workload
    bound: BoundContract  # the contract with the workload's parameters
    chunk_ids: frozenset[str]  # of the whole plan
    parts: tuple[Part, ...]
    workload_statement: LoggedEnvelope | None
    claim: Claim  # the part of the target that the workload reserves if it appends


@dataclass(frozen=True, slots=True)
class PublishedSnapshot(Document, title="what was published"):
    """The snapshot that a publication made visible: the content of its receipt without the signer."""

    workload_id: str
    proof_ids: tuple[str, ...]
    override_id: str | None  # None: without break-glass
    table: TableRef
    branch: str
    old_snapshot_id: UncheckedDecimalText | None  # None: `main` was empty
    new_snapshot_id: UncheckedDecimalText
    manifest_list_sha256: str
    metadata_path: str
    metadata_sha256: str
    published_at: Count  # in microseconds

    def receipt(self, notary: str, epoch: int) -> Receipt:
        """The receipt for this notary to sign with its key of this epoch."""
        return Receipt(notary=notary, epoch=epoch, **{each.name: getattr(self, each.name) for each in fields(self)})

    def facts(self) -> dict[str, Value]:
        """The facts that the ledger stores as an event: all but time and proof ids, which other records have."""
        return {key: value for key, value in self.to_json().items() if key not in ("proof_ids", "published_at")}

    @classmethod
    def from_facts(cls, value: Value, *, proof_ids: tuple[str, ...], published_at: int) -> PublishedSnapshot:
        """The snapshot from stored `facts`, with its proofs and its time."""
        found = value if isinstance(value, Mapping) else {}
        return cls.from_json({**found, "proof_ids": proof_ids, "published_at": published_at})


@dataclass(frozen=True, slots=True)
class PublicationResult:
    """The published snapshot, and the id of its receipt."""

    shown: PublishedSnapshot
    receipt_id: str
