"""Workloads and attempts: opened, staged, waited for, given up and looked at by those of their domain."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query

from pvdm.errors import PvdmError
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.ledger.work.chunks import CHUNKS_MAX
from pvdm.ledger.work.workloads import Workload
from pvdm.steward.http.body import body_of, require_empty
from pvdm.steward.http.dependencies import Caller, NotaryPart, WaitingPart
from pvdm.steward.http.errors import shown
from pvdm.steward.http.v1.located_models import located_part
from pvdm.steward.http.v1.models import HEX16, PAGE_ROWS_MAX, WORKLOAD_ID, ReasonBody, TokenAnswer, TokenBody
from pvdm.steward.http.v1.service import identity_of
from pvdm.steward.http.v1.work_models import (
    AttemptAnswer,
    AttemptBody,
    ChunkPart,
    ChunksAnswer,
    JobPart,
    JobsAnswer,
    ListedJob,
    NewestWorkloadsAnswer,
    OpeningBody,
    PublicationBody,
    PublishedPart,
    RefusalPart,
    WorkloadAnswer,
    WorkloadPart,
    WorkloadsAnswer,
)
from pvdm.steward.pipeline.jobs import JobState, JobView
from pvdm.steward.work.attempt_views import AttemptView
from pvdm.steward.work.end_reasons import sentence_of
from pvdm.steward.work.log_lines import works_of
from pvdm.steward.work.opened import parameters_of
from pvdm.steward.work.opening import PlannedChunk
from pvdm.steward.work.requests import WorkloadSummary

WAIT_MAX_SECONDS: Final = 300

router = APIRouter(tags=["work"])

Reasoned = Annotated[ReasonBody, Depends(body_of(ReasonBody))]
AttemptId = Annotated[str, Path(pattern=HEX16)]
WorkloadId = Annotated[str, Path(pattern=WORKLOAD_ID)]
Place = Annotated[int, Query(ge=0, le=CHUNKS_MAX)]
Page = Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)]


@router.get("/v1/workloads")
def workloads(
    notary: NotaryPart,
    grant: Caller,
    after: Annotated[str | None, Query(pattern=WORKLOAD_ID)] = None,
    limit: Page = 100,
) -> WorkloadsAnswer:
    """The next workloads of the token's domain after an id."""
    found = notary.work.workloads(grant, after=after, count=limit)
    return WorkloadsAnswer(workloads=[WorkloadPart.model_validate(_workload(each)) for each in found])


@router.get("/v1/newest-workloads")
def newest_workloads(notary: NotaryPart, grant: Caller, limit: Page = 100) -> NewestWorkloadsAnswer:
    """The workloads of the token's domain that were opened or ended last, the latest first."""
    found, total = notary.work.newest_workloads(grant, count=limit)
    parts = [WorkloadPart.model_validate(_workload(each)) for each in found]
    return NewestWorkloadsAnswer(workloads=parts, total=str(total))


@router.post("/v1/workloads")
def open_workload(
    notary: NotaryPart, grant: Caller, body: Annotated[OpeningBody, Depends(body_of(OpeningBody))]
) -> WorkloadPart:
    """Open a workload under the table's contract: source pinned, plan fixed. The same words again change nothing."""
    found = notary.workloads.open(grant, body.workload_id, body.table, body.parameters)
    return _part(notary, found)


@router.get("/v1/jobs")
def jobs(notary: NotaryPart, limit: Page = 100) -> JobsAnswer:
    """What this Steward still has to do for attempts; a failed job is due again at the next start."""
    order = (JobState.FAILED, JobState.WAITING, JobState.RUNNING, JobState.QUEUED)
    found = sorted(notary.jobs.listed(), key=lambda job: order.index(job.state))[:limit]
    works = works_of(notary.ledger, [job.subject for job in found])
    parts = [
        ListedJob(kind=job.kind.value, subject=job.subject, table=table, workload_id=workload_id, **_told(job))
        for job, (table, workload_id) in zip(found, works, strict=True)
    ]
    return JobsAnswer(jobs=parts)


@router.get("/v1/workloads/{workload_id}")
def workload(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    chunks_after: Place = 0,
    limit: Page = PAGE_ROWS_MAX,
    newest: bool = True,
) -> WorkloadAnswer:
    """One workload with a page of its plan, the attempts at those chunks and what is published of them.

    Without `newest` the source is not asked where it stands now: for who asks often.
    """
    found = notary.work.workload(grant, workload_id, chunks_after=chunks_after, count=limit)
    published = [
        PublishedPart(chunk_id=each.chunk_id, attempt_id=each.attempt_id, snapshot_id=each.snapshot_id)
        for each in found.published
    ]
    more = {
        "chunk_ids": list(found.chunk_ids),
        "attempts": [attempt_answer(attempt) for attempt in found.attempts],
        "published": published,
    }
    source_newest = notary.workloads.source_newest(found.summary.workload) if newest else None
    return WorkloadAnswer.model_validate({**_workload(found.summary, source_newest), **more})


@router.get("/v1/workloads/{workload_id}/chunks")
def chunks(
    notary: NotaryPart, grant: Caller, workload_id: WorkloadId, after: Place = 0, limit: Page = PAGE_ROWS_MAX
) -> ChunksAnswer:
    """The plan's next chunks after so many, each with the last attempt at it."""
    found = notary.workloads.chunks(grant, workload_id, after=after, count=limit)
    tried = [each.attempt for each in found if each.attempt is not None]
    views = {view.attempt.attempt_id: view for view in notary.work.views(grant, tried)}
    return ChunksAnswer(chunks=[_chunk(each, views) for each in found])


@router.post("/v1/workloads/{workload_id}/attempts")
def next_attempt(
    notary: NotaryPart,
    grant: Caller,
    workload_id: WorkloadId,
    body: Annotated[AttemptBody, Depends(body_of(AttemptBody))],
) -> AttemptAnswer:
    """Open the next attempt at a chunk, with a branch and a place of its own; a live one is a conflict, and named."""
    made = notary.workloads.next_attempt(grant, workload_id, body.chunk_id, body.reason, body.attempt_id)
    return attempt_answer(notary.work.views(grant, [made])[0])


@router.post("/v1/workloads/{workload_id}/abandon")
def abandon(notary: NotaryPart, grant: Caller, workload_id: WorkloadId, body: Reasoned) -> WorkloadPart:
    """Give the workload up: live attempts are rolled back; what is published stays."""
    return _part(notary, notary.workloads.abandon(grant, workload_id, body.reason))


@router.get("/v1/attempts/{attempt_id}")
async def attempt(
    notary: NotaryPart,
    waiting: WaitingPart,
    grant: Caller,
    attempt_id: AttemptId,
    wait: Annotated[int, Query(ge=0, le=WAIT_MAX_SECONDS)] = 0,
) -> AttemptAnswer:
    """One attempt; with `wait`, as soon as it is settled, or as it is after so many seconds (fewer, if limits say)."""
    seconds = min(wait, notary.config.service.limits.request_seconds)
    return attempt_answer(await waiting.attempt(grant, attempt_id, seconds))


@router.post("/v1/attempts/{attempt_id}/staged", dependencies=[Depends(require_empty)])
def staged(notary: NotaryPart, grant: Caller, attempt_id: AttemptId) -> AttemptAnswer:
    """The write is complete: from now on the Steward verifies what is on the branch. Once more changes nothing."""
    return attempt_answer(notary.work.views(grant, [notary.workloads.staged(grant, attempt_id)])[0])


@router.post("/v1/attempts/{attempt_id}/abort")
def abort(notary: NotaryPart, grant: Caller, attempt_id: AttemptId, body: Reasoned) -> AttemptAnswer:
    """Give the attempt up; one that was given up stays so. Its branch and its files are removed."""
    return attempt_answer(notary.work.abort(grant, attempt_id, body.reason))


@router.post("/v1/attempts/{attempt_id}/tokens")
def attempt_token(
    notary: NotaryPart, grant: Caller, attempt_id: AttemptId, body: Annotated[TokenBody, Depends(body_of(TokenBody))]
) -> TokenAnswer:
    """A short-lived token for this attempt alone; the bearer draws its text, so asking twice is safe."""
    return TokenAnswer(identity=identity_of(notary.access.attempt_token(grant, attempt_id, body.secret_sha256)))


@router.post("/v1/publications")
def publish(
    notary: NotaryPart, grant: Caller, body: Annotated[PublicationBody, Depends(body_of(PublicationBody))]
) -> AttemptAnswer:
    """Verify and publish a branch that was staged without an attempt: one chunk, and always the Steward's copies."""
    found = notary.workloads.adopt(grant, body.workload_id, body.table, body.branch, body.parameters, body.reason)
    return attempt_answer(notary.work.views(grant, [found])[0])


def attempt_answer(view: AttemptView) -> AttemptAnswer:
    """An attempt as it is told."""
    found, refusal = view.attempt, view.refusal
    return AttemptAnswer.model_validate(
        {
            "attempt_id": found.attempt_id,
            "workload_id": found.workload_id,
            "chunk_id": found.chunk_id,
            "number": found.number,
            "state": found.state.value,
            "table": view.table,
            "target_branch": MAIN,
            "branch": found.branch,
            "prefix": found.prefix,
            "staged_snapshot_id": found.staged_snapshot_id,
            "reason": sentence_of(found.reason),
            "changed_at": found.at_micros,
            "waiting": view.waiting,
            "verdict": view.verdict,
            "classes": list(view.classes),
            "findings": [asdict(each) for each in view.findings],
            "findings_more": view.findings_more,
            "proof_id": view.proof_id,
            "override_id": view.override_id,
            "snapshot_id": view.snapshot_id,
            "extent": None if view.extent is None else {k: str(v) for k, v in asdict(view.extent).items()},
            "refusal": None if refusal is None else _refusal(refusal),
            "job": None if view.job is None else _job(view.job),
            "located": None if view.located is None else located_part(view.located),
            "quarantine": None if view.quarantine is None else asdict(view.quarantine),
        }
    )


def _refusal(error: object) -> RefusalPart:
    keys = ("code", "message", "expected", "got", "hint")
    return RefusalPart(**{key: getattr(error, key) for key in keys})


def _job(job: JobView) -> JobPart:
    return JobPart(**_told(job))


def _told(job: JobView) -> dict[str, Any]:
    """A bug's own words stay in the Steward's log."""
    problem: PvdmError | None = None if job.error is None else shown(job.error)
    return {
        "state": job.state.value,
        "tries": job.tries,
        "problem": None if problem is None else _refusal(problem),
        "again_seconds": job.again_seconds,
    }


def _chunk(found: PlannedChunk, views: dict[str, AttemptView]) -> ChunkPart:
    definition, tried = found.definition, found.attempt
    return ChunkPart(
        chunk_id=definition.chunk_id,
        where=definition.where,
        files=None if definition.files is None else list(definition.files),
        attempt=None if tried is None else attempt_answer(views[tried.attempt_id]),
    )


def _part(notary: NotaryPart, found: Workload) -> WorkloadPart:
    return WorkloadPart.model_validate(_workload(notary.work.summary(found), notary.workloads.source_newest(found)))


def _workload(summary: WorkloadSummary, source_newest: str | None = None) -> dict[str, object]:
    found = summary.workload
    opening = found.opening
    return {
        "workload_id": opening.workload_id,
        "domain": opening.domain,
        "state": found.state.value,
        "contract_hash": opening.contract_hash,
        "table_uuid": opening.table_uuid,
        "table": summary.table,
        "source": opening.source,
        "source_snapshot_id": found.source_snapshot_id,
        "source_newest_snapshot_id": source_newest,
        "source_newer_columns": found.newer_columns.decode(),
        "plan_hash": found.plan_hash,
        "chunk_count": summary.chunk_count,
        "chunk_states": [{"state": state.value, "chunks": count} for state, count in summary.states],
        "problem": None if summary.problem is None else _refusal(shown(summary.problem)),
        "override_ids": list(summary.override_ids),
        "claim": summary.claim,
        "parameters": parameters_of(found),
        "atomicity": opening.atomicity.value,
        "epoch": str(found.epoch),
        "reason": found.reason,
        "changed_at": found.at_micros,
    }
