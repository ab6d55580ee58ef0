"""The Steward's side of its Spark application: starts the driver when there is work, and ends it when there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from pvdm.errors import UnavailableError
from pvdm.lake.spark import ICEBERG_RUNTIME
from pvdm.verify.spark.archive import build_archive
from pvdm.verify.spark.conf import EXTRACTION_CATALOG, EXTRACTION_FOLDER, driver_environment, spark_conf
from pvdm.verify.spark.credential_file import lent
from pvdm.verify.spark.frames import receive, send
from pvdm.verify.spark.settings import DRIVER_START_SECONDS, SparkSettings

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
    """What Spark's reader is to read: columns of a snapshot of the table that the metadata file in a folder describes.

    `store` is the credential by which Spark reads the table's files; None where they are local.
    """

    folder: Path
    snapshot_id: int
    columns: tuple[str, ...]
    tasks: int
    store: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """How Spark finds the folder in the catalog that is there for it."""
        return f"{EXTRACTION_CATALOG}.`{self.folder.parent.name}`.`{self.folder.name}`"

    @property
    def document(self) -> Path:
        """The metadata file."""
        return self.folder / "metadata" / "v1.metadata.json"

    def write(self, document: bytes) -> None:
        """Put the metadata file where a catalog of plain folders looks for it."""
        self.document.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.document.write_bytes(document)
        (self.document.parent / "version-hint.text").write_text("1")


class Application:
    """One driver at a time, in a process group of its own: what ends it does not end the notary.

    A job has all cores, so jobs take turns. A driver that is gone is started again by the next job.
    """

    def __init__(self, settings: SparkSettings, store: Mapping[str, str] | None = None) -> None:
        """`store` is the object store's address and manners, where workers and Spark's reader have one to read."""
        self._settings = settings
        self._store = store
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
        head = {"table": table.name, "snapshot": str(table.snapshot_id), "columns": list(table.columns)}
        return self._asked({"job": job_id, "tasks": table.tasks} | head, [common, rows], table.store)

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

    def _asked(
        self, head: dict[str, Any], parts: Sequence[bytes], store: Mapping[str, str] | None = None
    ) -> tuple[list[str | None], list[bytes]]:
        with self._driver() as started, lent(self._settings.scratch, store):
            try:
                send(started.asked, head, parts)
                told, found = receive(started.answers, self._settings.job_seconds)
            except (OSError, UnavailableError) as error:
                self._end()
                raise _gone(error) from None
            if told.get("over"):
                self._end()
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
        for folder in ("local", "tmp", EXTRACTION_FOLDER):
            (scratch / folder).mkdir(mode=0o700, exist_ok=True)
        log = os.open(scratch / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "pvdm.verify.spark.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=driver_environment(self._settings, self._store),
                start_new_session=True,
                bufsize=0,
            )
        finally:
            os.close(log)
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        try:
            archive = None if self._settings.is_local else build_archive(scratch)
            head = {"master": self._settings.master, "settings": spark_conf(self._settings, self._store, archive)}
            send(process.stdin, head | {"archive": str(archive), "object_store": self._store is not None})
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
