"""A process that changes a catalog and writes each acknowledged change to a file; run by the power-loss tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from pvdm.catalog.commit import Change
from pvdm.lake import files
from pvdm.lake.stores import local
from pvdm.ledger import Unit, open_ledger
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.migrations import migrate
from tests.support.catalog.core import PRODUCER, SALES, Core, to_ref
from tests.support.ledger.databases import NOW

T = TypeVar("T")
STEPS = 12


def main(folder: str, seed: int, weakness: str) -> None:
    """Create tables, commit to one or two, rename and drop them, in an order that the seed decides."""
    notes = os.open(os.path.join(folder, "acknowledged"), os.O_WRONLY | os.O_CREAT)  # noqa: PTH118 - plain calls only
    _weaken(weakness)
    ledger = open_ledger(f"sqlite:///{folder}/ledger.db")
    migrate(ledger, at_micros=NOW)
    core = Core(Path(folder), ledger)
    core.namespace()
    os.write(notes, b"ready\n")
    random, names = Random(seed), [f"t{seed}-0"]
    core.table(names[0], shown=False, protected=False)
    for step in range(1, STEPS + 1):
        changed = _step(core, random, names, f"t{seed}-{step}")
        os.write(notes, "".join(f"{row.table_uuid}:{row.revision}\n" for row in changed).encode())
    ledger.close()


def _step(core: Core, random: Random, names: list[str], new: str) -> list[TableRow]:
    """Make one change; returns the tables for which it was acknowledged."""
    kinds = ("commit", "commit", "create", "both", "rename", "drop")
    match random.choice(kinds) if len(names) > 1 else "create":
        case "create":
            names.append(new)
            return [core.table(new, shown=False, protected=False).row]
        case "commit":
            return [core.staged(random.choice(names), f"b{random.randrange(3)}").row]
        case "both":
            changes = [_change(core, name) for name in random.sample(names, 2)]
            return [state.row for state in core.commits.commit(PRODUCER, changes)]
        case "rename":
            row = core.get(names.pop(random.randrange(len(names)))).row
            names.append(new)
            _transact(core, lambda unit: tables.rename(unit, row, namespace_id=row.namespace_id, name=new))
            return [replace(row, name=new, revision=row.revision + 1)]
        case _:
            row = core.get(names.pop(random.randrange(len(names)))).row
            _transact(core, lambda unit: tables.drop(unit, row))
            return [replace(row, revision=row.revision + 1)]


def _transact(core: Core, work: Callable[[Unit], T]) -> T:
    return core.ledger.transact(work, at_micros=core.micros)


def _change(core: Core, name: str) -> Change:
    """A new branch with one snapshot."""
    snapshot = core.snapshot(core.get(name).metadata)
    return Change(SALES, name, (), to_ref(f"s{snapshot['snapshot-id']}", snapshot))


def _weaken(weakness: str) -> None:
    """Leave out one step that durability needs, to show that the simulated power loss notices it."""
    store: Any = local

    def write_unsynced(path: Path, data: bytes, _: object) -> None:
        path.write_bytes(data)

    match weakness:
        case "file":
            store._write_synced = write_unsynced
        case "folder":
            store.sync_folder = lambda _: None
        case "parent":
            store.Folders.make = lambda _, folder: folder.mkdir(parents=True, exist_ok=True)
        case "left":
            metadata: Any = files
            metadata.MetadataFiles.write = _with_existing_folder(metadata.MetadataFiles.write)
        case other:
            assert other == "none"


def _with_existing_folder(write: Any) -> Any:
    """A `write` before which the table's folder exists, as if a process had died before it synced the folder."""

    def write_into_existing(files: Any, table_uuid: str, revision: int, data: bytes) -> Any:
        (files._root.local / table_uuid).mkdir(parents=True, exist_ok=True)
        return write(files, table_uuid, revision, data)

    return write_into_existing


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
