"""The Steward's side of its Spark application: starts the driver when there is work, and ends it after idle time."""

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

from pvdm.errors import Code, PvdmError, UnavailableError
from pvdm.lake.spark import ICEBERG_RUNTIME
from pvdm.verify.spark.driver import driver_gone_error, receive, send
from pvdm.verify.spark.settings import (
    DRIVER_START_SECONDS,
    EXTRACTION_CATALOG,
    EXTRACTION_FOLDER,
    SparkSettings,
    build_archive,
    driver_environment,
    lend_credential,
    spark_conf,
)

_STOP_SECONDS: Final = 10
DRIVER_LOG: Final = "driver.log"


@dataclass(frozen=True, slots=True)
class RunningDriver:
    """A running driver process, its pipes, and the facts that it reported at its start (`spark` is the version)."""

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    answers: IO[bytes]
    cores: int
    application_id: str
    spark: str


@dataclass(frozen=True, slots=True)
class SparkTable:
    """What Spark's reader reads: columns of a snapshot of the table whose metadata file is in `folder`.

    At most `tasks` Spark tasks read it. `store` is the credential for its files; None if they are local.
    """

    folder: Path
    snapshot_id: int
    columns: tuple[str, ...]
    tasks: int
    store: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The table's name in Spark's catalog of folders."""
        return f"{EXTRACTION_CATALOG}.`{self.folder.parent.name}`.`{self.folder.name}`"

    def write(self, document: bytes) -> None:
        """Write the metadata file to the path at which Iceberg's Hadoop catalog looks for it."""
        metadata = self.folder / "metadata"
        metadata.mkdir(mode=0o700, parents=True, exist_ok=True)
        (metadata / "v1.metadata.json").write_bytes(document)
        (metadata / "version-hint.text").write_text("1")


class Application:
    """Runs one driver process at a time, in a process group of its own, so that killing it does not hit the Steward.

    A job uses all cores, so jobs run one after the other. A job starts a new driver if the last one has ended.
    """

    def __init__(self, settings: SparkSettings, store: Mapping[str, str] | None = None) -> None:
        """`store` is the address and options of the object store that workers and Spark's reader read, if any."""
        self._settings = settings
        self._store = store
        self._turn = threading.Lock()
        self.started: RunningDriver | None = None
        self._idle: threading.Timer | None = None

    def cores(self) -> int:
        """The number of tasks that run at once. Starts the driver if needed."""
        with self._driver() as started:
            return started.cores if self._settings.cores is None else self._settings.cores

    def run(self, job_id: str, common: bytes, tasks: Sequence[bytes]) -> tuple[list[str | None], list[bytes]]:
        """Run the tasks. Returns two lists by task: why the worker got no keys (or None), and the encrypted reports."""
        return self._request({"job": job_id}, [common, *tasks])

    def extract(
        self, job_id: str, common: bytes, selection: bytes, table: SparkTable
    ) -> tuple[list[str | None], list[bytes]]:
        """Digest the table with Spark's reader. Returns the same two lists, by Spark partition."""
        head = {"table": table.name, "snapshot": str(table.snapshot_id), "columns": list(table.columns)}
        return self._request({"job": job_id, "tasks": table.tasks} | head, [common, selection], table.store)

    def versions(self) -> str:
        """The versions of Spark and Iceberg, in the form of a proof's method."""
        with self._driver() as started:
            return f"spark-{started.spark}-iceberg-{ICEBERG_RUNTIME.rpartition(':')[2]}"

    def close(self) -> None:
        """End the driver and everything that it started, also a running job; a second call does nothing."""
        started = self.started
        if started is not None and self._turn.locked():
            _kill(started.process)  # a caller that waits for a report gets `spark_driver_gone`
        with self._turn:
            self._end()

    def _request(
        self, head: dict[str, Any], parts: Sequence[bytes], store: Mapping[str, str] | None = None
    ) -> tuple[list[str | None], list[bytes]]:
        with self._driver() as started, lend_credential(self._settings.scratch, store):
            try:
                send(started.requests, head, parts)
                answer, found = receive(started.answers, self._settings.job_seconds)
            except (OSError, UnavailableError) as error:
                self._end()
                raise _no_answer_error(error) from None
            if answer.get("over"):  # the driver ends, because Spark no longer runs queries
                self._end()
        if "error" in answer:
            raise _job_error(answer)
        return list(answer["refused"]), found

    @contextmanager
    def _driver(self) -> Iterator[RunningDriver]:
        """The driver, for one caller at a time. It is ended after the idle time."""
        with self._turn:
            try:
                yield self._find_or_start()
            finally:
                if self.started is not None:
                    self._idle = threading.Timer(self._settings.idle_seconds, self._end_if_idle)
                    self._idle.daemon = True
                    self._idle.start()

    def _end_if_idle(self) -> None:
        """End the driver, unless a job has begun since this thread's timer was started."""
        with self._turn:
            if self._idle is threading.current_thread():
                self._end()

    def _find_or_start(self) -> RunningDriver:
        if self._idle is not None:
            self._idle.cancel()
        if self.started is not None and self.started.process.poll() is not None:
            self._end()
        if self.started is None:
            self.started = self._start()
        return self.started

    def _start(self) -> RunningDriver:
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
            answer, _ = receive(process.stdout, DRIVER_START_SECONDS)
        except (OSError, UnavailableError) as error:
            _kill(process)
            raise _no_answer_error(error) from None
        if "error" in answer:
            _kill(process)
            raise _job_error(answer)
        # A Connect server does not say how many cores it has, so the configured number is used.
        cores = answer["cores"] or self._settings.cores or 1
        return RunningDriver(process, process.stdin, process.stdout, cores, answer["application"], answer["spark"])

    def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        started, self.started = self.started, None
        if started is None:
            return
        started.requests.close()
        with suppress(subprocess.TimeoutExpired):
            started.process.wait(_STOP_SECONDS)
        _kill(started.process)
        started.answers.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of the driver: itself, its Java process and its workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _no_answer_error(error: OSError | UnavailableError) -> PvdmError:
    return error if isinstance(error, UnavailableError) else driver_gone_error(str(error))


def _job_error(answer: dict[str, Any]) -> PvdmError:
    got, cause = str(answer.get("got"))[:400], str(answer["error"])[:80]
    return Code.SPARK_EXTRACTION_FAILED(reason="spark_job_failed", got=got, cause=cause)
