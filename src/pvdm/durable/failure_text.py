"""Builds the errors for attempts and runs that published nothing: the reason and the next step."""

from __future__ import annotations

from typing import Final

from pvdm.client import AttemptView, WorkloadView
from pvdm.durable.outcome import SourceMoved, must_read_hint
from pvdm.errors import Code, ConflictError, RolledBackError, UnavailableError, VerificationError
from pvdm.model.branch import is_stewards
from pvdm.model.filter.claim import way_to_publish_rest
from pvdm.model.located import LocatedClass
from pvdm.model.located_text import counted, fields_that_differ, files_of, first_keys, rest_of_keys, who_sees
from pvdm.model.printable import utc_time
from pvdm.model.statements.verdict import FailureClass

_FAILED: Final = Code.VERIFICATION_FAILED


def failure_error(
    attempt: AttemptView, chunk_id: str, no_way_on: str = "", *, before: bool = False, moved: SourceMoved | None = None
) -> VerificationError:
    """The error for an attempt that failed, with the Steward's refusal and the next step, usually a repair.

    `before`: an earlier run ended so, and this one has tried nothing. `moved`: the source has newer rows than the
    workload reads. `no_way_on` replaces the next step where no attempt is left.
    """
    refusal = attempt.refusal
    classes = ", ".join(each.value for each in attempt.classes)
    details: dict[str, str | int] = {"chunk": chunk_id, "attempt": attempt.number, "attempt_id": attempt.attempt_id}
    details |= {"classes": classes} if classes else {}
    details |= _located(attempt)
    details |= {f"finding_{number}": str(each) for number, each in enumerate(attempt.findings, 1)}
    details |= {"findings_more": attempt.findings_more} if attempt.findings_more else {}
    details |= {"proof_id": attempt.proof_id} if attempt.proof_id is not None else {}
    # If the gate refused, the job may be right.
    by_gate = None if refusal is None or refusal.code == _FAILED else refusal.hint
    if no_way_on:
        hint = no_way_on if by_gate is None else f"{by_gate}; {no_way_on}"
    else:
        way = retry_command(attempt)
        hint = f"fix the job, then: {way}" if by_gate is None else f"{by_gate}; to try again: {way}"
    if moved is not None and by_gate is None:
        hint = f"{must_read_hint(moved)}; {hint}"
    if before:
        hint = f"{_not_tried_note(attempt, 'the verdict of')}; {hint}"
    return VerificationError(
        _FAILED if refusal is None else refusal.reason,
        f"nothing was published: {_why(attempt)}",
        expected=None if refusal is None else refusal.expected,
        got=_got(attempt),
        hint=hint if is_stewards_branch(attempt) else f"{hint}; {kept_branch_note(attempt)}",
        **details,
    )


def _why(attempt: AttemptView) -> str:
    """The Steward's reason, with counts of located rows."""
    if attempt.refusal is None:
        return attempt.reason
    if attempt.refusal.code != _FAILED or attempt.located is None or not attempt.located.classes:
        return attempt.refusal.message
    others = [each.value for each in attempt.classes if each not in attempt.located.failures]
    return f"the verdict is FAIL: {', '.join([counted(attempt.located), *others])}"


def _got(attempt: AttemptView) -> str | None:
    """The `got` of the error, with the first keys of wrong rows where the token may see them."""
    refusal, located = attempt.refusal, attempt.located
    if refusal is None or refusal.code != _FAILED or located is None:
        return None if refusal is None else refusal.got
    return "; ".join(part for part in (refusal.got, *(first_keys(each) for each in located.classes)) if part) or None


def _located(attempt: AttemptView) -> dict[str, str | int]:
    located = attempt.located
    if located is None:
        return {}
    if located.problem_code is not None:
        return {"not_located": located.problem_code}
    facts: dict[str, str | int] = {f"rows_{each.failure.value}": each.rows for each in located.classes}
    facts |= {_files_name(each): files_of(each) for each in located.classes if each.files}
    withheld = who_sees(located)
    if withheld is not None and located.keys_for:
        withheld += f"; see `pvdm status --workload-id {attempt.workload_id}`"
    said = {
        "fields_that_differ": fields_that_differ(located),
        "withheld": withheld,
        "more": rest_of_keys(located, attempt.workload_id),
    }
    return facts | {name: words for name, words in said.items() if words}


def _files_name(each: LocatedClass) -> str:
    of = "source_files" if each.failure is FailureClass.MISSING else "files"
    return f"{of}_with_{each.failure.value}_rows"


def _not_tried_note(attempt: AttemptView, what: str) -> str:
    """A note that this is an old result, not one of what was corrected since."""
    job = "the job was not run" if is_stewards_branch(attempt) else "the branch was not read again"
    return f"this is {what} attempt {attempt.number} at {utc_time(attempt.changed_at)}; {job}"


def no_verdict_error(attempt: AttemptView, *, before: bool = False) -> RolledBackError:
    """The error for an attempt that the Steward ended without a verdict."""
    refusal = attempt.refusal
    if refusal is None:
        raise AssertionError("an attempt without a verdict has a refusal")
    way = f"if it was cured since without that, as by a migration: {retry_command(attempt)}"
    if before:
        way = f"{_not_tried_note(attempt, 'the end of')}; {way}"
    return RolledBackError(
        refusal.reason,
        f"nothing was published, and there is no verdict: {refusal.message}",
        expected=refusal.expected,
        got=refusal.got,
        hint=way if refusal.hint is None else f"{refusal.hint}; {way}",
        chunk=attempt.chunk_id,
        attempt=attempt.number,
        attempt_id=attempt.attempt_id,
    )


def retry_command(attempt: AttemptView) -> str:
    """The command that opens another attempt after a failed one; it needs a reason."""
    if is_stewards_branch(attempt):
        return f"pvdm repair {attempt.workload_id} --reason TEXT"
    table = attempt.table or "TABLE"
    return f"pvdm publish {table} BRANCH --workload-id {attempt.workload_id} --reason TEXT (and its --param)"


def is_stewards_branch(attempt: AttemptView) -> bool:
    """Whether the Steward made the attempt's branch; any other branch was adopted."""
    return is_stewards(attempt.branch)


def kept_branch_note(attempt: AttemptView) -> str:
    """A note about an adopted branch that was not published."""
    table, branch = attempt.table or "TABLE", attempt.branch
    return (
        f"your branch is as it was: read it as {table}.branch_{branch}, "
        f"drop it with ALTER TABLE {table} DROP BRANCH `{branch}`"
    )


def stuck_error(attempt: AttemptView) -> UnavailableError:
    """The error for an attempt that the Steward cannot continue, with the time of its next try."""
    problem = attempt.problem
    seconds = None if attempt.job is None else attempt.job.again_seconds
    retry = "" if seconds is None else f"the Steward tries again by itself in {max(1, seconds)} s; "
    cure = "" if problem is None or problem.hint is None else f"{problem.hint}; "
    return UnavailableError(
        Code.ATTEMPT_STUCK if problem is None else problem.reason,
        "the Steward cannot go on with the attempt" + ("" if problem is None else f": {problem.message}"),
        expected=None if problem is None else problem.expected,
        got=None if problem is None else problem.got,
        hint=f"{cure}{retry}the same call makes it try at once, and waits on",
        attempt_id=attempt.attempt_id,
    )


def abandoned_error(workload: WorkloadView) -> ConflictError:
    """The error for a workload that was abandoned."""
    claim = workload.claim
    way = "publish under another workload id" if claim is None else way_to_publish_rest(claim)
    return ConflictError(
        Code.WORKLOAD_ABANDONED,
        "the workload was given up, and never goes on",
        expected="an open workload",
        got=f"abandoned: {workload.reason}",
        hint=f"trying this one again changes nothing; {way}",
    )


def interrupted_error(*, staged: bool) -> RolledBackError:
    """The error for a run that was interrupted; `staged`: the Steward has attempts to verify or publish."""
    hint = "the same call takes the workload up again"
    if staged:
        hint = f"the Steward goes on with what was handed in; {hint}"
    return RolledBackError(Code.INTERRUPTED, "the run was interrupted", hint=hint)
