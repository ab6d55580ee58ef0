"""The work of the catalog's benchmark: writers that each commit snapshots to a branch, as Iceberg's clients do."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Protocol

TRIES_MAX = 1_000
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "note", "required": False, "type": "string"},
    ],
}
Json = dict[str, Any]


class ConflictError(Exception):
    """Nothing happened: the writer loads the table and commits on its new state."""


class UnsureError(Exception):
    """It may have happened: the writer loads the table and sees."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a writer must know of a table to commit to it."""

    location: str
    sequence_number: int
    updated_ms: int
    schema_id: int
    heads: Mapping[str, int]
    snapshots: int


class Door(Protocol):
    """One writer's way into a catalog."""

    def load(self, table: str) -> Facts:
        """The table as it is."""

    def commit(self, table: str, requirements: list[Json], updates: list[Json]) -> Facts:
        """Change the table; gives it as it is afterwards."""


class System(Protocol):
    """A catalog that is measured."""

    name: str

    def door(self) -> Door:
        """A way in for one writer alone."""

    def make(self, table: str) -> None:
        """A new, empty table."""

    def ready(self, table: str) -> None:
        """Whatever else the system does to a table before writers come."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How writers meet: all on branches of one table, or each on a table of its own."""

    name: str
    shared: bool
    writers: int

    def places(self, prefix: str) -> list[tuple[str, str]]:
        """Table and branch of every writer."""
        return [
            (f"{prefix}_{0 if self.shared else number}", f"stage-{number if self.shared else 0}")
            for number in range(self.writers)
        ]


@dataclass(frozen=True, slots=True)
class Run:
    """One repetition: how long each commit took, the whole of it, and how often writers had to begin again."""

    latencies: tuple[float, ...]
    seconds: float
    conflicts: int
    unsure: int


@dataclass(frozen=True, slots=True)
class Figure:
    """Commit latency over all repetitions: the median of their medians, and how far those lie apart."""

    commits: int
    writers: int
    median_ms: float
    median_ms_min: float
    median_ms_max: float
    mean_ms: float
    p95_ms: float
    per_second: float
    conflicts_per_commit: float
    unsure: int
    medians_ms: tuple[float, ...]

    @classmethod
    def of(cls, writers: int, runs: Sequence[Run]) -> Figure:
        """The figure of these repetitions."""
        medians = tuple(1e3 * statistics.median(run.latencies) for run in runs)
        every = sorted(latency for run in runs for latency in run.latencies)
        commits = len(runs[0].latencies)
        return cls(
            commits,
            writers,
            statistics.median(medians),
            min(medians),
            max(medians),
            1e3 * statistics.fmean(every),
            1e3 * every[min(len(every) - 1, int(0.95 * len(every)))],
            commits / statistics.median(run.seconds for run in runs),
            sum(run.conflicts for run in runs) / len(every),
            sum(run.unsure for run in runs),
            medians,
        )

    def to_json(self) -> dict[str, object]:
        """The figure in the record."""
        return asdict(self)


def snapshot_of(facts: Facts, snapshot_id: int, parent: int | None) -> Json:
    """The next snapshot of a branch; its manifest list is named and never read, so no file is written for it."""
    made: Json = {
        "snapshot-id": snapshot_id,
        "sequence-number": facts.sequence_number + 1,
        "timestamp-ms": max(time.time_ns() // 1_000_000, facts.updated_ms),
        "manifest-list": f"{facts.location}/metadata/snap-{snapshot_id}-1.avro",
        "summary": {"operation": "append", "added-data-files": "1", "added-records": "1000", "total-records": "1000"},
        "schema-id": facts.schema_id,
    }
    return made if parent is None else made | {"parent-snapshot-id": parent}


def set_branch(name: str, snapshot_id: int) -> Json:
    """The update that moves a branch."""
    return {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": snapshot_id}


def prepare(system: System, places: Sequence[tuple[str, str]], random: Random) -> None:
    """New tables that show one snapshot, on which all of their branches begin."""
    branches: dict[str, list[str]] = {}
    for table, branch in places:
        branches.setdefault(table, []).append(branch)
    door = system.door()
    for table, names in branches.items():
        system.make(table)
        first = random.getrandbits(62)
        added = {"action": "add-snapshot", "snapshot": snapshot_of(door.load(table), first, None)}
        door.commit(table, [], [added, *(set_branch(name, first) for name in ("main", *names))])
        system.ready(table)


class Writer:
    """Commits to one branch, each time on the state that the last answer showed."""

    def __init__(self, door: Door, table: str, branch: str, snapshot_ids: Sequence[int]) -> None:
        self._door = door
        self._table = table
        self._branch = branch
        self._snapshot_ids = snapshot_ids
        self._known = door.load(table)
        self.latencies: list[float] = []
        self.conflicts = 0
        self.unsure = 0

    def work(self) -> None:
        """All of its commits, timed one by one, with whatever had to be tried again."""
        for snapshot_id in self._snapshot_ids:
            start = time.perf_counter()
            self._commit(snapshot_id)
            self.latencies.append(time.perf_counter() - start)

    def _commit(self, snapshot_id: int) -> None:
        for _ in range(TRIES_MAX):
            head = self._known.heads[self._branch]
            added = {"action": "add-snapshot", "snapshot": snapshot_of(self._known, snapshot_id, head)}
            required = {"type": "assert-ref-snapshot-id", "ref": self._branch, "snapshot-id": head}
            try:
                self._known = self._door.commit(self._table, [required], [added, set_branch(self._branch, snapshot_id)])
            except ConflictError:
                self.conflicts += 1
            except UnsureError:
                self.unsure += 1
            else:
                return
            self._known = self._load()
            if self._known.heads[self._branch] == snapshot_id:
                return
        raise AssertionError(f"no commit in {TRIES_MAX} tries")

    def _load(self) -> Facts:
        for _ in range(TRIES_MAX):
            try:
                return self._door.load(self._table)
            except UnsureError:
                self.unsure += 1
        raise AssertionError(f"no answer in {TRIES_MAX} tries")


def run(system: System, shape: Shape, commits: int, prefix: str, random: Random) -> Run:
    """One repetition on tables of its own; a commit that is lost or doubled is an error."""
    places = shape.places(prefix)
    prepare(system, places, random)
    each = commits // shape.writers
    writers = [
        Writer(system.door(), table, branch, [random.getrandbits(62) for _ in range(each)]) for table, branch in places
    ]
    seconds = together([writer.work for writer in writers])
    door = system.door()
    per_table = each * (shape.writers if shape.shared else 1)
    for table in {table for table, _ in places}:
        found = door.load(table).snapshots
        assert found == per_table + 1, (system.name, table, found, per_table + 1)
    latencies = tuple(latency for writer in writers for latency in writer.latencies)
    return Run(
        latencies, seconds, sum(writer.conflicts for writer in writers), sum(writer.unsure for writer in writers)
    )


def together(works: Sequence[Callable[[], None]]) -> float:
    """All at once, each in a thread; the seconds until the last is through."""
    ready = threading.Barrier(len(works) + 1)

    def begin(work: Callable[[], None]) -> None:
        ready.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        started = [pool.submit(begin, work) for work in works]
        ready.wait()
        start = time.perf_counter()
        for each in started:
            each.result()
        return time.perf_counter() - start
