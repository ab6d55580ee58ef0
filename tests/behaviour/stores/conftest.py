"""A served Steward whose tables are in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.model.role import Role
from tests.support.ledger.databases import memory_folder
from tests.support.steward.pipeline import ROWS, Line, Row, line_at
from tests.support.stores.s3_server import Bucket, S3Server, s3_server
from tests.support.waiting import wait_for_jobs

__all__ = ["s3_server"]
SECONDS = 60.0


@dataclass(slots=True)
class Lake:
    """A served Steward, the bucket of its tables, and the store as an administrator sees it."""

    line: Line
    bucket: Bucket
    admin: S3Store
    count: int = 0

    def stage_attempt(self, client: StewardClient, rows: tuple[Row, ...] = ROWS) -> AttemptView:
        """Open a new attempt, and stage the rows on its branch."""
        self.count += 1
        _, attempt = self.line.attempt(client, f"run-{self.count}")
        self.line.stage(client, attempt, rows)
        return attempt

    def hand_in(self, client: StewardClient, attempt: AttemptView) -> AttemptView:
        """Hand in the attempt, and wait for its end and its clean-up. Returns the ended attempt."""
        client.staged(attempt.attempt_id)
        found = client.await_attempt(attempt.attempt_id, seconds=SECONDS)
        assert wait_for_jobs(self.line.notary.jobs, SECONDS)
        return found

    def data_files(self, attempt: AttemptView) -> list[Location]:
        """The locations of the attempt's data files."""
        found = self.admin.walk(parse_location(attempt.prefix).child("data"))
        return sorted((each.place for each in found), key=str)

    def attempt_storage(self, client: StewardClient, attempt: AttemptView) -> S3Settings:
        """The settings, with vended credentials, that the attempt's own token gets for the table's files."""
        with client.with_token(client.attempt_token(attempt.attempt_id).token) as own:
            return TableClient(own, ("sales",), "orders").storage()

    def role_storage(self, role: Role, table: str = "orders") -> S3Settings:
        """The same for a token of this role."""
        with self.line.client(role) as client:
            return TableClient(client, ("sales",), table).storage()


@pytest.fixture
def lake(s3_server: S3Server) -> Iterator[Lake]:
    bucket = s3_server.bucket()
    with memory_folder() as folder, line_at(folder, changed=bucket.config()) as line:
        yield Lake(line, bucket, s3_server.store)


@pytest.fixture
def producer(lake: Lake) -> Iterator[StewardClient]:
    with lake.line.client() as client:
        yield client
