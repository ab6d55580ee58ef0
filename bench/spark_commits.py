"""What the last step costs: the gate's commit on a table of few files and of many, beside a plain commit."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.many_files import linked, show
from bench.publish import FEW, ROWS_OF_A_CHUNK, Shape, chunk_rows, contract
from bench.spark_steward import House, seconds
from pvdm.client.table import TableClient
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import parse_location
from pvdm.model.states import AttemptState
from pvdm.physical.small import SmallStager
from tests.support.gate.approvals import SALES
from tests.support.verify.attempts import RAW, SCHEMA, arrow, write

PLAIN = Shape("plain", FEW.files, FEW.of_a_manifest)


@dataclass(slots=True)
class Commits:
    """Three tables of one catalog: two protected, with few files and with many, and one that anyone may write to."""

    house: House
    many: Shape

    def make(self, chunks: int) -> None:
        """The tables, and a source that has rows for so many chunks."""
        self._make(RAW, Shape("orders", 1, 1), [row for number in range(chunks) for row in chunk_rows(number)])
        for shape in (PLAIN, FEW, self.many):
            self._make(SALES, shape, [(-1, "old", None)])
        for shape in (FEW, self.many):
            self.house.shop.protect(contract(shape.name))

    def _make(self, levels: tuple[str, ...], shape: Shape, rows: Sequence[Any]) -> None:
        catalog, grant = self.house.notary.catalog, self.house.operator
        body: dict[str, Any] = {"name": shape.name, "schema": SCHEMA, "properties": {"format-version": "2"}}
        catalog.tables.create(grant, levels, body)
        place = Path(parse_location(catalog.tables.load(grant, levels, shape.name).metadata.location).local)
        files = linked(write(place / "data" / "0.parquet", rows), shape.files)
        show(catalog, grant, (levels, shape.name), files, shape.of_a_manifest, time.time_ns() // 1_000_000)

    def plain(self, number: int) -> float:
        """One data file that is there already: load, manifest, list, and the commit over the REST protocol."""
        table = TableClient(self.house.producer, SALES, PLAIN.name)
        place = Path(parse_location(TableMetadata.from_json(table.load()).location).local)
        file = write(place / "data" / f"new-{number}.parquet", chunk_rows(number))
        return seconds(lambda: self._append(table, place, file))

    def _append(self, table: TableClient, place: Path, file: DataFile) -> None:
        metadata = TableMetadata.from_json(table.load())
        made = next_snapshot(
            metadata,
            SnapshotChange((file,), frozenset(), {}),
            branch="main",
            snapshot_id=secrets.randbits(62) + 1,
            now_ms=max(time.time_ns() // 1_000_000, metadata.last_updated_ms),
            place=lambda name: f"file://{place}/metadata/{name}",
            reader=self.house.tools.files,
        )
        for each in made.files:
            parse_location(each.location).local.write_bytes(each.data)
        head = metadata.current_snapshot_id
        requirements = [
            {"type": "assert-table-uuid", "uuid": metadata.table_uuid},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head},
        ]
        table.commit(requirements, made.updates)

    def gate(self, shape: Shape, number: int) -> float:
        """One verified file: every check of the gate, its re-hash of some kilobytes too, commit, read-back, receipt."""
        house, first = self.house, number * ROWS_OF_A_CHUNK
        bounds = {"least": str(first), "most": str(first + ROWS_OF_A_CHUNK)}
        opened = house.open(f"{shape.name}-{number}", f"sales.{shape.name}", bounds)
        SmallStager(house.producer).stage(lambda: arrow(chunk_rows(number)), opened.to)
        attempt_id = house.producer.staged(opened.to.attempt_id).attempt_id
        house.desks.verification.verify(attempt_id)
        took = seconds(lambda: house.desks.publishing.publish(opened.to.workload_id, [attempt_id]))
        assert house.producer.attempt(attempt_id).state is AttemptState.COMMITTED
        house.desks.disposal.dispose(attempt_id)
        return took
