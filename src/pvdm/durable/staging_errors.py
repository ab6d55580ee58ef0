"""The words for an attempt whose job did not come to its end: what became of it, and where the job failed."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, TracebackType
from typing import Final

from pvdm.client import AttemptView
from pvdm.errors import InputError, NotAllowedError, PvdmError, RolledBackError, StateUnknownError, UnavailableError
from pvdm.lake.spark.java_errors import CALLING, cause_of
from pvdm.model.states import AttemptState

TAKEN_OVER: Final = "another run of the workload took it over"
_OWN: Final = str(Path(__file__).parents[1])
_INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
# An error of these kinds says by itself what is wrong; whatever else comes out of a job is the job's.
_TELLING: Final = (InputError, NotAllowedError, UnavailableError, RolledBackError)


def reason_for(error: BaseException) -> str:
    """Why the attempt is given up, as the ledger takes it."""
    return "".join(each if each.isprintable() else " " for each in _said(error, 200))[:200]


def error_of(error: BaseException, reason: str, now: AttemptView) -> BaseException:
    """What the caller hears; `now` is what the Steward says of the attempt.

    An attempt that has ended for another `reason` than this run's was ended by somebody else.
    """
    if now.state is not AttemptState.ROLLED_BACK or now.reason != reason:
        return taken(now, job=_said(error, 300))
    if isinstance(error, _TELLING) or not isinstance(error, Exception):
        return error
    if _is_unknown(error):
        return RolledBackError(
            "staging_unknown",
            "whether the rows were staged is not known, and the attempt was rolled back",
            got=_said(error, 300),
            hint="the same call takes the workload up again",
        )
    if _is_unauthorized(error):
        return RolledBackError(
            "catalog_token_refused",
            "the catalog refused the token of the job's session, and the attempt was rolled back",
            expected="a token that is still good",
            got=_said(error, 300),
            hint="a token that was rotated, revoked or has expired is replaced in the token file and in the session's "
            "settings; then the same call takes the workload up again",
        )
    return RolledBackError(
        "job_failed",
        "the job failed and its attempt was rolled back",
        got=_said(error, 300),
        hint="fix the job; the same call takes the workload up again",
        **_where(error),
    )


def taken(now: AttemptView, **details: str) -> RolledBackError:
    """The attempt is no longer this run's: somebody else has ended it, or goes on with it."""
    what = f"attempt {now.number} at chunk {now.chunk_id}"
    if now.state is AttemptState.ROLLED_BACK and now.reason != TAKEN_OVER:
        return RolledBackError(
            "attempt_rolled_back",
            f"{what} was rolled back, and not by this run",
            got=now.reason,
            hint="the same call takes the workload up again, unless it was given up",
            **details,
        )
    return RolledBackError(
        "attempt_taken_over",
        f"another run took {what} over",
        expected="one run of a workload at a time",
        got=f"{now.state}: {now.reason}",
        hint=f"let that one come to its end: `pvdm status --workload-id {now.workload_id}` shows how far it is",
        **details,
    )


def used_up(workload_id: str, attempts: tuple[AttemptView, ...], *, failed_max: int, rolled_back_max: int) -> str:
    """The way on where the chunk may not be attempted again; empty where it may."""
    counts = (
        ("failed", AttemptState.VERIFICATION_FAILED, failed_max),
        ("were rolled back", AttemptState.ROLLED_BACK, rolled_back_max),
    )
    for how, state, most in counts:
        if sum(each.state is state for each in attempts) >= most:
            return (
                f"no attempt is left at the chunk, since {most} {how}. Rows that failed and are wanted all the same: "
                "`pvdm break-glass`, while the workload is open. Else an operator gives it up with "
                f"`pvdm abandon {workload_id} --reason TEXT`, after which break-glass is no longer possible, and "
                "another workload id starts anew"
            )
    return ""


def unreported_error(error: BaseException, attempt: AttemptView, why: PvdmError) -> PvdmError:
    """The error of a failed job whose failure could not be reported; `why` is the error of that report."""
    if isinstance(why, NotAllowedError):
        return NotAllowedError(
            why.code,
            f"the chunk could not be staged, and the Steward refuses the run: {why.message}; attempt {attempt.number} "
            f"at chunk {attempt.chunk_id} is STAGING as far as is known",
            expected=why.expected,
            got=_said(error, 300),
            hint="; ".join(
                each
                for each in (
                    why.hint,
                    "with a good token the same call takes the attempt back and the workload up again",
                )
                if each
            ),
            attempt_id=attempt.attempt_id,
        )
    return UnavailableError(
        "attempt_left_staging",
        f"the chunk could not be staged, and the Steward could not be told: attempt {attempt.number} at chunk "
        f"{attempt.chunk_id} is STAGING as far as is known",
        expected="an answer",
        got=_said(error, 300),
        hint="when the Steward answers, the same call takes the attempt back and the workload up again",
        attempt_id=attempt.attempt_id,
        **_where(error),
    )


def _said(error: BaseException, most: int) -> str:
    """The error's kind and the first line of its words; of one that came from Java, what Java named."""
    said = str(error).strip().splitlines()
    if said and said[0].startswith(CALLING):
        said = [cause_of(error)]
    return f"{type(error).__name__}: {said[0][:most]}" if said else type(error).__name__


def _is_unknown(error: BaseException) -> bool:
    """Whether the answer to the commit on the branch was lost: that is no fault of the job."""
    return isinstance(error, StateUnknownError) or "CommitStateUnknownException" in _said(error, 300)


def _is_unauthorized(error: BaseException) -> bool:
    """Whether the catalog refused the token with which Spark came."""
    return "NotAuthorizedException" in _said(error, 300)


def _where(error: BaseException) -> dict[str, str]:
    """The innermost place in the job's own code; nothing of what the job holds there."""
    if isinstance(error, _TELLING):
        return {}
    steps = [step for step in _steps(error.__traceback__) if not step.within((_OWN,))]
    # A job may itself be installed: what lies in its package is its own there, too.
    home = steps[0].package if steps else ""
    for step in reversed(steps):
        if step.package == home or not (step.code.co_filename.startswith("<") or step.within(_INSTALLED)):
            return {"at": f"{_file(step.code)}:{step.line} in {step.code.co_qualname}"}
    return {}


@dataclass(frozen=True, slots=True)
class _Step:
    """One frame of a traceback: where it is, and in which module's file."""

    code: CodeType
    line: int
    package: str
    file: str

    def within(self, folders: tuple[str, ...]) -> bool:
        # Compiled code names its sources by whatever path they had when it was built: its module's file is there.
        places = (Path(self.code.co_filename), Path(self.file))
        return any(place.is_relative_to(folder) for folder in folders for place in places)


def _steps(trace: TracebackType | None) -> Iterator[_Step]:
    while trace is not None:
        about, code = trace.tb_frame.f_globals, trace.tb_frame.f_code
        package = str(about.get("__name__", "")).partition(".")[0]
        yield _Step(code, trace.tb_lineno, package, str(about.get("__file__") or code.co_filename))
        trace = trace.tb_next


def _file(code: CodeType) -> str:
    path, here = Path(code.co_filename), Path.cwd()
    shown = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return "".join(each if each.isprintable() else "?" for each in shown)[-200:]
