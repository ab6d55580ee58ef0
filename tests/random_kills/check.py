"""What must hold after a round: nothing lost, nothing doubled, nothing stuck, every file accounted for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from pvdm.errors import RolledBackError, SegmentEndedError, StateUnknownError, UnavailableError, VerificationError
from pvdm.model.role import Role
from tests.random_kills.conditions import await_conditions, visible_rows
from tests.random_kills.play import Played
from tests.random_kills.schedule import TABLES, Round, Row, Work
from tests.random_kills.world import World

RERUNS_MAX = 5
SETTLE_SECONDS = 75
"""A Steward takes up unfinished work again within a minute."""
# Exit codes (docs/cli.md).
_VERIFICATION_FAILED = VerificationError.exit_code
_RETRY_HELPS = {
    error.exit_code
    for error in (VerificationError, RolledBackError, SegmentEndedError, StateUnknownError, UnavailableError)
}
_JOB = ("--job", "tests.random_kills.producer:build", "--small", "--json")


@dataclass(slots=True)
class Findings:
    """What was wrong after a round, by kind, and how many workloads were published, run again and repaired."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    published: int = 0
    reruns: int = 0
    repairs: int = 0

    def list_all(self) -> list[str]:
        """All findings in one list, each with its kind."""
        kinds = (("lost", self.lost), ("doubled", self.doubled), ("stuck", self.stuck), ("wrong", self.wrong))
        return [f"{kind}: {each}" for kind, found in kinds for each in found]


def check_round(world: World, plan: Round, played: Played) -> Findings:
    """Start everything, run every workload again until it is published, and check tables, log and files."""
    found = Findings(stuck=list(played.stuck))
    world.start_postgresql()
    if (why := world.wait_until_ready()) is not None:
        found.stuck.append(f"the Steward is not ready: {why}")
        return found
    seen = {table: visible_rows(world, table) for table in TABLES}
    for work in plan.works:
        if work.workload_id in played.acknowledged:
            check_rows(seen[work.table], work, found, "acknowledged")
    for work in plan.works:
        _finish(world, work, found, acknowledged=work.workload_id in played.acknowledged)
    _compare_tables(world, plan, found)
    found.stuck += _unfinished(world)
    found.wrong += _evidence(world)
    intended = {table: [row for work in plan.works if work.table == table for row in work.rows] for table in TABLES}
    found.wrong += await_conditions(world, intended, seconds=SETTLE_SECONDS)
    return found


def check_rows(seen: Counter[Row], work: Work, found: Findings, what: str) -> None:
    """Note each of the workload's rows that is missing, or there more than once; `what` says at which moment."""
    for row in work.rows:
        if seen[row] < 1:
            found.lost.append(f"{what} {work.workload_id}: {row} is not in {work.table}")
        if seen[row] > 1:
            found.doubled.append(f"{what} {work.workload_id}: {row} is {seen[row]} times in {work.table}")


def _finish(world: World, work: Work, found: Findings, *, acknowledged: bool) -> None:
    """Run the workload's command again while its exit code says that this helps, and repair it after a FAIL."""
    run = ("run", work.table, "--workload-id", work.workload_id, "--param", f"day={work.day}", *_JOB)
    failures = []
    for _ in range(RERUNS_MAX):
        ran = world.pvdm(*run, role=Role.PRODUCER)
        found.reruns += not acknowledged
        if ran.code == _VERIFICATION_FAILED:
            found.repairs += 1
            failures.append(ran.out[-600:])
            words = ("repair", work.workload_id, "--reason", "files were lost", *_JOB)
            ran = world.pvdm(*words, role=Role.PRODUCER)
        if ran.code == 0:
            found.published += 1
            if acknowledged and ran.json["published"] != "before":
                found.lost.append(f"{work.workload_id} was acknowledged and is published {ran.json['published']}")
            return
        failures.append(f"{ran.code}: {ran.out[-600:]}")
        if ran.code not in _RETRY_HELPS:
            break
    found.stuck.append(f"{work.workload_id} has no end: {failures}")


def _compare_tables(world: World, plan: Round, found: Findings) -> None:
    for table in TABLES:
        seen = visible_rows(world, table)
        for work in plan.works:
            if work.table == table:
                check_rows(seen, work, found, "finished")
        expected = {row for work in plan.works if work.table == table for row in work.rows}
        found.wrong += [f"{table} has {row}, which no workload published" for row in seen if row not in expected]


def _unfinished(world: World) -> Iterator[str]:
    """Workloads that are not complete, and jobs that are not done."""
    with world.client(Role.OPERATOR) as client:
        for workload in client.workloads(limit=100):
            if workload.state.value != "COMPLETE":
                yield f"workload {workload.workload_id} is {workload.state.value}"
        ends = time.monotonic() + SETTLE_SECONDS
        while jobs := client.jobs():
            if time.monotonic() > ends:
                yield from (f"job {each}" for each in jobs)
                return
            time.sleep(0.1)


def _evidence(world: World) -> Iterator[str]:
    """The failures of `pvdm audit` for each table, and of `pvdm log fsck`."""
    trusted = ("--trust-root", world.folder / "root.json", "--root-sha256", world.pin)
    for table in TABLES:
        audit = world.pvdm("audit", table, "--rehash", *trusted, role=Role.AUDITOR)
        if audit.code != 0:
            yield f"audit of {table} ends with {audit.code}: {audit.out[-1500:]}"
    since = world.outside / "checkpoint"
    fsck = world.pvdm("log", "fsck", world.home / "archive", *trusted, "--since", since)
    if fsck.code != 0:
        yield f"log fsck ends with {fsck.code}: {fsck.out[-1500:]}"
