"""A standalone cluster verifies what threads verify, also if an executor dies; and no key is left anywhere."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pvdm.ledger.record import shared_settings
from pvdm.ledger.work.attempts import Attempt
from pvdm.verify.job import VerificationResult, verify
from pvdm.verify.spark.application import DRIVER_LOG
from tests.support.spark.cluster import Cluster, cluster_at
from tests.support.spark.traces import keys_of, places, traces_in, verbose_settings
from tests.support.spark.verification import Lab, facts, lab_at, worker_token
from tests.support.steward.secret_search import traces
from tests.support.verify.attempts import ROWS

pytestmark = pytest.mark.usefixtures("kernel")
FILES = 1_000
WAIT_SECONDS = 300


@dataclass
class Scene:
    """What one run on the cluster left. `planted` is a secret that was put where keys could be; `killed` is a pid."""

    lab: Lab
    cluster: Cluster
    planted: bytes
    threads: VerificationResult
    spark: VerificationResult
    killed: int
    workers: frozenset[str]
    folders: list[Path]
    places: dict[str, bytes] = field(default_factory=dict)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A chunk of 1,000 staged files on a cluster with event log and UI, one executor killed in the middle."""
    folder = tmp_path_factory.mktemp("cluster").resolve()
    planted = secrets.token_bytes(32)
    token = folder / "worker.token"
    settings = verbose_settings(folder) | {
        "spark.executor.extraJavaOptions": f"-Dplanted={planted.hex()}",
        "spark.executorEnv.PLANTED": planted.hex(),
    }
    files = [ROWS[number % 100 : number % 100 + 1] for number in range(FILES)]  # one row each
    source = [[row for each in files[number::20] for row in each] for number in range(20)]  # the same in 20 files
    with (
        cluster_at(folder / "cluster") as cluster,
        lab_at(
            folder / "steward",
            source=source,
            master=cluster.master,
            memory="512m",
            worker_token=token,
            settings=settings,
        ) as lab,
    ):
        worker_token(lab, token)
        attempt, _ = lab.bench.staged(*files)
        killer = _Killer(lab, cluster)
        threads = lab.verified(attempt, lab.tools)
        spark = killer.verify_and_kill(attempt)
        folders = [folder / "events", folder / "cluster", lab.settings.scratch]
        made = Scene(lab, cluster, planted, threads, spark, killer.killed, killer.workers(), folders)
        made.places = places(lab, cluster.descendants())
        yield made


class _Killer:
    """Verifies on Spark, and kills the executor of the first worker that has redeemed its keys."""

    def __init__(self, lab: Lab, cluster: Cluster) -> None:
        self._lab = lab
        self._cluster = cluster
        self._job_id = ""
        self.killed = 0

    def verify_and_kill(self, attempt: Attempt) -> VerificationResult:
        job = self._lab.bench.verification.load_job(attempt.attempt_id)
        self._job_id = job.job_id
        self._lab.desk.application.cores()  # starts the driver
        thread = threading.Thread(target=self._kill)
        thread.start()
        try:
            return verify(job, self._lab.on_spark())
        finally:
            thread.join(WAIT_SECONDS)

    def workers(self) -> frozenset[str]:
        with self._lab.bench.scene.notary.ledger.read() as unit:
            found = shared_settings.find_handle_of_job(unit, self._job_id)
        return frozenset() if found is None else found.workers - {"steward"}

    def _kill(self) -> None:
        ends = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < ends:
            for name in self.workers():
                executor = self._cluster.executor_of(int(name.split(":")[1]))
                os.kill(executor, signal.SIGKILL)
                self.killed = executor
                return
            time.sleep(0.02)


def test_a_cluster_finds_what_threads_find_with_1000_files_and_an_executor_killed(scene: Scene) -> None:
    assert scene.threads.core.verdict.passed
    assert len(scene.spark.core.files.added) == FILES
    assert facts(scene.spark) == facts(scene.threads)
    assert scene.killed, "an executor was killed after its worker had its keys"
    assert len(scene.workers) >= 2, "a second worker redeemed keys under its own name"
    log = (scene.lab.settings.scratch / DRIVER_LOG).read_text(errors="replace")
    assert "Lost executor" in log
    assert "Lost task" in log, "the executor had a task when it was killed"


def test_the_kernel_came_to_the_executors_as_an_unpacked_archive(scene: Scene) -> None:
    unpacked = list((scene.cluster.folder).glob("work-*/app-*/*/pvdm_archive"))
    assert unpacked
    assert any(each.glob("pvdm/verify/spark/__pycache__/worker.*.pyc") for each in unpacked)
    assert all(any(each.glob("pvdm_kernel/*.so")) for each in unpacked)


def test_a_planted_key_is_found_in_event_log_pages_environment_commands_and_executor_logs(scene: Scene) -> None:
    events, cluster, _ = scene.folders
    assert traces_in(scene.planted, events)
    assert traces_in(scene.planted, cluster)
    for kind in ("UI environment/", "UI api/v1/applications/", "command of", "environment of"):
        assert any(traces(scene.planted, text) for place, text in scene.places.items() if place.startswith(kind)), kind


def test_the_attempts_keys_are_in_no_plan_log_page_environment_temp_or_spill_file(scene: Scene) -> None:
    for name, secret in keys_of(scene.lab, scene.spark).items():
        assert [found for folder in scene.folders for found in traces_in(secret, folder)] == [], name
        assert [place for place, text in scene.places.items() if traces(secret, text)] == [], name
