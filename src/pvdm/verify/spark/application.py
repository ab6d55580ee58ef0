"""The Steward's side of its Spark application: starts the driver when there is work, and ends it when there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from pvdm.errors import UnavailableError
from pvdm.lake.spark import CATALOG_CLASS, ICEBERG_RUNTIME
from pvdm.verify.spark.archive import ARCHIVE_FOLDER, build_archive
from pvdm.verify.spark.frames import receive, send
from pvdm.verify.spark.settings import DRIVER_START_SECONDS, TASK_TRIES_MAX, SparkSettings, is_connect

# All that a driver is given of the Steward's environment, in which the credentials of a key home may stand.
_ENVIRONMENT: Final = ("HOME", "JAVA_HOME", "LANG", "LC_ALL", "PATH", "SPARK_CONF_DIR", "SPARK_HOME", "TZ", "USER")
_STOP_SECONDS: Final = 10
DRIVER_LOG: Final = "driver.log"


@dataclass(frozen=True, slots=True)
class Started:
    """A driver that runs, and what it said of itself."""

    process: subprocess.Popen[bytes]
    asked: IO[bytes]
    answers: IO[bytes]
    cores: int
    application_id: str
    spark: str


@dataclass(frozen=True, slots=True)
class Table:
    """What Spark's reader is to read: columns of a snapshot of the table that a metadata file describes."""

    location: str
    snapshot_id: int
    columns: tuple[str, ...]
    tasks: int


class Application:
    """One driver at a time, in a process group of its own: what ends it does not end the notary.

    A job has all cores, so jobs take turns. A driver that is gone is started again by the next job.
    """

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._turn = threading.Lock()
        self._started: Started | None = None
        self._idle: threading.Timer | None = None

    @property
    def started(self) -> Started | None:
        """The driver, if there is one."""
        return self._started

    def cores(self) -> int:
        """How many tasks run at once; starts the driver."""
        with self._driver() as started:
            return started.cores if self._settings.cores is None else self._settings.cores

    def run(self, job_id: str, common: bytes, tasks: Sequence[bytes]) -> tuple[list[str | None], list[bytes]]:
        """Each task's sealed report, or the code of the reason why a worker got no keys."""
        return self._asked({"job": job_id}, [common, *tasks])

    def extract(self, job_id: str, common: bytes, rows: bytes, table: Table) -> tuple[list[str | None], list[bytes]]:
        """A sealed report of each partition that Spark's reader made of the table."""
        head = {"table": table.location, "snapshot": str(table.snapshot_id), "columns": list(table.columns)}
        return self._asked({"job": job_id, "tasks": table.tasks} | head, [common, rows])

    def versions(self) -> str:
        """Spark and Iceberg, as a proof names them."""
        with self._driver() as started:
            return f"spark-{started.spark}-iceberg-{ICEBERG_RUNTIME.rpartition(':')[2]}"

    def close(self) -> None:
        """End the driver and everything that it started, a job under way too; a second time does nothing."""
        started = self._started
        if started is not None and self._turn.locked():
            _kill(started.process)  # whoever waits for its answer is told that it is gone
        with self._turn:
            self._end()

    def _asked(self, head: dict[str, Any], parts: Sequence[bytes]) -> tuple[list[str | None], list[bytes]]:
        with self._driver() as started:
            try:
                send(started.asked, head, parts)
                told, found = receive(started.answers, self._settings.job_seconds)
            except (OSError, UnavailableError) as error:
                self._end()
                raise _gone(error) from None
        if "error" in told:
            raise _failed(told)
        return list(told["refused"]), found

    @contextmanager
    def _driver(self) -> Iterator[Started]:
        """The driver, for one at a time; it ends if nobody wants it again for a while."""
        with self._turn:
            try:
                yield self._running()
            finally:
                self._rest()

    def _running(self) -> Started:
        if self._idle is not None:
            self._idle.cancel()
        if self._started is not None and self._started.process.poll() is not None:
            self._end()
        if self._started is None:
            self._started = self._start()
        return self._started

    def _start(self) -> Started:
        scratch = self._settings.scratch
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in ("local", "tmp"):
            (scratch / folder).mkdir(mode=0o700, exist_ok=True)
        log = os.open(scratch / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "pvdm.verify.spark.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=self._environment(),
                start_new_session=True,
                bufsize=0,
            )
        finally:
            os.close(log)
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        try:
            archive = None if self._settings.is_local else build_archive(scratch)
            head = {"master": self._settings.master, "settings": self._spark_settings(archive)}
            send(process.stdin, head | {"archive": str(archive)})
            told, _ = receive(process.stdout, DRIVER_START_SECONDS)
        except (OSError, UnavailableError) as error:
            _kill(process)
            raise _gone(error) from None
        if "error" in told:
            _kill(process)
            raise _failed(told)
        # A Connect server does not say how many cores it has; the configuration must.
        cores = told["cores"] or self._settings.cores or 1
        return Started(process, process.stdin, process.stdout, cores, told["application"], told["spark"])

    def _environment(self) -> dict[str, str]:
        found = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        paths = os.pathsep.join(each for each in sys.path if each)
        return found | {
            "PYSPARK_PYTHON": self._settings.python or sys.executable,
            "PYTHONPATH": paths,
            "TMPDIR": str(self._settings.scratch / "tmp"),
        }

    def _spark_settings(self, archive: Path | None) -> dict[str, str]:
        given = self._settings
        found = {
            "spark.driver.memory": given.memory,
            "spark.executor.memory": given.memory,
            "spark.executor.processTreeMetrics.enabled": "false",
            "spark.local.dir": str(given.scratch / "local"),
            "spark.speculation": "false",
            "spark.sql.caseSensitive": "true",
            # Tables are read from their metadata files alone; no catalog is asked, and none of Hive's is looked for.
            "spark.sql.catalog.default_iceberg": CATALOG_CLASS,
            "spark.sql.catalog.default_iceberg.type": "hadoop",
            "spark.sql.catalog.default_iceberg.warehouse": str(given.scratch / "tmp"),
            "spark.sql.catalog.default_iceberg.cache-enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.task.maxFailures": str(TASK_TRIES_MAX),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        if given.cores is not None:
            found["spark.cores.max"] = str(given.cores)
        if given.jars:
            found["spark.jars"] = ",".join(given.jars)
        if archive is not None and not is_connect(given.master):
            found["spark.archives"] = f"file://{archive}#{ARCHIVE_FOLDER}"
        return found | dict(given.settings)

    def _rest(self) -> None:
        if self._started is None:
            return
        self._idle = threading.Timer(self._settings.idle_seconds, self.close)
        self._idle.daemon = True
        self._idle.start()

    def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        started, self._started = self._started, None
        if started is None:
            return
        started.asked.close()
        with suppress(subprocess.TimeoutExpired):
            started.process.wait(_STOP_SECONDS)
        _kill(started.process)
        started.answers.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, its Java process and its workers: all are of one group, which nobody else is in."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _gone(error: Exception) -> UnavailableError:
    if isinstance(error, UnavailableError):
        return error
    return UnavailableError(
        "spark_driver_gone", "the Steward's Spark driver does not answer", expected="an answer", got=str(error)
    )


def _failed(told: dict[str, Any]) -> UnavailableError:
    return UnavailableError(
        "spark_job_failed",
        "the Steward's Spark application could not do the job",
        expected="a report of every task",
        got=str(told.get("got"))[:400],
        hint=f"{DRIVER_LOG} in the folder of [spark] has more; the job is tried again",
        cause=str(told["error"])[:80],
    )


def log_of(settings: SparkSettings) -> Path:
    """Where the driver writes what it has to say."""
    return settings.scratch / DRIVER_LOG
