"""What a job found, as the core of its proof: verdict, files, counts, method, and what was checked."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.digest import Plan, fingerprint
from pvdm.errors import InputError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import Location
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.located import Located
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import (
    Attempt,
    Method,
    Operation,
    ProofCore,
    ProvedProjection,
    RowCounts,
    Staged,
    Target,
)
from pvdm.model.statements.files import AddedFile, FileSet
from pvdm.model.statements.proof import Commitments, Storage
from pvdm.model.statements.table import SourceSnapshot, TableRef
from pvdm.trust.commitment import commit
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.service import KeyService
from pvdm.verify.compare import Partials, compare, rows_of
from pvdm.verify.fetch import Seen
from pvdm.verify.file_orders import Outcome, ReadFile, published_files
from pvdm.verify.findings import Finding
from pvdm.verify.freeze import Freeze
from pvdm.verify.source import PinnedSource
from pvdm.verify.staged import StagedFiles

# What a proof says was checked, by the part of the job that came to its end.
CHECKS_STAGED: Final = ("staged-boundary", "staged-branch", "staged-entries", "staged-paths")
CHECKS_FROZEN: Final = ("bytes-frozen",)
CHECKS_READ: Final = ("bytes-fetched-once", "file-content", "manifest-facts", "partition-values", "row-counts")
CHECKS_DIGESTS: Final = {ProjectionName.CONTENT: "digest-content", ProjectionName.IDENTITY: "digest-identity"}


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """One attempt to be verified: who it is, what was intended, what was staged, and on what it is judged.

    `found` is what was wrong before any file was looked at.
    """

    job_id: str
    attempt: Attempt
    epoch: int
    bound: BoundContract
    chunk: ChunkDefinition
    table: TableRef
    branch: str
    staging_branch: str
    metadata: TableMetadata
    base_id: int | None
    head: Snapshot | None
    places: tuple[Location, ...]
    source: PinnedSource
    storage: Storage
    found: tuple[Finding, ...] = ()

    @property
    def operation(self) -> Operation:
        """What the workload does to its target."""
        return self.bound.contract.boundary.operation


@dataclass(frozen=True, slots=True)
class Verified:
    """What the job found: the core of the proof, and the entries to publish, where every file could be read."""

    core: ProofCore
    commitments: tuple[Commitments, ...]
    context: AttemptContext | None
    files: tuple[DataFile, ...] | None
    findings: tuple[Finding, ...]
    located: Located | None = None


@dataclass(frozen=True, slots=True)
class Digests:
    """Both sides under the keys of one context."""

    context: AttemptContext
    outcome: Outcome

    @property
    def whole(self) -> tuple[ReadFile, ...]:
        """The staged files whose bytes were what they had been."""
        return tuple(each for each in self.outcome.read if isinstance(each, ReadFile))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with bytes, then what is wrong with what they hold."""
        changed = [each for each in self.outcome.read if isinstance(each, Finding)]
        seen = (found for each in self.whole for found in each.observed.findings)
        return (*changed, *seen, *self.outcome.found)


def schema_fingerprint(metadata: TableMetadata) -> str:
    """The fingerprint of all columns of the table's current schema, as proofs and approvals name it."""
    return fingerprint(to_model(metadata.current_schema)).hex()


def verdict(
    job: VerifyJob,
    plan: Plan,
    staged: StagedFiles,
    frozen: Freeze,
    source: Freeze,
    findings: Sequence[Finding],
    digested: tuple[Digests, KeyService] | None,
    located: Located | None = None,
) -> Verified:
    """The core and all that goes with it; without digests it is FAIL, for what was found before them."""
    digests = None if digested is None else digested[0]
    intent = None if digests is None else digests.outcome.intent
    sums = None if digests is None else digests.outcome.staged
    said = compare(intent, sums, findings, located)
    added = _unread(frozen) if digests is None else tuple(each.added for each in digests.whole)
    core = ProofCore(
        attempt=job.attempt,
        target=_target(job),
        staged=Staged(job.staging_branch, staged.snapshot_id),
        files=_file_set(job, added, staged.removed, passed=said.passed),
        rows=RowCounts(*(None if each is None else rows_of(each) for each in (intent, sums))),
        sources=(SourceSnapshot(job.source.ref, job.source.snapshot_id, source.root),),
        method=_method(job, plan, digests),
        projections=tuple(
            ProvedProjection(each, plan.fingerprint(each.name).hex())
            for each in sorted(plan.projections, key=lambda each: each.name.value)
        ),
        checks=_checks(plan, digests, sums),
        verdict=said,
    )
    commitments = () if digested is None else _commitments(*digested)
    context = None if digests is None else digests.context
    return Verified(core, commitments, context, _published(digests), tuple(findings), located)


def _file_set(job: VerifyJob, added: Sequence[AddedFile], removed: Sequence[str], *, passed: bool) -> FileSet:
    """What a PASS binds must be a set of files; a FAIL about something else binds none."""
    gone = () if job.operation is Operation.APPEND else tuple(sorted(removed))
    try:
        return FileSet(tuple(sorted(added, key=lambda each: each.published_path)), gone)
    except InputError:
        if passed:
            raise
        return FileSet(())


def _target(job: VerifyJob) -> Target:
    return Target(
        job.table,
        job.branch,
        job.base_id,
        job.operation,
        tuple(sorted(job.bound.partition)),
        schema_fingerprint(job.metadata),
        job.metadata.default_spec_id,
        job.metadata.format_version,
    )


def _method(job: VerifyJob, plan: Plan, digests: Digests | None) -> Method:
    """Who read the rows; before any were read it is the kernel's version that stands there."""
    extractor = None if digests is None else digests.outcome.extractor
    version = extractor or f"kernel-{importlib.import_module('pvdm_kernel').__version__}"
    contract = job.bound.contract
    return Method(contract.profile, plan.mode.value, plan.construction.value, contract.extraction, version)


def _unread(frozen: Freeze) -> tuple[AddedFile, ...]:
    """What a FAIL without digests binds: the hashes of what could be hashed, where it lies."""

    def added(seen: Seen) -> AddedFile:
        return AddedFile.in_place(seen.location, seen.size, seen.sha256, seen.version)

    return tuple(added(seen) for seen in frozen.files.values())


def _checks(plan: Plan, digests: Digests | None, sums: Partials | None) -> tuple[str, ...]:
    run = [*CHECKS_STAGED, *CHECKS_FROZEN]
    if digests is not None:
        run += CHECKS_READ
    if sums is not None:
        run += [CHECKS_DIGESTS[each.name] for each in plan.projections]
    return tuple(sorted(run))


def _commitments(digests: Digests, keys: KeyService) -> tuple[Commitments, ...]:
    """Never the digests themselves: they would be keys to forgeries."""
    intent, staged = digests.outcome.intent, digests.outcome.staged
    if staged is None:
        return ()
    found = []
    for name in sorted(intent, key=lambda each: each.value):
        key = keys.commitment_key(digests.context, name)
        found.append(Commitments(name, commit(key, intent[name]), commit(key, staged[name])))
    return tuple(found)


def _published(digests: Digests | None) -> tuple[DataFile, ...] | None:
    """What a publication would show; None unless every file could be read to its end."""
    if digests is None or digests.outcome.staged is None:
        return None
    return published_files(digests.outcome.read)
