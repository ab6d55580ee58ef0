"""The state tables: the one source of the code's checks, the database's constraints and spec/states.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pvdm.errors import Code

ROLLED_BACK_MAX: Final = 100
"""Attempts at one chunk that may be rolled back. They tell nobody anything, so no contract says how many they are."""


class AttemptState(StrEnum):
    """Where one try at a chunk stands."""

    STAGING = "STAGING"
    VERIFYING = "VERIFYING"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    VERIFICATION_FAILED = "VERIFICATION_FAILED"
    ROLLED_BACK = "ROLLED_BACK"


class NonceState(StrEnum):
    """Where one nonce stands."""

    RESERVED = "RESERVED"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


class WorkloadState(StrEnum):
    """Where one workload stands."""

    OPEN = "OPEN"
    COMPLETE = "COMPLETE"
    ABANDONED = "ABANDONED"


class AnnouncedState(StrEnum):
    """Where one publication stands that was announced before an upstream catalog was asked to show it."""

    OPEN = "OPEN"
    DONE = "DONE"
    RELEASED = "RELEASED"


@dataclass(frozen=True, slots=True)
class Transition:
    """One permitted step and when it is taken."""

    old: str
    new: str
    when: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A named set of states, the first of them, and every step between them."""

    name: str
    table: str
    states: type[StrEnum]
    initial: str
    transitions: tuple[Transition, ...]

    def allows(self, old: str, new: str) -> bool:
        """Whether the step is in the table."""
        return any((step.old, step.new) == (old, new) for step in self.transitions)

    def terminal(self) -> tuple[str, ...]:
        """The states that nothing leaves."""
        leaving = {step.old for step in self.transitions}
        return tuple(state for state in self.states if state not in leaving)

    def live(self) -> tuple[str, ...]:
        """The states that something leaves."""
        return tuple(state for state in self.states if state not in self.terminal())

    def require(self, old: str, new: str) -> None:
        """Raise unless the step is in the table; a caller that asks for another one is a bug."""
        if not self.allows(old, new):
            steps = [step.new for step in self.transitions if step.old == old]
            raise Code.TRANSITION_NOT_ALLOWED(
                f"no such step of the {self.name}",
                expected=f"{old} to {' or '.join(steps) or 'nothing'}",
                got=f"{old} to {new}",
            )


ATTEMPT: Final = Machine(
    "attempt",
    "attempts",
    AttemptState,
    AttemptState.STAGING,
    (
        Transition("STAGING", "VERIFYING", "complete write; draws a new nonce, the old one becomes ABORTED"),
        Transition("STAGING", "ROLLED_BACK", "clock, crash, abort"),
        Transition("VERIFYING", "COMMITTING", "PASS, or FAIL waived by break-glass"),
        Transition("VERIFYING", "VERIFICATION_FAILED", "FAIL"),
        Transition(
            "VERIFYING",
            "ROLLED_BACK",
            "workload abandoned, or its source cannot be read as the contract means it (no verdict)",
        ),
        Transition("COMMITTING", "COMMITTED", "published"),
        Transition("COMMITTING", "VERIFICATION_FAILED", "the gate refuses"),
        Transition(
            "COMMITTING",
            "VERIFYING",
            "proof expired, or an overlapping `main` moved; draws a new nonce, the old one becomes ABORTED",
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
        Transition("RESERVED", "COMMITTED", "the snapshot that it paid for is published"),
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
        Transition("OPEN", "ABANDONED", "given up by its owner or an operator"),
    ),
)

ANNOUNCED: Final = Machine(
    "announced publication",
    "announced",
    AnnouncedState,
    AnnouncedState.OPEN,
    (
        Transition("OPEN", "DONE", "the upstream's `main` was seen to show the snapshot"),
        Transition("OPEN", "RELEASED", "it does not show it, and was made unable to, whatever is still under way"),
    ),
)

MACHINES: Final = (ATTEMPT, NONCE, WORKLOAD, ANNOUNCED)


def needs_reason(ended: AttemptState, *, refused: bool) -> bool:
    """Whether a new attempt after one that ended so is made only when somebody says what was mended.

    `refused`: it was ended with a reason of the Steward's; what was only interrupted is taken up as it is.
    """
    return ended is AttemptState.VERIFICATION_FAILED or (ended is AttemptState.ROLLED_BACK and refused)
