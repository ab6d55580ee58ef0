"""Producers that publish in different ways. They end by SIGKILL at the fault point that the file `order` names."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from pvdm import Chunk, Coordinator
from pvdm.cli import main
from pvdm.client import StewardClient
from pvdm.errors import PvdmError
from pvdm.lake.spark import spark_session
from pvdm.model.states import LEASE_MIN_SECONDS
from tests.random_kills.producer import build, publish, table_of
from tests.random_kills.schedule import Row, Work
from tests.support import fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RENEWAL_SECONDS = 60


def produce(way: str, url: str, token_file: str, work: Work, order: str) -> None:
    """Publish the workload in this way, or end at the point that the file `order` names."""
    fault.kill_on_order(Path(order))
    with contextlib.suppress(PvdmError):
        _WAYS[way](url, token_file, work)


def run_command(words: list[str], order: str) -> None:
    """Run a `pvdm` command, or end at the point that the file `order` names."""
    fault.kill_on_order(Path(order))
    main(words)


def _run_long(url: str, token_file: str, work: Work) -> None:
    """Run a job that takes so long that the run renews its lease."""

    def wait_and_build(spark: object, chunk: Chunk) -> pa.Table:
        threading.Event().wait(RENEWAL_SECONDS)
        return build(spark, chunk)

    with (
        StewardClient(url, token_file=Path(token_file)) as client,
        Coordinator(client, lease_seconds=LEASE_MIN_SECONDS) as coordinator,
    ):
        coordinator.execute_workload(work.workload_id, wait_and_build, table=work.table, day=work.day)


def _run_on_spark(url: str, token_file: str, work: Work) -> None:
    """Run on a new Spark session, whose start takes so long that the run renews its lease."""
    publish(url, token_file, work, start_spark, lease_seconds=LEASE_MIN_SECONDS)


def start_spark() -> SparkSession:
    """Start a small Spark session."""
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.log.level": "ERROR",
    }
    return spark_session([], app_name="pvdm kills", master="local[1]", config=config)


def _fail(url: str, token_file: str, work: Work) -> None:
    """Run a job whose second file, a manifest, cannot be written."""
    no_room = OSError(errno.ENOSPC, "no room")
    with fault.armed("stager.before_sync", fault.Raise(no_room), passes=1):
        publish(url, token_file, work)


def _publish_branch(url: str, token_file: str, work: Work) -> None:
    """Publish the branch `staged` of the table (`pvdm publish`)."""
    with StewardClient(url, token_file=Path(token_file)) as client, Coordinator(client) as coordinator:
        coordinator.publish(work.workload_id, work.table, BRANCH, {"day": work.day})


def _run_wrong(url: str, token_file: str, work: Work) -> None:
    """Run a job that drops a row."""
    with StewardClient(url, token_file=Path(token_file)) as client, Coordinator(client) as coordinator:
        coordinator.execute_workload(
            work.workload_id, lambda *_: table_of(wrong_rows(work)), table=work.table, day=work.day
        )


def wrong_rows(work: Work) -> Sequence[Row]:
    """The workload's rows without the first row."""
    return work.rows[1:]


BRANCH = "staged"
_WAYS: dict[str, Callable[[str, str, Work], object]] = {
    "run": publish,
    "run long": _run_long,
    "spark": _run_on_spark,
    "fail": _fail,
    "publish": _publish_branch,
    "wrong": _run_wrong,
}
