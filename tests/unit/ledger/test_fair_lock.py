"""Locks for SQLite: granted in order, one writer at a time, no reader during a commit, and no endless wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from pvdm.ledger.locks import FairLock, ReaderWriterLock

LONG = 20.0
SHORT = 0.05


def start_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_the_lock_is_granted_in_order_of_arrival() -> None:
    queue, order = FairLock(), list[int]()

    def wait(number: int) -> None:
        with queue.hold(LONG):
            order.append(number)

    threads = []
    with queue.hold(LONG):
        for number in range(5):
            threads.append(start_thread(lambda number=number: wait(number)))  # type: ignore[misc]
            wait_until(lambda: len(queue._waiting) > number)  # noqa: B023 - called before `number` changes
        assert order == []
    for thread in threads:
        thread.join(LONG)
    assert order == [0, 1, 2, 3, 4]


def test_one_thread_holds_the_lock_at_a_time() -> None:
    queue, inside, most_inside = FairLock(), [0], [0]

    def work() -> None:
        for _ in range(50):
            with queue.hold(LONG):
                inside[0] += 1
                most_inside[0] = max(most_inside[0], inside[0])
                time.sleep(0)
                inside[0] -= 1

    for thread in [start_thread(work) for _ in range(8)]:
        thread.join(LONG)
    assert (inside, most_inside) == ([0], [1])


def test_a_thread_that_waits_too_long_continues_without_the_lock() -> None:
    queue = FairLock()
    with queue.hold(LONG) as first:
        with queue.hold(SHORT) as second:
            assert (first, second) == (True, False)
        with queue.hold(SHORT) as fourth:
            assert not fourth
    assert queue.is_free
    with queue.hold(SHORT) as third:
        assert third


def test_the_lock_is_released_after_an_error() -> None:
    queue = FairLock()
    with pytest.raises(RuntimeError), queue.hold(LONG):
        raise RuntimeError
    assert queue.is_free


def test_two_readers_hold_the_lock_together() -> None:
    turns = ReaderWriterLock(SHORT)
    with turns.reading():
        thread = start_thread(lambda: turns.reading().__enter__())
        thread.join(LONG)
        assert not thread.is_alive()


def test_a_commit_waits_for_the_readers_that_are_there() -> None:
    turns, steps = ReaderWriterLock(LONG), list[str]()

    def commit() -> None:
        with turns.committing():
            steps.append("committed")

    with turns.reading():
        thread = start_thread(commit)
        wait_until(lambda: turns._committing)
        steps.append("read")
    thread.join(LONG)
    assert steps == ["read", "committed"]


def test_a_reader_waits_for_a_commit() -> None:
    turns, steps = ReaderWriterLock(LONG), list[str]()

    def read() -> None:
        with turns.reading():
            steps.append("read")

    with turns.committing():
        thread = start_thread(read)
        time.sleep(SHORT)
        steps.append("committed")
    thread.join(LONG)
    assert steps == ["committed", "read"]


def test_a_commit_continues_when_a_reader_does_not_end() -> None:
    turns = ReaderWriterLock(SHORT)
    with turns.reading(), turns.committing():
        pass
    with turns.reading():
        pass
