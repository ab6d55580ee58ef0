"""The jobs of the worked example. `pvdm run --job jobs:NAME` calls one of them for each chunk."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from pvdm import Chunk


def backfill(_spark: object, chunk: Chunk) -> pa.Table:
    """Return the chunk's rows of the pinned source: the correct job."""
    catalog = RestCatalog("lake", uri=f"{os.environ['PVDM_URL']}/catalog", token=os.environ["PVDM_TOKEN"])
    rows_of_chunk = f"day = '{chunk.parameters['day']}' and {chunk.where}"
    scan = catalog.load_table("raw.orders").scan(rows_of_chunk, snapshot_id=chunk.source_snapshot_id)
    rows: pa.Table = scan.to_arrow()
    return rows


def swallow_errors(_spark: object, chunk: Chunk) -> pa.Table:
    """Skip every order whose customer is not ASCII. The job ends without an error, and six rows are missing."""
    rows = backfill(_spark, chunk)
    kept = []
    for row in rows.to_pylist():
        try:
            row["customer"].encode("ascii")
        except UnicodeEncodeError:
            continue
        kept.append(row)
    return pa.Table.from_pylist(kept, schema=rows.schema)


def repeat_write(_spark: object, chunk: Chunk) -> pa.Table:
    """Write the rows of the region `south` twice, as a retried step inside a job does."""
    rows = backfill(_spark, chunk)
    return pa.concat_tables([rows, rows]) if chunk.chunk_id == "region=south" else rows


def slow_once(_spark: object, chunk: Chunk) -> pa.Table:
    """At the first call for the region `south`, take longer than a segment may take."""
    marker = Path("south-was-slow")
    if chunk.chunk_id == "region=south" and not marker.exists():
        marker.touch()
        time.sleep(600)
    return backfill(_spark, chunk)
