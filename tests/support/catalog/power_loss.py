"""Checks of a catalog after a power loss: every pointer names its file, and no acknowledged change is missing."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tests.support.ledger.power_loss import find_ledger_damage

WORKER = "tests.support.catalog.worker"
_TABLES = "SELECT table_uuid, revision, metadata_location, metadata_sha256, dropped_micros FROM tables"


def find_catalog_damage(after: Path, notes: list[str]) -> Iterator[str]:
    """What a restart finds wrong. A revision above the acknowledged one is right: its change was being made."""
    if not notes:
        return
    yield from find_ledger_damage(after, ["ready"])
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
