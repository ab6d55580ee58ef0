"""Opening a ledger: refused databases, the settings of connections, and how each database error is translated."""

from __future__ import annotations

import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError

from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, StateUnknownError, UnavailableError
from pvdm.ledger import Ledger, Unit, open_ledger
from pvdm.ledger.connection import Phase, translate_error
from pvdm.ledger.engine import CONNECTIONS_MAX, Timeouts
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces
from tests.support import fault
from tests.support.for_each import for_each
from tests.support.ledger.databases import NOW, Postgresql, ledger_at, running_postgresql
from tests.support.ledger.rows import hex32

QUICK = Timeouts(connect_seconds=2, busy_seconds=1, statement_seconds=2)


def reserve(unit: Unit) -> None:
    nonces.reserve(unit, hex32(1), purpose=NoncePurpose.BREAK_GLASS, holder="x")


@for_each(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory",
        "sqlite:////tmp/x?cache=shared",
        "mysql://h/d",
        "no address",
        "",
    ],
)
def test_an_address_that_is_no_durable_database_is_refused(url: str) -> None:
    with pytest.raises(InputError) as caught:
        open_ledger(url)
    assert caught.value.reason == "ledger_url_invalid"


def test_connections_of_concurrent_threads_are_used_again(tmp_path: Path) -> None:
    opened = list[object]()
    barrier = threading.Barrier(CONNECTIONS_MAX)
    with ledger_at(f"sqlite:///{tmp_path}/ledger.db") as ledger, ThreadPoolExecutor(CONNECTIONS_MAX) as pool:
        event.listen(ledger._engine, "connect", lambda connection, _: opened.append(connection))

        def read(_: int) -> None:
            with ledger.read():
                barrier.wait(20)

        for _ in range(3):
            list(pool.map(read, range(CONNECTIONS_MAX)))
    assert len(opened) < CONNECTIONS_MAX  # one was open before


def test_a_ledger_in_a_missing_folder_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        open_ledger(f"sqlite:///{tmp_path}/missing/ledger.db")
    assert caught.value.reason == "ledger_unreachable"


def test_a_file_that_is_no_database_is_reported_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"not a database, but long enough to look at" * 100)
    (tmp_path / "ledger.db").chmod(0o600)
    with pytest.raises(UnavailableError) as caught:
        open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    assert caught.value.reason == "ledger_damaged"


def test_only_the_owner_can_read_a_new_ledger_file(tmp_path: Path) -> None:
    with ledger_at(f"sqlite:///{tmp_path}/ledger.db"):
        assert stat.S_IMODE((tmp_path / "ledger.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660])
def test_a_file_that_others_can_read_or_write_is_refused_and_stays_as_it_is(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "ledger.db"
    with ledger_at(f"sqlite:///{path}"):
        pass
    path.chmod(mode)
    with pytest.raises(NotAllowedError) as caught:
        open_ledger(f"sqlite:///{path}")
    assert (caught.value.reason, caught.value.got) == ("ledger_mode", f"mode {mode:04o}")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "delete"), ("synchronous", 3), ("foreign_keys", 1), ("recursive_triggers", 1)],
)
def test_every_connection_has_the_settings_of_a_ledger(tmp_path: Path, pragma: str, value: object) -> None:
    with ledger_at(f"sqlite:///{tmp_path}/ledger.db") as ledger, ledger.read() as unit:
        assert unit.execute(text(f"PRAGMA {pragma}")).scalar_one() == value


def server_process_of(ledger: Ledger) -> int:
    with ledger.read() as unit:
        return int(unit.execute(text("SELECT pg_backend_pid()")).scalar_one())


def test_a_ledger_with_new_connections_uses_unused_ones(postgresql: Postgresql) -> None:
    with ledger_at(postgresql.create_database()) as ledger:
        processes = [server_process_of(ledger), server_process_of(ledger)]
        assert len(set(processes)) == 1
        for _ in range(2):
            processes.append(server_process_of(ledger.with_new_connections()))
        assert len(set(processes)) == 3
        assert server_process_of(ledger) == processes[0]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_named_lock_excludes_the_same_name_only(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    if database == "postgresql":
        url = request.getfixturevalue("postgresql").create_database()
    with ledger_at(url) as ledger, ledger_at(url) as other, ThreadPoolExecutor(1) as pool:
        order: list[str] = []

        def lock_again() -> None:
            with other.hold_lock("policy"):
                order.append("second")

        with ledger.hold_lock("policy"):
            waiting = pool.submit(lock_again)
            with other.hold_lock("another"):
                other.transact(reserve, at_micros=NOW)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            order.append("first")
        waiting.result(timeout=10)
        assert order == ["first", "second"]


def test_a_server_that_does_not_sync_is_refused() -> None:
    with running_postgresql("fsync=off") as database, pytest.raises(UnavailableError) as caught:
        open_ledger(database.url())
    assert caught.value.reason == "ledger_not_durable"


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused(postgresql: Postgresql, encoding: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        open_ledger(postgresql.create_database(f"template0 ENCODING '{encoding}'"))
    assert (caught.value.reason, caught.value.got) == ("ledger_encoding_wrong", encoding)


def test_a_missing_server_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        open_ledger(f"postgresql://pvdm@/x?host={tmp_path}", timeouts=QUICK)
    assert caught.value.reason == "ledger_unreachable"


def test_the_repr_of_a_ledger_does_not_show_the_password(postgresql: Postgresql) -> None:
    with ledger_at(postgresql.create_database().replace("pvdm@", "pvdm:geheim@")) as ledger:
        assert "geheim" not in repr(ledger)


def test_a_second_writer_waits_and_then_gets_ledger_busy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with ledger_at(url, timeouts=QUICK) as ledger:
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError) as caught, ledger.write(at_micros=NOW):
            pass
        other.close()
    assert caught.value.reason == "ledger_busy"


def test_a_commit_that_a_reader_blocks_is_busy_and_rolled_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with ledger_at(url, timeouts=QUICK) as ledger:
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT * FROM nonces").fetchall()
        with pytest.raises(UnavailableError) as caught:
            ledger.transact(reserve, at_micros=NOW)
        other.close()
        with ledger.read() as unit:
            assert (caught.value.reason, nonces.find(unit, hex32(1))) == ("ledger_busy", None)


def test_a_write_that_a_lock_blocks_is_busy(postgresql: Postgresql) -> None:
    with ledger_at(postgresql.create_database(), timeouts=QUICK) as ledger, psycopg.connect(plain_url(ledger)) as other:
        other.execute("LOCK TABLE nonces")
        with pytest.raises(UnavailableError) as caught, ledger.write(at_micros=NOW) as unit:
            reserve(unit)
    assert caught.value.reason == "ledger_busy"


def test_a_connection_lost_during_the_work_is_unavailable(postgresql: Postgresql) -> None:
    with ledger_at(postgresql.create_database()) as ledger:
        with ledger.write(at_micros=NOW) as unit:
            end_connection(postgresql, unit.execute(text("SELECT pg_backend_pid()")).scalar_one())
            with pytest.raises(UnavailableError) as caught:
                nonces.find(unit, hex32(1))
        assert caught.value.reason == "ledger_unreachable"
        with ledger.read() as unit:
            assert nonces.find(unit, hex32(1)) is None


def test_a_connection_lost_during_commit_leaves_the_state_unknown(postgresql: Postgresql) -> None:
    with ledger_at(postgresql.create_database()) as ledger:
        with ledger.write(at_micros=NOW) as unit:
            reserve(unit)
            process = unit.execute(text("SELECT pg_backend_pid()")).scalar_one()
            with (
                fault.armed("ledger.before_commit", fault.Call(lambda: end_connection(postgresql, process))),
                pytest.raises(StateUnknownError) as caught,
            ):
                unit.commit()
        assert caught.value.reason == "commit_unknown"


def test_a_commit_without_an_answer_is_not_tried_again(postgresql: Postgresql) -> None:
    runs = []
    with ledger_at(postgresql.create_database()) as ledger:

        def work(unit: Unit) -> None:
            runs.append(unit)
            process = unit.execute(text("SELECT pg_backend_pid()")).scalar_one()
            fault.arm("ledger.before_commit", fault.Call(lambda: end_connection(postgresql, process)))

        with pytest.raises(StateUnknownError):
            ledger.transact(work, at_micros=NOW)
        fault.disarm("ledger.before_commit")
    assert len(runs) == 1


def plain_url(ledger: Ledger) -> str:
    return repr(ledger).removeprefix("Ledger(").removesuffix(")").replace("+psycopg", "")


def end_connection(database: Postgresql, process: int) -> None:
    with psycopg.connect(database.url()) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [process])


class ReportedError(sqlite3.OperationalError):
    def __init__(self, name: str) -> None:
        super().__init__("as the driver says")
        self.sqlite_errorname = name
        self.sqlite_errorcode = getattr(sqlite3, name)


@for_each(
    ("name", "phase", "kind", "reason"),
    [
        ("SQLITE_IOERR_FSYNC", Phase.COMMIT, StateUnknownError, "commit_unknown"),
        ("SQLITE_IOERR_DIR_FSYNC", Phase.COMMIT, StateUnknownError, "commit_unknown"),
        ("SQLITE_FULL", Phase.COMMIT, StateUnknownError, "commit_unknown"),
        ("SQLITE_FULL", Phase.WORK, UnavailableError, "ledger_unreachable"),
        ("SQLITE_IOERR_WRITE", Phase.WORK, UnavailableError, "ledger_unreachable"),
        ("SQLITE_BUSY", Phase.COMMIT, UnavailableError, "ledger_busy"),
        ("SQLITE_CORRUPT", Phase.WORK, UnavailableError, "ledger_damaged"),
        ("SQLITE_CONSTRAINT_FOREIGNKEY", Phase.COMMIT, ConflictError, "ledger_constraint"),
        ("SQLITE_ERROR", Phase.WORK, PvdmError, "ledger_misused"),
    ],
)
def test_an_error_of_sqlite_is_translated(name: str, phase: Phase, kind: type[PvdmError], reason: str) -> None:
    found = translate_error(DBAPIError("COMMIT", {}, ReportedError(name)), phase)
    assert (type(found), found.reason) == (kind, reason)


@for_each(
    ("state", "phase", "kind", "reason"),
    [
        ("40001", Phase.COMMIT, ConflictError, "ledger_serialization"),
        ("40P01", Phase.WORK, ConflictError, "ledger_serialization"),
        ("40003", Phase.COMMIT, StateUnknownError, "commit_unknown"),
        ("57P01", Phase.COMMIT, StateUnknownError, "commit_unknown"),
        ("57P01", Phase.WORK, UnavailableError, "ledger_unreachable"),
        ("08006", Phase.COMMIT, StateUnknownError, "commit_unknown"),
        (None, Phase.COMMIT, StateUnknownError, "commit_unknown"),
        (None, Phase.CONNECT, UnavailableError, "ledger_unreachable"),
        ("53100", Phase.WORK, UnavailableError, "ledger_unreachable"),
        ("55P03", Phase.WORK, UnavailableError, "ledger_busy"),
        ("23505", Phase.WORK, ConflictError, "ledger_constraint"),
        ("PV001", Phase.WORK, ConflictError, "ledger_constraint"),
        ("42P01", Phase.WORK, PvdmError, "ledger_misused"),
    ],
)
def test_an_error_of_postgresql_is_translated(
    state: str | None, phase: Phase, kind: type[PvdmError], reason: str
) -> None:
    cause = psycopg.OperationalError("words\nDETAIL: Key (secret)=(1)")
    cause.sqlstate = state
    found = translate_error(InterfaceError("COMMIT", {}, cause), phase)
    assert (type(found), found.reason) == (kind, reason)


def test_a_value_that_the_driver_refuses_is_a_misuse() -> None:
    found = translate_error(DataError("INSERT", {}, psycopg.DataError("cannot contain NUL")), Phase.WORK)
    assert found.reason == "ledger_misused"


def test_the_values_of_a_row_are_not_in_the_error() -> None:
    cause = psycopg.IntegrityError("duplicate key\nDETAIL:  Key (secret)=(geheim) already exists.")
    cause.sqlstate = "23505"
    assert "geheim" not in str(translate_error(DBAPIError("INSERT", {}, cause), Phase.WORK).to_json())


def test_a_change_that_a_rule_of_the_database_refuses_is_not_allowed() -> None:
    cause = psycopg.errors.RaiseException("pvdm rule: rows of events never change")
    cause.sqlstate = "PV001"
    found = translate_error(DBAPIError("UPDATE", {}, cause), Phase.WORK)
    assert isinstance(found, NotAllowedError)
    assert found.message == "a rule of the ledger refuses the change: rows of events never change"
