"""Migrations: the files create the schema that the code describes, and each is applied once with the same text."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from pvdm.errors import PvdmError, UnavailableError, VerificationError
from pvdm.ledger import Ledger, open_ledger
from pvdm.ledger.migrations import load_schema_scripts, migrate
from tests.support.ledger.databases import NOW, Postgresql
from tools.ledger_sql import DIALECTS, statements

CATALOG = """
SELECT 'column', table_name || '.' || column_name, data_type || ' ' || is_nullable FROM information_schema.columns
    WHERE table_schema = 'public'
UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'function', proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


def sqlite_facts(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name <> 'schema_version'").fetchall()
    return {row for row in rows if not row[1].startswith("sqlite_autoindex_schema_version")}


def postgresql_facts(url: str) -> set[tuple[str, ...]]:
    with psycopg.connect(url) as connection:
        rows: list[tuple[str, ...]] = connection.execute(CATALOG).fetchall()
    return {row for row in rows if "schema_version" not in row[1]}


def test_the_migrations_create_on_sqlite_what_the_code_describes(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    migrate(ledger, at_micros=NOW)
    ledger.close()
    described = sqlite3.connect(":memory:")
    for statement in statements("sqlite"):
        described.execute(statement)
    assert sqlite_facts(sqlite3.connect(tmp_path / "ledger.db")) == sqlite_facts(described)


def test_the_migrations_create_on_postgresql_what_the_code_describes(postgresql: Postgresql) -> None:
    migrated, described = postgresql.create_database("template0"), postgresql.create_database("template0")
    ledger = open_ledger(migrated)
    migrate(ledger, at_micros=NOW)
    ledger.close()
    with psycopg.connect(described) as connection:
        for statement in statements("postgresql"):
            connection.execute(statement.encode())
    assert postgresql_facts(migrated) == postgresql_facts(described)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_migrations_are_numbered_without_a_gap(dialect: str) -> None:
    assert [step.version for step in load_schema_scripts(dialect)] == list(
        range(1, len(load_schema_scripts(dialect)) + 1)
    )


def test_both_databases_have_the_same_migrations() -> None:
    assert [step.name for step in load_schema_scripts("sqlite")] == [
        step.name for step in load_schema_scripts("postgresql")
    ]


def test_a_second_run_changes_nothing(ledger_url: str) -> None:
    ledger = open_ledger(ledger_url)
    assert migrate(ledger, at_micros=NOW) == migrate(ledger, at_micros=NOW + 1)
    with ledger.read() as unit:
        assert {row["at_micros"] for row in unit.rows(text("SELECT at_micros FROM schema_version"))} == {NOW}
    ledger.close()


def test_several_concurrent_starts_migrate_once(ledger_url: str) -> None:
    ledgers = [open_ledger(ledger_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda ledger: migrate(ledger, at_micros=NOW), ledgers))
    for ledger in ledgers:
        ledger.close()
    assert found == [len(load_schema_scripts(ledgers[0].dialect))] * 4


def error_after(ledger: Ledger, statement: str) -> PvdmError:
    with ledger.write(at_micros=NOW) as unit:
        unit.execute(text(statement))
        unit.commit()
    with pytest.raises(PvdmError) as caught:
        migrate(ledger, at_micros=NOW)
    return caught.value


def test_a_migration_that_was_applied_with_other_text_is_refused(ledger: Ledger) -> None:
    error = error_after(ledger, "UPDATE schema_version SET checksum = 'x'")
    assert (type(error), error.reason) == (VerificationError, "migration_differs")


def test_a_ledger_of_a_newer_version_is_refused(ledger: Ledger) -> None:
    error = error_after(ledger, "INSERT INTO schema_version VALUES (99, 'later', 'x', 1)")
    assert (type(error), error.reason) == (UnavailableError, "schema_too_new")


def test_a_migration_that_fails_leaves_nothing(ledger_url: str) -> None:
    ledger = open_ledger(ledger_url)
    with ledger.write(at_micros=NOW) as unit:
        unit.execute(text("CREATE TABLE tokens (x TEXT)"))
        unit.commit()
    with pytest.raises(PvdmError):
        migrate(ledger, at_micros=NOW)
    with ledger.read() as unit, pytest.raises(PvdmError):
        unit.execute(text("SELECT * FROM workloads"))
    ledger.close()
