"""The state machines of the ledger. Checks in code, database triggers and spec/states.md are derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pvdm.errors import Code

ROLLED_BACK_MAX: Final = 100
"""How many attempts at one chunk may be rolled back. The contract's `governance.attempts` limits the failed ones."""
LEASE_SECONDS: Final = 60
"""How long a run holds the lease of its workload after each renewal, unless it asks for another time."""
LEASE_MIN_SECONDS: Final = 3
LEASE_MAX_SECONDS: Final = 900
CRASH_LOOP_LEASES: Final = 5
"""After so many runs in a row that handed nothing in, a workload is in a crash loop, and a supervisor stops."""
WORKLOAD_TIMEOUT_SECONDS: Final = 5_400
"""How long the runs of a workload may stage its chunks after its opening, unless the opening says another time."""
WORKLOAD_TIMEOUT_MAX_SECONDS: Final = 31_536_000


class AttemptState(StrEnum):
    """The states of an attempt: one try at staging, verifying and publishing a chunk."""

    STAGING = "STAGING"
    VERIFYING = "VERIFYING"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    VERIFICATION_FAILED = "VERIFICATION_FAILED"
    ROLLED_BACK = "ROLLED_BACK"


WITH_STEWARD: Final = frozenset({AttemptState.VERIFYING, AttemptState.COMMITTING})
"""The states of an attempt that was handed in and that the Steward verifies or publishes."""


class NonceState(StrEnum):
    """The states of a nonce: random bits that are valid for one publication, override, attestation or approval."""

    RESERVED = "RESERVED"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


class WorkloadState(StrEnum):
    """The states of a workload: one publication run of a contract."""

    OPEN = "OPEN"
    COMPLETE = "COMPLETE"
    ABANDONED = "ABANDONED"


class AnnouncedState(StrEnum):
    """The states of an announced publication, which goes to an upstream and is stored before the request is sent."""

    OPEN = "OPEN"
    DONE = "DONE"
    RELEASED = "RELEASED"


class HandleState(StrEnum):
    """The states of a handle, which workers exchange for keys. `MACHINES` does not list them.

    A handle gives keys only while FROZEN, after the freeze of its job's files. It may end without being FROZEN.
    """

    ISSUED = "ISSUED"
    FROZEN = "FROZEN"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True)
class Transition:
    """One permitted step and its cause."""

    old: str
    new: str
    when: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The states of the rows of one table of the ledger, the first state, and every step between states."""

    name: str
    ledger_table: str
    states: type[StrEnum]
    initial: str
    transitions: tuple[Transition, ...]

    def allows(self, old: str, new: str) -> bool:
        """Whether the step is one of the machine's transitions."""
        return any((step.old, step.new) == (old, new) for step in self.transitions)

    def terminal(self) -> tuple[str, ...]:
        """The states from which no transition leads to another state: a row that has ended is in such a state."""
        leaving = {step.old for step in self.transitions}
        return tuple(state for state in self.states if state not in leaving)

    def live(self) -> tuple[str, ...]:
        """The states that are not terminal."""
        return tuple(state for state in self.states if state not in self.terminal())

    def require(self, old: str, new: str) -> None:
        """Raise `transition_not_allowed`, a bug of the caller, unless the step is one of the machine's transitions."""
        if not self.allows(old, new):
            steps = [step.new for step in self.transitions if step.old == old]
            message, wanted = f"no such step of the {self.name}", f"{old} to {' or '.join(steps) or 'nothing'}"
            raise Code.BUG(message, reason="transition_not_allowed", expected=wanted, got=f"{old} to {new}")


_NEW_NONCE: Final = "the attempt gets a new nonce, and the old one is ABORTED"

_ATTEMPT_STEPS: Final = (
    Transition("STAGING", "VERIFYING", f"the job has finished writing; {_NEW_NONCE}"),
    Transition(
        "STAGING",
        "ROLLED_BACK",
        "its producer or the Steward aborts it, a later run of the workload aborts it, or the workload is abandoned",
    ),
    Transition("VERIFYING", "COMMITTING", "the verdict is PASS, or it is FAIL and an override waives it"),
    Transition("VERIFYING", "VERIFICATION_FAILED", "the verdict is FAIL, and no override waives it"),
    Transition(
        "VERIFYING",
        "ROLLED_BACK",
        "its workload is abandoned, the pinned source is gone or does not fit the contract, or the rows to be replaced "
        "were published from a newer snapshot of the source",
    ),
    Transition("COMMITTING", "COMMITTED", "published"),
    Transition("COMMITTING", "VERIFICATION_FAILED", "the gate refuses, and a new verification cannot change that"),
    Transition(
        "COMMITTING",
        "VERIFYING",
        "its proof has expired, the table's structure or the part to be overwritten has changed, or its base is no "
        f"longer in `main`; {_NEW_NONCE}",
    ),
    Transition("COMMITTING", "ROLLED_BACK", "its workload is abandoned"),
)
ATTEMPT: Final = Machine("attempt", "attempts", AttemptState, AttemptState.STAGING, _ATTEMPT_STEPS)

_NONCE_STEPS: Final = (
    Transition("RESERVED", "COMMITTED", "its publication is committed, or its attestation or approval is stored"),
    Transition("RESERVED", "ABORTED", "its attempt ended unpublished or got a new nonce, or a restore aborts it"),
)
NONCE: Final = Machine("nonce", "nonces", NonceState, NonceState.RESERVED, _NONCE_STEPS)

_WORKLOAD_STEPS: Final = (
    Transition("OPEN", "COMPLETE", "every chunk is published"),
    Transition("OPEN", "ABANDONED", "an operator, or a restore of the ledger, abandons it"),
)
WORKLOAD: Final = Machine("workload", "workloads", WorkloadState, WorkloadState.OPEN, _WORKLOAD_STEPS)

_ANNOUNCED_STEPS: Final = (
    Transition("OPEN", "DONE", "the upstream's `main` shows the snapshot; or a restore finds it published"),
    Transition(
        "OPEN",
        "RELEASED",
        "`main` lacks the snapshot, and a fence (a branch at the upstream) makes a late request fail; or a restore "
        "releases it",
    ),
)
ANNOUNCED: Final = Machine("announced publication", "announced", AnnouncedState, AnnouncedState.OPEN, _ANNOUNCED_STEPS)

MACHINES: Final = (ATTEMPT, NONCE, WORKLOAD, ANNOUNCED)


def needs_reason(ended: AttemptState, *, refused: bool) -> bool:
    """Whether the next attempt needs a reason that says what was repaired. `ended` is the state of the last attempt.

    `refused`: the Steward rolled the last attempt back with an error. After an interruption no reason is needed.
    """
    return ended is AttemptState.VERIFICATION_FAILED or (ended is AttemptState.ROLLED_BACK and refused)
