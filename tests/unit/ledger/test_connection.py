"""Lost connections to PostgreSQL: the error, the rollback, and the next unit, by the driver and by SQLAlchemy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from sqlalchemy import Integer, bindparam, func, select, text

from pvdm.errors import PvdmError, StateUnknownError, UnavailableError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces
from tests.support import fault
from tests.support.ledger.databases import NOW, Postgresql, ledger_at, memory_file_system, running_postgresql
from tests.support.ledger.rows import hex32

ASKED = bindparam("asked", type_=Integer)
# A statement that is built in advance and has a parameter goes directly to the driver.
PROCESS = select(func.pg_backend_pid().label("process"), ASKED.label("asked"))


@pytest.fixture
def ledger(postgresql: Postgresql) -> Iterator[Ledger]:
    with ledger_at(postgresql.create_database()) as ledger:
        yield ledger


@pytest.fixture
def end_process(postgresql: Postgresql) -> Callable[[int], None]:
    """A function that ends a server process, as an operator or a failover does."""

    def terminate(process: int) -> None:
        with psycopg.connect(postgresql.url()) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [process])

    return terminate


def process_by_driver(unit: Unit) -> int:
    """The id of the unit's server process, read directly through the driver."""
    row = unit.row(PROCESS, asked=1)
    assert row is not None
    return int(row["process"])


def process_by_sqlalchemy(unit: Unit) -> int:
    """The same, read through SQLAlchemy."""
    return int(unit.execute(text("SELECT pg_backend_pid()")).scalar_one())


def reserve(unit: Unit, number: int = 1) -> bool:
    """Write directly through the driver."""
    nonces.reserve(unit, hex32(number), purpose=NoncePurpose.BREAK_GLASS, holder="x")
    return True


def insert(unit: Unit) -> None:
    """Write through SQLAlchemy."""
    namespaces.create(unit, ("made",), domain="sales", properties={})


def is_reserved(ledger: Ledger, number: int = 1) -> bool:
    with ledger.read() as unit:
        return nonces.find(unit, hex32(number)) is not None


def connections_in_use(ledger: Ledger) -> int:
    """How many connections the pool thinks are in use."""
    found: int = ledger._engine.pool.checkedout()  # type: ignore[attr-defined]
    return found


FIND_PROCESS = [
    pytest.param(process_by_driver, id="by_driver"),
    pytest.param(process_by_sqlalchemy, id="by_sqlalchemy"),
]


@pytest.mark.parametrize("writing", [True, False])
@pytest.mark.parametrize("before", FIND_PROCESS)
@pytest.mark.parametrize("after", FIND_PROCESS)
def test_a_connection_lost_between_statements_is_unavailable_and_the_next_unit_works(
    ledger: Ledger,
    end_process: Callable[[int], None],
    before: Callable[[Unit], int],
    after: Callable[[Unit], int],
    writing: bool,
) -> None:
    with ledger.write(at_micros=NOW) if writing else ledger.read() as unit:
        process = before(unit)
        end_process(process)
        with pytest.raises(UnavailableError) as caught:
            after(unit)
    assert (caught.value.reason, connections_in_use(ledger)) == ("ledger_unreachable", 0)
    with ledger.read() as unit:
        assert process_by_driver(unit) != process


@pytest.mark.parametrize("find_process", FIND_PROCESS)
def test_writes_before_a_lost_connection_are_rolled_back(
    ledger: Ledger, end_process: Callable[[int], None], find_process: Callable[[Unit], int]
) -> None:
    with ledger.write(at_micros=NOW) as unit:
        reserve(unit)
        end_process(find_process(unit))
        with pytest.raises(UnavailableError):
            reserve(unit, 2)
    assert (is_reserved(ledger), is_reserved(ledger, 2)) == (False, False)


@pytest.mark.parametrize("find_process", FIND_PROCESS)
def test_a_unit_whose_connection_was_lost_is_closed(
    ledger: Ledger, end_process: Callable[[int], None], find_process: Callable[[Unit], int]
) -> None:
    with ledger.write(at_micros=NOW) as unit:
        reserve(unit)
        end_process(find_process(unit))
        with pytest.raises(UnavailableError):
            reserve(unit, 2)
        for operation in (lambda: reserve(unit, 3), lambda: insert(unit), unit.commit):
            with pytest.raises(PvdmError) as caught:
                operation()
            assert caught.value.reason == "unit_closed"
    assert [is_reserved(ledger, number) for number in (1, 2, 3)] == [False, False, False]


@pytest.mark.parametrize("find_process", FIND_PROCESS)
def test_a_connection_lost_before_the_commit_leaves_the_state_unknown_and_the_next_unit_works(
    ledger: Ledger, end_process: Callable[[int], None], find_process: Callable[[Unit], int]
) -> None:
    with ledger.write(at_micros=NOW) as unit:
        reserve(unit)
        process = find_process(unit)
        with (
            fault.armed("ledger.before_commit", fault.Call(lambda: end_process(process))),
            pytest.raises(StateUnknownError) as caught,
        ):
            unit.commit()
    assert (caught.value.reason, connections_in_use(ledger), is_reserved(ledger)) == ("commit_unknown", 0, False)
    assert ledger.transact(reserve, at_micros=NOW)
    assert is_reserved(ledger)


def test_work_whose_connection_was_lost_is_not_repeated(ledger: Ledger, end_process: Callable[[int], None]) -> None:
    runs: list[int] = []

    def work(unit: Unit) -> None:
        runs.append(process_by_driver(unit))
        reserve(unit)
        end_process(runs[-1])
        reserve(unit, 2)

    with pytest.raises(UnavailableError):
        ledger.transact(work, at_micros=NOW)
    assert (len(runs), is_reserved(ledger)) == (1, False)


@pytest.mark.parametrize("find_process", FIND_PROCESS)
def test_a_connection_lost_after_a_readers_last_statement_raises_nothing(
    ledger: Ledger, end_process: Callable[[int], None], find_process: Callable[[Unit], int]
) -> None:
    with ledger.read() as unit:
        end_process(find_process(unit))
    assert connections_in_use(ledger) == 0
    assert not is_reserved(ledger)


@pytest.mark.parametrize("find_process", FIND_PROCESS)
def test_a_connection_lost_in_the_pool_is_noticed_before_it_is_used(
    ledger: Ledger, end_process: Callable[[int], None], find_process: Callable[[Unit], int]
) -> None:
    with ledger.read() as unit:
        process = find_process(unit)
    end_process(process)
    assert ledger.transact(reserve, at_micros=NOW)
    assert is_reserved(ledger)


def test_a_reader_after_a_writer_on_one_connection_cannot_write_and_a_writer_after_it_can(ledger: Ledger) -> None:
    processes = []
    for number in (1, 2):
        with ledger.write(at_micros=NOW) as unit:
            processes.append(process_by_driver(unit))
            reserve(unit, number)
            unit.commit()
        with ledger.read() as unit:
            processes.append(process_by_driver(unit))
            with pytest.raises(UnavailableError):
                reserve(unit, 10 + number)
    assert len(set(processes)) == 1
    assert [is_reserved(ledger, number) for number in (1, 2, 11, 12)] == [True, True, False, False]


def test_a_reader_sees_one_state_from_its_first_statement_on(ledger: Ledger) -> None:
    with ledger.read() as unit:
        process_by_driver(unit)
        with psycopg.connect(plain_url(ledger), autocommit=True) as other:
            other.execute(
                "INSERT INTO nonces (nonce, purpose, holder, state, reason, at_micros) "
                "VALUES (%s, %s, 'x', 'RESERVED', 'reserved', 1)",
                [hex32(1), NoncePurpose.BREAK_GLASS.value],
            )
        assert nonces.find(unit, hex32(1)) is None
    assert is_reserved(ledger)


def plain_url(ledger: Ledger) -> str:
    return ledger._engine.url.render_as_string(hide_password=False).replace("+psycopg", "")


def test_after_a_kill_of_the_server_only_committed_writes_are_there() -> None:
    with running_postgresql(parent=memory_file_system()) as database, ledger_at(database.create_database()) as ledger:
        assert ledger.transact(reserve, at_micros=NOW)
        with ledger.write(at_micros=NOW) as unit:
            reserve(unit, 2)
            database.kill()
            with pytest.raises(UnavailableError):
                reserve(unit, 3)
        with pytest.raises(UnavailableError) as caught:
            is_reserved(ledger)
        assert (caught.value.reason, connections_in_use(ledger)) == ("ledger_unreachable", 0)
        database.restart()
        assert [is_reserved(ledger, number) for number in (1, 2, 3)] == [True, False, False]
        assert ledger.transact(lambda unit: reserve(unit, 2), at_micros=NOW)
