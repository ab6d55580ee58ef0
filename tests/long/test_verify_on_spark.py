"""The Steward's Spark application while its driver, or the driver's Java process, is killed during a job."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from pvdm.errors import UnavailableError
from pvdm.ledger.record import shared_settings
from pvdm.verify.job import verify
from tests.support.spark.cluster import command_of, descendants_of
from tests.support.spark.verification import Lab, facts, lab_at
from tests.support.verify.attempts import Row

pytestmark = pytest.mark.usefixtures("kernel")
FILES, ROWS, WAIT_SECONDS = 400, 500, 300
SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def rows(number: int) -> list[Row]:
    return [(ROWS * number + at, f"town {at % 97}", at / 8) for at in range(ROWS)]


def kill(lab: Lab, job_id: str, what: str) -> None:
    """Send SIGKILL to the driver, or to its Java process, as soon as a worker has its keys."""
    started = lab.desk.application.started
    assert started is not None
    java = [
        pid for pid in descendants_of(started.process.pid) if b"org.apache.spark.deploy.SparkSubmit" in command_of(pid)
    ]
    victim = started.process.pid if what == "driver" else java[0]
    ends = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < ends:
        with lab.bench.scene.notary.ledger.read() as unit:
            found = shared_settings.find_handle_of_job(unit, job_id)
        if found is not None and len(found.workers) > 1:
            os.kill(victim, signal.SIGKILL)
            return
        time.sleep(0.01)


@pytest.mark.parametrize(("what", "code"), [("driver", "spark_driver_gone"), ("java", "spark_job_failed")])
def test_a_killed_driver_proves_nothing_and_the_next_job_has_another_one(tmp_path: Path, what: str, code: str) -> None:
    parts = [rows(number) for number in range(FILES)]
    with lab_at(tmp_path, source=parts[::-1], settings=SETTINGS) as lab:
        attempt, _ = lab.bench.staged(*parts)
        lab.desk.application.cores()
        first = lab.desk.application.started
        job = lab.bench.verification.load_job(attempt.attempt_id)
        killer = threading.Thread(target=kill, args=(lab, job.job_id, what))
        killer.start()
        with pytest.raises(UnavailableError) as caught:
            verify(job, lab.on_spark())
        killer.join()
        assert caught.value.reason == code
        assert lab.bench.cores(attempt) == []
        threads, spark = lab.verify_both(attempt, lab.on_spark())
        assert (threads.core.verdict.passed, threads.core.rows.staged) == (True, FILES * ROWS)
        assert facts(spark) == facts(threads)
        assert lab.desk.application.started is not first
