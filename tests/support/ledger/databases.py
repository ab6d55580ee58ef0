"""Databases for the ledgers of tests: an SQLite file, or a database of a PostgreSQL server that the tests start."""

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
"""The time of a test's transactions, in microseconds since 1970."""
_VERSIONS = Path("/usr/lib/postgresql")


@functools.cache
def _binaries_folder() -> Path | None:
    """The folder of the server's programs: that of the `initdb` in PATH, otherwise that of the newest version."""
    initdb_in_path = shutil.which("initdb")
    if initdb_in_path is not None:
        return Path(initdb_in_path).parent
    installed = list(_VERSIONS.glob("*/bin/initdb")) if _VERSIONS.is_dir() else []
    return max(installed, key=lambda path: int(path.parts[-3])).parent if installed else None


def _server_user() -> str | None:
    """The user that runs the server, which refuses to run as root. None if the tests run as root without `postgres`."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return None


def require_postgresql() -> None:
    """Skip the test, with the reason, where no server can be started."""
    require(_binaries_folder() is not None, "PostgreSQL is not installed (no initdb)")
    require(_server_user() is not None, "PostgreSQL does not run as root, and there is no user postgres")
    require(os.geteuid() != 0 or shutil.which("runuser"), "runuser is not installed")


class Postgresql:
    """One server with its data under a temporary folder, reached by a Unix socket only."""

    def __init__(self, parent: Path | None = None) -> None:
        binaries, user = _binaries_folder(), _server_user()
        assert binaries is not None
        assert user is not None
        self._binaries, self._user = binaries, user
        # A short path: the server's socket is in this folder, and a socket's path has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="pvdm-pg-", dir=parent))
        if os.geteuid() == 0:
            shutil.chown(self.folder, user)
        self.data = self.folder / "data"
        self._run("initdb", "-D", str(self.data), "-U", "pvdm", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")

    def start(self, *settings: str) -> None:
        """Start the server and wait until it accepts connections. A setting is given as `name=value`."""
        options = [f"-k {self.folder}", "-h ''", "-c max_connections=60", *(f"-c {setting}" for setting in settings)]
        self._run(
            "pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", " ".join(options), "start"
        )

    def stop(self) -> None:
        """Stop the server at once, without a clean shutdown. A server that does not run is no error."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop")

    def kill(self) -> None:
        """Send SIGKILL to the server and its child processes, so that nothing is flushed, and wait for their end."""
        server = int((self.data / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True, check=False).stdout
        processes = [server, *map(int, children.split())]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in processes:
            while _is_running(process):
                time.sleep(0.01)

    def restart(self) -> None:
        """Start after a kill. The start is tried again: it fails while a process of the old server is left."""
        for _ in range(100):
            with contextlib.suppress(subprocess.CalledProcessError):
                return self.start()
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://pvdm@/{database}?host={self.folder}"

    def create_database(self, template: str = "template1") -> str:
        """Create a database and return its URL. `template0` is empty; the fixture below migrates `template1`."""
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


def _is_running(process: int) -> bool:
    """Whether the process exists and is not a zombie (state Z): one that has ended, but is still in the list."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    with contextlib.suppress(OSError):
        return not status.is_file() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def running_postgresql(*settings: str, parent: Path | None = None) -> Iterator[Postgresql]:
    """Start a server with the settings (`name=value`); afterwards stop it and remove its files."""
    require_postgresql()
    server = Postgresql(parent)
    try:
        server.start(*settings)
        yield server
    finally:
        server.stop()
        server.remove()


@contextlib.contextmanager
def ledger_at(url: str, *, timeouts: Timeouts | None = None) -> Iterator[Ledger]:
    """Open the ledger at a URL and migrate it to the newest schema; it is closed afterwards."""
    opened = open_ledger(url, timeouts=timeouts)
    try:
        migrate(opened, at_micros=NOW)
        yield opened
    finally:
        opened.close()


def memory_file_system() -> Path | None:
    """The folder whose files the system keeps in memory; None if it has none that this user may write to."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else None


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A temporary folder, in memory where the system allows it, so that tests do not wait for a disk."""
    with tempfile.TemporaryDirectory(prefix="pvdm-", dir=memory_file_system()) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """The server of the test session, in memory where possible. Its `template1` is migrated, for `create_database`."""
    with running_postgresql(parent=memory_file_system()) as server:
        with ledger_at(server.url("template1")):
            pass
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, on SQLite and PostgreSQL in turn."""
    return _empty_database(request, tmp_path)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def sampled_ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """As `ledger_url`, for tests whose SQL other tests try on both databases: PostgreSQL is in `make test-long`."""
    return _empty_database(request, tmp_path)


def _empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    server: Postgresql = request.getfixturevalue("postgresql")
    return server.create_database("template0")


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a migrated ledger, on SQLite and PostgreSQL in turn."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "ledger.db")
        return f"sqlite:///{tmp_path}/ledger.db"
    server: Postgresql = request.getfixturevalue("postgresql")
    return server.create_database()


@pytest.fixture
def ledger(migrated_url: str) -> Iterator[Ledger]:
    """A migrated ledger without rows, on SQLite and PostgreSQL in turn."""
    with ledger_at(migrated_url) as opened:
        yield opened


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a migrated SQLite ledger, which other fixtures copy."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    with ledger_at(f"sqlite:///{path}"):
        return path


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def shared_ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """One ledger for all tests that commit nothing, on SQLite and PostgreSQL in turn."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("shared") / "ledger.db"
        shutil.copy(request.getfixturevalue("migrated_file"), path)
        url = f"sqlite:///{path}"
    else:
        url = request.getfixturevalue("postgresql").create_database()
    with ledger_at(url) as opened:
        yield opened


@pytest.fixture
def scratch(shared_ledger: Ledger) -> Iterator[Unit]:
    """A transaction for writing, on SQLite and PostgreSQL in turn. It is rolled back at the end."""
    with shared_ledger.write(at_micros=NOW) as unit:
        yield unit
