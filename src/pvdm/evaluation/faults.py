"""Single-row faults in random multisets, each scored by digesting the faulted rows again (paper, section 7.6)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pvdm.digest import Engine, Keys, Partial, Plan, digest
from pvdm.evaluation import rows
from pvdm.evaluation.progress import Watch, unwatched
from pvdm.model.projection import ProjectionName

MULTISET_ROWS_MAX: Final = 24


class Fault(Enum):
    """What happens to one row."""

    DROP = "drop"
    DUPLICATE = "duplicate"
    MUTATION = "mutation"


@dataclass(frozen=True, slots=True)
class FaultTally:
    """How the faults of one kind fared. The row count is left out of the score: the sums alone must tell."""

    fault: Fault
    injected: int
    caught: int
    identity_differs: int
    content_differs: int
    wrong_projection: int

    def to_json(self) -> dict[str, object]:
        """The same facts as JSON."""
        return {
            "fault": self.fault.value,
            "injected": self.injected,
            "caught": self.caught,
            "identity_differs": self.identity_differs,
            "content_differs": self.content_differs,
            "wrong_projection": self.wrong_projection,
        }


@dataclass(frozen=True, slots=True)
class FaultStudy:
    """Every fault over every multiset."""

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
        """The same facts as JSON."""
        return {
            "multisets": self.multisets,
            "rows": self.rows,
            "injected": self.injected,
            "caught": self.caught,
            "by_fault": [tally.to_json() for tally in self.tallies],
        }


@dataclass(slots=True)
class _Count:
    injected: int = 0
    caught: int = 0
    identity: int = 0
    content: int = 0
    wrong: int = 0


def fault_study(*, seed: int, multisets: int, engine: Engine, watch: Watch = unwatched) -> FaultStudy:
    """One drop, one duplicate and one mutation in each of so many random multisets."""
    rng = random.Random(f"faults {seed}")
    plan = rows.plan()
    counts = {fault: _Count() for fault in Fault}
    seen = 0
    for done in range(multisets):
        watch("single-row faults", done, multisets)
        multiset = _random_multiset(rng)
        keys = rows.random_keys(rng, plan)
        whole = _sums(multiset, plan, keys, engine)
        seen += len(multiset)
        for fault, faulted, touched in _faulted(multiset, rng):
            _score(counts[fault], whole, _sums(faulted, plan, keys, engine), touched)
    watch("single-row faults", multisets, multisets)
    return FaultStudy(
        multisets,
        seen,
        tuple(
            FaultTally(fault, count.injected, count.caught, count.identity, count.content, count.wrong)
            for fault, count in counts.items()
        ),
    )


def _random_multiset(rng: random.Random) -> list[rows.Row]:
    """More small multisets than large ones, with some rows more than once."""
    size = rng.randint(1, rng.randint(1, MULTISET_ROWS_MAX))
    drawn: list[rows.Row] = [rows.random_row(rng) for _ in range(max(size * 3 // 4, 1))]
    drawn += [rng.choice(drawn) for _ in range(size - len(drawn))]
    rng.shuffle(drawn)
    return drawn


def _faulted(multiset: Sequence[rows.Row], rng: random.Random) -> Iterator[tuple[Fault, list[rows.Row], str | None]]:
    at = rng.randrange(len(multiset))
    yield Fault.DROP, [*multiset[:at], *multiset[at + 1 :]], None
    yield Fault.DUPLICATE, [*multiset, multiset[at]], None
    changed, column = rows.mutated(multiset[at], rng)
    yield Fault.MUTATION, [*multiset[:at], changed, *multiset[at + 1 :]], column


def _sums(multiset: Sequence[rows.Row], plan: Plan, keys: Keys, engine: Engine) -> dict[ProjectionName, Partial]:
    return digest(rows.to_batch(multiset), plan, keys, engine=engine)


def _score(
    count: _Count, before: dict[ProjectionName, Partial], after: dict[ProjectionName, Partial], touched: str | None
) -> None:
    differs = {name: before[name].total != after[name].total for name in ProjectionName}
    expected = {
        ProjectionName.IDENTITY: touched is None or touched in rows.KEY_COLUMNS,
        ProjectionName.CONTENT: True,
    }
    count.injected += 1
    count.caught += any(differs.values())
    count.identity += differs[ProjectionName.IDENTITY]
    count.content += differs[ProjectionName.CONTENT]
    count.wrong += differs != expected
