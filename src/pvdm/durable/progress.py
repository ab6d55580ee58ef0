"""Progress reports of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Doing(Enum):
    """What the run does for a chunk now."""

    SKIPPED = "published before"
    FAILED_BEFORE = "failed before, not tried again"
    TAKEN_BACK = "taking back what an earlier run left"
    STAGING = "staging"
    VERIFYING = "verifying"
    WAITING = "proved, waits for the other chunks"
    PUBLISHED = "published"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    LEFT = "left as it is"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one chunk; `done` chunks of `total` are behind it.

    `note` is what a person should know before the run goes on.
    """

    workload_id: str
    chunk_id: str
    doing: Doing
    done: int
    total: int
    attempt: int | None = None
    problem: str | None = None
    note: str | None = None


Watch: TypeAlias = Callable[[Step], None]


def unwatched(step: Step) -> None:
    """Ignore the progress report."""
    del step
