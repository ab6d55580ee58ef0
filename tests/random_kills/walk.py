"""Kills the owner of every fault point once at that point, runs the workload again, and checks what must hold.

The owner of a point is the process that reaches it: a producer, the Steward, or a command. All kills happen in one
world, one after the other, each with a workload of its own.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pvdm.client.table import TableClient, split_name
from pvdm.errors import PvdmError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.role import Role
from pvdm.model.statements.core import Operation
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from tests.random_kills.conditions import await_conditions
from tests.random_kills.killing import BRANCH, wrong_rows
from tests.random_kills.producer import publish, table_of
from tests.random_kills.schedule import FIRST_DAY, Row, Work
from tests.random_kills.world import World
from tests.support.fault import POINTS
from tests.support.servers.starter import ROOT, Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARY = ROOT / "build" / "kill.json"
PRODUCERS_TABLE, STEWARDS_TABLE = "sales.open", "sales.copied"
"""Killed runs use the first table. Kills of Stewards and `pvdm publish`, which copies files, use the second."""
RERUNS_MAX = 5
KILL_SECONDS = 60.0
"""Within this time, the owner of a point reaches the point and ends."""
SETTLE_SECONDS = 75.0
"""Longer than the minute within which a Steward continues unfinished work."""

PRODUCER_POINTS = tuple(name for name in POINTS if name.startswith(("client.", "stager.")))
# How a producer reaches a point. It reaches all other points by a normal run.
_WAYS = {
    "client.before_renewal": "run long",
    "client.after_renewal": "run long",
    "client.before_abort": "fail",
    "client.after_abort": "fail",
    "stager.before_remove": "fail",
    "stager.after_remove": "fail",
    "client.before_publish": "publish",
    "client.after_publish": "publish",
}


@dataclass(slots=True)
class Walk:
    """The kills in one world, and what was wrong after them."""

    world: World
    spark: SparkSession | None = None
    """If set, producers run on Spark: a killed producer on its own session, and its rerun on this session."""
    walked: dict[str, float] = field(default_factory=dict)  # the seconds that each point took
    violations: dict[str, list[str]] = field(default_factory=dict)
    _days: Counter[str] = field(default_factory=Counter)  # how many days of each table have a workload
    intended: dict[str, list[Row]] = field(default_factory=dict)

    def begin(self) -> None:
        """Start the world's Steward."""
        self.world.begin()
        self.start_steward()

    def kill_producer(self, point: str) -> list[str]:
        """Kill a producer at the point, and run its workload again; returns the violations."""
        with self.measured(point) as found:
            way = _WAYS.get(point, "run") if self.spark is None else "spark"
            work = self.next_work(STEWARDS_TABLE if way == "publish" else PRODUCERS_TABLE)
            if way == "publish":
                self._stage_branch(work)
            self.world.order.write_text(point)
            self.await_death(self._start_producer(work, way), found)
            self.finish(work, found, way)
        return found

    def kill_steward(self, *points: str, table: str = STEWARDS_TABLE) -> list[str]:
        """Kill the Steward at the points in turn while a producer runs a workload."""
        with self.measured(*points) as found:
            work = self.next_work(table)
            self.world.order.write_text(points[0])
            producer = self._start_producer(work, "run")
            for next_point in (*points[1:], None):
                self._replace_steward(found, next_point)
            if not producer.has_ended(KILL_SECONDS):
                found.append("the producer does not end")
                producer.kill()
            self.finish(work, found)
        return found

    def kill_steward_at_new_epoch(self, point: str) -> list[str]:
        """Kill the Steward at the point while an operator creates an epoch of keys."""
        with self.measured(point) as found:
            self.world.order.write_text(point)
            with contextlib.suppress(PvdmError), self.world.client(Role.OPERATOR) as client:
                client.create_epoch("new keys")
            self._replace_steward(found)
            self.finish(self.next_work(STEWARDS_TABLE), found)
        return found

    def kill_steward_at_override(self, point: str) -> list[str]:
        """Kill the Steward at the point while an operator publishes rows that failed (break-glass)."""
        with self.measured(point) as found:
            work = self.next_work(STEWARDS_TABLE, wrong_rows)
            producer = self._start_producer(work, "wrong")
            assert producer.has_ended(KILL_SECONDS)
            override_id = self._submit_override(work)
            self.world.order.write_text(point)
            with contextlib.suppress(PvdmError), self.world.client(Role.OPERATOR) as client:
                client.publish_override(override_id)
            self._replace_steward(found)
            self.world.run_ok("break-glass", "publish", override_id)
            self.finish(work, found)
        return found

    def write_summary(self) -> None:
        """Write the figures of this walk to build/kill.json."""
        SUMMARY.parent.mkdir(exist_ok=True)
        SUMMARY.write_text(json.dumps(self.summary(), indent=1) + "\n")

    def summary(self) -> dict[str, Any]:
        """The figures of this walk."""
        return {
            "points": len(POINTS),
            "producer_points": len(PRODUCER_POINTS),
            "walked": len(self.walked),
            "violations": sum(map(len, self.violations.values())),
            "seconds": round(sum(self.walked.values()), 1),
            "not_walked": sorted(set(POINTS) - set(self.walked)),
            "violations_by_point": self.violations,
        }

    # Steps of a kill.

    @contextlib.contextmanager
    def measured(self, *points: str) -> Iterator[list[str]]:
        """Record the time of the block for the points, and the violations that the block adds to the list."""
        began = time.monotonic()
        found: list[str] = []
        yield found
        self.walked |= dict.fromkeys(points, round((time.monotonic() - began) / len(points), 2))
        if found:
            self.violations[points[0]] = found

    def next_work(self, table: str, rows: Callable[[Work], Sequence[Row]] = lambda work: work.rows) -> Work:
        """A workload of the table's next day. `rows` selects which of its rows must be published."""
        number = self._days[table]
        self._days[table] += 1
        day = (FIRST_DAY + datetime.timedelta(days=number)).isoformat()
        work = Work(f"{table}-{number}", table, day)
        self.intended.setdefault(table, []).extend(rows(work))
        return work

    def await_death(self, process: Process, found: list[str]) -> None:
        """Wait until the process has killed itself at the ordered point. Adds to `found` if it has not."""
        if not process.has_ended(KILL_SECONDS):
            found.append("the process does not end")
            process.kill()
        if self.world.order.exists():
            self.world.order.unlink()
            found.append("the point was not reached")

    def start_steward(self) -> None:
        """Start a Steward, unless one runs, and wait until it is ready."""
        if (why := self.world.wait_until_ready()) is not None:
            raise AssertionError(why)

    def finish(self, work: Work, found: list[str], way: str = "run") -> None:
        """Run the workload again until it is published, and check every condition for its table."""
        for _ in range(RERUNS_MAX):
            outcome = self._rerun(work, way)
            if outcome["outcome"] == "COMMITTED":
                break
        else:
            found.append(f"{work.workload_id} is not published: {outcome}")
        found += await_conditions(self.world, {work.table: self.intended[work.table]}, seconds=SETTLE_SECONDS)

    def _replace_steward(self, found: list[str], next_point: str | None = None) -> None:
        assert self.world.steward is not None
        self.await_death(self.world.steward, found)
        if next_point is None:
            self.start_steward()
        else:
            self.world.order.write_text(next_point)
            self.world.start_steward()

    def _start_producer(self, work: Work, way: str) -> Process:
        world = self.world
        arguments = (way, world.url, str(world.token(Role.PRODUCER)), work, str(world.order))
        log = world.folder / f"{work.workload_id}.log"
        return world.starter.start("tests.random_kills.killing:produce", *arguments, log=log)

    def _rerun(self, work: Work, way: str) -> dict[str, Any]:
        if way != "publish":
            return publish(self.world.url, str(self.world.token(Role.PRODUCER)), work, self.spark)
        words = ("publish", work.table, BRANCH, "--workload-id", work.workload_id, "--param", f"day={work.day}")
        ran = self.world.pvdm(*words, "--json", role=Role.PRODUCER)
        return {"outcome": "COMMITTED" if ran.code == 0 else ran.out}

    def _stage_branch(self, work: Work) -> None:
        """Stage the workload's rows on a branch without an attempt, as an unmodified job does."""
        world = self.world
        with world.client(Role.PRODUCER) as client:
            location = TableMetadata.from_json(TableClient(client, *split_name(work.table)).load()).location
            token = client.lend(Role.PRODUCER).token
            to = Destination(world.url, work.table, BRANCH, location, "none", "none", "0" * 32, token, Operation.APPEND)
            SmallStager(client).stage(lambda: table_of(work.rows), to)

    def _submit_override(self, work: Work) -> str:
        """Override the workload's FAIL as an operator; returns the override's id."""
        folder = self.world.folder
        with self.world.client(Role.OPERATOR) as client:
            (failed,) = client.workload(work.workload_id).attempts
            proof, override = folder / "fail.json", folder / "override.json"
            proof.write_bytes(client.proof_envelope(str(failed.proof_id)))
            words = ("--key", folder / "glass.pem", "--operator", "glass", "--reason", "it is needed today", "--yes")
            self.world.run_ok("break-glass", "sign", "--proof", proof, *words, "--out", override)
            return client.submit_override(override.read_bytes()).override_id
