"""A workload whose Spark segments are killed at random times publishes each chunk once. A seed repeats the times."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import pytest

from pvdm.lake.read.entries import live_entries
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from tests.support.spark.cluster import command_of, descendants_of
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import Disk, Row, Shop, contract, shop_at
from tests.support.waiting import eventually

SEED_VARIABLE = "PVDM_SEGMENT_KILLS_SEED"
TABLE, WORKLOAD = "sales.killed", "killed-1"
ROWS_PER_DAY = 200
SUPERVISOR_SHARE = 0.25
"""The share of kills that hit the supervisor, after the first killed segment. All others hit the segment."""
STAGING_SHARE = 0.75
"""The share of kills that wait until the staging of a chunk begins. All others may hit the start of Spark."""
RUNS_MAX = 15
CONF = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.sql.shuffle.partitions=1",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
)


@dataclass(slots=True)
class Killer:
    """Repeats `pvdm run` until every chunk is published, and kills its processes at random times."""

    shop: Shop
    random: Random
    kills: int  # how many kills are left
    segment_timeout: str
    killed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    runs: int = 0

    def run_until_published(self) -> None:
        while self.runs < RUNS_MAX:
            self.runs += 1
            with self._command() as process:
                self._kill_until_end(process)
            if process.returncode == 0:
                return
            # Exit code 4: a crash loop, or the segment of a killed supervisor still has the lease.
            assert process.returncode in (4, -signal.SIGKILL), self.log.read_text("utf-8")[-3000:]
            time.sleep(3)
        raise AssertionError(f"not published after {RUNS_MAX} runs: {self.log.read_text('utf-8')[-3000:]}")

    @property
    def log(self) -> Path:
        return self.shop.folder / "run.log"

    def _command(self) -> subprocess.Popen[bytes]:
        words = [
            "run",
            TABLE,
            "--workload-id",
            WORKLOAD,
            "--segment-timeout",
            self.segment_timeout,
            "--master",
            "local[1]",
        ]
        conf = [word for each in CONF for word in ("--conf", each)]
        token = self.shop.steward.token_for(Role.PRODUCER, "sales").text
        env = {**os.environ, "PVDM_URL": self.shop.steward.url, "PVDM_TOKEN": token}
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "pvdm.cli", *words, *conf]
            return subprocess.Popen(command, cwd=self.shop.folder, env=env, stdout=log, stderr=log)

    def _kill_until_end(self, process: subprocess.Popen[bytes]) -> None:
        """Until the command ends, kill processes: each after a random time, which may begin with the next chunk."""
        while process.poll() is None:
            seconds = self.random.uniform(0, 12)
            hits_supervisor = self.killed["segments"] > 0 and self.random.random() < SUPERVISOR_SHARE
            staged = self._count_staged() if self.random.random() < STAGING_SHARE else -1
            kill_at: float | None = None
            while process.poll() is None and (not self.kills or kill_at is None or time.monotonic() < kill_at):
                time.sleep(0.1)
                if kill_at is None and self._count_staged() > staged:
                    kill_at = time.monotonic() + seconds
            victims = [process.pid] if hits_supervisor else list(segments_of(process.pid))
            if process.poll() is None and victims:
                os.kill(victims[0], signal.SIGKILL)
                self.killed["supervisors" if hits_supervisor else "segments"] += 1
                self.kills -= 1

    def _count_staged(self) -> int:
        """Count the attempts whose staging has begun, by the progress that the command prints."""
        return self.log.read_bytes().count(b": staging")


def segments_of(supervisor: int) -> Iterator[int]:
    """The process of the supervisor's running segment, if a segment runs."""
    return (each for each in descendants_of(supervisor) if b"spawn_main" in command_of(each))


def rows_of(days: int) -> list[Row]:
    return [
        (day * 1_000 + number, f"2026-10-{day:02}", "Ulm")
        for day in range(1, days + 1)
        for number in range(ROWS_PER_DAY)
    ]


@pytest.mark.usefixtures("spark")  # skips the test where Spark cannot start
@pytest.mark.parametrize(
    # On a busy machine a Spark driver may need half a minute for its first chunk, so the short test has more time.
    ("days", "kills", "segment_timeout"),
    [(6, 1, "90s"), pytest.param(24, 10, "30s", marks=pytest.mark.long)],
)
def test_each_chunk_is_published_once_after_kills_at_random_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int, kills: int, segment_timeout: str
) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or SystemRandom().randrange(2**32))
    with capsys.disabled():
        sys.stdout.write(f"\n{SEED_VARIABLE}={seed}\n")
    with shop_at(tmp_path) as shop:
        shop.make("raw.days", ((2, "day", "identity"),))
        shop.write(rows_of(days), "raw.days")
        shop.make(TABLE)
        shop.protect(contract(TABLE, BY_DAY).replace("table: raw.orders", "table: raw.days"))
        began, killer = time.monotonic(), Killer(shop, Random(seed), kills, segment_timeout)
        killer.run_until_published()
        attempts = require_one_attempt_for_each_chunk(shop, days)
        with capsys.disabled():
            seconds = time.monotonic() - began
            sys.stdout.write(f"{days} days, {attempts} attempts, killed {dict(killer.killed)}, {seconds:.0f} s\n")
        assert shop.visible_rows(TABLE) == sorted(rows_of(days), key=repr)
        assert eventually(lambda: shop.branches(TABLE) == set())


def require_one_attempt_for_each_chunk(shop: Shop, days: int) -> int:
    """Require that the published files of each chunk are from one attempt. Returns the number of all attempts.

    The path of a published file contains the id of its attempt.
    """
    with shop.client() as client:
        attempts = client.workload(WORKLOAD, limit=500, look_up_source=False).attempts
    published = {each.attempt_id: each.chunk_id for each in attempts if each.state is AttemptState.COMMITTED}
    metadata = shop.metadata(TABLE)
    assert metadata.current_snapshot is not None
    paths = [each.data_file.file_path for each in live_entries(metadata, metadata.current_snapshot, Disk())]
    assert len(set(paths)) == len(paths)
    writers: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        (attempt_id,) = (each for each in published if each in path)
        writers[published[attempt_id]].add(attempt_id)
    assert sorted(writers) == [f"day=2026-10-{day:02}" for day in range(1, days + 1)]
    assert {len(each) for each in writers.values()} == {1}
    assert len(published) == days
    return len(attempts)
