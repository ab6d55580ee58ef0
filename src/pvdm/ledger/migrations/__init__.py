"""Schema scripts: frozen SQL files that bring the ledger to its schema, in one transaction, and only forward.

Migrations of tables, which operators sign, are something else. The database keeps the checksum of each script.
Alembic is not used: it does not compare triggers, and it keeps no checksum of the files that it has applied.
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
class SchemaScript:
    """The statements of one file; `checksum` is the SHA-256 of the file's bytes."""

    version: int
    name: str
    checksum: str
    statements: tuple[str, ...]


def load_schema_scripts(dialect: str) -> tuple[SchemaScript, ...]:
    """All schema scripts of this version of pvdm for one kind of database, in order."""
    scripts = []
    for item in resources.files(__name__).iterdir():
        match = _NAME.fullmatch(item.name)
        if match is not None and match["dialect"] == dialect:
            data = item.read_bytes()
            parts = tuple(data.decode().rstrip("\n").split(SEPARATOR))
            scripts.append(SchemaScript(int(match["version"]), match["name"], hashlib.sha256(data).hexdigest(), parts))
    return tuple(sorted(scripts, key=lambda script: script.version))


def migrate(ledger: Ledger, *, at_micros: int) -> int:
    """Apply the missing scripts and return their total number. Concurrent calls apply each script only once."""
    scripts = load_schema_scripts(ledger.dialect)

    def work(unit: Unit) -> int:
        unit.lock_name("migrations")
        unit.execute(text(_TABLE))
        for script in scripts[_count_applied(unit, scripts) :]:
            for statement in script.statements:
                unit.execute(text(statement.replace(":", r"\:")))  # to `text` a plain colon begins a parameter
            unit.execute(
                text("INSERT INTO schema_version (version, name, checksum, at_micros) VALUES (:v, :n, :c, :t)"),
                {"v": script.version, "n": script.name, "c": script.checksum, "t": at_micros},
            )
        return len(scripts)

    return ledger.transact(work, at_micros=at_micros)


def is_migrated(ledger: Ledger) -> bool:
    """Whether the database has been a ledger's: whether any script was applied to it."""
    is_sqlite = ledger.dialect == "sqlite"
    found = "1 FROM sqlite_master WHERE name = 'schema_version'" if is_sqlite else "to_regclass('schema_version')"
    with ledger.read() as unit:
        rows = unit.rows(text(f"SELECT {found}"))
    return any(value is not None for row in rows for value in row.values())


def _count_applied(unit: Unit, scripts: tuple[SchemaScript, ...]) -> int:
    """How many scripts are applied. Raises `migration_differs` if one has changed since then, or `schema_too_new`."""
    rows = unit.rows(text("SELECT version, checksum FROM schema_version ORDER BY version"))
    if len(rows) > len(scripts):
        expected = f"schema {len(scripts)} at most"
        raise Code.LEDGER_UNAVAILABLE(reason="schema_too_new", expected=expected, got=f"schema {len(rows)}")
    for script, row in zip(scripts, rows, strict=False):
        if (row["version"], row["checksum"]) != (script.version, script.checksum):
            message = f"schema script {script.version} is not the one that was applied"
            raise Code.MIGRATION_DIFFERS(message, expected=script.checksum, got=str(row["checksum"]))
    return len(rows)
