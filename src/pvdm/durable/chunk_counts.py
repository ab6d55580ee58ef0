"""How many chunks of a workload are published, failed and not begun: the last line of an outcome without success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pvdm.api.work import WorkloadView
from pvdm.model.printable import counted
from pvdm.model.states import WITH_STEWARD, AttemptState


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """How many chunks of a workload are in each state. `together`: all chunks are published at once."""

    total: int
    published: int
    failed: int
    rolled_back: int
    with_steward: int
    staging: int
    together: bool = False

    @classmethod
    def of(cls, workload: WorkloadView) -> Self:
        """The counts in the Steward's response."""
        states = {each.state: each.chunks for each in workload.chunk_states}
        return cls(
            total=workload.chunk_count,
            published=states.get(AttemptState.COMMITTED, 0),
            failed=states.get(AttemptState.VERIFICATION_FAILED, 0),
            rolled_back=states.get(AttemptState.ROLLED_BACK, 0),
            with_steward=sum(states.get(each, 0) for each in WITH_STEWARD),
            staging=states.get(AttemptState.STAGING, 0),
            together=workload.atomicity == "workload",
        )

    @property
    def not_begun(self) -> int:
        """The chunks without an attempt."""
        return self.total - self.published - self.failed - self.rolled_back - self.with_steward - self.staging

    @property
    def to_stage(self) -> int:
        """The chunks that a run still has to stage."""
        return self.total - self.published - self.with_steward

    def __str__(self) -> str:
        """The counts as a sentence, such as `1 of 3 chunks is published, 1 failed, 1 was not begun`."""
        if self.total == 1 and not self.published:
            parts = self._parts("the chunk", "the chunk")
        else:
            parts = self._parts(f"{{}} of {counted(self.total, 'chunk')}", "{}")
        if self.published:
            return ", ".join(parts)
        nothing = "nothing was published" if self.nothing_published else "nothing is published yet"
        return f"{nothing}: {', '.join(parts)}"

    @property
    def nothing_published(self) -> bool:
        """Whether no chunk is published, and without another run no chunk will be published."""
        return not self.published and (not self.with_steward or (self.together and self.to_stage > 0))

    def _parts(self, first: str, other: str) -> list[str]:
        """A phrase for each count above zero: `first` or `other` with the count, and a verb."""
        phrases = (
            (self.published, "is published", "are published"),
            (self.failed, "failed", "failed"),
            (self.rolled_back, "was rolled back", "were rolled back"),
            (self.with_steward, "is with the Steward", "are with the Steward"),
            (self.staging, "is left in STAGING", "are left in STAGING"),
            (self.not_begun, "was not begun", "were not begun"),
        )
        found = [(count, one if count == 1 else more) for count, one, more in phrases if count]
        return [
            f"{(other if index else first).format(f'{count:,}')} {words}" for index, (count, words) in enumerate(found)
        ]

    def to_json(self) -> dict[str, int]:
        """As JSON."""
        names = ("total", "published", "failed", "rolled_back", "with_steward", "staging", "not_begun")
        return {name: getattr(self, name) for name in names}
