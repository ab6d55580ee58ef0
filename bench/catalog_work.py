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


class StateUnknownError(Exception):
    """The commit may have happened: the writer loads the table to find out."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a table that a writer needs for a commit; `heads` are the snapshots of its branches."""

    location: str
    sequence_number: int
    updated_ms: int
    schema_id: int
    heads: Mapping[str, int]
    snapshots: int


class Connection(Protocol):
    """One writer's connection to a catalog."""

    def load(self, table: str) -> Facts:
        """Load the table."""

    def commit(self, table: str, requirements: list[Json], updates: list[Json]) -> Facts:
        """Commit to the table; returns its new facts."""


class System(Protocol):
    """A catalog that is measured."""

    name: str

    def connect(self) -> Connection:
        """A new connection, for one writer."""

    def create_table(self, table: str) -> None:
        """Create an empty table."""

    def finish_table(self, table: str) -> None:
        """Do what the system needs before writers use the table, such as protecting it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How many writers commit, and where: all to branches of one shared table, or each to its own table."""

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
    """One repetition: the seconds of each commit and of all together; how many tries ended with which error."""

    latencies: tuple[float, ...]
    seconds: float
    conflicts: int
    """Tries that ended with `ConflictError`."""
    unsure: int
    """Tries that ended with `StateUnknownError`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Commit latency over all repetitions: the median of their medians, and the smallest and largest of these."""

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
    """The next snapshot of a branch. Nothing reads its manifest list, so that file is not written."""
    snapshot: Json = {
        "snapshot-id": snapshot_id,
        "sequence-number": facts.sequence_number + 1,
        "timestamp-ms": max(time.time_ns() // 1_000_000, facts.updated_ms),
        "manifest-list": f"{facts.location}/metadata/snap-{snapshot_id}-1.avro",
        "summary": {"operation": "append", "added-data-files": "1", "added-records": "1000", "total-records": "1000"},
        "schema-id": facts.schema_id,
    }
    return snapshot if parent is None else snapshot | {"parent-snapshot-id": parent}


def set_branch(name: str, snapshot_id: int) -> Json:
    """The update that moves a branch."""
    return {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": snapshot_id}


def prepare(system: System, places: Sequence[tuple[str, str]], random: Random) -> None:
    """Create the tables, each with one snapshot, from which all its branches start."""
    branches: dict[str, list[str]] = {}
    for table, branch in places:
        branches.setdefault(table, []).append(branch)
    connection = system.connect()
    for table, names in branches.items():
        system.create_table(table)
        first = random.getrandbits(62)
        added = {"action": "add-snapshot", "snapshot": snapshot_of(connection.load(table), first, None)}
        connection.commit(table, [], [added, *(set_branch(name, first) for name in ("main", *names))])
        system.finish_table(table)


class Writer:
    """Commits to one branch, each time on the table's state in the last response."""

    def __init__(self, connection: Connection, table: str, branch: str, snapshot_ids: Sequence[int]) -> None:
        self._connection = connection
        self._table = table
        self._branch = branch
        self._snapshot_ids = snapshot_ids
        self._known = connection.load(table)
        self.latencies: list[float] = []
        self.conflicts = 0
        self.unsure = 0

    def work(self) -> None:
        """Make all commits, and time each, retries included."""
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
                updates = [added, set_branch(self._branch, snapshot_id)]
                self._known = self._connection.commit(self._table, [required], updates)
            except ConflictError:
                self.conflicts += 1
            except StateUnknownError:
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
                return self._connection.load(self._table)
            except StateUnknownError:
                self.unsure += 1
        raise AssertionError(f"no answer in {TRIES_MAX} tries")


def run(system: System, shape: Shape, commits: int, prefix: str, random: Random) -> Run:
    """One repetition on new tables. Raises if a commit was lost or made twice."""
    places = shape.places(prefix)
    prepare(system, places, random)
    per_writer = commits // shape.writers
    writers = []
    for table, branch in places:
        snapshot_ids = [random.getrandbits(62) for _ in range(per_writer)]
        writers.append(Writer(system.connect(), table, branch, snapshot_ids))
    seconds = run_together([writer.work for writer in writers])
    connection = system.connect()
    per_table = per_writer * (shape.writers if shape.shared else 1)
    for table in {table for table, _ in places}:
        found = connection.load(table).snapshots
        assert found == per_table + 1, (system.name, table, found, per_table + 1)  # 1: the first snapshot
    latencies = tuple(latency for writer in writers for latency in writer.latencies)
    conflicts, unsure = sum(writer.conflicts for writer in writers), sum(writer.unsure for writer in writers)
    return Run(latencies, seconds, conflicts, unsure)


def run_together(works: Sequence[Callable[[], None]]) -> float:
    """Start all functions at once, each in a thread; returns the seconds until the last has ended."""
    ready = threading.Barrier(len(works) + 1)

    def begin(work: Callable[[], None]) -> None:
        ready.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        started = [pool.submit(begin, work) for work in works]
        ready.wait()
        start = time.perf_counter()
        for future in started:
            future.result()
        return time.perf_counter() - start
