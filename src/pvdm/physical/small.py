"""Stages Arrow rows without a JVM: Parquet files and manifests of our own, one commit over the REST protocol.

For tests and small jobs, on local storage; behind the same interface as Spark.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.errors import ConflictError, InputError, StateUnknownError, UnavailableError, VerificationError
from pvdm.lake.boundary import boundary_files
from pvdm.lake.entries import header_of
from pvdm.lake.format.document import Json
from pvdm.lake.format.manifest_entry import DataFile, ManifestContent
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.schema_model import to_model
from pvdm.lake.next_snapshot import Publication, Wanted, next_snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.physical.arrow_parts import Part, parts
from pvdm.physical.arrow_rows import fitted
from pvdm.physical.stager import Destination

COMMIT_TRIES_MAX: Final = 10
_PARQUET: Final = "parquet"


class SmallStager:
    """One process, all rows in memory."""

    def __init__(self, client: StewardClient, *, now_ms: Callable[[], int] | None = None) -> None:
        """`client` is any client of the Steward: the attempt's own token is put in its place."""
        self._client = client
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)

    def stage(self, make: Callable[[], pa.Table], to: Destination) -> None:
        """Write the rows below the attempt's prefix, and let the branch show them in one commit."""
        rows = make()
        if not isinstance(rows, pa.Table):
            raise InputError("rows_not_a_table", "a small job gives an Arrow table", got=type(rows).__name__)
        with self._client.with_token(to.token) as client:
            _Staging(TableClient(client, *to.name), to, self._now_ms).run(rows)

    def cancel(self, to: Destination) -> None:
        """Nothing: what takes long here ends by itself, and is taken back by its own thread or the Steward."""


class _Staging:
    """One attempt; it remembers what it wrote, to take it back."""

    def __init__(self, table: TableClient, to: Destination, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._to = to
        self._now_ms = now_ms
        self._prefix = _local(to.prefix)
        self._written: list[Path] = []

    def run(self, rows: pa.Table) -> None:
        try:
            metadata = TableMetadata.from_json(self._table.load())
            header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
            schema = to_model(metadata.current_schema)
            ready = fitted(rows, schema)
            files = [self._data_file(part) for part in parts(ready, header, schema)]
            self._commit(metadata, files)
        except StateUnknownError:
            raise  # what may be shown is not taken away
        except BaseException:
            self._take_back(self._written)
            raise

    def _data_file(self, part: Part) -> DataFile:
        location = self._prefix.child("data", f"{secrets.token_hex(16)}.{_PARQUET}")
        with self._new(location) as path:
            # The table's schema is Iceberg's alone: Arrow's own would be a second one.
            pq.write_table(part.rows, path, compression="zstd", store_schema=False)
        return DataFile(
            file_path=str(location),
            file_format=_PARQUET.upper(),
            record_count=part.rows.num_rows,
            file_size_in_bytes=path.stat().st_size,
            partition=part.values,
        )

    def _commit(self, metadata: TableMetadata, files: list[DataFile]) -> None:
        """Others who commit to the table meanwhile only make it start again from where the table is then."""
        for left in reversed(range(COMMIT_TRIES_MAX)):
            made = self._next(metadata, files)
            if made is None:
                return
            before = len(self._written)
            for file in made.files:
                with self._new(parse_location(file.location)) as path:
                    path.write_bytes(file.data)
            try:
                self._table.commit(_requirements(metadata, self._to.branch), made.updates)
            except ConflictError:
                if left == 0:
                    raise
                self._take_back(self._written[before:])
                metadata = TableMetadata.from_json(self._table.load())
            except StateUnknownError:
                if TableMetadata.from_json(self._table.load()).snapshot(made.snapshot_id) is None:
                    raise
                return
            else:
                return

    def _next(self, metadata: TableMetadata, files: list[DataFile]) -> Publication | None:
        """The branch's next snapshot; None where it would change nothing."""
        to, ref = self._to, metadata.refs.get(self._to.branch)
        base_id = None if ref is None else ref.snapshot_id
        reader = _Reader()
        removed = boundary_files(metadata, base_id, to.operation, to.partition, files, reader)
        if not files and not removed:
            return None
        return next_snapshot(
            metadata,
            Wanted(tuple(files), removed, to.summary),
            branch=to.branch,
            snapshot_id=secrets.randbits(63) or 1,
            now_ms=max(self._now_ms(), metadata.last_updated_ms),
            place=lambda name: str(self._prefix.child("metadata", name)),
            reader=reader,
        )

    @contextlib.contextmanager
    def _new(self, location: Location) -> Iterator[Path]:
        """A file that was not there, durable with its folder at the end."""
        path = location.local
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._written.append(path)
            yield path
            for each in (path, path.parent):
                _sync(each)
        except OSError as error:
            raise UnavailableError(
                "staging_unavailable",
                "the attempt's files cannot be written",
                expected=str(location),
                got=error.strerror or type(error).__name__,
            ) from error

    def _take_back(self, written: list[Path]) -> None:
        for path in written:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


class _Reader:
    """Manifests and their lists, from this machine's own disk."""

    def read(self, location: str, *, most: int) -> bytes:
        try:
            with _local(location).local.open("rb") as file:
                data = file.read(most + 1)
        except OSError as error:
            raise UnavailableError(
                "file_unreadable",
                "a file cannot be read",
                expected=location,
                got=error.strerror or type(error).__name__,
            ) from error
        if len(data) > most:
            raise VerificationError(
                "file_too_large", "a file is too large", expected=f"at most {most} bytes", got=location
            )
        return data


def _requirements(metadata: TableMetadata, branch: str) -> list[Json]:
    ref = metadata.refs.get(branch)
    held = None if ref is None else ref.snapshot_id
    return [
        {"type": "assert-table-uuid", "uuid": metadata.table_uuid},
        {"type": "assert-ref-snapshot-id", "ref": branch, "snapshot-id": held},
    ]


def _local(text: str) -> Location:
    location = parse_location(text)
    if location.scheme != "file":
        raise InputError(
            "small_storage_unsupported",
            "small jobs write to this machine's own disk only",
            expected="a table on local storage",
            got=location.scheme,
            hint="stage it with Spark",
        )
    return location


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
