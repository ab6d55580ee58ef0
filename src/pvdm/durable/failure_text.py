"""Builds the errors for attempts and runs that published nothing: the reason and the next step."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from pvdm.api.work import AttemptView, WorkloadView
from pvdm.durable.outcome import SourceMoved, must_read_hint
from pvdm.errors import (
    Code,
    InputError,
    NotAllowedError,
    PvdmError,
    RolledBackError,
    StateUnknownError,
    UnavailableError,
    VerificationError,
)
from pvdm.lake.spark import CALLING, cause_of
from pvdm.model.chunk import is_stewards
from pvdm.model.filter.claim import way_to_publish_rest
from pvdm.model.located import (
    LocatedClass,
    count_rows,
    fields_that_differ,
    files_of,
    first_keys,
    rest_of_keys,
    who_sees,
)
from pvdm.model.printable import utc_time
from pvdm.model.statements.verdict import FailureClass
from pvdm.model.states import AttemptState

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
        hint=hint if is_stewards(attempt.branch) else f"{hint}; {kept_branch_note(attempt)}",
        **details,
    )


def _why(attempt: AttemptView) -> str:
    """The Steward's reason, with counts of located rows."""
    if attempt.refusal is None:
        return attempt.reason
    if attempt.refusal.code != _FAILED or attempt.located is None or not attempt.located.classes:
        return attempt.refusal.message
    others = [each.value for each in attempt.classes if each not in attempt.located.failures]
    return f"the verdict is FAIL: {', '.join([count_rows(attempt.located), *others])}"


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
    job = "the job was not run" if is_stewards(attempt.branch) else "the branch was not read again"
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
    if is_stewards(attempt.branch):
        return f"pvdm repair {attempt.workload_id} --reason TEXT"
    table = attempt.table or "TABLE"
    return f"pvdm publish {table} BRANCH --workload-id {attempt.workload_id} --reason TEXT (and its --param)"


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


def abandoned_error(workload: WorkloadView) -> PvdmError:
    """The error for a workload that was abandoned."""
    claim = workload.claim
    way = "publish under another workload id" if claim is None else way_to_publish_rest(claim)
    hint = f"trying this one again changes nothing; {way}"
    return Code.WORKLOAD_ABANDONED(got=f"abandoned: {workload.reason}", hint=hint)


def interrupted_error(*, staged: bool) -> PvdmError:
    """The error for a run that was interrupted; `staged`: the Steward has attempts to verify or publish."""
    hint = "the same call takes the workload up again"
    if staged:
        hint = f"the Steward goes on with what was handed in; {hint}"
    return Code.INTERRUPTED("the run was interrupted", hint=hint)


TAKEN_OVER: Final = "another run of the workload took it over"
_OWN: Final = str(Path(__file__).parents[1])
_INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
# Errors of these kinds explain themselves; any other error is the job's.
_TELLING: Final = (InputError, NotAllowedError, UnavailableError, RolledBackError)


def reason_for(error: BaseException) -> str:
    """The reason of the abort, as the ledger stores it."""
    return "".join(each if each.isprintable() else " " for each in _summary(error, 200))[:200]


def staging_error(error: BaseException, reason: str, now: AttemptView) -> BaseException:
    """The error for the caller; `now` is the attempt after the abort.

    An attempt that ended with another `reason` than this run's was ended by another caller.
    """
    if now.state is not AttemptState.ROLLED_BACK or now.reason != reason:
        return taken_over_error(now, job=_summary(error, 300))
    if isinstance(error, _TELLING) or not isinstance(error, Exception):
        return error
    summary = _summary(error, 300)
    if isinstance(error, StateUnknownError) or "CommitStateUnknownException" in summary:
        # The response to the commit on the branch was lost, which is no fault of the job.
        return Code.STAGING_UNKNOWN(got=summary)
    if "NotAuthorizedException" in summary:
        return Code.CATALOG_TOKEN_REFUSED(got=summary)
    return Code.JOB_FAILED(got=summary, **_location(error))


def taken_over_error(now: AttemptView, **details: str) -> PvdmError:
    """The error for an attempt that another caller has ended or continues."""
    what = f"attempt {now.number} at chunk {now.chunk_id}"
    if now.state is AttemptState.ROLLED_BACK and now.reason != TAKEN_OVER:
        return Code.ATTEMPT_ROLLED_BACK(f"{what} was rolled back, and not by this run", got=now.reason, **details)
    return Code.ATTEMPT_TAKEN_OVER(
        f"another run took {what} over",
        got=f"{now.state}: {now.reason}",
        hint=f"let that one come to its end: `pvdm status --workload-id {now.workload_id}` shows how far it is",
        **details,
    )


def attempts_exhausted_hint(
    workload_id: str, attempts: tuple[AttemptView, ...], *, failed_max: int, rolled_back_max: int
) -> str:
    """The next step where no attempt at the chunk is left; empty where one is."""
    counts = (
        ("failed", AttemptState.VERIFICATION_FAILED, failed_max),
        ("were rolled back", AttemptState.ROLLED_BACK, rolled_back_max),
    )
    for how, state, most in counts:
        if sum(each.state is state for each in attempts) >= most:
            return (
                f"no attempt is left at the chunk, since {most} {how}. To publish rows that failed: "
                "`pvdm break-glass`, while the workload is open. Else an operator gives it up with "
                f"`pvdm abandon {workload_id} --reason TEXT`, after which break-glass is no longer possible, and "
                "another workload id starts again"
            )
    return ""


def unreported_error(error: BaseException, attempt: AttemptView, why: PvdmError) -> PvdmError:
    """The error of a failed job whose failure could not be reported; `why` is the error of that report."""
    left = f"attempt {attempt.number} at chunk {attempt.chunk_id} is STAGING as far as is known"
    if isinstance(why, NotAllowedError):
        way = "with a good token the same call takes the attempt back and the workload up again"
        return NotAllowedError(
            why.reason,
            f"the chunk could not be staged, and the Steward refuses the run: {why.message}; {left}",
            expected=why.expected,
            got=_summary(error, 300),
            hint=f"{why.hint}; {way}" if why.hint else way,
            attempt_id=attempt.attempt_id,
        )
    return Code.ATTEMPT_LEFT_STAGING(
        f"the chunk could not be staged, and the Steward could not be reached: {left}",
        got=_summary(error, 300),
        attempt_id=attempt.attempt_id,
        **_location(error),
    )


def _summary(error: BaseException, most: int) -> str:
    """The error's type and first line; for an error from Java its cause."""
    said = str(error).strip().splitlines()
    if said and said[0].startswith(CALLING):
        said = [cause_of(error)]
    return f"{type(error).__name__}: {said[0][:most]}" if said else type(error).__name__


def _location(error: BaseException) -> dict[str, str]:
    """The innermost line of the job's own code, without any values."""
    if isinstance(error, _TELLING):
        return {}
    steps = [step for step in traceback.walk_tb(error.__traceback__) if not _is_within(step[0], (_OWN,))]
    # An installed job counts by its own package.
    home = _package(steps[0][0]) if steps else ""
    for frame, line in reversed(steps):
        code = frame.f_code
        if _package(frame) == home or not (code.co_filename.startswith("<") or _is_within(frame, _INSTALLED)):
            return {"at": f"{_file(code)}:{line} in {code.co_qualname}"}
    return {}


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_within(frame: FrameType, folders: tuple[str, ...]) -> bool:
    """Whether the code lies in one of these folders; compiled code names paths of its build, so both files count."""
    source = frame.f_code.co_filename
    files = (source, str(frame.f_globals.get("__file__") or source))
    return any(Path(file).is_relative_to(folder) for folder in folders for file in files)


def _file(code: CodeType) -> str:
    path, here = Path(code.co_filename), Path.cwd()
    shown = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return "".join(each if each.isprintable() else "?" for each in shown)[-200:]
