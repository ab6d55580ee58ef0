"""The Steward's application as a client of a Spark Connect server of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services import require
from tests.support.spark.verification import facts, lab_at, worker_token
from tests.support.verify.attempts import ROWS

pytestmark = pytest.mark.usefixtures("kernel")
START_SECONDS = 240
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextlib.contextmanager
def connect_at(folder: Path) -> Iterator[str]:
    """Run a Spark Connect server with two cores on loopback; yields its address."""
    require(importlib.util.find_spec("grpc_status"), "pyspark[connect] is not installed")
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home = Path(found.origin).parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"spark.connect.grpc.binding.port": str(port), "spark.connect.grpc.binding.address": "127.0.0.1"}
    settings |= {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    named = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    env = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    pandas = importlib.util.find_spec("pandas")
    assert pandas is not None
    assert pandas.origin is not None
    env |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(folder)}
    env |= {"PYTHONPATH": str(Path(pandas.origin).parents[1])}
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [str(home / "bin" / "spark-submit"), "--master", "local[2]", *named, "--class", SERVER, "spark-internal"],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
    try:
        _wait(port, server, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-2000:])


def test_a_connect_server_of_the_stewards_own_finds_what_threads_find(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    token = tmp_path / "worker.token"
    with (
        connect_at(folder) as master,
        lab_at(tmp_path / "steward", source=(ROWS[:40], ROWS[40:]), master=master, cores=2, worker_token=token) as lab,
    ):
        worker_token(lab, token)
        attempt, _ = lab.bench.staged(ROWS[:25], ROWS[25:])
        threads, spark = lab.verify_both(attempt, lab.on_spark())
        assert threads.core.verdict.passed
        assert facts(spark) == facts(threads)
