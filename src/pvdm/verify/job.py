"""The verify job: freezes all files, derives the keys, fetches and digests each file once, and gives the verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pvdm import fault
from pvdm.digest import Plan, kernel_engine
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.vault import Vault
from pvdm.model.located import WrongRows
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import ExtractionPath
from pvdm.model.statements.proof import Storage
from pvdm.model.statements.verdict import BOUNDARY_CODES, FailureClass
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.handles import HANDLE_REDEMPTIONS_MAX, Handles
from pvdm.trust.keys.service import KeyService
from pvdm.verify.chunk_files import files_of_chunk, hash_file, hash_source
from pvdm.verify.fetch import Files, Freeze, HashedFile, freeze, freeze_readable
from pvdm.verify.findings import Finding, classify_rows, count_rows
from pvdm.verify.intent import digest_plan
from pvdm.verify.locate import LocateLimits, locate
from pvdm.verify.readers import JobInputs, JobKeys, Reader, SourceItem, StagedItem, ThreadReader, Work
from pvdm.verify.source import PinnedSource, translate_read_errors, unusable_error
from pvdm.verify.spark.extracting import SparkExtraction, require_extraction
from pvdm.verify.staged import Rules, StagedFiles, find_changed_base, read_staged
from pvdm.verify.verdict import Digests, VerificationResult, VerifyJob, conclude

__all__ = ["ClusterReader", "Tools", "VerificationResult", "VerifyJob", "verify"]

_NOT_AS_PLANNED_HINT: Final = (
    "put back the files that the workload was planned from; or an operator abandons the workload, and a new workload "
    "id plans the source as it is then"
)


class ClusterReader(Reader, Protocol):
    """A reader for chunks that are too large for threads."""

    def takes(self, work: Work) -> bool:
        """Whether the work is large enough for this reader, and the reader can read all of it."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The services that a job uses. Each of `threads` threads has one file in memory. `large` reads large chunks.

    `extraction` is for contracts that require Spark's own reader too.
    """

    files: Files
    handles: Handles
    keys: KeyService
    vault: Vault
    threads: int = 2
    large: ClusterReader | None = None
    locate_limits: LocateLimits = field(default_factory=LocateLimits)
    extraction: SparkExtraction | None = None

    def choose_reader(self, work: Work) -> Reader:
        """The reader for this work. The digests do not depend on the choice."""
        reader: Reader = ThreadReader(self.files, self.threads)
        if self.large is not None and self.large.takes(work):
            reader = self.large
        if work.inputs.bound.contract.extraction is ExtractionPath.DIRECT:
            return reader
        return require_extraction(self.extraction).wrap(reader)


def verify(job: VerifyJob, tools: Tools) -> VerificationResult:
    """Verify an attempt. Raises, without a verdict, if something other than the staged data is wrong."""
    kernel_engine()  # raises, before anything is read, if the kernel is not installed
    plan = digest_plan(job.bound.contract, to_model(job.metadata.current_schema))
    staged = _read_staged(job, tools.files)
    staged_freeze, not_frozen = _freeze_staged(staged, tools, pinned=job.storage is Storage.SEALED)
    with translate_read_errors():
        source_files = files_of_chunk(job.bound, job.source, job.chunk)
        source_freeze = freeze(job.source.scan.locations(source_files), tools.files, threads=tools.threads)
    _require_planned_source(job, source_files, source_freeze)
    findings = (*staged.findings, *not_frozen, *_make_durable(job, staged, staged_freeze, tools.files))
    fault.point("verify.after_freeze")
    if findings:
        # After a finding no key is derived and nothing is digested.
        return conclude(job, plan, staged, staged_freeze, source_freeze, findings, None)
    work = _list_work(job, tools, plan, staged, source_files, staged_freeze, source_freeze)
    digests = _digest(job, tools, work, staged_freeze, source_freeze)
    fault.point("verify.after_digests")
    located = _locate(tools, work, source_freeze, digests)
    fault.point("verify.after_locate")
    return conclude(job, plan, staged, staged_freeze, source_freeze, digests.findings, digests, located)


def _read_staged(job: VerifyJob, files: Files) -> StagedFiles:
    """The staged files. After a finding about the table or its partitions, no staged file is listed."""
    rules = Rules(
        job.metadata,
        job.base_id,
        job.folders,
        job.operation,
        job.bound.partition,
        job.bound.contract.limits,
        published_in_place=job.storage is not Storage.COPIED,
    )
    try:
        findings = job.prior_findings
        findings = findings or find_changed_base(job.metadata, job.operation, rules.partition, job.head, files)
        if not findings:
            return read_staged(rules, job.head, files)
    except InputError as error:
        if error.code not in BOUNDARY_CODES:
            raise
        findings = (Finding.of(FailureClass.METADATA, error),)
    return StagedFiles(None if job.head is None else job.head.snapshot_id, (), (), findings)


def _freeze_staged(staged: StagedFiles, tools: Tools, *, pinned: bool) -> tuple[Freeze, list[Finding]]:
    """The freeze of the staged files that could be hashed, and findings for the other files."""
    paths = [entry.data_file.file_path for entry in staged.added]
    try:
        frozen, refused = freeze_readable(paths, tools.files, threads=tools.threads, pinned=pinned)
    except VerificationError as error:  # two paths name one file
        return freeze((), tools.files), [Finding.of(FailureClass.METADATA, error)]
    return frozen, [Finding.of(FailureClass.PHYSICAL, error, path) for path, error in refused.items()]


def _make_durable(job: VerifyJob, staged: StagedFiles, staged_freeze: Freeze, files: Files) -> list[Finding]:
    """Sync the files that the gate will read again. These include staged data files only with storage `open`.

    Returns a finding if a file cannot be synced.
    """
    data = list(staged_freeze.files) if job.storage is Storage.OPEN else []
    try:
        files.make_durable([*staged.metadata_files, *data])
    except VerificationError as error:
        return [Finding.of(FailureClass.PHYSICAL, error)]
    return []


def _require_planned_source(job: VerifyJob, files: Sequence[ScanFile], source_freeze: Freeze) -> None:
    """Raise `source_unusable` unless the chunk's source files are those that the workload was planned from."""
    if job.chunk.source_sha256 is None:
        return
    source = job.source
    # A list of files is planned from the source's listing alone.
    read = files if job.chunk.files is None else ()
    hashes = [hash_file(source.listing_sha256, _frozen_files(source, each, source_freeze)) for each in read]
    found = hash_source(source.listing_sha256, hashes)
    if found != job.chunk.source_sha256:
        error = Code.SOURCE_DAMAGED(reason="source_not_as_planned", expected=job.chunk.source_sha256, got=found)
        raise unusable_error(error, _NOT_AS_PLANNED_HINT)


def _frozen_files(source: PinnedSource, file: ScanFile, source_freeze: Freeze) -> tuple[HashedFile, ...]:
    """The frozen files to fetch for a data file of the source: itself and its delete files."""
    return tuple(source_freeze.files[location] for location in source.scan.locations([file]))


def _list_work(
    job: VerifyJob,
    tools: Tools,
    plan: Plan,
    staged: StagedFiles,
    source_files: Sequence[ScanFile],
    staged_freeze: Freeze,
    source_freeze: Freeze,
) -> Work:
    """The work items: each file with its frozen hash."""
    entries = sorted(staged.added, key=lambda entry: entry.data_file.file_path)
    frozen, rewrites = staged_freeze.files, job.storage is Storage.COPIED

    def store_copy(item: StagedItem, data: bytes) -> HashedFile:
        """Write the file to publish into the vault."""
        uuid, attempt_id = job.table.uuid, job.attempt.attempt_id
        sha256 = hashlib.sha256(data).hexdigest()
        return HashedFile(tools.vault.copy_in(uuid, attempt_id, item.position, data, sha256), len(data), sha256)

    return Work(
        inputs=JobInputs(plan, job.metadata, job.bound, job.chunk, job.source, rewrites),
        staged=tuple(StagedItem(at, each, frozen[each.data_file.file_path]) for at, each in enumerate(entries)),
        source=tuple(SourceItem(each, _frozen_files(job.source, each, source_freeze)) for each in source_files),
        store_copy=store_copy if rewrites else None,
    )


def _digest(job: VerifyJob, tools: Tools, work: Work, staged_freeze: Freeze, source_freeze: Freeze) -> Digests:
    """Digest both sides, intended and staged rows, under the attempt's keys."""
    context = _make_context(job, work.inputs.plan, staged_freeze, source_freeze)
    reader, handles = tools.choose_reader(work), tools.handles
    handle = handles.issue(job.job_id, redemptions=min(1 + reader.redemptions(work), HANDLE_REDEMPTIONS_MAX))
    try:
        handles.freeze(job.job_id, context)  # from here on the handle gives keys
        keys = handles.redeem(handle, job_id=job.job_id, worker="steward")
        return Digests(context, reader.read(work, JobKeys(job.job_id, handle, keys)), tools.keys)
    finally:
        handles.end(job.job_id)  # no worker gets the keys from here on


def _locate(tools: Tools, work: Work, source_freeze: Freeze, digests: Digests) -> WrongRows | None:
    """The wrong rows, if both sides could be digested and differ."""
    result, limits = digests.result, tools.locate_limits
    if result.staged is None or classify_rows(result.intent, result.staged) is None:
        return None
    return locate(
        work.inputs,
        digests.unchanged_files,
        source_freeze,
        tools.files,
        intent_rows=count_rows(result.intent),
        staged_rows=count_rows(result.staged),
        threads=tools.threads,
        limits=limits,
    )


def _make_context(job: VerifyJob, plan: Plan, staged_freeze: Freeze, source_freeze: Freeze) -> AttemptContext:
    attempt = job.attempt
    names = [name for name in ProjectionName if any(each.name is name for each in plan.projections)]
    return AttemptContext(
        epoch=job.epoch,
        workload_id=attempt.workload_id,
        chunk_id=attempt.chunk_id,
        attempt_id=attempt.attempt_id,
        nonce=attempt.nonce,
        mode=plan.mode,
        fingerprints=tuple((name, plan.fingerprint(name)) for name in names),
        intent_root=bytes.fromhex(source_freeze.root),
        staged_root=bytes.fromhex(staged_freeze.root),
    )
