"""What holds for a table after every kill: read from the ledger's rows, the files and the catalog's answers.

1. A consumer sees exactly the intended rows, each as often as intended.
2. Every snapshot that a consumer sees has a receipt, and each proof that the receipt names has the verdict PASS.
   The verdict may be FAIL if the receipt names an override (break-glass) that is in the ledger.
3. After the normal clean-up no data file is left that no branch or tag names.
4. No staging branch is left.
5. No nonce is RESERVED.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
from sqlalchemy import Connection, create_engine, text

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.lake.stores.store import read
from pvdm.lake.stores.stores import Stores
from pvdm.model.role import Role
from tests.random_kills.schedule import Row
from tests.random_kills.world import World

_POLL_SECONDS = 0.1
_FILE_MAX_BYTES = 1_000_000
_RECEIPT = text(
    "SELECT envelope FROM receipts JOIN statements ON statement_id = receipt_id"
    " WHERE table_uuid = :table_uuid AND snapshot_id = :snapshot_id"
)
_PROOF = text("SELECT verdict, envelope FROM proofs JOIN statements ON statement_id = proof_id WHERE proof_id = :id")
_OVERRIDE = text("SELECT override_id FROM overrides WHERE override_id = :id")
_RESERVED = text("SELECT nonce, holder FROM nonces WHERE state = 'RESERVED'")


Intended = Mapping[str, Sequence[Row]]
"""The rows that each table should have."""


def await_conditions(world: World, intended: Intended, *, seconds: float) -> list[str]:
    """Wait at most `seconds` until every condition holds. Returns the violations that remain."""
    ends = time.monotonic() + seconds
    while True:
        with world.client(Role.OPERATOR) as client:
            while client.jobs() and time.monotonic() < ends:
                time.sleep(_POLL_SECONDS)  # the Steward cleans up after its answer to the producer
        found = find_violations(world, intended)
        if not found or time.monotonic() > ends:
            return found
        time.sleep(_POLL_SECONDS)


def find_violations(world: World, intended: Intended) -> list[str]:
    """What does not hold now. This removes the tables' orphans, as an operator does from time to time."""
    found: list[str] = []
    with _connected(world.ledger_url) as ledger:
        for table, rows in intended.items():
            consumers, operators = world.metadata(table), world.metadata(table, Role.OPERATOR)
            seen, wanted = rows_of_main(consumers, world.stores), Counter(rows)
            found += [f"{table} lacks the row {row}" for row in (wanted - seen)]
            found += [f"{table} has the row {row} {seen[row]} times" for row in (seen - wanted)]
            found += _unproved(ledger, consumers, table)
            found += left_files(world, operators, table)
            found += [f"{table} has the branch {name}" for name in operators.refs if name != "main"]
        found += [f"the nonce {nonce} of {holder} is RESERVED" for nonce, holder in ledger.execute(_RESERVED)]
    return found


def visible_rows(world: World, table: str) -> Counter[Row]:
    """The rows that a consumer reads, each with the number of its occurrences."""
    return rows_of_main(world.metadata(table), world.stores)


def rows_of_main(metadata: TableMetadata, stores: Stores) -> Counter[Row]:
    """The rows in the files of `main`, each with the number of its occurrences."""
    found: Counter[Row] = Counter()
    if metadata.current_snapshot is None:
        return found
    files = _Files(stores)
    for entry in live_entries(metadata, metadata.current_snapshot, files):
        data = files.read(entry.data_file.file_path, max_bytes=_FILE_MAX_BYTES)
        rows = pq.ParquetFile(io.BytesIO(data)).read().to_pylist()
        found.update((row["id"], row["day"].isoformat(), row["town"]) for row in rows)
    return found


def find_unproved(ledger_url: str, metadata: TableMetadata, table: str) -> list[str]:
    """The visible snapshots without a receipt, or with a receipt that names a proof without PASS, by this ledger."""
    with _connected(ledger_url) as ledger:
        return list(_unproved(ledger, metadata, table))


@contextlib.contextmanager
def _connected(ledger_url: str) -> Iterator[Connection]:
    """A connection to the ledger that commits each statement, so that it locks nothing."""
    engine = create_engine(ledger_url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as ledger:
            yield ledger
    finally:
        engine.dispose()


def _unproved(ledger: Connection, metadata: TableMetadata, table: str) -> Iterator[str]:
    """The visible snapshots without a receipt, or with a receipt that names a proof without PASS."""
    for snapshot in metadata.snapshots:
        key = {"table_uuid": str(metadata.table_uuid), "snapshot_id": str(snapshot.snapshot_id)}
        receipt = ledger.execute(_RECEIPT, key).scalar()
        if receipt is None:
            yield f"the snapshot {snapshot.snapshot_id} of {table} has no receipt"
            continue
        said = _predicate(receipt)
        is_overridden = ledger.execute(_OVERRIDE, {"id": said["override_id"]}).scalar() is not None
        for proof_id in said["proof_ids"]:
            proof = ledger.execute(_PROOF, {"id": proof_id}).one_or_none()
            verdicts = None if proof is None else {proof[0], _predicate(proof[1])["core"]["verdict"]["outcome"]}
            if verdicts != {"PASS"} and not (is_overridden and verdicts == {"FAIL"}):
                yield f"the snapshot {snapshot.snapshot_id} of {table} has no PASS proof {proof_id}"
        if not said["proof_ids"]:
            yield f"the snapshot {snapshot.snapshot_id} of {table} has no proof"


def _predicate(envelope: bytes) -> Any:
    """What a signed statement says."""
    payload = base64.b64decode(json.loads(envelope)["payload"])
    return json.loads(payload)["predicate"]


def left_files(world: World, metadata: TableMetadata, table: str) -> Iterator[str]:
    """Remove the orphans. Yields a line for each orphan that stays.

    Also yields a line for each staged file or copy that is neither referenced nor an orphan.
    """
    staged = parse_location(metadata.location).child("pvdm")
    copies = parse_location(str(world.home / "vault" / str(metadata.table_uuid) / "data"))
    before = [place for folder in (staged, copies) for place in _list_files(world.stores, folder)]
    with world.client(Role.OPERATOR) as client:
        orphans = {parse_location(each.location) for each in client.orphans(table)}
        if orphans:
            client.remove_orphans(table)
            yield from (f"the orphan {each.location} of {table} stays" for each in client.orphans(table))
    named = orphans | set(_named_by_refs(metadata, world.stores))
    left = [place for place in before if place not in named]
    now = [place for folder in (staged, copies) for place in _list_files(world.stores, folder)] if left else []
    yield from (f"{place} of {table} is named by nothing" for place in left if place in now)


def _list_files(stores: Stores, folder: Location) -> Iterator[Location]:
    """Every file below the folder."""
    if folder.scheme == "file":
        yield from (parse_location(str(path)) for path in sorted(folder.local.rglob("*")) if path.is_file())
    else:
        yield from (each.place for each in stores.object_store(folder).walk(folder))


def _named_by_refs(metadata: TableMetadata, stores: Stores) -> Iterator[Location]:
    """The data files of the snapshots that branches and tags name."""
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in heads:
            entries = live_entries(metadata, snapshot, _Files(stores))
            yield from (parse_location(entry.data_file.file_path) for entry in entries)


class _Files:
    """Reads files from their stores."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def read(self, location: str, *, max_bytes: int) -> bytes:
        place = parse_location(location)
        return read(self._stores.for_reading(place), place, max_bytes)
