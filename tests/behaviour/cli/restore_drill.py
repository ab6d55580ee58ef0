"""A Steward as the manual sets it up, with its people and tables, and the steps of its drill of backup and restore."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, make_url, text

from pvdm.client import AccessToken, StewardClient
from pvdm.client.table import TableClient, split_name
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.model.statements.core import Operation
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.catalog.http import Caller
from tests.support.servers.starter import SERVE, Process, Starter, wait_for_address
from tests.support.steward.http import bearer
from tests.support.steward.shop import COLUMNS, Disk, Row, contract, table_of

CONFIGURED = ("--config", "steward.toml")
REASON = ("--reason", "the quarterly drill")
PEOPLE = (("alice", "root"), ("tom", "operator"), ("glass", "break-glass"))
DAYS: tuple[Row, ...] = tuple((day, f"2026-11-{day}", "Ulm") for day in range(13, 18))


def daily_contract(table: str) -> str:
    """The contract of a table whose workloads each append one day."""
    more = "parameters:\n  date:\n    type: date"
    return contract(table, more, where="day = ${date}", claim="{column: day}")


@dataclass
class Drill:
    """The folder of a Steward, and the users who work with it."""

    run: Run
    folder: Path
    ledger_url: str
    starter: Starter
    monkeypatch: pytest.MonkeyPatch
    process: Process | None = None
    url: str = ""
    pin: str = ""
    roots: list[str] = field(default_factory=list)
    job: Any = None

    def run_ok(self, *words: object) -> CommandResult:
        """Run a command that must end with 0."""
        ran = self.run(*words)
        assert ran.code == 0, ran.out + ran.err
        return ran

    # --- the Steward on its host ---

    def set_up(self) -> None:
        """The first start of the manual: configuration, keys, trust root, tokens."""
        (self.folder / "outside").mkdir()
        (self.folder / "steward.toml").write_text(
            'notary = "notary-a"\norigin = "log.example/notary-a"\n'
            f'ledger = "{self.ledger_url}"\noutside = "outside/notary-a.checkpoint"\n'
            'archive = "outside/notary-a.archive"\n[keys]\nhome = "file"\npath = "keystore.json"\n'
            '[catalog]\nname = "lake"\n[service]\nport = 0\n'
        )
        self.run_ok("steward", "init", *CONFIGURED, "--reason", "first start", "--public", "keys")
        for name, _ in PEOPLE:
            self.run_ok("keys", "pair", f"{name}.pem")
        people = "".join(
            f'[[keys]]\nfile = "{name}.pem.pub"\nidentity = "{name}"\nroles = ["{role}"]\n' for name, role in PEOPLE
        )
        (self.folder / "keys.toml").write_text(
            'expires = "365d"\nthresholds = { notary = 1, root = 1 }\n' + people + stewards_keys(1)
        )
        self.run_ok("keys", "root", "new", "keys.toml", "--out", "root-1.draft")
        words = ("--key", "alice.pem", "--yes", "--out", "root-1.json", "--json")
        self.pin = str(self.run_ok("keys", "root", "sign", "root-1.draft", *words).json["sha256"])
        self.run_ok("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", self.pin)
        self.roots.append("root-1.json")
        self.issue_tokens("1")
        self.job = types.ModuleType("drill_job")
        self.monkeypatch.setitem(sys.modules, "drill_job", self.job)

    def issue_tokens(self, generation: str) -> None:
        for role, domain in (("operator", "*"), ("producer", "sales"), ("auditor", "*"), ("consumer", "sales")):
            out = f"{role}.{generation}.token"
            name = f"{role}-of-drill"
            words = ("--role", role, "--domain", domain, "--name", name, "--out", out)
            self.run_ok("steward", "token", "issue", *CONFIGURED, *words)
            shutil.copy(self.folder / out, self.folder / f"{role}.token")

    def serve(self) -> None:
        log = self.folder / "serve.log"
        log.unlink(missing_ok=True)
        self.process = self.starter.start(SERVE, str(self.folder / "steward.toml"), log=log)
        self.url = wait_for_address(self.process, log)
        self.monkeypatch.setenv("PVDM_URL", self.url)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send(signal.SIGTERM)
            assert self.process.has_ended(60)
            self.process = None

    # --- the backup of the ledger ---

    def back_up(self) -> None:
        """Back the ledger up, by SQLite's own backup or by pg_dump (docs/operations-ledger.md)."""
        if self.ledger_url.startswith("sqlite"):
            with (
                contextlib.closing(sqlite3.connect(self.folder / "ledger.db")) as ledger,
                contextlib.closing(sqlite3.connect(self.folder / "backup.db")) as backup,
            ):
                ledger.backup(backup)
            (self.folder / "backup.db").chmod(0o600)
            return
        self._postgresql("pg_dump", "-f", str(self.folder / "backup.sql"))

    def put_back(self) -> None:
        """Replace the ledger by the newest backup; nothing of the old ledger is left."""
        if self.ledger_url.startswith("sqlite"):
            for left in self.folder.glob("ledger.db*"):
                left.unlink()
            shutil.copy(self.folder / "backup.db", self.folder / "ledger.db")
            return
        url = make_url(self.ledger_url.replace("postgresql:", "postgresql+psycopg:"))
        engine = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {url.database} WITH (FORCE)"))
            connection.execute(text(f"CREATE DATABASE {url.database} TEMPLATE template0"))
        engine.dispose()
        self._postgresql("psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(self.folder / "backup.sql"))

    def _postgresql(self, program: str, *words: str) -> None:
        subprocess.run([program, *words, "-d", self.ledger_url], check=True, stdout=subprocess.DEVNULL)

    # --- people and jobs ---

    def as_role(self, role: str) -> Drill:
        """Let the next commands use this role's token; returns the drill."""
        self.monkeypatch.setenv("PVDM_TOKEN_FILE", str(self.folder / f"{role}.token"))
        return self

    def client(self, role: str) -> StewardClient:
        return StewardClient(self.url, AccessToken((self.folder / f"{role}.token").read_text().strip()))

    def create_tables(self, *names: str) -> None:
        """Create empty tables of `id`, `day` and `town`, with their namespaces."""
        schema = {
            "type": "struct",
            "schema-id": 0,
            "fields": [
                {"id": at, "name": column, "required": False, "type": kind}
                for at, (column, kind) in enumerate(COLUMNS, 1)
            ],
        }
        token = (self.folder / "operator.token").read_text().strip()
        with httpx.Client(base_url=self.url) as http:
            caller = Caller(http, bearer(token))
            for level in sorted({name.partition(".")[0] for name in names}):
                body = {"namespace": [level], "properties": {"pvdm.domain": "sales"}}
                assert caller.ask("POST", "/namespaces", json=body).status_code in (200, 409)
            for name in names:
                level, _, last = name.partition(".")
                caller.make(last, namespace=level, schema=schema, properties={"format-version": "2"})

    def write(self, rows: Sequence[Row], table: str) -> None:
        """Append rows to `main` of a table that is not protected."""
        with self.client("operator") as client:
            location = TableMetadata.from_json(TableClient(client, *split_name(table)).load()).location
            token = AccessToken((self.folder / "operator.token").read_text().strip())
            to = Destination(self.url, table, "main", location, "none", "none", "0" * 32, token, Operation.APPEND)
            SmallStager(client).stage(lambda: table_of(rows), to)

    def protect(self, table: str, text: str | None = None) -> None:
        (self.folder / f"{table}.yaml").write_text(text or daily_contract(table))
        words = ("--contract", f"{table}.yaml", "--key", "tom.pem", "--operator", "tom", *REASON)
        self.as_role("operator").run_ok("protect", table, *words)

    def migrate(self, table: str, text: str) -> None:
        """Put another contract in force."""
        (self.folder / "new.yaml").write_text(text)
        signing = ("--key", "tom.pem", "--operator", "tom", *REASON, "--yes", "--out", "migration.json")
        self.as_role("operator").run_ok("migrate", "propose", table, "--contract", "new.yaml", "--out", "proposal.json")
        self.run_ok("migrate", "sign", "proposal.json", *signing)
        self.run_ok("migrate", "submit", "migration.json")

    def publish(self, table: str, day: int, rows: Sequence[Row] | None = None, *, suffix: str = "") -> CommandResult:
        """Run a day's workload as its producer; it fails if `rows` are given that are not the source's."""
        written = [row for row in DAYS if row[0] == day] if rows is None else rows
        self.job.job = lambda _spark, chunk: table_of(rows_of_chunk(chunk.chunk_id, written))
        workload_id = f"{table.partition('.')[2]}-{day}{suffix}"
        words = ("--workload-id", workload_id, "--param", f"date=2026-11-{day}", "--small", "--job", "drill_job:job")
        return self.as_role("producer").run("run", table, *words, "--json")

    def waive(self, workload_id: str) -> str:
        """Override the workload's FAIL and publish what failed; returns the override's id."""
        self.as_role("operator")
        with self.client("operator") as client:
            (failed,) = [each for each in client.workload(workload_id).attempts if each.proof_id is not None]
            (self.folder / "fail.json").write_bytes(client.proof_envelope(str(failed.proof_id)))
        words = ("--key", "glass.pem", "--operator", "glass", *REASON, "--yes", "--out", f"{workload_id}.override")
        self.run_ok("break-glass", "sign", "--proof", "fail.json", *words)
        submitted = self.run_ok("break-glass", "submit", f"{workload_id}.override", "--json")
        override_id = str(submitted.json["override"]["override_id"])
        self.run_ok("break-glass", "publish", override_id)
        return override_id

    def visible_ids(self, table: str) -> list[int]:
        """The ids of the rows that a consumer sees."""
        with self.client("consumer") as client:
            metadata = TableMetadata.from_json(TableClient(client, *split_name(table)).load())
        if metadata.current_snapshot is None:
            return []
        import pyarrow.parquet as pq

        entries = live_entries(metadata, metadata.current_snapshot, Disk())
        places = [parse_location(entry.data_file.file_path).local for entry in entries]
        return sorted(row["id"] for place in places for row in pq.ParquetFile(place).read().to_pylist())

    def audit(self, table: str, *words: object) -> CommandResult:
        roots = self.folder / "roots.json"
        roots.unlink(missing_ok=True)
        self.run_ok("keys", "root", "check", *self.roots, "--root-sha256", self.pin, "--out", roots)
        words = (*words, "--trust-root", "roots.json", "--root-sha256", self.pin, "--json")
        return self.as_role("auditor").run("audit", table, "--rehash", *words)


def rows_of_chunk(chunk_id: str, rows: Sequence[Row]) -> Sequence[Row]:
    """The rows of a chunk whose id names a town; all rows for another chunk."""
    named = [row for row in rows if row[2] is not None and row[2] in chunk_id]
    return named if any(town in chunk_id for town in ("Bonn", "Ulm")) else rows


def stewards_keys(epoch: int) -> str:
    """The Steward's public keys of an epoch, for a trust root."""
    return (
        f'[[keys]]\nfile = "keys/epoch-{epoch}.signing.pub"\nidentity = "notary-a"\nroles = ["notary"]\n'
        f"epochs = [{epoch}]\n"
        f'[[keys]]\nfile = "keys/epoch-{epoch}.log.pub"\nidentity = "log.example/notary-a"\nroles = ["log"]\n'
        f"epochs = [{epoch}]\n"
    )


@contextlib.contextmanager
def drill_at(
    run: Run, folder: Path, ledger_url: str, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Drill]:
    """A drill whose Steward is set up and served."""
    drill = Drill(run, folder, ledger_url, starter, monkeypatch)
    try:
        drill.set_up()
        drill.serve()
        yield drill
    finally:
        if drill.process is not None:
            drill.process.kill()
