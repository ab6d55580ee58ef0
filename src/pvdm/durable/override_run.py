"""A publication by break-glass, from the override to its outcome; the Steward does all of it."""

from __future__ import annotations

from pvdm.client import AttemptView, StewardClient
from pvdm.durable.failure_text import again, failure
from pvdm.durable.outcome import ChunkOutcome, Committed, Outcome, RolledBack, VerificationFailed
from pvdm.durable.progress import Doing, Step, Watch, unwatched
from pvdm.durable.run import LOOK_SECONDS, require_going, stuck
from pvdm.errors import ConflictError, RolledBackError
from pvdm.model.states import AttemptState


def publish_override(client: StewardClient, override_id: str, watch: Watch = unwatched) -> Outcome:
    """Have the bytes published that an accepted override names, and wait for what becomes of them.

    The client is an operator's. The same call again waits on, or says what became of it.
    """
    attempt = client.publish_override(override_id)
    published = Doing.SKIPPED if attempt.state is AttemptState.COMMITTED else Doing.PUBLISHED
    while not attempt.settled:
        _tell(watch, attempt, Doing.VERIFYING, None if attempt.problem is None else attempt.problem.message)
        require_going(attempt)
        attempt = client.await_attempt(attempt.attempt_id, seconds=LOOK_SECONDS)
    return _outcome(attempt, watch, published)


def _outcome(attempt: AttemptView, watch: Watch, published: Doing) -> Outcome:
    workload_id, table = attempt.workload_id, attempt.table or ""
    chunks = (ChunkOutcome(attempt.chunk_id, attempt, published is Doing.SKIPPED),)
    match attempt.state:
        case AttemptState.COMMITTED:
            _tell(watch, attempt, published)
            return Committed(workload_id, table, chunks)
        case AttemptState.VERIFICATION_FAILED:
            _tell(watch, attempt, Doing.FAILED)
            way = f"where the contract allows one more attempt, `{again(attempt)}` makes it"
            return VerificationFailed(workload_id, table, chunks, failure(attempt, attempt.chunk_id, way))
        case AttemptState.ROLLED_BACK:
            _tell(watch, attempt, Doing.ROLLED_BACK)
            hint = "the same call brings the bytes back once more"
            error = RolledBackError("attempt_rolled_back", "the attempt was rolled back", got=attempt.reason, hint=hint)
            return RolledBack(workload_id, table, chunks, error)
    if not attempt.waiting:
        raise stuck(attempt)
    raise ConflictError(
        "attempt_waiting",
        "nothing is published yet: the workload becomes visible whole, and other chunks of it are not proved",
        expected="every chunk proved",
        got=f"chunk {attempt.chunk_id} waits",
        hint=f"`pvdm status --workload-id {workload_id}` shows the others; with the last of them it is published",
        attempt_id=attempt.attempt_id,
    )


def _tell(watch: Watch, attempt: AttemptView, doing: Doing, problem: str | None = None) -> None:
    done = int(attempt.state is AttemptState.COMMITTED)
    watch(Step(attempt.workload_id, attempt.chunk_id, doing, done, 1, attempt.number, problem))
