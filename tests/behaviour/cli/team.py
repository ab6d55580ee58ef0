"""A Steward as operations.md sets one up for a team: folders, keys, trust root, tokens, a process that serves it."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from pvdm import Committed, Coordinator, Outcome
from pvdm.client import AccessToken, StewardClient
from pvdm.client.table import TableClient, split_name
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.statements.core import Operation
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.catalog.http import Caller
from tests.support.servers.starter import SERVE, Process, Starter, wait_for_address
from tests.support.steward.http import bearer
from tests.support.steward.shop import COLUMNS, ROWS, Row, contract, table_of

PAGE = (Path(__file__).parents[3] / "docs" / "procedures.md").read_text("utf-8")
_CONFIG = """
notary = "notary-a"
origin = "log.example/notary-a"
isolation = "process"
ledger = "sqlite:///ledger.db"
outside = "{mnt}/outside/notary-a.checkpoint"

[keys]
home = "file"
path = "keystore.json"

[catalog]
warehouse = "{srv}/lake/warehouse"
metadata = "{srv}/lake/catalog"
vault = "{srv}/lake/vault"

[service]
port = 0
"""
_ROOT = 'expires = "365d"\nthresholds = { notary = 1, root = 2 }\n'
_KEY = '[[keys]]\nfile = "{file}"\nidentity = "{identity}"\nroles = ["{role}"]\n'


def commands_below(heading: str) -> list[str]:
    """The commands below a heading of docs/procedures.md, in their order."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, heading
    blocks = re.findall(r"^ *```console\n(.*?)^ *```$", section[1], re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in textwrap.dedent(block).splitlines()]
    return [line.removeprefix("$ ") for line in lines]


@dataclass
class Team:
    """A Steward's folders, the commands of its users, and the process that serves it, if one runs."""

    folder: Path
    run: Run
    starter: Starter
    monkeypatch: pytest.MonkeyPatch
    process: Process | None = None
    url: str = ""

    @property
    def srv(self) -> Path:
        return self.folder / "srv"

    @property
    def config(self) -> Path:
        return self.srv / "pvdm" / "steward.toml"

    def run_ok(self, *words: object) -> CommandResult:
        """Run a command that must end with 0."""
        ran = self.run(*words)
        assert ran.code == 0, f"{words}\n{ran.out}{ran.err}"
        return ran

    def follow(self, line: str, replacements: Mapping[str, str] | None = None) -> CommandResult:
        """Run one line of the page, with its paths below the test's folder and with these words replaced."""
        for name in ("/srv", "/mnt", "/disk2"):
            line = re.sub(rf"(?<![\w./]){name}\b", f"{self.folder}{name}", line)
        for name, value in (replacements or {}).items():
            line = line.replace(name, value)
        parts = shlex.split(line)
        if parts[0] == "pvdm":
            return self.run_ok(*parts[1:])
        done = subprocess.run(parts, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return CommandResult(0, done.stdout, done.stderr)

    def start(self) -> None:
        """Start `pvdm steward serve`, and wait until its log has its address."""
        log = self.folder / "steward.log"
        log.unlink(missing_ok=True)
        self.process = self.starter.start(SERVE, str(self.config), log=log)
        self.url = wait_for_address(self.process, log)
        self.monkeypatch.setenv("PVDM_URL", self.url)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send(signal.SIGTERM)
            assert self.process.has_ended(60)
            self.process = None

    def token(self, name: str) -> str:
        return (self.srv / "pvdm" / f"{name}.token").read_text("utf-8").strip()

    def client(self, name: str) -> StewardClient:
        return StewardClient(self.url, self.token(name))

    @contextlib.contextmanager
    def caller(self) -> Iterator[Caller]:
        with httpx.Client(base_url=self.url, timeout=60) as http:
            yield Caller(http, bearer(self.token("ruth")))

    def create_table(self, name: str) -> None:
        *levels, last = name.split(".")
        columns = [
            {"id": at, "name": column, "required": False, "type": kind} for at, (column, kind) in enumerate(COLUMNS, 1)
        ]
        schema = {"type": "struct", "schema-id": 0, "fields": columns}
        with self.caller() as caller:
            caller.make(last, namespace=levels[0], **{"schema": schema, "properties": {"format-version": "2"}})

    def rename(self, old: str, new: str) -> None:
        names = [{"namespace": each.split(".")[:-1], "name": each.split(".")[-1]} for each in (old, new)]
        with self.caller() as caller:
            caller.done("POST", "/tables/rename", json={"source": names[0], "destination": names[1]})

    def write_source(self, rows: tuple[Row, ...], table: str = "raw.orders") -> None:
        with self.client("ruth") as client:
            location = TableMetadata.from_json(TableClient(client, *split_name(table)).load()).location
            token = AccessToken(self.token("ruth"))
            to = Destination(self.url, table, "main", location, "none", "none", "0" * 32, token, Operation.APPEND)
            SmallStager(client).stage(lambda: table_of(rows), to)

    def write_contract(self, text: str) -> None:
        (self.folder / "orders.yaml").write_text(text, "utf-8")

    def publish(self, workload_id: str, rows: tuple[Row, ...] = ROWS, table: str = "sales.orders") -> Outcome:
        with self.client("nightly") as client, Coordinator(client) as coordinator:
            return coordinator.execute_workload(workload_id, lambda _s, _c: table_of(rows), table=table)

    def audit_code(self, table: str = "sales.orders") -> int:
        return self.run("audit", table, "--token-file", self.srv / "pvdm" / "ruth.token").code


@contextlib.contextmanager
def team_at(
    folder: Path, run: Run, starter: Starter, monkeypatch: pytest.MonkeyPatch, operator: str = "ruth"
) -> Iterator[Team]:
    """A served Steward with rows in `raw.orders`, and with `sales.orders`, empty and protected by the operator."""
    team = Team(folder, run, starter, monkeypatch)
    _set_up(team)
    team.start()
    try:
        with team.caller() as caller:
            for name in ("raw", "sales"):
                caller.done("POST", "/namespaces", json={"namespace": [name], "properties": {"pvdm.domain": "sales"}})
        for name in ("raw.orders", "sales.orders"):
            team.create_table(name)
        team.write_source(ROWS)
        team.write_contract(contract("sales.orders"))
        by = ("--key", f"{operator}.pem", "--operator", operator, "--reason", "orders go live")
        token_option = ("--token-file", team.srv / "pvdm" / f"{operator}.token")
        team.run_ok("protect", "sales.orders", "--contract", "orders.yaml", *by, *token_option)
        yield team
    finally:
        team.stop()


def _set_up(team: Team) -> None:
    for name in ("srv/pvdm", "srv/lake", "mnt/outside", "mnt/transfer", "disk2"):
        (team.folder / name).mkdir(parents=True)
    team.config.write_text(_CONFIG.format(srv=team.srv, mnt=team.folder / "mnt"), "utf-8")
    configured = ("--config", team.config)
    team.run_ok("steward", "init", *configured, "--reason", "first start", "--public", "public")
    people = (("alice", "root"), ("bob", "root"), ("ruth", "operator"), ("tom", "operator"))
    for name, _ in people:
        team.run_ok("keys", "pair", f"{name}.pem")
    text = _ROOT + "".join(_KEY.format(file=f"{name}.pem.pub", identity=name, role=role) for name, role in people)
    steward_keys = (("signing", "notary-a", "notary"), ("log", "log.example/notary-a", "log"))
    for kind, identity, role in steward_keys:
        text += _KEY.format(file=f"public/epoch-1.{kind}.pub", identity=identity, role=role) + "epochs = [1]\n"
    (team.folder / "keys.toml").write_text(text, "utf-8")
    team.run_ok("keys", "root", "new", "keys.toml", "--out", "root-1.draft")
    team.run_ok("keys", "root", "sign", "root-1.draft", "--key", "alice.pem", "--yes", "--out", "root-1.alice")
    words = ("--key", "bob.pem", "--yes", "--out", "root-1.json", "--json")
    pin: Any = team.run_ok("keys", "root", "sign", "root-1.alice", *words).json["sha256"]
    team.run_ok("steward", "trust", "root-1.json", *configured, "--root-sha256", pin)
    for name, role, domain in (("ruth", "operator", "*"), ("tom", "operator", "*"), ("nightly", "producer", "sales")):
        out = team.srv / "pvdm" / f"{name}.token"
        issued = ("--role", role, "--domain", domain, "--name", name, "--lifetime", "30d", "--out", str(out))
        team.run_ok("steward", "token", "issue", *configured, *issued)


def require_committed(outcome: Outcome) -> None:
    assert isinstance(outcome, Committed), outcome
