"""The result of a verify job as the core of its proof: verdict, files, counts, method, and checks."""

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
from pvdm.model.located import WrongRows
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import (
    AddedFile,
    Attempt,
    FileSet,
    Method,
    Operation,
    ProofCore,
    ProvedProjection,
    RowCounts,
    StagedBranch,
    Target,
)
from pvdm.model.statements.proof import Commitments, Storage
from pvdm.model.statements.table import SourceSnapshot, TableRef
from pvdm.trust.commitment import commit
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.service import KeyService
from pvdm.verify.fetch import Freeze
from pvdm.verify.findings import Finding, Partials, count_rows, decide_verdict
from pvdm.verify.readers import ReadFile, ReadResult, published_files
from pvdm.verify.source import PinnedSource
from pvdm.verify.staged import StagedFiles

# The checks that a proof lists, by the part of the job that was completed.
CHECKS_FROZEN: Final = ("staged-boundary", "staged-branch", "staged-entries", "staged-paths", "bytes-frozen")
CHECKS_READ: Final = ("bytes-fetched-once", "file-content", "manifest-facts", "partition-values", "row-counts")
CHECKS_DIGESTS: Final = {ProjectionName.CONTENT: "digest-content", ProjectionName.IDENTITY: "digest-identity"}


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """One attempt to verify: its ids, what was intended and staged, and findings from before any file was read.

    The staged snapshots are those after `base_id` up to `head`. The attempt may write only in `folders`.
    """

    job_id: str
    attempt: Attempt
    epoch: int
    bound: BoundContract
    chunk: ChunkDefinition
    table: TableRef
    branch: str  # of the target, on which the rows would be published
    staging_branch: str  # on which the producer staged them
    metadata: TableMetadata
    base_id: int | None
    head: Snapshot | None
    folders: tuple[Location, ...]
    source: PinnedSource
    storage: Storage
    prior_findings: tuple[Finding, ...] = ()

    @property
    def operation(self) -> Operation:
        """What the workload does to its target."""
        return self.bound.contract.boundary.operation


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The result of a job: the proof's core (what all notaries must agree on), and what else is signed or stored.

    `files` are the entries to publish; None unless every file could be read. `context` is None without digests.
    """

    core: ProofCore
    commitments: tuple[Commitments, ...]
    context: AttemptContext | None
    files: tuple[DataFile, ...] | None
    findings: tuple[Finding, ...]
    located: WrongRows | None = None


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of both sides. `context` has the facts from which their keys were derived by the service `keys`."""

    context: AttemptContext
    result: ReadResult
    keys: KeyService

    @property
    def unchanged_files(self) -> tuple[ReadFile, ...]:
        """The staged files whose bytes have not changed since the freeze."""
        return tuple(each for each in self.result.read if isinstance(each, ReadFile))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings for changed files, then for the content of the others, then those of the reader."""
        changed = [each for each in self.result.read if isinstance(each, Finding)]
        content = (finding for each in self.unchanged_files for finding in each.observed.findings)
        return (*changed, *content, *self.result.findings)


def schema_fingerprint(metadata: TableMetadata) -> str:
    """The fingerprint of all columns of the table's current schema, as proofs and approvals name it."""
    return fingerprint(to_model(metadata.current_schema)).hex()


def conclude(
    job: VerifyJob,
    plan: Plan,
    staged: StagedFiles,
    staged_freeze: Freeze,
    source_freeze: Freeze,
    findings: Sequence[Finding],
    digests: Digests | None,
    located: WrongRows | None = None,
) -> VerificationResult:
    """The result of a job. Without digests the verdict is FAIL, and the findings say why.

    Without digests the core lists the files that could be hashed, with their staged paths.
    """
    intent = None if digests is None else digests.result.intent
    staged_sums = None if digests is None else digests.result.staged
    verdict = decide_verdict(intent, staged_sums, findings, located)
    if digests is None:
        added = [
            AddedFile.in_place(each.location, each.size, each.sha256, each.version)
            for each in staged_freeze.files.values()
        ]
    else:
        added = [each.added for each in digests.unchanged_files]
    core = ProofCore(
        attempt=job.attempt,
        target=Target(
            job.table,
            job.branch,
            job.base_id,
            job.operation,
            tuple(sorted(job.bound.partition)),
            schema_fingerprint(job.metadata),
            job.metadata.default_spec_id,
            job.metadata.format_version,
        ),
        staged=StagedBranch(job.staging_branch, staged.snapshot_id),
        files=_list_files(job, added, staged.removed, passed=verdict.passed),
        rows=RowCounts(*(None if each is None else count_rows(each) for each in (intent, staged_sums))),
        sources=(SourceSnapshot(job.source.ref, job.source.snapshot_id, source_freeze.root),),
        method=_describe_method(job, plan, digests),
        projections=tuple(
            ProvedProjection(each, plan.fingerprint(each.name).hex())
            for each in sorted(plan.projections, key=lambda each: each.name.value)
        ),
        checks=_list_checks(plan, digests, staged_sums),
        verdict=verdict,
    )
    if digests is None:
        return VerificationResult(core, (), None, None, tuple(findings), located)
    # Without a digest of the staged side, not every file could be read to its end.
    files = None if staged_sums is None else published_files(digests.result.read)
    return VerificationResult(core, _make_commitments(digests), digests.context, files, tuple(findings), located)


def _list_files(job: VerifyJob, added: Sequence[AddedFile], removed: Sequence[str], *, passed: bool) -> FileSet:
    """The files that the proof lists. A FAIL lists none if they are not a valid `FileSet`."""
    removals = () if job.operation is Operation.APPEND else tuple(sorted(removed))
    try:
        return FileSet(tuple(sorted(added, key=lambda each: each.published_path)), removals)
    except InputError:
        if passed:
            raise
        return FileSet(())


def _describe_method(job: VerifyJob, plan: Plan, digests: Digests | None) -> Method:
    """How the rows were read, with the version of Spark's reader, or of the kernel if Spark did not read them."""
    extractor = None if digests is None else digests.result.extractor
    version = extractor or f"kernel-{importlib.import_module('pvdm_kernel').__version__}"
    contract = job.bound.contract
    return Method(contract.profile, plan.mode.value, plan.construction.value, contract.extraction, version)


def _list_checks(plan: Plan, digests: Digests | None, staged_sums: Partials | None) -> tuple[str, ...]:
    """The names of the checks that were completed."""
    names = list(CHECKS_FROZEN)
    if digests is not None:
        names += CHECKS_READ
    if staged_sums is not None:
        names += [CHECKS_DIGESTS[each.name] for each in plan.projections]
    return tuple(sorted(names))


def _make_commitments(digests: Digests) -> tuple[Commitments, ...]:
    """The commitments that the proof contains in place of the digests, since digests would allow forgeries."""
    intent, staged = digests.result.intent, digests.result.staged
    if staged is None:
        return ()
    commitments = []
    for name in sorted(intent, key=lambda each: each.value):
        key = digests.keys.commitment_key(digests.context, name)
        commitments.append(Commitments(name, commit(key, intent[name]), commit(key, staged[name])))
    return tuple(commitments)
