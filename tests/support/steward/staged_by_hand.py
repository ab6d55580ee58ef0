"""A served Steward with attempts whose files, manifests and commits a test writes itself, with any contents."""

from __future__ import annotations

import contextlib
import datetime
import io
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ListHeader, ManifestFile
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import header_of, listed_manifests, live_entries
from pvdm.ledger.record import proofs
from pvdm.model.role import Role
from pvdm.model.statements.core import Operation, ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from pvdm.trust.statement import read_unchecked
from tests.support.lake.metadata import column, schema
from tests.support.lake.scans import table_of
from tests.support.ledger.rows import newest_verified
from tests.support.steward.leases import open_attempt
from tests.support.steward.pipeline import RAW, REASON, SALES, Line, line_at
from tests.support.stores.places import file_at, files, location_of
from tests.support.verify.staged import observe_file
from tests.support.waiting import wait_for_jobs
from tools.proof_kit import SECOND

Doc = dict[str, Any]

SECONDS = 60.0
DAY = datetime.date(2026, 11, 14)
PLACE: Doc = {"type": "struct", "fields": [column(6, "floor", "int"), column(7, "hall", "string")]}
SCHEMA = schema(
    0,
    column(1, "id"),
    column(2, "day", "date"),
    column(3, "town", "string"),
    column(4, "amount", "double"),
    column(5, "place", PLACE),
)
LONG_TOWN = "Castrop-Rauxel am Emscherland"
ROWS: tuple[Doc, ...] = (
    {"id": 1, "day": DAY, "town": LONG_TOWN, "amount": 2.5, "place": {"floor": 1, "hall": "north of the river"}},
    {"id": 2, "day": DAY, "town": None, "amount": math.nan, "place": {"floor": None, "hall": "south of the river"}},
    {"id": 3, "day": DAY, "town": "Ulm", "amount": -1.0, "place": None},
)
OLD: tuple[Doc, ...] = ({"id": 9, "day": DAY, "town": "Jena", "amount": 1.0, "place": None},)
Spoil = Callable[[pa.Table], pa.Table]


def parquet(table: pa.Table, **options: Any) -> bytes:
    """The table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, **options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def contract(target: str, *more: str) -> str:
    return (
        "apiVersion: pvdm/v1\nkind: DataProduct\n"
        f"metadata:\n  domain: sales\n  product: {target}\n  owner: sales@example.com\n"
        f"boundary:\n  source:\n    table: raw.goods\n  target: sales.{target}\n  operation: append\n"
        "projections:\n  identity: [id]\n" + "".join(f"{line}\n" for line in more)
    )


@dataclass(slots=True)
class Goods:
    """The source `raw.goods` with the rows, and targets whose `main` has one old row each."""

    line: Line
    count: int = 0

    @property
    def catalog(self) -> Any:
        return self.line.notary.catalog

    def metadata(self, name: str, levels: tuple[str, ...] = SALES) -> TableMetadata:
        return self.line.scene.table_state(name, levels).metadata

    def make(self, name: str, levels: tuple[str, ...] = SALES, *, version: int = 2) -> None:
        fields = [{"name": "day", "transform": "identity", "source-id": 2, "field-id": 1000}]
        body = {"schema": SCHEMA, "properties": {"format-version": str(version)}, "name": name}
        spec = {} if levels == RAW else {"partition-spec": {"fields": fields}}
        self.catalog.tables.create(self.line.scene.grant(), levels, {**body, **spec})

    def target(self, *more: str, version: int = 2) -> str:
        """Create a target that is protected under its contract; returns its name."""
        self.count += 1
        name = f"goods{self.count}"
        self.make(name, version=version)
        self.write(OLD, name, SALES)
        self.line.served.stand.time.pass_by(SECOND)  # the old row is older than the protection
        self.line.scene.protect(self.line.scene.protection(name, contract=contract(name, *more)))
        return name

    def write(self, rows: Sequence[Doc], name: str, levels: tuple[str, ...]) -> None:
        """Append rows to `main` of an unprotected table."""
        metadata, token = self.metadata(name, levels), self.line.token(Role.OPERATOR, "*")
        to = Destination(
            self.line.url,
            f"{levels[0]}.{name}",
            "main",
            metadata.location,
            "none",
            "none",
            "0" * 32,
            token,
            Operation.APPEND,
        )
        table = table_of(to_model(metadata.current_schema), rows)
        with self.line.client(Role.OPERATOR, "*") as client:
            SmallStager(client, now_ms=self._now_ms).stage(lambda: table, to)

    def _now_ms(self) -> int:
        return self.line.served.stand.time.wall // 1_000

    def attempt(self, client: StewardClient, name: str, workload_id: str) -> AttemptView:
        client.open_workload(workload_id, f"sales.{name}", {})
        return open_attempt(client, workload_id, "all", REASON)

    def settled(self, client: StewardClient, attempt: AttemptView) -> AttemptView:
        """End staging, and wait until the attempt has ended and is cleaned up; returns it."""
        client.staged(attempt.attempt_id)
        found = client.await_attempt(attempt.attempt_id, seconds=SECONDS)
        assert wait_for_jobs(self.line.notary.jobs, SECONDS)
        return found

    def visible_rows(self, name: str) -> list[Doc]:
        """All rows that a consumer reads, from the files of `main`."""
        with self.line.client(Role.CONSUMER) as client:
            metadata = TableMetadata.from_json(TableClient(client, SALES, name).load())
        assert metadata.current_snapshot is not None
        found: list[Doc] = []
        for entry in live_entries(metadata, metadata.current_snapshot, files()):
            found += pq.ParquetFile(io.BytesIO(file_at(entry.data_file.file_path).read_bytes())).read().to_pylist()
        return sorted(found, key=lambda row: int(row["id"]))

    def published(self, name: str) -> DataFile:
        """The manifest entry of the file that the last snapshot added."""
        metadata = self.metadata(name)
        head = metadata.current_snapshot
        assert head is not None
        entries = live_entries(metadata, head, files())
        (entry,) = [each for each in entries if each.snapshot_id == head.snapshot_id]
        return entry.data_file

    def cores(self, attempt: AttemptView) -> list[ProofCore]:
        with self.line.notary.ledger.read() as unit:
            found = proofs.list_by_attempt(unit, attempt.attempt_id)
            return [read_unchecked(proofs.get_envelope(unit, each.proof_id), Proof).core for each in found]

    def codes(self, attempt: AttemptView) -> list[str]:
        """The codes of the attempt's findings in the ledger."""
        with self.line.notary.ledger.read() as unit:
            found = newest_verified(unit, attempt.attempt_id)
        return [] if found is None else [each.code for each in found.findings]


@dataclass(slots=True)
class Staging:
    """The branch and folder of one attempt, to which a test writes with the attempt's token."""

    goods: Goods
    client: StewardClient
    name: str
    attempt: AttemptView

    @property
    def folder(self) -> Path:
        return file_at(self.attempt.prefix)

    @property
    def metadata(self) -> TableMetadata:
        return self.goods.metadata(self.name)

    @property
    def header(self) -> ManifestHeader:
        return header_of(self.metadata, self.metadata.default_spec_id, ManifestContent.DATA)

    def file(self, rows: Sequence[Doc] = ROWS, spoil: Spoil = lambda table: table, **options: Any) -> DataFile:
        """Write a Parquet file of these rows to the attempt's folder; returns an exact manifest entry for it.

        With `spoil` the file has other rows than the entry describes.
        """
        path = self.folder / "data" / f"{secrets.token_hex(8)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        honest = table_of(to_model(self.metadata.current_schema), rows)
        path.write_bytes(parquet(honest, **options))
        day = (DAY - datetime.date(1970, 1, 1)).days
        entry = observe_file(path.read_bytes(), self.metadata, partition=IdMap([(1000, day)])).data_file
        assert entry is not None
        if (spoiled := spoil(honest)) is not honest:
            path.write_bytes(parquet(spoiled, **options))
        return replace(entry, file_path=location_of(path), file_size_in_bytes=path.stat().st_size)

    def commit(self, *manifests: tuple[ManifestHeader, Sequence[DataFile]], **changed: Any) -> None:
        """Commit a snapshot with these manifests and those of the branch; `changed` replaces values of the snapshot."""
        metadata, snapshot_id = self.metadata, secrets.randbits(62) + 1
        ref = metadata.refs[self.attempt.branch]
        head = metadata.snapshot(ref.snapshot_id)
        assert head is not None
        listed = [self._manifest(snapshot_id, at, *each) for at, each in enumerate(manifests)]
        listing = write_manifest_list(
            ListHeader(
                format_version=metadata.format_version,
                snapshot_id=snapshot_id,
                parent_snapshot_id=head.snapshot_id,
                sequence_number=metadata.next_sequence_number,
                first_row_id=metadata.next_row_id if metadata.format_version > 2 else None,
            ),
            [*listed, *_manifests(metadata)],
        )
        first = metadata.next_row_id or 0
        rows = {"first-row-id": first, "added-rows": (listing.next_row_id or first) - first}
        snapshot: Doc = {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": head.snapshot_id,
            "sequence-number": metadata.next_sequence_number,
            "timestamp-ms": max(self.goods._now_ms(), metadata.last_updated_ms),
            "manifest-list": self._put(f"snap-{snapshot_id}.avro", listing.data),
            "schema-id": metadata.current_schema_id,
            "summary": {"operation": "append"},
            **(rows if metadata.format_version > 2 else {}),
            **changed,
        }
        token = self.client.attempt_token(self.attempt.attempt_id).token
        with self.client.with_token(token) as producer:
            TableClient(producer, SALES, self.name).commit(
                [{"type": "assert-ref-snapshot-id", "ref": self.attempt.branch, "snapshot-id": head.snapshot_id}],
                [
                    {"action": "add-snapshot", "snapshot": snapshot},
                    {
                        "action": "set-snapshot-ref",
                        "ref-name": self.attempt.branch,
                        "type": "branch",
                        "snapshot-id": snapshot_id,
                    },
                ],
            )

    def add(self, *files: DataFile) -> None:
        self.commit((self.header, files))

    def _manifest(self, snapshot_id: int, at: int, header: ManifestHeader, files: Sequence[DataFile]) -> ManifestFile:
        entries = [ManifestEntry(status=EntryStatus.ADDED, data_file=each, snapshot_id=snapshot_id) for each in files]
        written = write_manifest(header, entries)
        return written.list_entry(self._put(f"{snapshot_id}-m{at}.avro", written.data), snapshot_id)

    def _put(self, name: str, data: bytes) -> str:
        path = self.folder / "metadata" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return location_of(path)


def _manifests(metadata: TableMetadata) -> Sequence[ManifestFile]:
    assert metadata.current_snapshot is not None
    return listed_manifests(metadata, metadata.current_snapshot, files())


@contextlib.contextmanager
def goods_at(folder: Path) -> Iterator[Goods]:
    """A served Steward in this folder, with the source and no target yet."""
    with line_at(folder, rows=()) as line:
        goods = Goods(line)
        goods.make("goods", RAW)
        goods.write(ROWS, "goods", RAW)
        yield goods
