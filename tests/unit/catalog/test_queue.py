"""The queue in front of each table: commits to one table run one after the other, those to other tables do not wait."""

from __future__ import annotations

import threading

from pvdm.catalog.commit import TableQueues

ORDERS = (("sales",), "orders")
TOWNS = (("sales",), "towns")
LONG = 20.0


def gets_turn(queues: TableQueues, *tables: tuple[tuple[str, ...], str]) -> bool:
    """Whether another thread gets a turn at these tables within 0.2 seconds."""
    got = threading.Event()

    def work() -> None:
        with queues.turn(tables):
            got.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return got.wait(0.2)


def test_a_second_commit_to_a_table_waits() -> None:
    queues = TableQueues(seconds=LONG)
    with queues.turn([ORDERS]):
        assert not gets_turn(queues, ORDERS)


def test_a_turn_without_a_wait_yields_true() -> None:
    queues = TableQueues(seconds=LONG)
    with queues.turn([ORDERS, TOWNS]) as at_once:
        assert at_once


def test_a_turn_after_a_wait_yields_false() -> None:
    queues = TableQueues(seconds=0.01)
    with queues.turn([TOWNS]), queues.turn([TOWNS]) as at_once:
        assert not at_once


def test_another_table_is_not_held_up() -> None:
    queues = TableQueues(seconds=LONG)
    with queues.turn([ORDERS]):
        assert gets_turn(queues, TOWNS)


def test_a_commit_to_both_waits_for_either() -> None:
    queues = TableQueues(seconds=LONG)
    with queues.turn([TOWNS]):
        assert not gets_turn(queues, ORDERS, TOWNS)


def test_a_commit_that_waited_too_long_goes_on() -> None:
    queues = TableQueues(seconds=0.01)
    with queues.turn([ORDERS]):
        assert gets_turn(queues, ORDERS)


def test_tables_are_taken_in_one_order_however_they_are_named() -> None:
    queues = TableQueues(seconds=LONG)
    with queues.turn([TOWNS]):
        assert not gets_turn(queues, TOWNS, ORDERS)  # the other thread now has orders, and waits for towns
        assert not gets_turn(queues, ORDERS)


def test_no_queue_is_kept_for_an_idle_table() -> None:
    queues = TableQueues()
    with queues.turn([ORDERS, TOWNS]):
        assert len(queues._queues) == 2
    assert len(queues._queues) == 0
