"""The unit of work: it is stored only by its commit, never nested, and repeated only after a serialization failure."""

from __future__ import annotations

import contextlib
import os

import pytest
from sqlalchemy import text

from pvdm.errors import ConflictError, PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.engine import TRANSACTION_TRIES_MAX
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.unit import in_transaction
from pvdm.ledger.work import nonces
from tests.support.ledger.databases import NOW
from tests.support.ledger.rows import hex32


def reserve(unit: Unit, name: object = 1) -> None:
    nonces.reserve(unit, hex32(name), purpose=NoncePurpose.BREAK_GLASS, holder="x")


def is_stored(ledger: Ledger, name: object = 1) -> bool:
    with ledger.read() as unit:
        return nonces.find(unit, hex32(name)) is not None


def test_a_committed_unit_is_stored(ledger: Ledger) -> None:
    with ledger.write(at_micros=NOW) as unit:
        reserve(unit)
        unit.commit()
    assert is_stored(ledger)


def test_a_unit_without_commit_is_rolled_back(ledger: Ledger) -> None:
    with ledger.write(at_micros=NOW) as unit:
        reserve(unit)
    assert not is_stored(ledger)


def test_a_committed_unit_stays_if_the_caller_fails_afterwards(ledger: Ledger) -> None:
    with contextlib.suppress(ZeroDivisionError), ledger.write(at_micros=NOW) as unit:
        reserve(unit)
        unit.commit()
        raise ZeroDivisionError
    assert is_stored(ledger)


def test_a_unit_with_an_error_is_rolled_back(ledger: Ledger) -> None:
    with contextlib.suppress(ZeroDivisionError), ledger.write(at_micros=NOW) as unit:
        reserve(unit)
        raise ZeroDivisionError
    assert not is_stored(ledger)


def test_using_a_unit_after_its_commit_is_refused(ledger: Ledger) -> None:
    with ledger.write(at_micros=NOW) as unit:
        unit.commit()
        with pytest.raises(PvdmError) as caught:
            reserve(unit)
    assert caught.value.reason == "unit_closed"


def test_using_a_unit_after_its_block_is_refused(ledger: Ledger) -> None:
    with ledger.read() as unit:
        pass
    with pytest.raises(PvdmError) as caught:
        nonces.find(unit, hex32(1))
    assert caught.value.reason == "unit_closed"


def test_a_reading_unit_cannot_write(ledger: Ledger) -> None:
    with ledger.read() as unit, pytest.raises(PvdmError):
        reserve(unit)
    assert not is_stored(ledger)


def test_committing_a_reading_unit_is_refused(ledger: Ledger) -> None:
    with ledger.read() as unit, pytest.raises(PvdmError) as caught:
        unit.commit()
    assert caught.value.reason == "unit_read_only"


def test_a_ledger_can_write_after_it_was_read(ledger: Ledger) -> None:
    assert not is_stored(ledger)
    ledger.transact(reserve, at_micros=NOW)
    assert is_stored(ledger)


def test_a_unit_inside_another_one_is_refused(ledger: Ledger) -> None:
    with ledger.write(at_micros=NOW), pytest.raises(PvdmError) as caught, ledger.read():
        pass
    assert caught.value.reason == "unit_nested"


def test_in_transaction_says_whether_a_unit_is_open(ledger: Ledger) -> None:
    with ledger.read():
        inside = in_transaction()
    assert (inside, in_transaction()) == (True, False)


def test_a_serialization_failure_is_tried_again(ledger: Ledger) -> None:
    runs = []

    def work(unit: Unit) -> int:
        runs.append(1)
        if len(runs) < 3:
            raise ConflictError("ledger_serialization", "another transaction was first")
        reserve(unit)
        return len(runs)

    assert (ledger.transact(work, at_micros=NOW), is_stored(ledger)) == (3, True)


def test_tries_have_a_limit(ledger: Ledger) -> None:
    runs = []

    def work(unit: Unit) -> None:
        runs.append(1)
        raise ConflictError("ledger_serialization", "another transaction was first")

    with pytest.raises(ConflictError):
        ledger.transact(work, at_micros=NOW)
    assert len(runs) == TRANSACTION_TRIES_MAX


def test_another_conflict_is_not_tried_again(ledger: Ledger) -> None:
    ledger.transact(reserve, at_micros=NOW)
    runs = []

    def work(unit: Unit) -> None:
        runs.append(1)
        reserve(unit)

    with pytest.raises(ConflictError):
        ledger.transact(work, at_micros=NOW)
    assert len(runs) == 1


def test_all_rows_of_a_unit_have_one_time(ledger: Ledger) -> None:
    with ledger.write(at_micros=NOW + 5) as unit:
        reserve(unit, 1)
        reserve(unit, 2)
        times = {row["at_micros"] for row in unit.rows(text("SELECT at_micros FROM nonces"))}
    assert times == {NOW + 5}


def test_a_child_process_does_not_use_its_parents_connections(ledger: Ledger) -> None:
    ledger.transact(lambda unit: reserve(unit, "parent"), at_micros=NOW)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ledger.transact(lambda unit: reserve(unit, "child"), at_micros=NOW)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    ledger.transact(lambda unit: reserve(unit, "parent again"), at_micros=NOW)
    assert is_stored(ledger, "child")
