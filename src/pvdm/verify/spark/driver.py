"""The driver of the Steward's Spark application: a process of its own, which never has a key and opens no order."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from pvdm.errors import PvdmError
from pvdm.lake.spark import cause_of, is_remote, spark_session
from pvdm.verify.spark.archive import ARCHIVE_FOLDER
from pvdm.verify.spark.frames import receive, send
from pvdm.verify.spark.settings import is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ANSWER = "task long, sealed binary, refused string"


def main() -> None:
    """Start Spark as the first message says; then one job a message, until the Steward closes the pipe."""
    # What Spark and its process print must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    head, _ = receive(asked)
    try:
        spark, told = _started(head)
    except Exception as error:
        send(answers, _told(error))
        return
    send(answers, told | {"spark": spark.version})
    try:
        _serve(spark, asked, answers)
    finally:
        with suppress(Exception):  # there may be nothing left to stop
            spark.stop()


def _started(head: dict[str, Any]) -> tuple[SparkSession, dict[str, Any]]:
    if is_connect(head["master"]):
        return _connected(head), {"cores": None, "application": ""}
    wanted = head["settings"]
    object_store = bool(head["object_store"])
    spark = spark_session([], app_name="pvdm steward", master=head["master"], config=wanted, object_store=object_store)
    context = spark.sparkContext
    return spark, {"cores": context.defaultParallelism, "application": context.applicationId}


def _connected(head: dict[str, Any]) -> SparkSession:
    """A session of a Connect server; what belongs to the server's own start was set there, or is not."""
    from pyspark.sql import SparkSession

    spark: SparkSession = SparkSession.builder.remote(head["master"]).create()
    for name, value in head["settings"].items():
        if name.startswith("spark.sql."):
            spark.conf.set(name, value)
    spark.addArtifacts(f"{head['archive']}#{ARCHIVE_FOLDER}", archive=True)
    return spark


def _serve(spark: SparkSession, asked: IO[bytes], answers: IO[bytes]) -> None:
    while True:
        try:
            head, parts = receive(asked)
        except PvdmError:
            return  # the Steward has gone
        try:
            told, found = _extract(spark, head, parts) if "table" in head else _read(spark, parts)
        except Exception as error:
            over = not _answers(spark)
            send(answers, _told(error) | {"over": over})
            if over:
                return
        else:
            send(answers, told, found)


def _answers(spark: SparkSession) -> bool:
    """Whether Spark is still there: a Java process that has died, or a context that was stopped, never comes back."""
    try:
        return len(spark.sql("select 1").collect()) == 1
    except Exception:
        return False


def _extract(spark: SparkSession, head: dict[str, Any], parts: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Rows of a snapshot by Iceberg's reader in Spark, from a metadata file that the Steward wrote."""
    frame = _reading(spark).read.option("versionAsOf", head["snapshot"]).table(head["table"])
    names = ["`" + name.replace("`", "``") + "`" for name in head["columns"]]
    chosen = frame.select(*names).coalesce(int(head["tasks"]))
    rows = chosen.mapInArrow(_on_workers("Extract", *parts), ANSWER).collect()
    return {"refused": [row["refused"] for row in rows]}, [bytes(row["sealed"] or b"") for row in rows]


def _reading(spark: SparkSession) -> SparkSession:
    """A session whose catalog is opened for this job, and with it the store by the credential that is lent to it.

    A client that is open looks for another credential once a second at most, and would ask with that of the last job.
    """
    return spark if is_remote(spark) else spark.newSession()


def _read(spark: SparkSession, parts: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Files by the kernel, each task its own."""
    common, *tasks = parts
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(_on_workers("Orders", common, tasks), ANSWER).collect()
    found = {row["task"]: row for row in rows}
    refused = [found[at]["refused"] for at in range(len(tasks))]
    return {"refused": refused}, [bytes(found[at]["sealed"] or b"") for at in range(len(tasks))]


def _on_workers(name: str, *given: Any) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of that name in the workers' module, found where Spark unpacked the archive.

    Spark pickles what stands in a main module by value, so that a worker needs no pvdm to begin with.
    """
    folder = ARCHIVE_FOLDER

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import sys

        if folder not in sys.path:
            sys.path.insert(0, folder)
        made = getattr(importlib.import_module("pvdm.verify.spark.worker"), name)
        yield from made(*given)(batches)

    return run


def _told(error: Exception) -> dict[str, Any]:
    """What went wrong, in a line: a stack of Spark's is in the log, not in an answer."""
    if isinstance(error, PvdmError):
        return {"error": error.reason, "got": str(error)}
    sys.stderr.write(f"{type(error).__name__}: {error}\n")
    return {"error": "spark_job_failed", "got": cause_of(error)}


if __name__ == "__main__":
    main()
