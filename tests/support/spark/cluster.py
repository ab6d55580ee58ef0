"""A Spark standalone cluster on loopback: a master and workers, each in its own process."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.services import require

START_SECONDS = 90
_MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_JOINED = re.compile(r"Successfully registered with master")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The master's address, the folder of all files, and the ids of the workers' processes."""

    master: str
    folder: Path
    processes: tuple[int, ...]

    def descendants(self) -> list[int]:
        """Every process that the workers have started: executors and their Python workers."""
        return [pid for root in self.processes for pid in descendants_of(root)]

    def executor_of(self, python_worker: int) -> int:
        """The id of the executor that started this Python worker. It must be an executor of the cluster."""
        own, at = set(self.descendants()), python_worker
        while at in own:
            if b"CoarseGrainedExecutorBackend" in command_of(at):
                return at
            at = parents()[at]
        raise AssertionError(f"{python_worker} belongs to no executor of the cluster")


@contextlib.contextmanager
def cluster_at(folder: Path, *, workers: int = 2, memory: str = "1g") -> Iterator[Cluster]:
    """Start a master and workers of one core each. Their Python finds Spark's packages, but not this checkout."""
    require(os.environ.get("JAVA_HOME") or shutil.which("java"), "Java 17 is not installed, so Spark cannot start")
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as running:
        log = folder / "master.log"
        master = _start(running, log, "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        address = _wait_for_line(log, _MASTER, master)[1]
        started = [master]
        for number in range(workers):
            log = folder / f"worker-{number}.log"
            options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "-c", "1", "-m", memory]
            options += ["-d", str(folder / f"work-{number}"), address]
            started.append(_start(running, log, "worker.Worker", *options))
        for number in range(workers):
            _wait_for_line(folder / f"worker-{number}.log", _JOINED, started[number + 1])
        yield Cluster(address, folder, tuple(each.pid for each in started[1:]))


def _start(running: contextlib.ExitStack, log: Path, name: str, *options: str) -> subprocess.Popen[bytes]:
    home = _package("pyspark")
    inherited = {each: os.environ[each] for each in ("PATH", "HOME", "JAVA_HOME") if each in os.environ}
    env = inherited | {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(log.parent / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(_package("pandas").parent),
        "TMPDIR": str(log.parent),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=env,
            cwd=log.parent,
            start_new_session=True,
        )
    running.callback(_end, process)
    return process


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    require(found is not None, f"{name} is not installed (make setup)")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for_line(log: Path, wanted: re.Pattern[str], process: subprocess.Popen[bytes]) -> re.Match[str]:
    """Wait until the log has this line. Raises AssertionError if the process ends or the time is over."""
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        if found := wanted.search(log.read_text(errors="replace")):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{log.name}: {log.read_text(errors='replace')[-2000:]}")


def parents() -> dict[int, int]:
    """The parent of every visible process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(path.name)] = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
    return found


def descendants_of(root: int) -> list[int]:
    """All descendants of a process."""
    known = parents()
    found, waiting = [], [root]
    while waiting:
        at = waiting.pop()
        children = [pid for pid, parent in known.items() if parent == at]
        found += children
        waiting += children
    return found


def command_of(pid: int) -> bytes:
    """The command line; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def environment_of(pid: int) -> bytes:
    """The environment; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""
