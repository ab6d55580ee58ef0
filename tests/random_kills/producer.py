"""A producer: publishes its workloads one after the other by the Coordinator, and notes each outcome."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from pvdm import Chunk, Committed, Coordinator
from pvdm.client import Retries, StewardClient, TimeOuts
from pvdm.errors import PvdmError
from pvdm.model.states import LEASE_SECONDS
from tests.random_kills.schedule import TOWNS, Row, Work, rows_of
from tests.support import fault
from tests.support.servers import starter

TRIES = 2
TIME_OUTS = TimeOuts(connect_seconds=2, read_seconds=3, total_seconds=6)
"""Shorter than the defaults: a stop of a few seconds is longer than each of them."""
RETRIES = Retries(tries=3, total_seconds=12, restart_seconds=8)


def produce(url: str, token_file: str, works: Sequence[Work], notes: str, order: str) -> None:
    """Publish each workload, with a second try; one line in `notes` for each try."""
    fault.kill_on_order(Path(order))
    without_sync()  # like Spark, which does not sync: the files are only in the page cache when staging ends
    for work in works:
        for _ in range(TRIES):
            outcome = publish(url, token_file, work)
            with Path(notes).open("a") as file:
                file.write(json.dumps({"workload_id": work.workload_id, **outcome}) + "\n")
            if outcome["outcome"] == "COMMITTED":
                break


def publish(
    url: str, token_file: str, work: Work, spark: Any = None, *, lease_seconds: int = LEASE_SECONDS
) -> dict[str, Any]:
    """Run the workload once; returns the outcome's name, with the reason of an error.

    `spark` is a session, or a function that starts one; it stages what the contract's filter and mapping select.
    """
    try:
        with (
            StewardClient(url, token_file=Path(token_file), time_outs=TIME_OUTS, retries=RETRIES) as client,
            Coordinator(client, spark, lease_seconds=lease_seconds) as coordinator,
        ):
            job = build if spark is None else None
            outcome = coordinator.execute_workload(work.workload_id, job, table=work.table, day=work.day)
    except PvdmError as error:
        return {"outcome": "error", "code": error.reason, "got": str(error)[:300]}
    if isinstance(outcome, Committed):
        return {"outcome": outcome.name, "code": None, "got": outcome.published.value}
    return {"outcome": outcome.name, "code": outcome.error.reason, "got": str(outcome.error)[:300]}


def build(_spark: object, chunk: Chunk) -> pa.Table:
    """The rows of one chunk: the parameter's day, and of a chunk by town only that town's; the rest is empty."""
    towns = TOWNS if chunk.chunk_id == "all" else [town for town in TOWNS if chunk.chunk_id == f"town={town}"]
    return table_of([row for row in rows_of(chunk.parameters["day"]) if row[2] in towns])


def table_of(rows: Sequence[Row]) -> pa.Table:
    """The rows in Arrow."""
    columns: list[Any] = [
        pa.array([number for number, _, _ in rows], pa.int64()),
        pa.array([date.fromisoformat(day) for _, day, _ in rows], pa.date32()),
        pa.array([town for _, _, town in rows], pa.string()),
    ]
    return pa.Table.from_arrays(columns, names=["id", "day", "town"])


def serve(config: str, order: str) -> None:
    """Run a Steward that ends by SIGKILL at the fault point that the file `order` names."""
    fault.kill_on_order(Path(order))
    starter.serve(config)


def serve_without_sync(config: str, order: str) -> None:
    """Run a Steward that acknowledges data which is only in the page cache."""
    without_sync()
    serve(config, order)


def without_sync() -> None:
    """Make `os.fsync` do nothing in this process."""
    vars(os)["fsync"] = lambda _descriptor: None
