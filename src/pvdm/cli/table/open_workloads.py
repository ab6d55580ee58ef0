"""Open workloads that a migration ends or affects, and how the rest of an abandoned workload can be published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from pvdm.cli.common.screen import Line
from pvdm.metadata.gate.state import state_changes
from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields
from pvdm.model.filter.claim import way_to_publish_rest
from pvdm.model.printable import counted
from pvdm.model.statements.migration import TableState
from pvdm.model.states import AttemptState, WorkloadState

if TYPE_CHECKING:
    from pvdm.api.work import WorkloadView
    from pvdm.client import StewardClient

_PAGE_ROWS: Final = 1_000
_SHOWN_WORKLOADS: Final = 20


class Effect(Enum):
    """What a migration does to the workloads that are open when it is applied."""

    ENDS = "ends"
    STAGES_AGAIN = "stages-again"
    NONE = "none"


_EFFECT_TEXTS: Final = {
    Effect.ENDS: "the migration ends them (contract_moved): let them finish first, or abandon them with `pvdm abandon`",
    Effect.STAGES_AGAIN: "what they have staged is refused after the migration: run each of them again",
}


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """A workload's published and remaining chunks; `claim`: the part to which no other workload can append."""

    workload_id: str
    chunks_published: int
    chunks_left: int
    claim: str | None

    def to_json(self) -> dict[str, Value]:
        """The summary in a proposal."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Value) -> WorkloadSummary:
        """What `to_json` wrote."""
        fields = Fields(value, "an open workload", cls.__slots__)
        return cls(
            fields.text("workload_id"),
            fields.number("chunks_published"),
            fields.number("chunks_left"),
            fields.optional_text("claim"),
        )

    @property
    def way_on(self) -> str | None:
        """How to publish the rest after the workload has ended; None if there is no rest, or any id can publish it."""
        return None if self.claim is None or not self.chunks_left else way_to_publish_rest(self.claim)

    @property
    def progress(self) -> str:
        """The number of published and remaining chunks."""
        total = counted(self.chunks_published + self.chunks_left, "chunk")
        return f"{self.chunks_published:,} of {total} published, {self.chunks_left:,} left"


def find_effect(before: TableState, after: TableState) -> Effect:
    """The effect on open workloads when the table goes from one state to the other."""
    changed = {name for name, _, _ in state_changes(before, after)}
    if "contract" in changed:
        return Effect.ENDS
    only_structure = changed <= {"structure"}  # for example, only properties
    return Effect.NONE if only_structure else Effect.STAGES_AGAIN


def all_workloads(client: StewardClient) -> Iterator[WorkloadView]:
    """Every workload that the token may see, in order of their ids."""
    after = None
    while page := client.workloads(after=after, limit=_PAGE_ROWS):
        yield from page
        after = page[-1].workload_id


def find_open_workloads(client: StewardClient, table_uuid: str) -> tuple[WorkloadSummary, ...]:
    """The table's open workloads, by id."""
    return tuple(
        summarize(each)
        for each in all_workloads(client)
        if each.table_uuid == table_uuid and each.state is WorkloadState.OPEN
    )


def summarize(view: WorkloadView) -> WorkloadSummary:
    """How much of the workload is published, and what it claims."""
    published = sum(each.chunks for each in view.chunk_states if each.state is AttemptState.COMMITTED)
    return WorkloadSummary(view.workload_id, published, view.chunk_count - published, view.claim)


def open_lines(workloads: tuple[WorkloadSummary, ...], effect: Effect) -> Iterator[Line]:
    """The workloads that were open when the migration was proposed, if it affects them."""
    if effect is Effect.NONE:
        return
    if not workloads:
        yield "  no workload of the table was open when this was proposed", None
        return
    yield f"  {counted(len(workloads), 'workload')} open when this was proposed; {_EFFECT_TEXTS[effect]}", "bold yellow"
    for each in workloads[:_SHOWN_WORKLOADS]:
        yield f"    {each.workload_id}  {each.progress}", "yellow"
        if effect is Effect.ENDS and each.way_on is not None:
            yield f"      after that, {each.way_on}", None
    if len(workloads) > _SHOWN_WORKLOADS:
        yield f"    and {len(workloads) - _SHOWN_WORKLOADS:,} more, which --json lists", "yellow"
