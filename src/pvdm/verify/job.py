"""The verify job: freeze, then keys, then every file fetched once, hash-checked and decoded; a verdict and its core."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pvdm import fault
from pvdm.digest import Digester, Engine, Keys, Partial, Plan, combine, fingerprint, kernel_engine
from pvdm.errors import InputError, PvdmError, VerificationError
from pvdm.lake.format.manifest_entry import DataFile, ManifestEntry
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.schema_model import to_model
from pvdm.lake.format.snapshots import Snapshot
from pvdm.lake.paths import Location
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.core import (
    Attempt,
    ExtractionPath,
    Method,
    Operation,
    ProofCore,
    ProvedProjection,
    RowCounts,
    Staged,
    Target,
)
from pvdm.model.files import AddedFile, FileSet
from pvdm.model.projection import ProjectionName
from pvdm.model.proof import Commitments, Storage
from pvdm.model.table import SourceSnapshot, TableRef
from pvdm.model.verdict import FailureClass
from pvdm.trust.commitment import commit
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.handles import Handles
from pvdm.trust.keys.service import KeyService
from pvdm.verify.compare import Partials, compare
from pvdm.verify.fetch import Files, Seen
from pvdm.verify.finding import Finding
from pvdm.verify.freeze import Freeze, freeze, freeze_found
from pvdm.verify.intent import digest_intent, digest_plan, files_of_chunk
from pvdm.verify.observed import Observed, observe
from pvdm.verify.source import PinnedSource
from pvdm.verify.staged import Rules, StagedFiles, read_staged
from pvdm.verify.usable import source_readable

# What a proof says was checked, by the part of the job that came to its end.
CHECKS_STAGED: Final = ("staged-boundary", "staged-branch", "staged-entries", "staged-paths")
CHECKS_FROZEN: Final = ("bytes-frozen",)
CHECKS_READ: Final = ("bytes-fetched-once", "file-content", "manifest-facts", "partition-values", "row-counts")
CHECKS_DIGESTS: Final = {ProjectionName.CONTENT: "digest-content", ProjectionName.IDENTITY: "digest-identity"}


class Copies(Protocol):
    """Where the Steward's own copies go."""

    def copy_in(self, table_uuid: str, attempt_id: str, position: int, data: bytes, sha256: str) -> str:
        """Keep exactly these bytes and give their location."""


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
class Tools:
    """What a job works with; `threads` files are in memory at once."""

    files: Files
    handles: Handles
    keys: KeyService
    copies: Copies
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Verified:
    """What the job found: the core of the proof, and the entries to publish, where every file could be read."""

    core: ProofCore
    commitments: tuple[Commitments, ...]
    context: AttemptContext | None
    files: tuple[DataFile, ...] | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """One staged file: its bytes as they were fetched, where they are published, and what is in them."""

    added: AddedFile
    observed: Observed
    partials: Partials | None


@dataclass(frozen=True, slots=True)
class _Digests:
    """Both sides under one key."""

    context: AttemptContext
    intent: Partials
    staged: Partials | None
    read: tuple[_Read, ...]
    findings: tuple[Finding, ...]


def verify(job: VerifyJob, tools: Tools) -> Verified:
    """The verdict on an attempt. It raises only for what is nobody's verdict: nothing is proved then, nor refuted."""
    engine = kernel_engine()
    plan = digest_plan(job.bound, to_model(job.metadata.current_schema))
    staged = _staged(job, tools.files)
    frozen, refused = _freeze_staged(staged, tools)
    source = _freeze_source(job, tools)
    findings = (*job.found, *staged.findings, *refused)
    fault.point("verify.after_freeze")
    if findings:
        # What could not even be listed and hashed is never digested: no key is derived for it.
        return _verdict(job, plan, staged, frozen, source, findings, None)
    digests = _Digesting(job, tools, plan, engine, frozen, source).run(staged)
    fault.point("verify.after_digests")
    return _verdict(job, plan, staged, frozen, source, digests.findings, (digests, tools.keys))


def schema_fingerprint(metadata: TableMetadata) -> str:
    """The fingerprint of all columns of the table's current schema, as proofs and approvals name it."""
    return fingerprint(to_model(metadata.current_schema)).hex()


def _staged(job: VerifyJob, files: Files) -> StagedFiles:
    if job.found:
        return StagedFiles(None if job.head is None else job.head.snapshot_id, (), (), (), ())
    contract = job.bound.contract
    rules = Rules(job.metadata, job.base_id, job.places, job.operation, job.bound.partition, contract.limits)
    return read_staged(rules, job.head, files)


def _freeze_staged(staged: StagedFiles, tools: Tools) -> tuple[Freeze, list[Finding]]:
    paths = [entry.data_file.file_path for entry in staged.added]
    try:
        frozen, refused = freeze_found(paths, tools.files, threads=tools.threads)
    except VerificationError as error:
        return freeze((), tools.files), [Finding.of(FailureClass.METADATA, error)]
    return frozen, [Finding.of(FailureClass.PHYSICAL, error, path) for path, error in refused.items()]


def _freeze_source(job: VerifyJob, tools: Tools) -> Freeze:
    with source_readable():
        chosen = files_of_chunk(job.bound, job.source, job.chunk)
        return freeze(job.source.scan.locations(chosen), tools.files, threads=tools.threads)


class _Digesting:
    """The part of a job that holds keys: they are redeemed once, after the freeze, and void at its end."""

    def __init__(
        self, job: VerifyJob, tools: Tools, plan: Plan, engine: Engine, frozen: Freeze, source: Freeze
    ) -> None:
        self._job = job
        self._tools = tools
        self._plan = plan
        self._engine = engine
        self._frozen = frozen
        self._source = source

    def run(self, staged: StagedFiles) -> _Digests:
        """Digests of what was staged and of what was intended, both under the attempt's keys."""
        context = self._context()
        with self._keys(context) as keys:
            entries = sorted(staged.added, key=lambda entry: entry.data_file.file_path)
            read = self._read_all(entries, keys)
            findings = [each for each in read if isinstance(each, Finding)]
            whole = tuple(each for each in read if isinstance(each, _Read))
            findings += [found for each in whole for found in each.observed.findings]
            intent = self._intent(keys)
            complete = len(whole) == len(entries) and all(each.partials is not None for each in whole)
            sums = _combined([self._empty(keys), *(each.partials for each in whole)]) if complete else None
        return _Digests(context, intent, sums, whole, tuple(findings))

    def _context(self) -> AttemptContext:
        attempt = self._job.attempt
        names = [name for name in ProjectionName if any(each.name is name for each in self._plan.projections)]
        return AttemptContext(
            epoch=self._job.epoch,
            workload_id=attempt.workload_id,
            chunk_id=attempt.chunk_id,
            attempt_id=attempt.attempt_id,
            nonce=attempt.nonce,
            mode=self._plan.mode,
            fingerprints=tuple((name, self._plan.fingerprint(name)) for name in names),
            intent_root=bytes.fromhex(self._source.root),
            staged_root=bytes.fromhex(self._frozen.root),
        )

    @contextlib.contextmanager
    def _keys(self, context: AttemptContext) -> Iterator[Keys]:
        handles, job_id = self._tools.handles, self._job.job_id
        handle = handles.issue(job_id, redemptions=1)
        try:
            handles.freeze(job_id, context)
            yield handles.redeem(handle, job_id=job_id, worker="steward")
        finally:
            handles.end(job_id)

    def _read_all(self, entries: Sequence[ManifestEntry], keys: Keys) -> list[_Read | Finding]:
        with ThreadPoolExecutor(self._tools.threads) as pool:
            waiting = [pool.submit(self._read, at, entry, keys) for at, entry in enumerate(entries)]
            try:
                return [each.result() for each in waiting]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _read(self, position: int, entry: ManifestEntry, keys: Keys) -> _Read | Finding:
        """One file: fetched once; what was hashed is what is kept, and what is decoded."""
        job, path = self._job, entry.data_file.file_path
        frozen = self._frozen.files[path]
        try:
            fetched = self._tools.files.fetch_frozen(frozen)
        except VerificationError as error:
            return Finding.of(FailureClass.PHYSICAL, error, path)
        published = path
        if job.storage is Storage.COPIED:
            published = self._tools.copies.copy_in(
                job.table.uuid, job.attempt.attempt_id, position, fetched.data, fetched.sha256
            )
        digester = Digester(self._plan, keys, engine=self._engine)
        observed = observe(digester, fetched, job.metadata, entry)
        added = AddedFile(path, published, len(fetched.data), fetched.sha256)
        return _Read(added, observed, _partials(digester))

    def _intent(self, keys: Keys) -> Partials:
        job, tools = self._job, self._tools
        with source_readable():
            return digest_intent(
                job.bound, job.source, job.chunk, self._plan, keys, self._fetch_source, threads=tools.threads
            )

    def _fetch_source(self, location: str) -> bytes:
        frozen = self._source.files.get(location)
        if frozen is None:
            raise PvdmError("source_not_frozen", "a file of the source is read that was not frozen", got=location)
        return self._tools.files.fetch_frozen(frozen).data

    def _empty(self, keys: Keys) -> Partials:
        return Digester(self._plan, keys, engine=self._engine).partials()


def _partials(digester: Digester) -> Partials | None:
    """The digest of a file; one that could not be read to its end has none."""
    try:
        return digester.partials()
    except InputError as error:
        if error.code != "digester_void":
            raise
        return None


def _combined(seen: Sequence[Partials | None]) -> dict[ProjectionName, Partial]:
    known = [each for each in seen if each is not None]
    return {name: combine(each[name] for each in known) for name in known[0]}


def _verdict(
    job: VerifyJob,
    plan: Plan,
    staged: StagedFiles,
    frozen: Freeze,
    source: Freeze,
    findings: Sequence[Finding],
    digested: tuple[_Digests, KeyService] | None,
) -> Verified:
    """The core and all that goes with it; without digests it is FAIL, for what was found before them."""
    digests = None if digested is None else digested[0]
    intent = None if digests is None else digests.intent
    sums = None if digests is None else digests.staged
    verdict = compare(intent, sums, findings)
    added = _unread(frozen) if digests is None else tuple(each.added for each in digests.read)
    core = ProofCore(
        attempt=job.attempt,
        target=_target(job),
        staged=Staged(job.staging_branch, staged.snapshot_id),
        files=_file_set(job, added, staged.removed, passed=verdict.passed),
        rows=RowCounts(_rows(intent), _rows(sums)),
        sources=(SourceSnapshot(job.source.ref, job.source.snapshot_id, source.root),),
        method=_method(job, plan),
        projections=tuple(
            ProvedProjection(each, plan.fingerprint(each.name).hex())
            for each in sorted(plan.projections, key=lambda each: each.name.value)
        ),
        checks=_checks(plan, digests, sums),
        verdict=verdict,
    )
    commitments = () if digested is None else _commitments(*digested)
    context = None if digests is None else digests.context
    return Verified(core, commitments, context, _published(digests), tuple(findings))


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


def _method(job: VerifyJob, plan: Plan) -> Method:
    version = f"kernel-{importlib.import_module('pvdm_kernel').__version__}"
    return Method(job.bound.contract.profile, plan.mode.value, plan.construction.value, ExtractionPath.DIRECT, version)


def _unread(frozen: Freeze) -> tuple[AddedFile, ...]:
    """What a FAIL without digests binds: the hashes of what could be hashed, where it lies."""

    def added(seen: Seen) -> AddedFile:
        return AddedFile(seen.location, seen.location, seen.size, seen.sha256)

    return tuple(added(seen) for seen in frozen.files.values())


def _rows(partials: Partials | None) -> int | None:
    return None if partials is None else next(iter(partials.values())).rows


def _checks(plan: Plan, digests: _Digests | None, sums: Partials | None) -> tuple[str, ...]:
    run = [*CHECKS_STAGED, *CHECKS_FROZEN]
    if digests is not None:
        run += CHECKS_READ
    if sums is not None:
        run += [CHECKS_DIGESTS[each.name] for each in plan.projections]
    return tuple(sorted(run))


def _commitments(digests: _Digests, keys: KeyService) -> tuple[Commitments, ...]:
    """Never the digests themselves: they would be keys to forgeries."""
    if digests.staged is None:
        return ()
    found = []
    for name in sorted(digests.intent, key=lambda each: each.value):
        key = keys.commitment_key(digests.context, name)
        found.append(Commitments(name, commit(key, digests.intent[name]), commit(key, digests.staged[name])))
    return tuple(found)


def _published(digests: _Digests | None) -> tuple[DataFile, ...] | None:
    """The entries to publish, at their published paths and in their order; None unless every file could be read."""
    if digests is None or digests.staged is None:
        return None
    found = []
    for each in sorted(digests.read, key=lambda each: each.added.published_path):
        if each.observed.file is None:
            return None
        found.append(replace(each.observed.file, file_path=each.added.published_path))
    return tuple(found)
