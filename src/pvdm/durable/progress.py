"""Decides for supervisors and schedulers whether another segment follows, and counts segments without progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from pvdm.api.work import WorkloadView
from pvdm.durable.outcome import Committed, Outcome, RolledBack
from pvdm.errors import Code, PvdmError, StateUnknownError, UnavailableError
from pvdm.model.states import CRASH_LOOP_LEASES, WITH_STEWARD, AttemptState

FAILURES_MAX: Final = CRASH_LOOP_LEASES
"""A supervisor stops after this number of segments in a row without progress."""

Result: TypeAlias = Outcome | PvdmError
_HANDED_IN: Final = WITH_STEWARD | {AttemptState.COMMITTED}
# After these errors a repeated call continues the workload (docs/cli.md, exit codes).
_CONTINUED: Final = frozenset(
    {Code.SEGMENT_ENDED, Code.ATTEMPT_ROLLED_BACK, Code.STAGING_UNKNOWN, Code.LEDGER_SERIALIZATION}
)
_REPEATED: Final = frozenset({Code.WORKLOAD_LEASED, Code.SEGMENT_ENDED, Code.INTERRUPTED, Code.ATTEMPT_INTERRUPTED})


@dataclass(slots=True)
class Progress:
    """How many attempts were handed in, and how many segments in a row ended without a further hand-in."""

    handed_in: int
    failures: int = 0

    def note(self, handed_in: int, *, waits: bool) -> None:
        """Count a segment that has ended. A segment that `waits` for the Steward does not count as a failure."""
        self.failures = 0 if waits or handed_in > self.handed_in else self.failures + 1
        self.handed_in = handed_in

    def require(self, workload_id: str, got: str) -> None:
        """Raise `crash_loop` after too many segments in a row without progress. `got` is how the last one ended."""
        if self.failures >= FAILURES_MAX:
            expected = f"progress within {FAILURES_MAX} segments"
            raise Code.CRASH_LOOP(expected=expected, got=got, workload_id=workload_id)


def may_continue(result: Result) -> bool:
    """Whether a repeated call can continue the workload if nothing else changes."""
    if isinstance(result, RolledBack):
        return result.error.code in _CONTINUED or result.error.reason == "lease_expired"
    return isinstance(result, (UnavailableError, StateUnknownError))


def may_be_repeated(result: Result) -> bool:
    """Whether a scheduler may repeat the call: as `may_continue`, or after an interruption, or while a lease is live.

    A killed run on another host leaves a live lease until the expiry of that lease.
    """
    error = result.error if isinstance(result, RolledBack) else result
    return may_continue(result) or (isinstance(error, PvdmError) and error.code in _REPEATED)


def waits_for_steward(result: Result) -> bool:
    """Whether the segment ended while the Steward verified or published what was handed in.

    A proved chunk that waits for other chunks does not count: without another hand-in it waits forever.
    """
    return isinstance(result, RolledBack) and any(
        each.state in WITH_STEWARD and not each.attempt.waiting for each in result.chunks
    )


def count_handed_in(workload: WorkloadView) -> int:
    """The number of chunks that are published, or with the Steward."""
    return sum(each.chunks for each in workload.chunk_states if each.state in _HANDED_IN)


def end_text(result: Result) -> str:
    """How the segment ended, in a few words."""
    if isinstance(result, Committed):
        return "published"
    error = result if isinstance(result, PvdmError) else result.error
    return f"{error.message} ({error.reason})"
