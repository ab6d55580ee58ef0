"""Compares the gate's commit on a table with few files, and on one with many, with a plain commit."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.many_files import commit_first_snapshot, link_files
from bench.publish import FEW, ROWS_OF_A_CHUNK, Shape, chunk_rows, contract
from bench.spark_steward import BenchSteward, seconds
from pvdm.client.table import TableClient
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import parse_location
from pvdm.model.states import AttemptState
from pvdm.physical.small import SmallStager
from tests.support.gate.approvals import SALES
from tests.support.verify.attempts import RAW, SCHEMA, arrow, write

PLAIN = Shape("plain", FEW.files, FEW.files_per_manifest)


@dataclass(slots=True)
class Commits:
    """Three tables of one catalog: two protected ones, with few files and with many, and an unprotected one."""

    steward: BenchSteward
    many: Shape

    def create_tables(self, chunks: int) -> None:
        """Create the tables, and a source with the rows of this many chunks."""
        rows = [row for number in range(chunks) for row in chunk_rows(number)]
        self._create_table(RAW, Shape("orders", 1, 1), rows)
        for shape in (PLAIN, FEW, self.many):
            self._create_table(SALES, shape, [(-1, "old", None)])
        for shape in (FEW, self.many):
            self.steward.shop.protect(contract(shape.name))

    def _create_table(self, levels: tuple[str, ...], shape: Shape, rows: Sequence[Any]) -> None:
        catalog, grant = self.steward.notary.catalog, self.steward.operator
        body: dict[str, Any] = {"name": shape.name, "schema": SCHEMA, "properties": {"format-version": "2"}}
        catalog.tables.create(grant, levels, body)
        place = Path(parse_location(catalog.tables.load(grant, levels, shape.name).metadata.location).local)
        files = link_files(write(place / "data" / "0.parquet", rows), shape.files)
        now_ms = time.time_ns() // 1_000_000
        commit_first_snapshot(catalog, grant, (levels, shape.name), files, shape.files_per_manifest, now_ms)

    def plain(self, number: int) -> float:
        """Seconds to commit one data file, which is written before: load, manifest, list and commit, over REST."""
        table = TableClient(self.steward.producer, SALES, PLAIN.name)
        place = Path(parse_location(TableMetadata.from_json(table.load()).location).local)
        file = write(place / "data" / f"new-{number}.parquet", chunk_rows(number))
        return seconds(lambda: self._append(table, place, file))

    def _append(self, table: TableClient, place: Path, file: DataFile) -> None:
        metadata = TableMetadata.from_json(table.load())
        snapshot = next_snapshot(
            metadata,
            SnapshotChange((file,), frozenset(), {}),
            branch="main",
            snapshot_id=secrets.randbits(62) + 1,
            now_ms=max(time.time_ns() // 1_000_000, metadata.last_updated_ms),
            place=lambda name: f"file://{place}/metadata/{name}",
            reader=self.steward.tools.files,
        )
        for written in snapshot.files:
            parse_location(written.location).local.write_bytes(written.data)
        head = metadata.current_snapshot_id
        requirements = [
            {"type": "assert-table-uuid", "uuid": metadata.table_uuid},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head},
        ]
        table.commit(requirements, snapshot.updates)

    def gate(self, shape: Shape, number: int) -> float:
        """Seconds for the gate to publish one small verified file: all checks, commit, read-back and receipt."""
        steward, first = self.steward, number * ROWS_OF_A_CHUNK
        bounds = {"least": str(first), "most": str(first + ROWS_OF_A_CHUNK)}
        opened = steward.open(f"{shape.name}-{number}", f"sales.{shape.name}", bounds)
        SmallStager(steward.producer).stage(lambda: arrow(chunk_rows(number)), opened.to)
        attempt_id = steward.producer.staged(opened.to.attempt_id).attempt_id
        steward.services.verification.verify(attempt_id)
        took = seconds(lambda: steward.services.publishing.publish(opened.to.workload_id, [attempt_id]))
        assert steward.producer.attempt(attempt_id).state is AttemptState.COMMITTED
        steward.services.disposal.dispose(attempt_id)
        return took
