"""The collision study of the paper's section 7.6 as one seeded run (`pvdm eval collision`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.digest import Engine
from pvdm.evaluation.birthday import Birthday, birthday_study
from pvdm.evaluation.faults import FaultStudy, fault_study
from pvdm.evaluation.lattice import KEY_COUNT, CraftedStudy, LeakStudy, crafted_study, leak_study
from pvdm.evaluation.record import OnProgress, ignore_progress, machine, versions

SEED: Final = 20261114
MULTISETS: Final = 2_000
BITS: Final = (16, 20, 24)


@dataclass(frozen=True, slots=True)
class CollisionStudy:
    """All parts of one run."""

    seed: int
    engine: str
    faults: FaultStudy
    birthdays: tuple[Birthday, ...]
    crafted: CraftedStudy
    leak: LeakStudy | None
    seconds: float

    def failures(self) -> list[str]:
        """The parts that failed; empty if all figures are as the paper says."""
        found: list[str] = []
        if not self.faults.holds:
            found.append(f"{self.faults.caught:,} of {self.faults.injected:,} faults caught")
        found += [f"{each.observed:,} collisions at {each.bits} bits" for each in self.birthdays if not each.holds]
        if not self.crafted.holds:
            found.append(f"crafted pair rejected under {self.crafted.keyed_rejected:,} of {self.crafted.keys:,} keys")
        if self.leak is not None and not self.leak.holds:
            found.append("leaked contributions did not behave as predicted")
        return found

    def to_json(self) -> dict[str, object]:
        """Figures, machine, versions and seed."""
        return {
            "experiment": "collision",
            "seed": self.seed,
            "engine": self.engine,
            "construction": "hmac-sha256",
            "machine": machine(),
            "versions": versions(),
            "seconds": round(self.seconds, 3),
            "faults": self.faults.to_json(),
            "truncated": [each.to_json() for each in self.birthdays],
            "crafted": self.crafted.to_json(),
            "lattice": None if self.leak is None else self.leak.to_json(),
        }


def collision_study(
    *,
    engine: Engine,
    seed: int = SEED,
    multisets: int = MULTISETS,
    bits: Sequence[int] = BITS,
    keys: int = KEY_COUNT,
    lattice: bool = False,
    collision_file: Path | None = None,
    report: OnProgress = ignore_progress,
) -> CollisionStudy:
    """Run every part: the leak study only with `lattice`, the crafted collision under `keys` random keys."""
    started = time.perf_counter()
    leak = leak_study(seed=seed, engine=engine, report=report) if lattice else None
    faults = fault_study(seed=seed, multisets=multisets, engine=engine, report=report)
    birthdays = birthday_study(seed=seed, bits=bits, engine=engine, report=report)
    crafted = crafted_study(seed=seed, engine=engine, keys=keys, path=collision_file, report=report)
    return CollisionStudy(seed, engine.name, faults, birthdays, crafted, leak, time.perf_counter() - started)
