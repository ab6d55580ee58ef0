"""Files as they are on a table: through the Steward's gate, or past it onto a table that is not protected."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from pyiceberg.table import Table

import pvdm
from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.lake.format.manifest.entry import DataFile, IdMap
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.model.role import Role
from pvdm.model.statements.core import Operation
from pvdm.model.states import AttemptState
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from pvdm.steward.embedded.embedded import Person
from pvdm.trust.keys.pem import create_key_pair
from pvdm.trust.root import RootRole
from tests.readers.deletes import delete_rows
from tests.readers.rows import CASE, CASE_FIELD_ID, ROWS, table_schema
from tests.support.catalog.http import Caller
from tests.support.oracles.engines import consumer_catalog, metadata_location
from tests.support.steward.http import bearer
from tests.support.steward.leases import open_attempt
from tests.support.steward.shop import Shop, contract, shop_at
from tests.support.stores.places import file_at, location_of
from tests.support.stores.places import files as store_files
from tests.support.stores.s3_server import Bucket

PUBLISH_SECONDS = 300.0
NAME_PATTERN = "case-{:06}.parquet"
DELETED = (0, 3, 4, 12, 23)
"""The positions of an old file's rows that are deleted."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A kind of table: who keeps the files, the format's version, and columns that it does not have."""

    storage: str = "open"
    version: int = 2
    without: Collection[str] = ()

    @property
    def name(self) -> str:
        return f"{self.storage}, format {self.version}"


@dataclass(slots=True)
class Published:
    """A table as a consumer finds it: its catalog's table, its metadata file, and the data file of each case."""

    name: str
    lane: Lane
    table: Table
    metadata_file: str
    files: Mapping[int, str] = field(default_factory=dict)
    locations: Mapping[int, str] = field(default_factory=dict)
    """Where the table says that the files are; `files` are copies on this machine if that is an object store."""

    def paths(self, cases: Collection[int] | None = None) -> list[str]:
        return [self.files[case] for case in sorted(self.files if cases is None else cases)]


class NotPublishedError(Exception):
    """The Steward did not publish a batch whose files its reader accepted."""


@dataclass(slots=True)
class Publisher:
    """A Steward of its own, and tables on it."""

    shop: Shop
    count: int = 0

    def publish(
        self, lane: Lane, files: Mapping[int, bytes], rows: pa.Table, old: Mapping[int, bytes] | None = None
    ) -> Published:
        """Have these files verified against a source of these rows, and published.

        `old` files are on the table before it is protected, and some of their rows are deleted.
        """
        self.count += 1
        name = f"batch{self.count}"
        self._make(f"raw.{name}", lane)
        self._write_source(f"raw.{name}", rows)
        self._make(f"sales.{name}", lane)
        if old is not None:
            self._put_old_files(name, old)
        text = contract(f"sales.{name}", f"storage: {lane.storage}").replace("raw.orders", f"raw.{name}")
        self.shop.protect(text.replace("identity: [id]", f"identity: [{CASE}, id]"))
        with self.shop.client() as client:
            client.open_workload(name, f"sales.{name}", {})
            attempt = open_attempt(client, name, "all", "differential reading")
            token = client.attempt_token(attempt.attempt_id).token
            with client.with_token(token) as mine:
                _stage(mine, name, attempt.branch, attempt.prefix, files)
            client.staged(attempt.attempt_id)
            found = client.await_attempt(attempt.attempt_id, seconds=PUBLISH_SECONDS)
        if found.state is not AttemptState.COMMITTED:
            raise NotPublishedError(f"{name} is {found.state}: {found.findings}")
        return self.load_published(name, lane)

    def publish_ungated(self, lane: Lane, files: Mapping[int, bytes], name_pattern: str = NAME_PATTERN) -> Published:
        """Put these files onto a table without a gate. `name_pattern` gives a file's name from its number."""
        self.count += 1
        name = f"ungated{self.count}"
        self._make(f"sales.{name}", lane)
        location = self.shop.metadata(f"sales.{name}", Role.OPERATOR).location
        with self.shop.client(Role.OPERATOR, "*") as client:
            _stage(client, name, "main", location, files, name_pattern)
        return self.load_published(name, lane)

    def _put_old_files(self, name: str, files: Mapping[int, bytes]) -> None:
        location = self.shop.metadata(f"sales.{name}", Role.OPERATOR).location
        with self.shop.client(Role.OPERATOR, "*") as client:
            _stage(client, name, "main", location, files)
            for case in files:
                path = file_at(location) / "data" / NAME_PATTERN.format(case)
                delete_rows(TableClient(client, ("sales",), name), location_of(path), DELETED)

    def load_published(self, name: str, lane: Lane) -> Published:
        token = self.shop.steward.token_for(Role.CONSUMER, "sales").text
        url = self.shop.steward.url
        table = consumer_catalog(url, token).load_table(("sales", name))
        base = metadata_location(url, token, f"sales.{name}")
        locations = _locations(table)
        return Published(
            name, lane, table, base, {case: self._local(location) for case, location in locations.items()}, locations
        )

    def _local(self, location: str) -> str:
        if not location.startswith("s3:"):
            return location.removeprefix("file://")
        path = self.shop.folder / "copies" / location.rpartition("/")[2]
        _write(path, file_at(location).read_bytes())
        return str(path)

    def _make(self, name: str, lane: Lane) -> None:
        namespace, _, table = name.partition(".")
        with httpx.Client(base_url=self.shop.steward.url) as http:
            Caller(http, bearer(self.shop.steward.token_for(Role.OPERATOR).text)).make(
                table,
                namespace=namespace,
                **{"schema": table_schema(lane.without), "properties": {"format-version": str(lane.version)}},
            )

    def _write_source(self, name: str, rows: pa.Table) -> None:
        token = self.shop.steward.token_for(Role.OPERATOR, "*")
        location = self.shop.metadata(name, Role.OPERATOR).location
        to = Destination(
            self.shop.steward.url, name, "main", location, "none", "none", "0" * 32, token, Operation.APPEND
        )
        with self.shop.client(Role.OPERATOR, "*") as client:
            SmallStager(client).stage(lambda: rows, to)


def _locations(table: Table) -> dict[int, str]:
    """The data file of each case, by the bounds of the case's column."""
    found = {}
    for task in table.scan().plan_files():
        lower = (task.file.lower_bounds or {}).get(CASE_FIELD_ID)
        case = -1 if lower is None else int.from_bytes(lower, "little", signed=True)
        found[case] = task.file.file_path
    return found


def _stage(
    client: StewardClient,
    name: str,
    branch: str,
    prefix: str,
    files: Mapping[int, bytes],
    name_pattern: str = NAME_PATTERN,
) -> None:
    """Write the files and commit them to a branch of the table."""
    table = TableClient(client, ("sales",), name)
    metadata = TableMetadata.from_json(table.load())
    place = file_at(prefix)
    listed: list[DataFile] = []
    for case, data in files.items():
        path = place / "data" / name_pattern.format(case)
        _write(path, data)
        listed.append(
            DataFile(
                file_path=location_of(path),
                file_format="PARQUET",
                record_count=ROWS,
                file_size_in_bytes=len(data),
                partition=IdMap(()),
                lower_bounds=IdMap([(CASE_FIELD_ID, case.to_bytes(4, "little"))]),
                upper_bounds=IdMap([(CASE_FIELD_ID, case.to_bytes(4, "little"))]),
            )
        )
    made = next_snapshot(
        metadata,
        SnapshotChange(tuple(listed), frozenset(), {"operation": "append"}),
        branch=branch,
        snapshot_id=secrets.randbits(62) + 1,
        now_ms=max(time.time_ns() // 1_000_000, metadata.last_updated_ms),
        place=lambda each: location_of(place / "metadata" / each),
        reader=store_files(),
    )
    for new in made.files:
        _write(file_at(new.location), new.data)
    ref = metadata.refs.get(branch)
    held: Any = None if ref is None else ref.snapshot_id
    table.commit([{"type": "assert-ref-snapshot-id", "ref": branch, "snapshot-id": held}], made.updates)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@contextlib.contextmanager
def publisher_at(folder: Path) -> Iterator[Publisher]:
    with shop_at(folder) as shop:
        yield Publisher(shop)


@contextlib.contextmanager
def publisher_on_s3(folder: Path, bucket: Bucket) -> Iterator[Publisher]:
    """Like `publisher_at`, with every table in a bucket. The Steward's credentials must be in the environment."""
    key = folder / "tom.pem"
    create_key_pair(key)
    tom = Person.from_file("tom", RootRole.OPERATOR, key.with_name("tom.pem.pub"))
    store = bucket.store_file(folder / "store.toml")
    with pvdm.Steward.embedded(folder / "steward", people=[tom], store=store) as steward:
        shop = Shop(steward, folder, key)
        shop.space("raw")
        shop.space("sales")
        yield Publisher(shop)
