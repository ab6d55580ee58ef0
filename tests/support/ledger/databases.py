"""The databases a ledger lives in, for tests: SQLite in a folder, and a PostgreSQL server of the test's own."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from pvdm.ledger import Ledger, Unit, open_ledger
from pvdm.ledger.engine import Timeouts
from pvdm.ledger.migrations import migrate
from tests.support.services import require

NOW = 1_800_000_000_000_000
_VERSIONS = Path("/usr/lib/postgresql")


@functools.cache
def _binaries() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    homes = sorted(_VERSIONS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])) if _VERSIONS.is_dir() else []
    return homes[-1].parent if homes else None


def _user() -> str | None:
    """Who may run the server: it refuses to be root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return None


def require_postgresql() -> None:
    """Skip, with the reason, where no server can be started."""
    require(_binaries() is not None, "PostgreSQL is not installed (no initdb)")
    require(_user() is not None, "PostgreSQL does not run as root, and there is no user postgres")
    require(os.geteuid() != 0 or shutil.which("runuser"), "runuser is not installed")


class Postgresql:
    """One server with its data under a temporary folder, reached by a Unix socket only."""

    def __init__(self, parent: Path | None = None) -> None:
        binaries, user = _binaries(), _user()
        assert binaries is not None
        assert user is not None
        self._binaries, self._user = binaries, user
        self.folder = Path(
            tempfile.mkdtemp(prefix="pvdm-pg-", dir=parent)
        )  # short: a socket's path has at most 107 bytes
        if os.geteuid() == 0:
            shutil.chown(self.folder, user)
        self.data = self.folder / "data"
        self._run("initdb", "-D", str(self.data), "-U", "pvdm", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")

    def start(self, *settings: str) -> None:
        options = [f"-k {self.folder}", "-h ''", "-c max_connections=60", *(f"-c {setting}" for setting in settings)]
        self._run(
            "pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", " ".join(options), "start"
        )

    def stop(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop")

    def kill(self) -> None:
        """SIGKILL to the server; its children notice and end, and nothing is flushed on the way."""
        server = int((self.data / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True, check=False).stdout
        for process in [server, *map(int, children.split())]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in [server, *map(int, children.split())]:
            while _alive(process):
                time.sleep(0.01)

    def restart(self) -> None:
        """Start after a kill; until the last process of the old server is gone the new one refuses, so try again."""
        for _ in range(100):
            with contextlib.suppress(subprocess.CalledProcessError):
                return self.start()
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://pvdm@/{database}?host={self.folder}"

    def fresh(self, template: str = "template1") -> str:
        """The URL of a new database."""
        name = f"t{uuid.uuid4().hex}"
        engine = create_engine(self.url().replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        engine.dispose()
        return self.url(name)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", self._user, "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    with contextlib.suppress(OSError):
        return not status.is_file() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def server(*settings: str, parent: Path | None = None) -> Iterator[Postgresql]:
    """A running server that is gone afterwards."""
    require_postgresql()
    made = Postgresql(parent)
    try:
        made.start(*settings)
        yield made
    finally:
        made.stop()
        made.remove()


@contextlib.contextmanager
def ledger_at(url: str, *, timeouts: Timeouts | None = None) -> Iterator[Ledger]:
    """A migrated ledger, closed afterwards."""
    made = open_ledger(url, timeouts=timeouts)
    try:
        migrate(made, at_micros=NOW)
        yield made
    finally:
        made.close()


def in_memory() -> Path | None:
    """Where the system keeps files in memory, if it does."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else None


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where the system has one, for what need not wait for a disk."""
    with tempfile.TemporaryDirectory(prefix="pvdm-", dir=in_memory()) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """The session's server, in memory where the system has such a folder: these tests are not about disks."""
    with server(parent=in_memory()) as made:
        with ledger_at(made.url("template1")):
            pass
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    made: Postgresql = request.getfixturevalue("postgresql")
    return made.fresh("template0")


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a migrated ledger, of each kind in turn."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "ledger.db")
        return f"sqlite:///{tmp_path}/ledger.db"
    made: Postgresql = request.getfixturevalue("postgresql")
    return made.fresh()


@pytest.fixture
def ledger(migrated_url: str) -> Iterator[Ledger]:
    """An empty, migrated ledger on each database in turn."""
    with ledger_at(migrated_url) as made:
        yield made


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite ledger to copy."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    with ledger_at(f"sqlite:///{path}"):
        return path


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def shared_ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """One ledger for all tests that commit nothing."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("shared") / "ledger.db"
        shutil.copy(request.getfixturevalue("migrated_file"), path)
        url = f"sqlite:///{path}"
    else:
        url = request.getfixturevalue("postgresql").fresh()
    with ledger_at(url) as made:
        yield made


@pytest.fixture
def scratch(shared_ledger: Ledger) -> Iterator[Unit]:
    """A writing unit on each database in turn, undone at the end."""
    with shared_ledger.write(at_micros=NOW) as unit:
        yield unit
