"""Power loss for the catalog: afterwards every pointer names its file, and nothing acknowledged is missing."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tests.support.ledger.power_loss import ledger_wrong

WORKER = "tests.support.catalog.worker"
_TABLES = "SELECT table_uuid, revision, metadata_location, metadata_sha256, dropped_micros FROM tables"


def catalog_wrong(after: Path, notes: list[str]) -> Iterator[str]:
    """What a restart finds wrong; a revision above the acknowledged one was on its way, and may be there."""
    if not notes:
        return
    yield from ledger_wrong(after, ["ready"])
    try:
        raw = sqlite3.connect(after / "ledger.db", isolation_level=None)
        rows = raw.execute(_TABLES).fetchall()
        raw.close()
    except sqlite3.Error as error:
        yield f"unreadable: {error}"
        return
    for table, _, location, sha256, dropped in rows:
        # The process wrote to `data`, beside the folder that a restart would find.
        path = after / location.partition("/data/")[2]
        if dropped is None and not path.is_file():
            yield f"{table} points to a file that is not there"
        elif dropped is None and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            yield f"{table} points to a file with other bytes"
    revisions = {table: revision for table, revision, *_ in rows}
    for table, revision in (note.split(":") for note in notes if ":" in note):
        if revisions.get(table, -1) < int(revision):
            yield f"{table} is at {revisions.get(table)}, {revision} was acknowledged"
