"""The words for an attempt that was not published: why, and the way on."""

from __future__ import annotations

from typing import Final

from pvdm.client import AttemptView
from pvdm.durable.moved_source import must_read
from pvdm.durable.outcome import SourceMoved
from pvdm.errors import RolledBackError, VerificationError
from pvdm.model.branch import is_stewards
from pvdm.model.located import LocatedClass
from pvdm.model.located_text import counted, fields_that_differ, files_of, first_keys, rest_of_keys, who_sees
from pvdm.model.printable import utc_time
from pvdm.model.statements.verdict import FailureClass

_FAILED: Final = "verification_failed"


def failure(
    attempt: AttemptView, chunk_id: str, no_way_on: str = "", *, before: bool = False, moved: SourceMoved | None = None
) -> VerificationError:
    """Why nothing was published, in the Steward's words; the way on beside it, which is a repair as a rule.

    `before`: an earlier run was told so, and this one has tried nothing. `moved`: the source has newer rows than the
    workload reads.
    """
    refusal = attempt.refusal
    classes = ", ".join(each.value for each in attempt.classes)
    details: dict[str, str | int] = {"chunk": chunk_id, "attempt": attempt.number, "attempt_id": attempt.attempt_id}
    details |= {"classes": classes} if classes else {}
    details |= _located(attempt)
    details |= {f"finding_{number}": str(each) for number, each in enumerate(attempt.findings, 1)}
    details |= {"findings_more": attempt.findings_more} if attempt.findings_more else {}
    details |= {"proof_id": attempt.proof_id} if attempt.proof_id is not None else {}
    # Where the gate refused, the job need not be at fault.
    by_gate = None if refusal is None or refusal.code == _FAILED else refusal.hint
    if no_way_on:
        hint = no_way_on if by_gate is None else f"{by_gate}; {no_way_on}"
    else:
        way = again(attempt)
        hint = f"fix the job, then: {way}" if by_gate is None else f"{by_gate}; to try again: {way}"
    if moved is not None and by_gate is None:
        hint = f"{must_read(moved)}; {hint}"
    if before:
        hint = f"{_not_tried(attempt, 'the verdict of')}; {hint}"
    return VerificationError(
        _FAILED if refusal is None else refusal.code,
        f"nothing was published: {_why(attempt)}",
        expected=None if refusal is None else refusal.expected,
        got=_got(attempt),
        hint=hint if is_own(attempt) else f"{hint}; {kept_branch(attempt)}",
        **details,
    )


def _why(attempt: AttemptView) -> str:
    """The Steward's words; where a verdict's rows were located, they are counted in them."""
    if attempt.refusal is None:
        return attempt.reason
    if attempt.refusal.code != _FAILED or attempt.located is None or not attempt.located.classes:
        return attempt.refusal.message
    others = [each.value for each in attempt.classes if each not in attempt.located.failures]
    return f"the verdict is FAIL: {', '.join([counted(attempt.located), *others])}"


def _got(attempt: AttemptView) -> str | None:
    """What was got, with the first keys of wrong rows where the token may see them."""
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
    told: dict[str, str | int] = {f"rows_{each.failure.value}": each.rows for each in located.classes}
    told |= {_files_name(each): files_of(each) for each in located.classes if each.files}
    withheld = who_sees(located)
    if withheld is not None and located.keys_for:
        withheld += f"; see `pvdm status --workload-id {attempt.workload_id}`"
    said = {
        "fields_that_differ": fields_that_differ(located),
        "withheld": withheld,
        "more": rest_of_keys(located, attempt.workload_id),
    }
    return told | {name: words for name, words in said.items() if words}


def _files_name(each: LocatedClass) -> str:
    of = "source_files" if each.failure is FailureClass.MISSING else "files"
    return f"{of}_with_{each.failure.value}_rows"


def _not_tried(attempt: AttemptView, what: str) -> str:
    """That an answer is an old one, so that nobody takes it for the verdict of what was mended since."""
    job = "the job was not run" if is_own(attempt) else "the branch was not read again"
    return f"this is {what} attempt {attempt.number} at {utc_time(attempt.changed_at)}; {job}"


def given_up(attempt: AttemptView, *, before: bool = False) -> RolledBackError:
    """Why the Steward ended an attempt without a verdict, and never will give one; the way on beside it."""
    refusal = attempt.refusal
    if refusal is None:
        raise AssertionError("who calls this has seen the refusal")
    way = f"if it was cured since without that, as by a migration: {again(attempt)}"
    if before:
        way = f"{_not_tried(attempt, 'the end of')}; {way}"
    return RolledBackError(
        refusal.code,
        f"nothing was published, and there is no verdict: {refusal.message}",
        expected=refusal.expected,
        got=refusal.got,
        hint=way if refusal.hint is None else f"{refusal.hint}; {way}",
        chunk=attempt.chunk_id,
        attempt=attempt.number,
        attempt_id=attempt.attempt_id,
    )


def again(attempt: AttemptView) -> str:
    """The command that opens another attempt after one that failed; each wants a reason."""
    if is_own(attempt):
        return f"pvdm repair {attempt.workload_id} --reason TEXT"
    table = attempt.table or "TABLE"
    return f"pvdm publish {table} BRANCH --workload-id {attempt.workload_id} --reason TEXT (and its --param)"


def is_own(attempt: AttemptView) -> bool:
    """Whether the Steward made the attempt's branch; another one, which has no such name, was taken over."""
    return is_stewards(attempt.branch)


def kept_branch(attempt: AttemptView) -> str:
    """What became of a branch that was taken over and not published."""
    table, branch = attempt.table or "TABLE", attempt.branch
    return (
        f"your branch is as it was: read it as {table}.branch_{branch}, "
        f"drop it with ALTER TABLE {table} DROP BRANCH `{branch}`"
    )
