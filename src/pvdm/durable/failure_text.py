"""Builds the errors for attempts and runs that published nothing: the reason and the next step."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, TypeVar

from pvdm.api.work import AttemptView, WorkloadView
from pvdm.durable.chunk_counts import ChunkCounts
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
    expect,
)
from pvdm.lake.spark import PY4J_CALL_PREFIX, cause_of
from pvdm.model.chunk import is_steward_branch
from pvdm.model.filter.claim import way_to_publish_rest
from pvdm.model.located import (
    LocatedClass,
    describe_counts,
    explain_hidden_keys,
    explain_more_keys,
    fields_that_differ,
    files_of,
    first_keys,
)
from pvdm.model.printable import printable, utc_time
from pvdm.model.statements.verdict import BOUNDARY_CODES, FailureClass
from pvdm.model.states import ROLLED_BACK_MAX, AttemptState
from pvdm.physical.watchdog import SigtermReceived

_Error = TypeVar("_Error", bound=PvdmError)
_NO_VERDICT: Final = "there is no verdict: "
_FAILED: Final = Code.VERIFICATION_FAILED
_MAIN_CHANGED: Final = frozenset({"boundary_moved", "deletes_newer"})  # codes of findings
_BOUNDARY_UNCLEAR_HINT: Final = (
    "the table's partition specs do not tell which files the contract's partition replaces, so a change of the job "
    "does not help; an operator rewrites the older files or migrates the contract"
)
_CLAIM_REFUSED_HINT: Final = "the job may be right, but these rows are claimed already; an operator ends this workload"
_MAIN_CHANGED_HINT: Final = (
    "main has changed in the part that is overwritten, so no row was compared; the job can stay as it is, and must "
    "stage its rows again"
)


def with_publication(error: _Error, counts: ChunkCounts | None) -> _Error:
    """The error of a chunk. Its message begins with what was not published: anything, or else this chunk."""
    nothing = counts is not None and counts.nothing_published
    what = "nothing was published" if nothing else f"chunk {error.details['chunk']} was not published"
    return error.with_context(f"{what}: {error.message}")


def has_no_verdict(error: PvdmError) -> bool:
    """Whether `no_verdict_error` made this error."""
    return error.message.startswith(_NO_VERDICT) and "chunk" in error.details


def failure_error(
    attempt: AttemptView, chunk_id: str, next_step: str = "", *, earlier: bool = False, moved: SourceMoved | None = None
) -> VerificationError:
    """The error for an attempt that failed, with the Steward's refusal and the next step.

    `earlier`: the attempt failed in an earlier run, and this run has not tried again. `moved`: the source has a newer
    snapshot than the workload reads. `next_step`, if given, replaces the usual next step, a repair.
    """
    refusal = attempt.refusal
    classes = ", ".join(each.value for each in attempt.classes)
    details: dict[str, str | int] = {"chunk": chunk_id, "attempt": attempt.number, "attempt_id": attempt.attempt_id}
    details |= {"classes": classes} if classes else {}
    details |= _located_details(attempt)
    details |= {f"finding_{number}": str(each) for number, each in enumerate(attempt.findings, 1)}
    details |= {"findings_more": attempt.findings_more} if attempt.findings_more else {}
    details |= {"proof_id": attempt.proof_id} if attempt.proof_id is not None else {}
    other_cause = _other_cause_hint(attempt)
    if next_step:
        hint = next_step if other_cause is None else f"{other_cause}; {next_step}"
    else:
        command = retry_command(attempt)
        hint = f"fix the job, then: {command}" if other_cause is None else f"{other_cause}; to try again: {command}"
        if refusal is not None and refusal.code == Code.CLAIM_REFUSED:
            hint = f"{_CLAIM_REFUSED_HINT}: pvdm abandon {attempt.workload_id} --reason TEXT"
    if moved is not None and other_cause is None:
        hint = f"{must_read_hint(moved)}; {hint}"
    if earlier:
        hint = f"{_not_tried_note(attempt, 'the verdict of')}; {hint}"
    return VerificationError(
        _FAILED if refusal is None else refusal.reason,
        _reason_text(attempt),
        expected=None if refusal is None else refusal.expected,
        got=_got_text(attempt),
        hint=hint if is_steward_branch(attempt.branch) else f"{hint}; {kept_branch_note(attempt)}",
        **details,
    )


def _other_cause_hint(attempt: AttemptView) -> str | None:
    """The hint if the job may be right; else None.

    It may be right if `main` has changed in the part that is overwritten, if partition specs do not determine this
    part, or if the gate refused the attempt.
    """
    if attempt.findings and all(each.code in _MAIN_CHANGED for each in attempt.findings):
        return _MAIN_CHANGED_HINT
    if attempt.findings and all(each.code in BOUNDARY_CODES for each in attempt.findings):
        return _BOUNDARY_UNCLEAR_HINT
    return None if attempt.refusal is None or attempt.refusal.code == _FAILED else attempt.refusal.hint


def _reason_text(attempt: AttemptView) -> str:
    """The Steward's reason, with counts of located rows."""
    if attempt.refusal is None:
        return attempt.reason
    if attempt.refusal.code != _FAILED or attempt.located is None or not attempt.located.classes:
        return attempt.refusal.message
    others = [each.value for each in attempt.classes if each not in attempt.located.failures]
    return f"the verdict is FAIL: {', '.join([describe_counts(attempt.located), *others])}"


def _got_text(attempt: AttemptView) -> str | None:
    """The `got` of the error, with the first keys of wrong rows if the token may see them."""
    refusal, located = attempt.refusal, attempt.located
    if refusal is None or refusal.code != _FAILED or located is None:
        return None if refusal is None else refusal.got
    return "; ".join(part for part in (refusal.got, *(first_keys(each) for each in located.classes)) if part) or None


def _located_details(attempt: AttemptView) -> dict[str, str | int]:
    """The details about the wrong rows that verification has located, or why it could not locate them."""
    located = attempt.located
    if located is None:
        return {}
    if located.problem_code is not None:
        return {"not_located": located.problem_code}
    facts: dict[str, str | int] = {f"rows_{each.failure.value}": each.rows for each in located.classes}
    facts |= {_files_detail_name(each): files_of(each) for each in located.classes if each.files}
    withheld = explain_hidden_keys(located)
    if withheld is not None and located.keys_for:  # the roles that may see keys
        withheld += f"; see `pvdm status --workload-id {attempt.workload_id}`"
    texts = {
        "fields_that_differ": fields_that_differ(located),
        "withheld": withheld,
        "more": explain_more_keys(located, attempt.workload_id),
    }
    return facts | {name: text for name, text in texts.items() if text}


def _files_detail_name(located: LocatedClass) -> str:
    files = "source_files" if located.failure is FailureClass.MISSING else "files"
    return f"{files}_with_{located.failure.value}_rows"


def _not_tried_note(attempt: AttemptView, what: str) -> str:
    """A note that the result is of an earlier run: later corrections were not tried."""
    job = "the job was not run" if is_steward_branch(attempt.branch) else "the branch was not read again"
    return f"this is {what} attempt {attempt.number} at {utc_time(attempt.changed_at)}; {job}"


def no_verdict_error(attempt: AttemptView, *, earlier: bool = False) -> RolledBackError:
    """The error for an attempt that the Steward ended without a verdict, in an `earlier` run or in this one."""
    refusal = expect(attempt.refusal, "an attempt without a verdict has a refusal")
    next_step = f"if the cause was removed meanwhile, for example by a migration: {retry_command(attempt)}"
    if earlier:
        next_step = f"{_not_tried_note(attempt, 'the end of')}; {next_step}"
    return RolledBackError(
        refusal.reason,
        f"{_NO_VERDICT}{refusal.message}",
        expected=refusal.expected,
        got=refusal.got,
        hint=next_step if refusal.hint is None else f"{refusal.hint}; {next_step}",
        chunk=attempt.chunk_id,
        attempt=attempt.number,
        attempt_id=attempt.attempt_id,
    )


def retry_command(attempt: AttemptView) -> str:
    """The command that opens another attempt after a failed one; it needs a reason."""
    if is_steward_branch(attempt.branch):
        return f"pvdm repair {attempt.workload_id} --reason TEXT"
    table = attempt.table or "TABLE"
    return f"pvdm publish {table} BRANCH --workload-id {attempt.workload_id} --reason TEXT (and its --param)"


def kept_branch_note(attempt: AttemptView) -> str:
    """A note about a branch that `pvdm publish` took over (adopted) and that was not published."""
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
    problem_hint = "" if problem is None or problem.hint is None else f"{problem.hint}; "
    return UnavailableError(
        Code.ATTEMPT_STUCK if problem is None else problem.reason,
        "the Steward cannot continue the attempt" + ("" if problem is None else f": {problem.message}"),
        expected=None if problem is None else problem.expected,
        got=None if problem is None else problem.got,
        hint=f"{problem_hint}{retry}the same call makes the Steward try at once, and waits for the result",
        attempt_id=attempt.attempt_id,
    )


def abandoned_error(workload: WorkloadView) -> PvdmError:
    """The error for a workload that was abandoned."""
    claim = workload.claim
    next_step = "publish under another workload id" if claim is None else way_to_publish_rest(claim)
    hint = f"trying this one again changes nothing; {next_step}"
    return Code.WORKLOAD_ABANDONED(got=f"abandoned: {workload.reason}", hint=hint)


def interrupted_error(*, staged: bool) -> PvdmError:
    """The error for a run that was interrupted; `staged`: the Steward has attempts to verify or publish."""
    hint = "the same call continues the workload"
    if staged:
        hint = f"the Steward continues with the staged chunks; {hint}"
    return Code.INTERRUPTED("the run was interrupted", hint=hint)


TAKEN_OVER: Final = "another run of the workload took it over"
_PVDM_FOLDER: Final = str(Path(__file__).parents[1])
_LIBRARY_FOLDERS: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
# Errors of these kinds explain themselves; any other error is the job's.
_SELF_EXPLAINING: Final = (InputError, NotAllowedError, UnavailableError, RolledBackError)


def reason_for(error: BaseException) -> str:
    """The reason for aborting an attempt after this error, as the ledger stores it."""
    return printable(_summary(error, 200))[:200]


def staging_error(error: BaseException, reason: str, attempt: AttemptView) -> BaseException:
    """The error for the caller after staging has failed; `attempt` is as it was read after the abort.

    `reason` is the one that this run gave to abort the attempt. If the attempt has another, another caller ended it.
    """
    if attempt.state is not AttemptState.ROLLED_BACK or attempt.reason != reason:
        return ended_elsewhere_error(attempt, job=_summary(error, 300))
    if isinstance(error, (*_SELF_EXPLAINING, KeyboardInterrupt, SigtermReceived)):
        return error
    summary = _summary(error, 300)
    if isinstance(error, StateUnknownError) or "CommitStateUnknownException" in summary:
        # The response to the commit on the branch was lost: the job is not the cause.
        return Code.STAGING_UNKNOWN(got=summary)
    if "NotAuthorizedException" in summary:
        return Code.CATALOG_TOKEN_REFUSED(got=summary)
    return Code.JOB_FAILED(got=summary, **_job_line(error))


def ended_elsewhere_error(attempt: AttemptView, **details: str) -> PvdmError:
    """The error for an attempt that another caller has ended or continues."""
    what = f"attempt {attempt.number} at chunk {attempt.chunk_id}"
    if attempt.state is AttemptState.ROLLED_BACK and attempt.reason != TAKEN_OVER:
        return Code.ATTEMPT_ROLLED_BACK(f"{what} was rolled back, and not by this run", got=attempt.reason, **details)
    return Code.ATTEMPT_TAKEN_OVER(
        f"another run took {what} over",
        got=f"{attempt.state}: {attempt.reason}",
        hint=f"wait until that run has ended: `pvdm status --workload-id {attempt.workload_id}` shows its progress",
        **details,
    )


def attempts_exhausted_hint(workload_id: str, attempts: tuple[AttemptView, ...], *, failed_max: int) -> str:
    """The next step if no attempt at the chunk is left; else empty."""
    limits = (
        ("failed", AttemptState.VERIFICATION_FAILED, failed_max),
        ("were rolled back", AttemptState.ROLLED_BACK, ROLLED_BACK_MAX),
    )
    for how_ended, state, limit in limits:
        if sum(each.state is state for each in attempts) >= limit:
            return (
                f"no attempt is left at the chunk, since {limit} {how_ended}. To publish rows that failed: "
                "`pvdm break-glass`, while the workload is open. Else an operator abandons it with "
                f"`pvdm abandon {workload_id} --reason TEXT`, after which break-glass is no longer possible, and "
                "another workload id starts again"
            )
    return ""


def unreported_error(error: BaseException, attempt: AttemptView, report_error: PvdmError) -> PvdmError:
    """The error of a failed job whose failure could not be reported to the Steward, because of `report_error`."""
    last_state = f"attempt {attempt.number} at chunk {attempt.chunk_id} is STAGING as far as is known"
    if isinstance(report_error, NotAllowedError):
        next_step = "with a valid token the same call aborts the attempt and continues the workload"
        return NotAllowedError(
            report_error.reason,
            f"the chunk could not be staged, and the Steward refuses the run: {report_error.message}; {last_state}",
            expected=report_error.expected,
            got=_summary(error, 300),
            hint=f"{report_error.hint}; {next_step}" if report_error.hint else next_step,
            attempt_id=attempt.attempt_id,
        )
    return Code.ATTEMPT_LEFT_STAGING(
        f"the chunk could not be staged, and the Steward could not be reached: {last_state}",
        got=_summary(error, 300),
        attempt_id=attempt.attempt_id,
        **_job_line(error),
    )


def _summary(error: BaseException, max_characters: int) -> str:
    """The error's type and first line; for an error from Java its cause."""
    lines = str(error).strip().splitlines()
    if lines and lines[0].startswith(PY4J_CALL_PREFIX):
        lines = [cause_of(error)]
    return f"{type(error).__name__}: {lines[0][:max_characters]}" if lines else type(error).__name__


def _job_line(error: BaseException) -> dict[str, str]:
    """The detail `at`: the innermost line of the job's own code, without any values; empty if there is none."""
    if isinstance(error, _SELF_EXPLAINING):
        return {}
    calls = traceback.walk_tb(error.__traceback__)
    job_calls = [(frame, line) for frame, line in calls if not _is_within(frame, (_PVDM_FOLDER,))]
    # The job may be an installed package: frames of the outermost package are the job's own code too.
    job_package = _package(job_calls[0][0]) if job_calls else ""
    for frame, line in reversed(job_calls):
        code = frame.f_code
        is_library = code.co_filename.startswith("<") or _is_within(frame, _LIBRARY_FOLDERS)
        if _package(frame) == job_package or not is_library:
            return {"at": f"{_file_text(code)}:{line} in {code.co_qualname}"}
    return {}


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_within(frame: FrameType, folders: tuple[str, ...]) -> bool:
    """Whether the code's file or its module's file lies in one of these folders.

    Compiled code names the file on the machine that built it, so the module's file is compared too.
    """
    source = frame.f_code.co_filename
    files = (source, str(frame.f_globals.get("__file__") or source))
    return any(Path(file).is_relative_to(folder) for folder in folders for file in files)


def _file_text(code: CodeType) -> str:
    path, here = Path(code.co_filename), Path.cwd()
    shown = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return "".join(each if each.isprintable() else "?" for each in shown)[-200:]
