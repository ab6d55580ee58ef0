"""Builds the errors for attempts whose job did not finish: what became of the attempt, and where the job failed."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, TracebackType
from typing import Final

from pvdm.client import AttemptView
from pvdm.errors import (
    Code,
    InputError,
    NotAllowedError,
    PvdmError,
    RolledBackError,
    StateUnknownError,
    UnavailableError,
)
from pvdm.lake.spark import CALLING, cause_of
from pvdm.model.states import AttemptState

ATTEMPT_TAKEN_OVER: Final = Code.ATTEMPT_TAKEN_OVER
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
    if _is_unknown(error):
        return RolledBackError(
            Code.STAGING_UNKNOWN,
            "whether the rows were staged is not known, and the attempt was rolled back",
            got=_summary(error, 300),
            hint="the same call takes the workload up again",
        )
    if _is_unauthorized(error):
        return RolledBackError(
            Code.CATALOG_TOKEN_REFUSED,
            "the catalog refused the token of the job's session, and the attempt was rolled back",
            expected="a token that is still good",
            got=_summary(error, 300),
            hint="a token that was rotated, revoked or has expired is replaced in the token file and in the session's "
            "settings; then the same call takes the workload up again",
        )
    return RolledBackError(
        Code.JOB_FAILED,
        "the job failed and its attempt was rolled back",
        got=_summary(error, 300),
        hint="fix the job; the same call takes the workload up again",
        **_location(error),
    )


def taken_over_error(now: AttemptView, **details: str) -> RolledBackError:
    """The error for an attempt that another caller has ended or continues."""
    what = f"attempt {now.number} at chunk {now.chunk_id}"
    if now.state is AttemptState.ROLLED_BACK and now.reason != TAKEN_OVER:
        return RolledBackError(
            Code.ATTEMPT_ROLLED_BACK,
            f"{what} was rolled back, and not by this run",
            got=now.reason,
            hint="the same call takes the workload up again, unless it was given up",
            **details,
        )
    return RolledBackError(
        ATTEMPT_TAKEN_OVER,
        f"another run took {what} over",
        expected="one run of a workload at a time",
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
                f"no attempt is left at the chunk, since {most} {how}. Rows that failed and are wanted all the same: "
                "`pvdm break-glass`, while the workload is open. Else an operator gives it up with "
                f"`pvdm abandon {workload_id} --reason TEXT`, after which break-glass is no longer possible, and "
                "another workload id starts again"
            )
    return ""


def unreported_error(error: BaseException, attempt: AttemptView, why: PvdmError) -> PvdmError:
    """The error of a failed job whose failure could not be reported; `why` is the error of that report."""
    if isinstance(why, NotAllowedError):
        return NotAllowedError(
            why.reason,
            f"the chunk could not be staged, and the Steward refuses the run: {why.message}; attempt {attempt.number} "
            f"at chunk {attempt.chunk_id} is STAGING as far as is known",
            expected=why.expected,
            got=_summary(error, 300),
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
        Code.ATTEMPT_LEFT_STAGING,
        f"the chunk could not be staged, and the Steward could not be reached: attempt {attempt.number} at chunk "
        f"{attempt.chunk_id} is STAGING as far as is known",
        expected="an answer",
        got=_summary(error, 300),
        hint="when the Steward answers, the same call takes the attempt back and the workload up again",
        attempt_id=attempt.attempt_id,
        **_location(error),
    )


def _summary(error: BaseException, most: int) -> str:
    """The error's type and first line; for an error from Java its cause."""
    said = str(error).strip().splitlines()
    if said and said[0].startswith(CALLING):
        said = [cause_of(error)]
    return f"{type(error).__name__}: {said[0][:most]}" if said else type(error).__name__


def _is_unknown(error: BaseException) -> bool:
    """Whether the response to the commit on the branch was lost, which is no fault of the job."""
    return isinstance(error, StateUnknownError) or "CommitStateUnknownException" in _summary(error, 300)


def _is_unauthorized(error: BaseException) -> bool:
    """Whether the catalog refused Spark's token."""
    return "NotAuthorizedException" in _summary(error, 300)


def _location(error: BaseException) -> dict[str, str]:
    """The innermost line of the job's own code, without any values."""
    if isinstance(error, _TELLING):
        return {}
    steps = [step for step in _frames(error.__traceback__) if not step.within((_OWN,))]
    # An installed job counts by its own package.
    home = steps[0].package if steps else ""
    for step in reversed(steps):
        if step.package == home or not (step.code.co_filename.startswith("<") or step.within(_INSTALLED)):
            return {"at": f"{_file(step.code)}:{step.line} in {step.code.co_qualname}"}
    return {}


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame of a traceback."""

    code: CodeType
    line: int
    package: str
    file: str

    def within(self, folders: tuple[str, ...]) -> bool:
        # Compiled code names the source paths of its build, so the module's file is compared too.
        places = (Path(self.code.co_filename), Path(self.file))
        return any(place.is_relative_to(folder) for folder in folders for place in places)


def _frames(trace: TracebackType | None) -> Iterator[_Frame]:
    while trace is not None:
        about, code = trace.tb_frame.f_globals, trace.tb_frame.f_code
        package = str(about.get("__name__", "")).partition(".")[0]
        yield _Frame(code, trace.tb_lineno, package, str(about.get("__file__") or code.co_filename))
        trace = trace.tb_next


def _file(code: CodeType) -> str:
    path, here = Path(code.co_filename), Path.cwd()
    shown = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return "".join(each if each.isprintable() else "?" for each in shown)[-200:]
