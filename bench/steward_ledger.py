"""The part of the Steward's benchmark about the ledger: reserving nonces and appending log entries; bare disk syncs."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import func, select

from bench.steward_measure import Case, Elapsed, time_call, time_steps
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record.events import LedgerLog
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.schema.work import nonces as nonces_table
from pvdm.ledger.work import nonces
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.record.log import PinnedLogReader
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.log import Log
from tests.support.ledger.databases import NOW, ledger_at, running_postgresql

BATCH_ENTRIES = 256
BLOCK_BYTES = 4_096


@contextlib.contextmanager
def ledgers(folder: Path, left_out: dict[str, str]) -> Iterator[dict[str, Ledger]]:
    """An SQLite ledger in this folder, and one on a new PostgreSQL server if that starts (`left_out`: why not)."""
    with contextlib.ExitStack() as stack:
        found = {"sqlite": stack.enter_context(ledger_at(f"sqlite:///{folder}/reservations.db"))}
        try:
            started = stack.enter_context(running_postgresql())
        except pytest.skip.Exception as error:
            left_out["postgresql"] = str(error)
        except (OSError, subprocess.CalledProcessError) as error:
            left_out["postgresql"] = f"the server did not start: {error}"
        else:
            found["postgresql"] = stack.enter_context(ledger_at(started.url()))
        yield found


def reservation_cases(ledger: Ledger, operations: int, random: Random) -> list[Case]:
    """Reserve nonces, one in each transaction, in one thread and in eight; every thread has its own connection."""

    def reserve(nonce: str) -> None:
        def work(unit: Unit) -> None:
            nonces.reserve(unit, nonce, purpose=NoncePurpose.BREAK_GLASS, holder="bench")

        ledger.transact(work, at_micros=NOW)

    def run(threads: int) -> Elapsed:
        before = _count(ledger)
        drawn = [random.randbytes(16).hex() for _ in range(operations)]
        taken = time_steps([partial(reserve, nonce) for nonce in drawn], threads)
        assert _count(ledger) == before + operations
        return taken

    return [
        Case(f"reservations_{ledger.dialect}_{threads}", operations, partial(run, threads), threads)
        for threads in (1, 8)
    ]


def _count(ledger: Ledger) -> int:
    with ledger.read() as unit:
        found: int = unit.execute(select(func.count()).select_from(nonces_table)).scalar_one()
        return found


def sync_case(folder: Path, operations: int) -> Case:
    """Write and sync one block on the ledger's disk: nothing durable can be faster."""
    path = folder / "sync"

    def run() -> Elapsed:
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            return time_steps([partial(_sync, handle, number) for number in range(operations)], 1)
        finally:
            os.close(handle)

    return Case("disk_syncs", operations, run)


def _sync(handle: int, number: int) -> None:
    os.pwrite(handle, number.to_bytes(BLOCK_BYTES, "big"), 0)
    os.fsync(handle)


def filesystem(folder: Path) -> str:
    """The type of the folder's file system; in memory, a sync costs nothing."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    rows = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    above = [(len(place), kind) for place, kind in rows if folder.resolve().is_relative_to(place)]
    return max(above)[1] if above else "unknown"


def entry(number: int) -> LogEntry:
    """An entry whose hash is derived from its number."""
    return LogEntry(StatementKind.PROOF, number.to_bytes(32, "big").hex(), NOW + number)


def append(ledger: Ledger, origin: str, signer: SigningKey, count: int) -> int:
    """Append entries in one transaction, prepared outside of it as the Steward does; returns the log's new size."""
    edge = PinnedLogReader.pin_now(ledger)
    entries = [entry(number) for number in range(edge.size(), edge.size() + count)]
    prepared = Log(edge, origin=origin, signer=signer).prepare(entries)
    return ledger.transact(lambda unit: prepared.store(LedgerLog(unit)), at_micros=NOW).size


def append_cases(ledger: Ledger, origin: str, signer: SigningKey, singles: int, batches: int) -> list[Case]:
    """Append entries one in a transaction, and in batches; each append signs a checkpoint."""

    def run(count: int, times: int) -> Elapsed:
        before = PinnedLogReader.pin_now(ledger).size()
        steps: list[Callable[[], object]] = [partial(append, ledger, origin, signer, count)] * times
        taken = time_call(lambda: [step() for step in steps])
        assert PinnedLogReader.pin_now(ledger).size() == before + count * times
        return taken

    return [
        Case("log_entries_single", singles, partial(run, 1, singles)),
        Case(f"log_entries_batch_{BATCH_ENTRIES}", batches * BATCH_ENTRIES, partial(run, BATCH_ENTRIES, batches)),
    ]
