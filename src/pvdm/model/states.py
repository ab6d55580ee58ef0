"""The state machines. The code's checks, the database constraints and spec/states.md are derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pvdm.errors import Code

ROLLED_BACK_MAX: Final = 100
"""How many attempts at one chunk may be rolled back. A contract limits only failed ones, which tell a verdict."""


class AttemptState(StrEnum):
    """The states of an attempt at a chunk."""

    STAGING = "STAGING"
    VERIFYING = "VERIFYING"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    VERIFICATION_FAILED = "VERIFICATION_FAILED"
    ROLLED_BACK = "ROLLED_BACK"


class NonceState(StrEnum):
    """The states of a nonce."""

    RESERVED = "RESERVED"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


class WorkloadState(StrEnum):
    """The states of a workload."""

    OPEN = "OPEN"
    COMPLETE = "COMPLETE"
    ABANDONED = "ABANDONED"


class AnnouncedState(StrEnum):
    """The states of a publication to an upstream catalog, which is announced before the request is sent."""

    OPEN = "OPEN"
    DONE = "DONE"
    RELEASED = "RELEASED"


class HandleState(StrEnum):
    """The states of a handle: ISSUED → FROZEN → ENDED, or ISSUED → ENDED. They are in no `Machine`."""

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
        """The states without a step to another."""
        leaving = {step.old for step in self.transitions}
        return tuple(state for state in self.states if state not in leaving)

    def live(self) -> tuple[str, ...]:
        """The states with a step to another."""
        return tuple(state for state in self.states if state not in self.terminal())

    def require(self, old: str, new: str) -> None:
        """Raise unless the step is one of the machine's transitions. Another step is a bug of the caller."""
        if not self.allows(old, new):
            steps = [step.new for step in self.transitions if step.old == old]
            message, wanted = f"no such step of the {self.name}", f"{old} to {' or '.join(steps) or 'nothing'}"
            raise Code.BUG(message, reason="transition_not_allowed", expected=wanted, got=f"{old} to {new}")


ATTEMPT: Final = Machine(
    "attempt",
    "attempts",
    AttemptState,
    AttemptState.STAGING,
    (
        Transition("STAGING", "VERIFYING", "complete write; draws a new nonce, the old one becomes ABORTED"),
        Transition(
            "STAGING", "ROLLED_BACK", "aborted by its producer or by a run that takes over, or workload abandoned"
        ),
        Transition("VERIFYING", "COMMITTING", "PASS, or FAIL waived by break-glass"),
        Transition("VERIFYING", "VERIFICATION_FAILED", "FAIL"),
        Transition("VERIFYING", "ROLLED_BACK", "workload abandoned, or source not readable as the contract means it"),
        Transition("COMMITTING", "COMMITTED", "published"),
        Transition("COMMITTING", "VERIFICATION_FAILED", "the gate refuses"),
        Transition(
            "COMMITTING",
            "VERIFYING",
            "proof expired; schema, spec or format changed; base no longer in `main`; or `main` changed in the part "
            "that is overwritten; draws a new nonce, the old one becomes ABORTED",
        ),
        Transition("COMMITTING", "ROLLED_BACK", "workload abandoned"),
    ),
)

NONCE: Final = Machine(
    "nonce",
    "nonces",
    NonceState,
    NonceState.RESERVED,
    (
        Transition("RESERVED", "COMMITTED", "the publication that used it is committed"),
        Transition("RESERVED", "ABORTED", "its attempt ended, or drew a new one"),
    ),
)

WORKLOAD: Final = Machine(
    "workload",
    "workloads",
    WorkloadState,
    WorkloadState.OPEN,
    (
        Transition("OPEN", "COMPLETE", "every chunk is published"),
        Transition("OPEN", "ABANDONED", "abandoned by an operator"),
    ),
)

ANNOUNCED: Final = Machine(
    "announced publication",
    "announced",
    AnnouncedState,
    AnnouncedState.OPEN,
    (
        Transition("OPEN", "DONE", "the upstream's `main` was seen to show the snapshot"),
        Transition("OPEN", "RELEASED", "`main` lacks the snapshot, and a fence refuses a request that arrives late"),
    ),
)

MACHINES: Final = (ATTEMPT, NONCE, WORKLOAD, ANNOUNCED)


def needs_reason(ended: AttemptState, *, refused: bool) -> bool:
    """Whether a new attempt after one that ended in this state needs a reason that says what was repaired.

    `refused` means that the Steward ended it with a refusal. After an interrupted attempt no reason is needed.
    """
    return ended is AttemptState.VERIFICATION_FAILED or (ended is AttemptState.ROLLED_BACK and refused)
