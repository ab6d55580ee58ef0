"""A Steward that `pvdm` commands set up, with three protected tables and their source. Each round restores its disk."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from pvdm.client import StewardClient
from pvdm.client.table import TableClient, split_name
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.stores.stores import Stores
from pvdm.model.role import Role
from pvdm.model.statements.core import Operation
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from tests.random_kills.disk import FolderDisk, ImageDisk, opened_disk, short_folder
from tests.random_kills.producer import table_of
from tests.random_kills.schedule import TABLES, Work, source_rows
from tests.support.catalog.http import Caller
from tests.support.ledger.databases import Postgresql, require_postgresql
from tests.support.servers.starter import CommandResult, Process, Starter, running_starter
from tests.support.steward.http import bearer

SERVE = "tests.random_kills.producer:serve"
LOG_ORIGIN = "steward-one/log"
READY_SECONDS = 60
_CONFIG = """
notary = "steward-one"
origin = "{origin}"
ledger = "{ledger}"
outside = "{outside}/checkpoint"
archive = "archive"
[keys]
home = "file"
path = "keystore"
[catalog]
{catalog}
[service]
port = {port}
[service.limits]
rate_per_second = 10000
burst = 100000
"""
_ROOT = """
expires = "365d"
thresholds = { notary = 1, root = 1 }
[[keys]]
file = "alice.pem.pub"
identity = "alice"
roles = ["root"]
[[keys]]
file = "tom.pem.pub"
identity = "tom"
roles = ["operator"]
[[keys]]
file = "glass.pem.pub"
identity = "glass"
roles = ["break-glass"]
"""
_EPOCH = """
[[keys]]
file = "{public}/epoch-{epoch}.signing.pub"
identity = "steward-one"
roles = ["notary"]
epochs = [{epoch}]
[[keys]]
file = "{public}/epoch-{epoch}.log.pub"
identity = "{origin}"
roles = ["log"]
epochs = [{epoch}]
"""
_MORE = {
    "sales.copied": "storage: copied\n",
    "sales.open": "storage: open\n",
    "sales.joined": "storage: copied\natomicity: workload\nchunking:\n  by: partition\n  columns: [town]\n",
}
_COLUMNS = (("id", "long"), ("day", "date"), ("town", "string"))


def contract(table: str, more: str = "storage: copied\n") -> str:
    """The contract of a table, with `more` lines: a workload publishes and claims one day."""
    return (
        "apiVersion: pvdm/v1\nkind: DataProduct\n"
        f"metadata:\n  domain: sales\n  product: {table.rpartition('.')[2]}\n  owner: sales@example.com\n"
        "parameters:\n  day: {type: date}\n"
        "boundary:\n  source: {table: raw.orders}\n  where: day = ${day}\n"
        f"  target: {table}\n  operation: append\n  claim: {{column: day}}\n"
        "projections:\n  identity: [id]\n" + more
    )


class World:
    """The disk, the files outside it, and the processes of the current round.

    Stewards and producers end by SIGKILL at the fault point that the file `order` names.
    """

    def __init__(
        self, folder: Path, disk: ImageDisk | FolderDisk, starter: Starter, database: str, catalog: str
    ) -> None:
        self.folder, self.disk, self.starter, self.database = folder, disk, starter, database
        self.home = disk.place / "steward"
        self.outside = folder / "outside"
        self._catalog = catalog
        self._roots: list[Path] = []
        self.pin = ""
        self.postgresql: Postgresql | None = None
        self.steward: Process | None = None
        self.order = folder / "order"
        self.stores = Stores()
        self.serve = SERVE
        self.ledger_url = f"sqlite:///{self.home / 'ledger.db'}"
        self._port = _free_port()
        self._begun = 0
        self.url = f"http://127.0.0.1:{self._port}"
        self._create()

    # One round.

    def begin(self) -> None:
        """Restore disk and outside folder as `_create` left them, and start PostgreSQL."""
        self.disk.bring_back(self.folder / "made")
        shutil.rmtree(self.outside)
        shutil.copytree(self.folder / "made-outside", self.outside)
        self.disk.mount()
        self.start_postgresql()
        self.order.unlink(missing_ok=True)
        self._begun += 1

    def end(self) -> None:
        """End all processes, and unmount the disk."""
        if self.steward is not None:
            self.steward.kill()
        self._kill_postgresql()
        self.disk.unmount()

    def close(self) -> None:
        """End every process that still runs; the caller that opened the disk unmounts it."""
        if self.steward is not None:
            self.steward.kill()
        self._kill_postgresql()

    @property
    def log(self) -> Path:
        """The log file of this round's Stewards."""
        return self.folder / f"steward-{self._begun}.log"

    def start_steward(self) -> None:
        """Start a Steward, without waiting until it is ready."""
        config = str(self.home / "steward.toml")
        self.steward = self.starter.start(self.serve, config, str(self.order), log=self.log)

    def start_producer(self, works: tuple[Work, ...], notes: Path) -> Process:
        """Start a producer of these workloads."""
        token = str(self.token("producer"))
        arguments = (self.url, token, works, str(notes), str(self.order))
        return self.starter.start("tests.random_kills.producer:produce", *arguments, log=notes.with_suffix(".log"))

    def lose_power(self, producers: list[Process]) -> None:
        """Shut the disk down, kill every process that uses it, mount the disk again, and start PostgreSQL."""
        self.disk.cut()
        for process in [*producers, *([] if self.steward is None else [self.steward])]:
            process.kill()
        self._kill_postgresql()
        self.disk.unmount()
        self.disk.mount()
        self.start_postgresql()

    def start_postgresql(self) -> None:
        """Start PostgreSQL, if it has the ledger and does not run."""
        if self.postgresql is not None and not self._database_processes():
            self.postgresql.restart()

    def stop_postgresql(self) -> None:
        """Stop PostgreSQL in the mode `immediate`: nothing is flushed, and every connection breaks."""
        if self.postgresql is not None:
            self.postgresql.stop()

    def _kill_postgresql(self) -> None:
        """Send SIGKILL to every process of the server. The server's pid file is not used: a cut disk cannot be read."""
        while found := self._database_processes():
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)

    def _database_processes(self) -> list[int]:
        """The processes whose working directory is the database's folder: the server and its children."""
        if self.postgresql is None:
            return []
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (each / "cwd").readlink() == self.postgresql.data:
                    found.append(int(each.name))
        return found

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> str | None:
        """Wait until the Steward is ready; returns None, or why it was not ready in time."""
        ends = time.monotonic() + seconds
        reason = "no answer"
        while time.monotonic() < ends:
            if self.steward is None or self.steward.has_ended():
                self.start_steward()
            try:
                answer = httpx.get(f"{self.url}/readyz", timeout=5)
            except httpx.HTTPError as error:
                reason = type(error).__name__
            else:
                if answer.status_code == 200:
                    return None
                reason = answer.text
            time.sleep(0.05)
        return f"{reason}: {self.log.read_text()[-2000:]}"

    def pvdm(self, *words: object, role: Role = Role.OPERATOR, seconds: float = 120) -> CommandResult:
        """Run a `pvdm` command with a token of this role."""
        env = {"PVDM_URL": self.url, "PVDM_TOKEN_FILE": str(self.token(role.value))}
        return self.starter.run_command(*words, env=env, seconds=seconds)

    def client(self, role: Role) -> StewardClient:
        """A client with a token of this role."""
        return StewardClient(self.url, token_file=self.token(role.value))

    def metadata(self, table: str, role: Role = Role.CONSUMER) -> TableMetadata:
        """The table's metadata as the role sees it."""
        with self.client(role) as client:
            return TableMetadata.from_json(TableClient(client, *split_name(table)).load())

    @property
    def config_option(self) -> tuple[object, ...]:
        """The option that names the Steward's configuration."""
        return ("--config", self.home / "steward.toml")

    def run_ok(self, *words: object) -> CommandResult:
        """Run a command that must succeed."""
        ran = self.pvdm(*words)
        assert ran.code == 0, ran.out
        return ran

    def make_namespace(self, name: str) -> None:
        """Create a namespace of the domain `sales`."""
        headers = bearer(self.token("operator").read_text().strip())
        with httpx.Client(base_url=self.url, timeout=60) as http:
            body = {"namespace": [name], "properties": {"pvdm.domain": "sales"}}
            Caller(http, headers).done("POST", "/namespaces", json=body)

    def make_table(self, name: str, **request: object) -> None:
        """Create an empty table of `id`, `day` and `town`; `request` has further fields of the request."""
        fields = [
            {"id": at, "name": column, "required": False, "type": kind} for at, (column, kind) in enumerate(_COLUMNS, 1)
        ]
        schema = {"type": "struct", "schema-id": 0, "fields": fields}
        namespace, _, last = name.partition(".")
        with httpx.Client(base_url=self.url, timeout=60) as http:
            caller = Caller(http, bearer(self.token("operator").read_text().strip()))
            caller.make(last, namespace=namespace, schema=schema, **request)

    def protect(self, table: str, text: str) -> None:
        """Protect the table under this contract."""
        path = self._write(f"{table}.yaml", text, self.folder)
        words = ("--key", self.folder / "tom.pem", "--operator", "tom", "--reason", "it goes live")
        self.run_ok("protect", table, "--contract", path, *words)

    def issue_tokens(self) -> None:
        """Issue a token for each role of the tests. The file of an earlier token is replaced."""
        for role in ("operator", "producer", "consumer", "auditor"):
            self.token(role).unlink(missing_ok=True)
            words = ("--role", role, "--name", f"a-{role}", "--out", self.token(role))
            self.run_ok("steward", "token", "issue", *self.config_option, *words)

    def trust_epoch(self, epoch: int, origin: str) -> None:
        """Sign and install the next trust root, which also names the keys of this epoch and of the log `origin`."""
        folder, public = self.folder, self.folder / "public"
        self.run_ok("steward", "public", public, *self.config_option)
        added = self._write("added.toml", _EPOCH.format(public=public, epoch=epoch, origin=origin), folder)
        draft, root = (folder / f"root-{len(self._roots) + 1}.{end}" for end in ("draft", "json"))
        self.run_ok("keys", "root", "next", self._roots[-1], "--add", added, "--out", draft)
        self.run_ok("keys", "root", "sign", draft, "--key", folder / "alice.pem", "--yes", "--out", root)
        self.run_ok("steward", "trust", root, *self.config_option)
        self._roots.append(root)

    # Creation.

    def _create(self) -> None:
        self.outside.mkdir()
        self.home.mkdir()
        if self.database == "postgresql":
            require_postgresql()
            self.postgresql = Postgresql(self.disk.place)
            self.postgresql.start()
        ledger = "sqlite:///ledger.db"
        if self.postgresql is not None:
            ledger = self.postgresql.create_database("template0")
            self.ledger_url = ledger.replace("postgresql:", "postgresql+psycopg:")
        config = _CONFIG.format(
            origin=LOG_ORIGIN, ledger=ledger, outside=self.outside, port=self._port, catalog=self._catalog
        )
        self._write("steward.toml", config, self.home)
        self._trust()
        self.issue_tokens()
        self.start_steward()
        if (why := self.wait_until_ready()) is not None:
            raise AssertionError(why)
        self._create_tables()
        self.stop_postgresql()
        self.end()
        self.disk.keep(self.folder / "made")
        shutil.copytree(self.outside, self.folder / "made-outside")

    def _trust(self) -> None:
        public = self.folder / "public"
        self.run_ok("steward", "init", *self.config_option, "--reason", "first start", "--public", public)
        for name in ("alice", "tom", "glass"):
            self.run_ok("keys", "pair", self.folder / f"{name}.pem")
        epoch = _EPOCH.format(public=public, epoch=1, origin=LOG_ORIGIN)
        self._write("keys.toml", _ROOT + epoch, self.folder)
        draft, root = self.folder / "root.draft", self.folder / "root.json"
        self.run_ok("keys", "root", "new", self.folder / "keys.toml", "--out", draft)
        words = ("--key", self.folder / "alice.pem", "--yes", "--out", root, "--json")
        self.pin = self.run_ok("keys", "root", "sign", draft, *words).json["sha256"]
        self.run_ok("steward", "trust", root, *self.config_option, "--root-sha256", self.pin)
        self._roots.append(root)

    def _create_tables(self) -> None:
        for namespace in ("raw", "sales"):
            self.make_namespace(namespace)
        for name in ("raw.orders", *TABLES):
            self.make_table(name)
        self._fill_source()
        for table in TABLES:
            self.protect(table, contract(table, _MORE[table]))

    def _fill_source(self) -> None:
        with self.client(Role.OPERATOR) as client:
            location = self.metadata("raw.orders").location
            token = client.lend(Role.OPERATOR).token
            to = Destination(
                self.url, "raw.orders", "main", location, "none", "none", "0" * 32, token, Operation.APPEND
            )
            SmallStager(client).stage(lambda: table_of(source_rows()), to)

    def token(self, role: str) -> Path:
        """The file with the token of this role."""
        return self.folder / f"{role}.token"

    @staticmethod
    def _write(name: str, text: str, folder: Path) -> Path:
        path = folder / name
        path.write_text(text)
        return path


@contextlib.contextmanager
def opened_world(database: str, *, loses_power: bool = True, catalog: str = "") -> Iterator[World]:
    """A world with this kind of ledger. `catalog` has further lines for the section `[catalog]` of its configuration.

    With `loses_power` the disk can lose its power, on machines that can mount an image.
    """
    preload = ["tests.support.servers.warm", "tests.random_kills.killing"]
    if "[s3]" in catalog:
        preload.append("tests.support.servers.warm_s3")
    with (
        short_folder() as folder,
        opened_disk(folder) if loses_power else contextlib.nullcontext(FolderDisk(folder)) as disk,
        running_starter(folder, *preload) as starter,
    ):
        world = World(folder, disk, starter, database, catalog)
        try:
            yield world
        finally:
            world.close()


def _free_port() -> int:
    """A free port. The system does not assign it to others, so it stays free between two Stewards."""
    chosen = random.Random(os.getpid())
    while True:
        port = chosen.randrange(20_000, 32_000)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
