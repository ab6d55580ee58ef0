"""A standalone cluster verifies what threads verify; an executor may die meanwhile, and no key is left anywhere."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from pvdm.model.secret import DigestKey
from pvdm.store import handles
from pvdm.store.attempts import Attempt
from pvdm.verify.job import Verified, verify
from pvdm.verify.spark.application import log_of
from tests.planted import traces
from tests.spark_cluster import Cluster, below, cluster_at, command_of, environment_of
from tests.spark_verify import Lab, facts, lab_at, worker_token
from tests.verify_examples import ROWS

pytestmark = pytest.mark.usefixtures("kernel")
FILES = 1_000
PAGES = ("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "api/v1/applications")
WAIT_SECONDS = 300
_PROGRAMS = frozenset({".jar", ".so", ".py", ".pyc", ".pyi", ".gz"})


@dataclass
class Scene:
    """What one run on the cluster left: results, processes seen, pages of the UI, folders."""

    lab: Lab
    cluster: Cluster
    planted: bytes
    threads: Verified
    spark: Verified
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
    (folder / "events").mkdir()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder / 'events'}",
        "spark.executor.extraJavaOptions": f"-Dplanted={planted.hex()}",
        "spark.executorEnv.PLANTED": planted.hex(),
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }
    rows = [ROWS[at % 100 : at % 100 + 1] for at in range(FILES)]
    source = [[row for each in rows[at::20] for row in each] for at in range(20)]
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
        attempt, _ = lab.bench.staged(*rows)
        killer = _Killer(lab, cluster)
        threads = lab.verified(attempt, lab.tools)
        spark = killer.verified(attempt)
        folders = [folder / "events", folder / "cluster", lab.settings.scratch]
        made = Scene(lab, cluster, planted, threads, spark, killer.killed, killer.workers(), folders)
        made.places = _places(made)
        yield made


class _Killer:
    """Verifies on Spark, and kills the executor of the first worker that has redeemed its keys."""

    def __init__(self, lab: Lab, cluster: Cluster) -> None:
        self._lab = lab
        self._cluster = cluster
        self._job_id = ""
        self.killed = 0

    def verified(self, attempt: Attempt) -> Verified:
        job = self._lab.bench.verification.job(attempt.attempt_id)
        self._job_id = job.job_id
        self._lab.desk.application.cores()  # a driver that is up
        thread = threading.Thread(target=self._kill)
        thread.start()
        try:
            return verify(job, self._lab.on_spark())
        finally:
            thread.join(WAIT_SECONDS)

    def workers(self) -> frozenset[str]:
        with self._lab.bench.scene.notary.ledger.read() as unit:
            found = handles.find_job(unit, self._job_id)
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


def _places(scene: Scene) -> dict[str, bytes]:
    """Pages of the UI and the processes of driver and cluster, while the application still runs."""
    found = {}
    log = log_of(scene.lab.settings).read_text(errors="replace")
    ui = re.search(r"http://127\.0\.0\.1:\d+", log)
    started = scene.lab.desk.application.started
    assert started is not None
    with httpx.Client(timeout=20, trust_env=False, follow_redirects=True) as http:
        address = ui[0] if ui else _ui_address(started.process.pid)
        one = f"api/v1/applications/{started.application_id}"
        for page in (*PAGES, f"{one}/environment", f"{one}/jobs", f"{one}/sql", f"{one}/stages", f"{one}/allexecutors"):
            found[f"UI {page}"] = http.get(f"{address}/{page}").content
    for pid in (started.process.pid, *below(started.process.pid), *scene.cluster.descendants()):
        found[f"command of {pid}"] = command_of(pid)
        found[f"environment of {pid}"] = environment_of(pid)
    return found


def _ui_address(driver: int) -> str:
    """The port that answers with Spark's pages, among those that the driver's processes listen on."""
    inodes = set()
    for pid in (driver, *below(driver)):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(str(link.readlink()))
    for line in (
        Path("/proc/net/tcp").read_text().splitlines()[1:] + Path("/proc/net/tcp6").read_text().splitlines()[1:]
    ):
        parts = line.split()
        if parts[3] == "0A" and f"socket:[{parts[9]}]" in inodes:
            address = f"http://127.0.0.1:{int(parts[1].rpartition(':')[2], 16)}"
            with contextlib.suppress(httpx.HTTPError):
                if b"pvdm steward" in httpx.get(f"{address}/jobs/", timeout=5, trust_env=False).content:
                    return address
    raise AssertionError("the driver serves no pages")


def _secrets(scene: Scene) -> dict[str, bytes]:
    """The keys of the attempt, and its digests, which are secrets too."""
    context = scene.spark.context
    assert context is not None
    keys = scene.lab.bench.scene.notary.keys
    found: dict[str, bytes] = {}
    for name in context.projections:
        key: DigestKey = keys.row_hash_key(context, name)
        found[f"key of {name.value}"] = key.reveal()
    return found


def _traces_in(secret: bytes, folder: Path) -> list[str]:
    """Files in which the secret stands; copies of programs, which were there before it, are left out."""
    return [
        str(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in _PROGRAMS and traces(secret, path.read_bytes())
    ]


def test_a_cluster_finds_what_threads_find_with_1000_files_and_an_executor_killed(scene: Scene) -> None:
    assert scene.threads.core.verdict.passed
    assert len(scene.spark.core.files.added) == FILES
    assert facts(scene.spark) == facts(scene.threads)
    assert scene.killed, "an executor was killed after its worker had its keys"
    assert len(scene.workers) >= 2, "another worker came for keys under a name of its own"
    log = log_of(scene.lab.settings).read_text(errors="replace")
    assert "Lost executor" in log
    assert "Lost task" in log, "it had work in its hands"


def test_the_kernel_came_to_the_executors_as_an_unpacked_archive(scene: Scene) -> None:
    unpacked = list((scene.cluster.folder).glob("work-*/app-*/*/pvdm_archive"))
    assert unpacked
    assert any(each.glob("pvdm/verify/spark/__pycache__/worker.*.pyc") for each in unpacked)
    assert all(any(each.glob("pvdm_kernel/*.so")) for each in unpacked)


def test_a_planted_key_is_found_in_event_log_pages_environment_commands_and_executor_logs(scene: Scene) -> None:
    events, cluster, _ = scene.folders
    assert _traces_in(scene.planted, events)
    assert _traces_in(scene.planted, cluster)
    for kind in ("UI environment/", "UI api/v1/applications/", "command of", "environment of"):
        assert any(traces(scene.planted, text) for place, text in scene.places.items() if place.startswith(kind)), kind


def test_the_attempts_keys_are_in_no_plan_log_page_environment_temp_or_spill_file(scene: Scene) -> None:
    for name, secret in _secrets(scene).items():
        assert [found for folder in scene.folders for found in _traces_in(secret, folder)] == [], name
        assert [place for place, text in scene.places.items() if traces(secret, text)] == [], name
