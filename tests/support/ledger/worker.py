"""A program that changes nonces in an SQLite ledger and writes what was committed to a file; for power-loss tests."""

from __future__ import annotations

import os
import sqlite3
import sys
from random import Random

from sqlalchemy import event

from pvdm.ledger import Unit, open_ledger
from pvdm.ledger.migrations import migrate
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces
from tests.support.ledger.rows import hex32

STEPS = 30
NOW = 1_800_000_000_000_000


def main(folder: str, seed: int, synchronous: str) -> None:
    """Reserve, commit and abort nonces, in an order that the seed decides. One transaction in ten is rolled back.

    The ledger's own value of SQLite's setting `synchronous` is EXTRA; a test gives another to weaken it.
    """
    random = Random(seed)
    notes = os.open(os.path.join(folder, "acknowledged"), os.O_WRONLY | os.O_CREAT)  # noqa: PTH118 - plain calls only
    ledger = open_ledger(f"sqlite:///{folder}/ledger.db")

    def weaken(connection: sqlite3.Connection, *_more: object) -> None:
        connection.execute(f"PRAGMA synchronous = {synchronous}")

    if synchronous != "EXTRA":
        event.listen(ledger._engine, "checkout", weaken)
    migrate(ledger, at_micros=NOW)
    os.write(notes, b"migrated\n")
    reserved: list[str] = []
    for step in range(STEPS):
        with ledger.write(at_micros=NOW + step) as unit:
            changes = _change_nonces(unit, random, reserved, f"{seed}-{step}")
            if random.random() < 0.1:
                continue
            unit.commit()
        os.write(notes, "".join(f"{change}\n" for change in changes).encode())
        for change in changes:
            state, _, nonce = change.partition(":")
            reserved = [*reserved, nonce] if state == "RESERVED" else [name for name in reserved if name != nonce]
    ledger.close()


def _change_nonces(unit: Unit, random: Random, reserved: list[str], name: str) -> list[str]:
    """Commit or abort a reserved nonce, or reserve new ones. Returns the changes as `STATE:nonce`."""
    if reserved and random.random() < 0.4:
        nonce = random.choice(reserved)
        if random.random() < 0.5:
            nonces.commit(unit, nonce, snapshot_id=None)
            return [f"COMMITTED:{nonce}"]
        nonces.abort(unit, nonce, reason="test " * random.randrange(200))
        return [f"ABORTED:{nonce}"]
    new = [hex32(f"{name}-{number}") for number in range(random.choice((1, 1, 2, 20)))]
    for nonce in new:
        nonces.reserve(unit, nonce, purpose=NoncePurpose.BREAK_GLASS, holder=name)
    return [f"RESERVED:{nonce}" for nonce in new]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
