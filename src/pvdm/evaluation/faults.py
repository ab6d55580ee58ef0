"""Single-row faults in random multisets, each scored by digesting the faulted rows again (paper, section 7.6)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Final

from pvdm.digest import Engine, Partial, digest
from pvdm.evaluation import rows
from pvdm.evaluation.record import OnProgress, ignore_progress
from pvdm.model.projection import ProjectionName

MULTISET_ROWS_MAX: Final = 24


class Fault(Enum):
    """A fault in one row."""

    DROP = "drop"
    DUPLICATE = "duplicate"
    MUTATION = "mutation"


@dataclass(slots=True)
class FaultTally:
    """Counts of one kind of fault. A fault is caught if the sum of a projection differs."""

    fault: Fault
    injected: int = 0
    caught: int = 0
    identity_differs: int = 0
    content_differs: int = 0
    wrong_projection: int = 0  # faults where the projections that differ are not exactly those that cover the fault

    def to_json(self) -> dict[str, object]:
        """The counts under the fault's name."""
        return {**asdict(self), "fault": self.fault.value}


@dataclass(frozen=True, slots=True)
class FaultStudy:
    """The counts of every kind of fault over all multisets."""

    multisets: int
    rows: int
    tallies: tuple[FaultTally, ...]

    @property
    def injected(self) -> int:
        """Faults of all kinds."""
        return sum(tally.injected for tally in self.tallies)

    @property
    def caught(self) -> int:
        """Faults that changed a sum."""
        return sum(tally.caught for tally in self.tallies)

    @property
    def holds(self) -> bool:
        """Whether every fault was caught, by the projections that cover it and by no other."""
        return self.caught == self.injected and not any(tally.wrong_projection for tally in self.tallies)

    def to_json(self) -> dict[str, object]:
        """The totals, and the tally of each fault."""
        return {
            "multisets": self.multisets,
            "rows": self.rows,
            "injected": self.injected,
            "caught": self.caught,
            "by_fault": [tally.to_json() for tally in self.tallies],
        }


def fault_study(*, seed: int, multisets: int, engine: Engine, report: OnProgress = ignore_progress) -> FaultStudy:
    """Inject one drop, one duplicate and one mutation into each of `multisets` random multisets."""
    rng = random.Random(f"faults {seed}")
    plan = rows.default_plan()
    tallies = {fault: FaultTally(fault) for fault in Fault}
    row_count = 0
    for done in range(multisets):
        report("single-row faults", done, multisets)
        multiset = _random_multiset(rng)
        keys = rows.random_keys(rng, plan)
        correct = digest(rows.to_batch(multiset), plan, keys, engine=engine)
        row_count += len(multiset)
        for fault, faulted, changed_column in _inject_faults(multiset, rng):
            faulted_digest = digest(rows.to_batch(faulted), plan, keys, engine=engine)
            _count_fault(tallies[fault], correct, faulted_digest, changed_column)
    report("single-row faults", multisets, multisets)
    return FaultStudy(multisets, row_count, tuple(tallies.values()))


def _random_multiset(rng: random.Random) -> list[rows.Row]:
    """More small multisets than large ones, with some rows more than once."""
    size = rng.randint(1, rng.randint(1, MULTISET_ROWS_MAX))
    multiset: list[rows.Row] = [rows.random_row(rng) for _ in range(max(size * 3 // 4, 1))]
    multiset += [rng.choice(multiset) for _ in range(size - len(multiset))]
    rng.shuffle(multiset)
    return multiset


def _inject_faults(
    multiset: Sequence[rows.Row], rng: random.Random
) -> Iterator[tuple[Fault, list[rows.Row], str | None]]:
    """Each fault, the multiset with it, and the column that a mutation changed."""
    index = rng.randrange(len(multiset))
    yield Fault.DROP, [*multiset[:index], *multiset[index + 1 :]], None
    yield Fault.DUPLICATE, [*multiset, multiset[index]], None
    changed, column = rows.mutate(multiset[index], rng)
    yield Fault.MUTATION, [*multiset[:index], changed, *multiset[index + 1 :]], column


def _count_fault(
    tally: FaultTally,
    correct: dict[ProjectionName, Partial],
    faulted: dict[ProjectionName, Partial],
    changed_column: str | None,
) -> None:
    """Count the fault, and whether exactly the projections that cover it differ."""
    differs = {name: correct[name].total != faulted[name].total for name in ProjectionName}
    identity_covers = changed_column is None or changed_column in rows.KEY_COLUMNS
    expected = {ProjectionName.IDENTITY: identity_covers, ProjectionName.CONTENT: True}
    tally.injected += 1
    tally.caught += any(differs.values())
    tally.identity_differs += differs[ProjectionName.IDENTITY]
    tally.content_differs += differs[ProjectionName.CONTENT]
    tally.wrong_projection += differs != expected
