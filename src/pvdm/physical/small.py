"""Stages Arrow rows without a JVM: it writes Parquet files and manifests itself, and commits over REST.

It is for tests and small jobs, works on local files or an object store, and has the interface of the Spark stager.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm import fault
from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.errors import Code, ConflictError, InputError, NotAllowedError, PvdmError, StateUnknownError
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.manifest.entry import DataFile, ManifestContent
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import NewSnapshot, SnapshotChange, next_snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import header_of, replaced_files
from pvdm.lake.stores.store import WriteHooks, read
from pvdm.lake.stores.stores import Stores
from pvdm.physical.arrow_rows import Part, fit_columns, split_by_partition
from pvdm.physical.stager import Destination

COMMIT_PATIENCE_MAX_SECONDS: Final = 60
DATA_FILE_MAX_BYTES: Final = 1_073_741_824
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 5.0
_PARQUET: Final = "parquet"
_FAULT_POINTS: Final = WriteHooks(  # where tests can stop a write
    before_sync=lambda: fault.point("stager.before_sync"),
    after_temp=lambda: fault.point("stager.after_temp"),
    after_name=lambda: fault.point("stager.after_file"),
)
_CREDENTIALS_HINT: Final = (
    "if the Steward does not vend credentials ([s3.vending]), use your own with the right to write below the table: "
    "docs/stores.md"
)


class SmallStager:
    """Stages in one process, with all rows in memory."""

    def __init__(self, client: StewardClient, *, now_ms: Callable[[], int] | None = None) -> None:
        """`client` is any client of the Steward; requests use the attempt's own token."""
        self._client = client
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)
        self._cancelled: set[str] = set()
        self._writing: set[str] = set()
        self._lock = threading.Lock()

    def stage(self, make: Callable[[], pa.Table], to: Destination) -> None:
        """Write the rows that `make` returns below the attempt's prefix, and commit them to its branch."""
        rows = make()
        if not isinstance(rows, pa.Table):
            raise Code.ROWS_INVALID(reason="rows_not_a_table", got=type(rows).__name__)
        with self._lock:
            if to.attempt_id in self._cancelled:
                raise Code.ATTEMPT_INTERRUPTED()
            self._writing.add(to.attempt_id)
        with self._client.with_token(to.token) as client:
            _Staging(TableClient(client, *to.table_parts), to, self._now_ms).run(rows)

    def cancel(self, to: Destination) -> bool:
        """Prevent a write that has not begun. Returns False if it has begun: the caller must then wait for its end."""
        with self._lock:
            self._cancelled.add(to.attempt_id)
            return to.attempt_id not in self._writing


class _Staging:
    """The staging of one attempt. After an error it removes its files, unless the commit may have succeeded."""

    def __init__(self, table: TableClient, to: Destination, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._to = to
        self._now_ms = now_ms
        self._prefix = parse_location(to.prefix)
        self._stores = Stores() if self._prefix.scheme == "file" else Stores(table.storage())
        self._store = self._stores.for_writing(self._prefix)
        self._written: list[Location] = []

    def run(self, rows: pa.Table) -> None:
        fault.point("stager.before_write")
        try:
            metadata = self._load()
            header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
            schema = to_model(metadata.current_schema)
            ready = fit_columns(rows, schema)
            files = [self._write_data_file(part) for part in split_by_partition(ready, header, schema)]
            self._commit(metadata, files)
        except BaseException:
            self._remove(self._written)
            raise
        fault.point("stager.after_write")

    def _load(self) -> TableMetadata:
        """The table without its history; the branch's head is enough for its next snapshot."""
        return TableMetadata.from_json(self._table.load(heads_only=True))

    def _write_data_file(self, part: Part) -> DataFile:
        location = self._prefix.child("data", f"{secrets.token_hex(16)}.{_PARQUET}")
        sink = pa.BufferOutputStream()
        # `store_schema` would write Arrow's schema into the file, as a second schema beside Iceberg's.
        pq.write_table(part.rows, sink, compression="zstd", store_schema=False)
        data = sink.getvalue().to_pybytes()
        self._write_file(location, data)
        return DataFile(
            file_path=str(location),
            file_format=_PARQUET.upper(),
            record_count=part.rows.num_rows,
            file_size_in_bytes=len(data),
            partition=part.values,
        )

    def _commit(self, metadata: TableMetadata, files: list[DataFile]) -> None:
        """Commit the files, and retry on conflicts with other commits to the table.

        No other writer uses an attempt's branch, so only commits to the rest of the table conflict. A retry waits for a
        random time with a growing limit, so that concurrent writers do not all retry at once.
        """
        deadline, longest_wait = time.monotonic() + COMMIT_PATIENCE_MAX_SECONDS, _FIRST_WAIT_SECONDS
        while True:
            snapshot = self._next_snapshot(metadata, files)
            if snapshot is None:
                return
            written_before = len(self._written)
            for file in snapshot.files:
                self._write_file(parse_location(file.location), file.data)
            written, self._written = self._written, []  # from here on the branch may list them, so they stay
            try:
                self._table.commit(_make_requirements(metadata, self._to.branch), snapshot.updates)
                return
            except (ConflictError, InputError, NotAllowedError) as error:
                self._written = written  # nothing was committed
                wait = random.uniform(0, longest_wait)  # noqa: S311 - not a secret
                if not isinstance(error, ConflictError) or time.monotonic() + wait > deadline:
                    raise
                self._remove(self._written[written_before:])
                time.sleep(wait)
                longest_wait = min(2 * longest_wait, _LONGEST_WAIT_SECONDS)
                metadata = self._load()
            except StateUnknownError:
                with contextlib.suppress(PvdmError):
                    if TableMetadata.from_json(self._table.load()).snapshot(snapshot.snapshot_id) is not None:
                        return
                raise

    def _next_snapshot(self, metadata: TableMetadata, files: list[DataFile]) -> NewSnapshot | None:
        """The branch's next snapshot; None if it would change nothing."""
        to, ref, reader = self._to, metadata.refs.get(self._to.branch), StoredFiles(self._stores)
        base_id = None if ref is None else ref.snapshot_id
        removed = replaced_files(metadata, base_id, to.operation, to.partition, files, reader)
        if not files and not removed:
            return None
        return next_snapshot(
            metadata,
            SnapshotChange(tuple(files), removed, to.summary),
            branch=to.branch,
            snapshot_id=secrets.randbits(63) or 1,
            now_ms=max(self._now_ms(), metadata.last_updated_ms),
            place=lambda name: str(self._prefix.child("metadata", name)),
            reader=reader,
        )

    def _write_file(self, location: Location, data: bytes) -> None:
        """Write a new file durably."""
        self._written.append(location)
        try:
            self._store.put_new(location, data, _FAULT_POINTS)
        except OSError as error:
            got = error.strerror or type(error).__name__
            hint = _CREDENTIALS_HINT if isinstance(error, PermissionError) and location.scheme == "s3" else None
            message = f"the attempt's files cannot be written: {got}"
            raise Code.STORAGE_UNAVAILABLE(
                message, reason="staging_unavailable", expected=f"room and rights in {self._prefix}", hint=hint
            ) from None

    def _remove(self, written: Sequence[Location]) -> None:
        for location in written:
            fault.point("stager.before_remove")
            with contextlib.suppress(OSError):
                self._store.remove(location)
            fault.point("stager.after_remove")


class StoredFiles:
    """Reads manifest lists, manifests and small data files from their stores; without `stores` only local files."""

    def __init__(self, stores: Stores | None = None) -> None:
        self._stores = Stores() if stores is None else stores

    def fetch(self, location: str) -> bytes:
        """The bytes of a data file."""
        return self.read(location, max_bytes=DATA_FILE_MAX_BYTES)

    def read(self, location: str, *, max_bytes: int) -> bytes:
        """The bytes of a file of at most this size; raises `file_too_large` or `file_unreadable`."""
        place = parse_location(location)
        try:
            data = read(self._stores.for_reading(place), place, max_bytes)
        except OSError as error:
            got = error.strerror or type(error).__name__
            raise Code.STORAGE_UNAVAILABLE(reason="file_unreadable", expected=location, got=got) from None
        if len(data) > max_bytes:
            raise Code.FILE_MISMATCH(reason="file_too_large", expected=f"at most {max_bytes} bytes", got=location)
        return data


def _make_requirements(metadata: TableMetadata, branch: str) -> list[Json]:
    ref = metadata.refs.get(branch)
    return [
        {"type": "assert-table-uuid", "uuid": metadata.table_uuid},
        {"type": "assert-ref-snapshot-id", "ref": branch, "snapshot-id": None if ref is None else ref.snapshot_id},
    ]
