"""What holds for a table after every kill: read from the ledger's rows, the files and the catalog's answers.

1. A consumer sees exactly the intended rows, each as often as intended.
2. Every snapshot that a consumer sees has a receipt, and each proof that the receipt names has the verdict PASS. If
   the receipt names an override (break-glass), which then is in the ledger, they may have FAIL.
3. After the normal clean-up no data file is left that no branch or tag names.
4. No staging branch is left.
5. No nonce is RESERVED.
"""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from sqlalchemy import Connection, create_engine, text

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.model.role import Role
from tests.random_kills.schedule import Row
from tests.random_kills.world import World

_LOOK_SECONDS = 0.2
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
    """Wait until every condition holds, at most so many seconds; returns what does not hold then."""
    ends = time.monotonic() + seconds
    while found := find_violations(world, intended):
        if time.monotonic() > ends:
            break
        time.sleep(_LOOK_SECONDS)  # the Steward cleans up after the answer to its producer
    return found


def find_violations(world: World, intended: Intended) -> list[str]:
    """What does not hold now. This removes the tables' orphans, as an operator does from time to time."""
    found: list[str] = []
    engine = create_engine(world.ledger_url)
    try:
        for table, rows in intended.items():
            consumers, operators = world.metadata(table), world.metadata(table, Role.OPERATOR)
            seen, wanted = rows_of_main(consumers), Counter(rows)
            found += [f"{table} lacks the row {row}" for row in (wanted - seen)]
            found += [f"{table} has the row {row} {seen[row]} times" for row in (seen - wanted)]
            with engine.connect() as ledger:
                found += _unproved(ledger, consumers, table)
            found += left_files(world, operators, table)
            found += [f"{table} has the branch {name}" for name in operators.refs if name != "main"]
        with engine.connect() as ledger:
            found += [f"the nonce {nonce} of {holder} is RESERVED" for nonce, holder in ledger.execute(_RESERVED)]
    finally:
        engine.dispose()
    return found


def visible_rows(world: World, table: str) -> Counter[Row]:
    """The rows that a consumer reads, with the number of times."""
    return rows_of_main(world.metadata(table))


def rows_of_main(metadata: TableMetadata) -> Counter[Row]:
    """The rows in the files of `main`, with the number of times."""
    found: Counter[Row] = Counter()
    if metadata.current_snapshot is None:
        return found
    for entry in live_entries(metadata, metadata.current_snapshot, _Disk()):
        rows = pq.ParquetFile(_local(entry.data_file.file_path)).read().to_pylist()
        found.update((row["id"], row["day"].isoformat(), row["town"]) for row in rows)
    return found


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
    """Orphans that cannot be removed; staged files and copies that neither a ref nor the list of orphans names."""
    staged = _local(metadata.location) / "pvdm"
    copies = world.home / "vault" / str(metadata.table_uuid) / "data"
    before = [path for folder in (staged, copies) for path in sorted(folder.rglob("*")) if path.is_file()]
    with world.client(Role.OPERATOR) as client:
        orphans = {_local(each.location) for each in client.orphans(table)}
        if orphans:
            client.remove_orphans(table)
            yield from (f"the orphan {each.location} of {table} stays" for each in client.orphans(table))
    named = orphans | set(_named_by_refs(metadata))
    for path in before:
        if path not in named and path.exists():
            yield f"{path.relative_to(world.home)} of {table} is named by nothing"


def _named_by_refs(metadata: TableMetadata) -> Iterator[Path]:
    """The data files of the snapshots that branches and tags name."""
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in heads:
            yield from (_local(entry.data_file.file_path) for entry in live_entries(metadata, snapshot, _Disk()))


def _local(location: str) -> Path:
    return parse_location(location).local


class _Disk:
    def read(self, location: str, *, max_bytes: int) -> bytes:
        return _local(location).read_bytes()[: max_bytes + 1]
