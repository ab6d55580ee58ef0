"""Forward-only migrations: frozen SQL files, one transaction each, checksums kept in the database.

Not Alembic: what matters here are triggers, which it does not compare, and a checksum of every applied file at
start-up, which it does not keep; what is left of it is these few functions.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from sqlalchemy import text

from pvdm.errors import UnavailableError, VerificationError
from pvdm.ledger.engine import Ledger
from pvdm.ledger.unit import Unit

SEPARATOR: Final = "\n--;\n"
_NAME: Final = re.compile(r"(?P<version>\d{4})_(?P<name>[a-z0-9_]+)\.(?P<dialect>sqlite|postgresql)\.sql")
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY, name TEXT NOT NULL,"
    " checksum TEXT NOT NULL, at_micros BIGINT NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema; its checksum is that of the file's bytes."""

    version: int
    name: str
    checksum: str
    statements: tuple[str, ...]


def known(dialect: str) -> tuple[Migration, ...]:
    """Every migration that this version of pvdm brings, in order."""
    found = []
    for item in resources.files(__name__).iterdir():
        match = _NAME.fullmatch(item.name)
        if match is not None and match["dialect"] == dialect:
            data = item.read_bytes()
            parts = tuple(data.decode().rstrip("\n").split(SEPARATOR))
            found.append(Migration(int(match["version"]), match["name"], hashlib.sha256(data).hexdigest(), parts))
    found.sort(key=lambda migration: migration.version)
    return tuple(found)


def migrate(ledger: Ledger, *, at_micros: int) -> int:
    """Bring the ledger to this version's schema; returns the schema's number. Two at once do it once."""
    steps = known(ledger.dialect)

    def work(unit: Unit) -> int:
        unit.lock_name("migrations")
        unit.execute(text(_TABLE))
        applied = judge(unit, steps)
        for step in steps[applied:]:
            for statement in step.statements:
                unit.execute(text(statement.replace(":", r"\:")))
            unit.execute(
                text("INSERT INTO schema_version (version, name, checksum, at_micros) VALUES (:v, :n, :c, :t)"),
                {"v": step.version, "n": step.name, "c": step.checksum, "t": at_micros},
            )
        return len(steps)

    return ledger.transact(work, at_micros=at_micros)


def require_current(ledger: Ledger) -> None:
    """Raise unless exactly this version's migrations are in the ledger."""
    steps = known(ledger.dialect)
    with ledger.read() as unit:
        applied = judge(unit, steps) if unit.has_table("schema_version") else 0
    if applied != len(steps):
        raise UnavailableError(
            "schema_too_old",
            "the ledger has to be migrated first",
            expected=f"schema {len(steps)}",
            got=f"schema {applied}",
        )


def judge(unit: Unit, steps: tuple[Migration, ...]) -> int:
    """How many migrations are applied; another order, another checksum or a newer schema is refused."""
    rows = unit.rows(text("SELECT version, checksum FROM schema_version ORDER BY version"))
    if len(rows) > len(steps):
        raise UnavailableError(
            "schema_too_new",
            "the ledger was migrated by a newer pvdm",
            expected=f"schema {len(steps)} at most",
            got=f"schema {len(rows)}",
        )
    for step, row in zip(steps, rows, strict=False):
        if (row["version"], row["checksum"]) != (step.version, step.checksum):
            raise VerificationError(
                "migration_differs",
                f"migration {step.version} is not the one that was applied",
                expected=step.checksum,
                got=str(row["checksum"]),
            )
    return len(rows)
