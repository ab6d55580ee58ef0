"""The driver process of the Steward's Spark application, and its messages with the Steward. It never has a key."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.spark import cause_of, is_remote, spark_session
from pvdm.verify.spark.settings import ARCHIVE_FOLDER, is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FRAME_MAX_BYTES: Final = 4_294_967_296
_LENGTH_BYTES: Final = 8
_PIECE_BYTES: Final = 1_048_576


def send(stream: IO[bytes], head: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
    """Send one message: JSON, then opaque parts, each preceded by its length."""
    for part in (json.dumps({**head, "parts": len(parts)}).encode(), *parts):
        stream.write(len(part).to_bytes(_LENGTH_BYTES, "big"))
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes], seconds: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
    """Receive the next message; raises `spark_driver_gone` at the end of the stream or after `seconds`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    head: dict[str, Any] = json.loads(_read_frame(stream, deadline))
    return head, [_read_frame(stream, deadline) for _ in range(int(head["parts"]))]


def _read_frame(stream: IO[bytes], deadline: float | None) -> bytes:
    size = int.from_bytes(_read_exactly(stream, _LENGTH_BYTES, deadline), "big")
    if size > FRAME_MAX_BYTES:
        raise driver_gone_error(f"a message of {size} bytes")
    return _read_exactly(stream, size, deadline)


def _read_exactly(stream: IO[bytes], size: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        if deadline is not None and not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise driver_gone_error("no answer in time")
        part = os.read(stream.fileno(), min(size, _PIECE_BYTES))
        if not part:
            raise driver_gone_error("the end of its output")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def driver_gone_error(got: str) -> PvdmError:
    """The error for a driver that ended or does not answer."""
    return Code.SPARK_EXTRACTION_FAILED(reason="spark_driver_gone", got=got)


ANSWER_DDL = "task long, encrypted binary, refused string"  # the columns of `ANSWER_SCHEMA` in worker.py


def main() -> None:
    """Start Spark with the settings of the first message; then run a job for each message, until the pipe is closed."""
    # Answers go to the old standard output. Spark's own output goes to standard error, so the two never mix.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    head, _ = receive(requests)
    try:
        spark, facts = _start(head)
    except Exception as error:
        send(answers, _error_answer(error))
        return
    send(answers, facts | {"spark": spark.version})
    try:
        _serve(spark, requests, answers)
    finally:
        with suppress(Exception):  # there may be nothing left to stop
            spark.stop()


def _start(head: dict[str, Any]) -> tuple[SparkSession, dict[str, Any]]:
    """The session, its number of cores (unknown for a Connect server), and the application's id."""
    if is_connect(head["master"]):
        return _connect(head), {"cores": None, "application": ""}
    master, config, object_store = head["master"], head["settings"], bool(head["object_store"])
    spark = spark_session([], app_name="pvdm steward", master=master, config=config, object_store=object_store)
    context = spark.sparkContext
    return spark, {"cores": context.defaultParallelism, "application": context.applicationId}


def _connect(head: dict[str, Any]) -> SparkSession:
    """A session of a Connect server. Only its SQL settings can be changed from here."""
    from pyspark.sql import SparkSession

    spark: SparkSession = SparkSession.builder.remote(head["master"]).create()
    for name, value in head["settings"].items():
        if name.startswith("spark.sql."):
            spark.conf.set(name, value)
    spark.addArtifacts(f"{head['archive']}#{ARCHIVE_FOLDER}", archive=True)
    return spark


def _serve(spark: SparkSession, requests: IO[bytes], answers: IO[bytes]) -> None:
    while True:
        try:
            head, parts = receive(requests)
        except PvdmError:
            return  # the Steward has gone
        try:
            answer, found = _extract(spark, head, parts) if "table" in head else _read(spark, parts)
        except Exception as error:
            is_over = not _is_alive(spark)  # then the Steward starts a new driver for the next job
            send(answers, _error_answer(error) | {"over": is_over})
            if is_over:
                return
        else:
            send(answers, answer, found)


def _is_alive(spark: SparkSession) -> bool:
    """Whether Spark still runs queries: not if its Java process or its context has ended."""
    try:
        return len(spark.sql("select 1").collect()) == 1
    except Exception:
        return False


def _extract(spark: SparkSession, head: dict[str, Any], parts: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Read the rows of a snapshot with Iceberg's reader in Spark, by a metadata file that the Steward wrote."""
    # In an open session, Iceberg may use the credential of the last job for a second. A new session uses this job's.
    session = spark if is_remote(spark) else spark.newSession()
    table = session.read.option("versionAsOf", head["snapshot"]).table(head["table"])
    names = ["`" + name.replace("`", "``") + "`" for name in head["columns"]]
    columns = table.select(*names).coalesce(int(head["tasks"]))
    rows = columns.mapInArrow(_on_workers("run_extraction", *parts), ANSWER_DDL).collect()
    return {"refused": [row["refused"] for row in rows]}, [bytes(row["encrypted"] or b"") for row in rows]


def _read(spark: SparkSession, parts: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Read files with the kernel: each Spark partition runs one task."""
    common, *tasks = parts
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(_on_workers("run_tasks", common, tasks), ANSWER_DDL).collect()
    by_task = {row["task"]: row for row in rows}
    ordered = [by_task[number] for number in range(len(tasks))]
    return {"refused": [row["refused"] for row in ordered]}, [bytes(row["encrypted"] or b"") for row in ordered]


def _on_workers(name: str, *arguments: Any) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of that name in the workers' module, loaded from the unpacked archive.

    Spark pickles functions of a main module by value, so a worker needs no installed pvdm.
    """
    folder = ARCHIVE_FOLDER

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import sys

        if folder not in sys.path:
            sys.path.insert(0, folder)
        work = getattr(importlib.import_module("pvdm.verify.spark.worker"), name)
        yield from work(*arguments, batches)

    return run


def _error_answer(error: Exception) -> dict[str, Any]:
    """The error in one line; Spark's stack is in the log."""
    if isinstance(error, PvdmError):
        return {"error": error.reason, "got": str(error)}
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    return {"error": "spark_job_failed", "got": cause_of(error)}


if __name__ == "__main__":
    main()
