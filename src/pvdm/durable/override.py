"""Publishes the bytes that an accepted override names."""

from __future__ import annotations

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.durable import failure_text
from pvdm.durable.final_outcome import complete_outcome
from pvdm.durable.outcome import (
    Activity,
    ChunkOutcome,
    Committed,
    Outcome,
    RolledBack,
    Step,
    VerificationFailed,
    Watch,
    ignore_progress,
)
from pvdm.durable.run import FINAL_ACTIVITIES, WAIT_SECONDS, require_progress
from pvdm.errors import Code
from pvdm.model.states import AttemptState


def publish_override(client: StewardClient, override_id: str, watch: Watch = ignore_progress) -> Outcome:
    """Publish the bytes that an accepted override names, as an operator, and wait for the outcome.

    A repeated call waits for the same attempt. If that attempt has ended unpublished, the call makes a new one.
    """
    attempt = client.publish_override(override_id)
    published_before = attempt.state is AttemptState.COMMITTED
    while not attempt.settled:
        _report_step(watch, attempt, Activity.VERIFYING, None if attempt.problem is None else attempt.problem.message)
        require_progress(attempt)
        attempt = client.await_attempt(attempt.attempt_id, seconds=WAIT_SECONDS)
    if attempt.state in FINAL_ACTIVITIES:
        _report_step(watch, attempt, Activity.SKIPPED if published_before else FINAL_ACTIVITIES[attempt.state])
    workload_id, table = attempt.workload_id, attempt.table or ""
    chunks = (ChunkOutcome(attempt.chunk_id, attempt, published_before),)
    match attempt.state:
        case AttemptState.COMMITTED:
            return Committed(workload_id, table, chunks)
        case AttemptState.VERIFICATION_FAILED:
            next_step = f"where the contract allows one more attempt, `{failure_text.retry_command(attempt)}` makes it"
            error = failure_text.failure_error(attempt, attempt.chunk_id, next_step)
            return complete_outcome(client, VerificationFailed(workload_id, table, chunks, error))
        case AttemptState.ROLLED_BACK:
            hint = "the same call tries the publication again"
            rolled_back = Code.ATTEMPT_ROLLED_BACK("the attempt was rolled back", got=attempt.reason, hint=hint)
            return complete_outcome(client, RolledBack(workload_id, table, chunks, rolled_back))
    if not attempt.waiting:
        raise failure_text.stuck_error(attempt)
    hint = f"`pvdm status --workload-id {workload_id}` shows the others; all are published with the last of them"
    raise Code.ATTEMPT_WAITING(got=f"chunk {attempt.chunk_id} waits", hint=hint, attempt_id=attempt.attempt_id)


def _report_step(watch: Watch, attempt: AttemptView, activity: Activity, problem: str | None = None) -> None:
    done = int(attempt.state is AttemptState.COMMITTED)
    ids = (attempt.workload_id, attempt.chunk_id)
    watch(Step(*ids, activity, done, total=1, attempt=attempt.number, problem=problem))
