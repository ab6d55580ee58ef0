"""Forward-only migrations: frozen SQL files, applied in one transaction, with their checksums kept in the database.

Alembic is not used. It does not compare triggers, and it keeps no checksum of the files that it has applied.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from sqlalchemy import text

from pvdm.errors import Code
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
    """One step of the schema; `checksum` is the SHA-256 of the file's bytes."""

    version: int
    name: str
    checksum: str
    statements: tuple[str, ...]


def load_migrations(dialect: str) -> tuple[Migration, ...]:
    """All migrations of this version of pvdm for one kind of database, in order."""
    migrations = []
    for item in resources.files(__name__).iterdir():
        match = _NAME.fullmatch(item.name)
        if match is not None and match["dialect"] == dialect:
            data = item.read_bytes()
            parts = tuple(data.decode().rstrip("\n").split(SEPARATOR))
            migrations.append(Migration(int(match["version"]), match["name"], hashlib.sha256(data).hexdigest(), parts))
    return tuple(sorted(migrations, key=lambda migration: migration.version))


def migrate(ledger: Ledger, *, at_micros: int) -> int:
    """Bring the ledger to this version's schema and return the schema's number. Concurrent calls apply it once."""
    migrations = load_migrations(ledger.dialect)

    def work(unit: Unit) -> int:
        unit.lock_name("migrations")
        unit.execute(text(_TABLE))
        for migration in migrations[_count_applied(unit, migrations) :]:
            for statement in migration.statements:
                unit.execute(text(statement.replace(":", r"\:")))
            unit.execute(
                text("INSERT INTO schema_version (version, name, checksum, at_micros) VALUES (:v, :n, :c, :t)"),
                {"v": migration.version, "n": migration.name, "c": migration.checksum, "t": at_micros},
            )
        return len(migrations)

    return ledger.transact(work, at_micros=at_micros)


def _count_applied(unit: Unit, migrations: tuple[Migration, ...]) -> int:
    """How many migrations are applied. Raises if one has another checksum, or if the schema is newer."""
    rows = unit.rows(text("SELECT version, checksum FROM schema_version ORDER BY version"))
    if len(rows) > len(migrations):
        expected = f"schema {len(migrations)} at most"
        raise Code.LEDGER_UNAVAILABLE(reason="schema_too_new", expected=expected, got=f"schema {len(rows)}")
    for migration, row in zip(migrations, rows, strict=False):
        if (row["version"], row["checksum"]) != (migration.version, migration.checksum):
            raise Code.MIGRATION_DIFFERS(
                f"migration {migration.version} is not the one that was applied",
                expected=migration.checksum,
                got=str(row["checksum"]),
            )
    return len(rows)
