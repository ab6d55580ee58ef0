"""The verify job: freeze, then keys, then every file fetched once, hash-checked and decoded; a verdict and its core."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pvdm import fault
from pvdm.digest import Plan, kernel_engine
from pvdm.errors import VerificationError
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.read.deletes import ScanFile
from pvdm.model.located import Located
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import ExtractionPath
from pvdm.model.statements.proof import Storage
from pvdm.model.statements.verdict import FailureClass
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.handles import HANDLE_REDEMPTIONS_MAX, Handles
from pvdm.trust.keys.service import KeyService
from pvdm.verify.compare import rows_class, rows_of
from pvdm.verify.extraction import require_extraction
from pvdm.verify.fetch import Files, Seen
from pvdm.verify.file_orders import Ground, Held, Reader, ReadFile, SourceOrder, StagedOrder, Work
from pvdm.verify.findings import Finding
from pvdm.verify.freeze import Freeze, freeze, freeze_found
from pvdm.verify.intent import digest_plan, files_of_chunk
from pvdm.verify.locate import Bounds, Rows
from pvdm.verify.locate_job import Scope, StagedFile, locate
from pvdm.verify.staged import Rules, StagedFiles, read_staged
from pvdm.verify.threads import Threads, not_frozen
from pvdm.verify.usable import source_readable
from pvdm.verify.verdict import Digests, Verified, VerifyJob, schema_fingerprint, verdict

__all__ = ["Copies", "Extraction", "Large", "Tools", "Verified", "VerifyJob", "schema_fingerprint", "verify"]


class Copies(Protocol):
    """Where the Steward's own copies go."""

    def copy_in(self, table_uuid: str, attempt_id: str, position: int, data: bytes, sha256: str) -> str:
        """Keep exactly these bytes and give their location."""


class Large(Reader, Protocol):
    """A reader for chunks that threads would read too long."""

    def takes(self, work: Work) -> bool:
        """Whether the work is large enough for it."""


class Extraction(Protocol):
    """Another reader of rows than the kernel's."""

    def over(self, direct: Reader) -> Reader:
        """Rows by it; bytes, facts and entries by the direct reader, whose digests it must agree with."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a job works with; `threads` files are in memory at once, and `large` reads what is too much for them."""

    files: Files
    handles: Handles
    keys: KeyService
    copies: Copies
    threads: int = 2
    large: Large | None = None
    bounds: Bounds = field(default_factory=Bounds)
    extraction: Extraction | None = None

    def reader(self, work: Work) -> Reader:
        """The one that reads this; digests do not depend on it."""
        found: Reader = Threads(self.files, self.threads)
        if self.large is not None and self.large.takes(work):
            found = self.large
        if work.ground.bound.contract.extraction is ExtractionPath.DIRECT:
            return found
        return require_extraction(self.extraction).over(found)


def verify(job: VerifyJob, tools: Tools) -> Verified:
    """The verdict on an attempt. It raises only for what is nobody's verdict: nothing is proved then, nor refuted."""
    kernel_engine()  # nothing is published without it, and it is told before anything is read
    plan = digest_plan(job.bound.contract, to_model(job.metadata.current_schema))
    staged = _staged(job, tools.files)
    frozen, refused = _freeze_staged(staged, tools, pinned=job.storage is Storage.SEALED)
    chosen = _chosen(job)
    source = _freeze_source(job, chosen, tools)
    findings = (*job.found, *staged.findings, *refused, *_synced(job, staged, frozen, tools.files))
    fault.point("verify.after_freeze")
    if findings:
        # What could not even be listed and hashed is never digested: no key is derived for it.
        return verdict(job, plan, staged, frozen, source, findings, None)
    digests = _digested(job, tools, _work(job, tools, plan, staged, chosen, frozen, source), frozen, source)
    fault.point("verify.after_digests")
    located = _located(job, tools, plan, source, digests)
    fault.point("verify.after_locate")
    return verdict(job, plan, staged, frozen, source, digests.findings, (digests, tools.keys), located)


def _staged(job: VerifyJob, files: Files) -> StagedFiles:
    if job.found:
        return StagedFiles(None if job.head is None else job.head.snapshot_id, (), (), (), ())
    contract = job.bound.contract
    rules = Rules(
        job.metadata,
        job.base_id,
        job.places,
        job.operation,
        job.bound.partition,
        contract.limits,
        published_in_place=job.storage is not Storage.COPIED,
    )
    return read_staged(rules, job.head, files)


def _freeze_staged(staged: StagedFiles, tools: Tools, *, pinned: bool) -> tuple[Freeze, list[Finding]]:
    paths = [entry.data_file.file_path for entry in staged.added]
    try:
        frozen, refused = freeze_found(paths, tools.files, threads=tools.threads, pinned=pinned)
    except VerificationError as error:
        return freeze((), tools.files), [Finding.of(FailureClass.METADATA, error)]
    return frozen, [Finding.of(FailureClass.PHYSICAL, error, path) for path, error in refused.items()]


def _synced(job: VerifyJob, staged: StagedFiles, frozen: Freeze, files: Files) -> list[Finding]:
    """Have what the gate reads again survive a power loss: a proved attempt may wait long for other chunks.

    With storage `copied` the gate reads the Steward's copies, which are synced, and no staged data file.
    """
    data = list(frozen.files) if job.storage is Storage.OPEN else []
    try:
        files.make_durable([*staged.metadata_files, *data])
    except VerificationError as error:
        return [Finding.of(FailureClass.PHYSICAL, error)]
    return []


def _chosen(job: VerifyJob) -> tuple[ScanFile, ...]:
    with source_readable():
        return files_of_chunk(job.bound, job.source, job.chunk)


def _freeze_source(job: VerifyJob, chosen: Sequence[ScanFile], tools: Tools) -> Freeze:
    with source_readable():
        return freeze(job.source.scan.locations(chosen), tools.files, threads=tools.threads)


def _work(
    job: VerifyJob,
    tools: Tools,
    plan: Plan,
    staged: StagedFiles,
    chosen: Sequence[ScanFile],
    frozen: Freeze,
    source: Freeze,
) -> Work:
    """One order a file, each with the bytes it was frozen with."""
    entries = sorted(staged.added, key=lambda entry: entry.data_file.file_path)
    rewrites = job.storage is Storage.COPIED

    def keep(order: StagedOrder, data: bytes) -> Seen:
        uuid, attempt_id = job.table.uuid, job.attempt.attempt_id
        sha256 = hashlib.sha256(data).hexdigest()
        return Seen(tools.copies.copy_in(uuid, attempt_id, order.position, data, sha256), len(data), sha256)

    return Work(
        ground=Ground(plan, job.metadata, job.bound, job.chunk, job.source, rewrites),
        staged=tuple(
            StagedOrder(at, entry, frozen.files[entry.data_file.file_path]) for at, entry in enumerate(entries)
        ),
        source=tuple(_source_orders(job, chosen, source)),
        keep=keep if rewrites else None,
    )


def _source_orders(job: VerifyJob, chosen: Sequence[ScanFile], source: Freeze) -> Iterator[SourceOrder]:
    for file in chosen:
        wanted = job.source.scan.locations([file])
        missing = [location for location in wanted if location not in source.files]
        if missing:
            raise not_frozen(missing[0])
        yield SourceOrder(file, tuple(source.files[location] for location in wanted))


def _digested(job: VerifyJob, tools: Tools, work: Work, frozen: Freeze, source: Freeze) -> Digests:
    """Digests of what was staged and of what was intended, both under the attempt's keys."""
    context = _context(job, work.ground.plan, frozen, source)
    reader = tools.reader(work)
    most = min(1 + reader.redemptions(work), HANDLE_REDEMPTIONS_MAX)
    with _held(job.job_id, tools.handles, context, most) as held:
        return Digests(context, reader.read(work, held))


def _located(job: VerifyJob, tools: Tools, plan: Plan, source: Freeze, digests: Digests) -> Located | None:
    """Which rows are wrong, where both sides could be digested and differ; otherwise there is nothing to locate."""
    outcome = digests.outcome
    if outcome.staged is None or rows_class(outcome.intent, outcome.staged) is None:
        return None

    def fetch(location: str) -> bytes:
        if location not in source.files:
            raise not_frozen(location)
        return tools.files.fetch_frozen(source.files[location]).data

    def staged(read: ReadFile) -> StagedFile:
        # Where there is a copy of our own, nobody can change it under us.
        added, entry = read.added, read.observed.file
        seen = Seen(added.published_path, *added.published_bytes)
        return StagedFile(added.staged_path, entry, lambda: tools.files.fetch_frozen(seen).data)

    files = tuple(staged(each) for each in digests.whole)
    scope = Scope(job.bound, job.source, job.chunk, job.metadata, plan, fetch, files)
    rows = Rows(rows_of(outcome.intent), rows_of(outcome.staged))
    return locate(scope, rows, threads=tools.threads, bounds=tools.bounds)


def _context(job: VerifyJob, plan: Plan, frozen: Freeze, source: Freeze) -> AttemptContext:
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
        intent_root=bytes.fromhex(source.root),
        staged_root=bytes.fromhex(frozen.root),
    )


@contextlib.contextmanager
def _held(job_id: str, handles: Handles, context: AttemptContext, redemptions: int) -> Iterator[Held]:
    """The keys: redeemed after the freeze, by nobody before it, and void at the end."""
    handle = handles.issue(job_id, redemptions=redemptions)
    try:
        handles.freeze(job_id, context)
        yield Held(job_id, handle, handles.redeem(handle, job_id=job_id, worker="steward"))
    finally:
        handles.end(job_id)
