"""Work beside a watch: what an interruption, a signal and the end of the time do to it."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from pvdm.errors import InputError, RolledBackError
from pvdm.physical import watchdog
from pvdm.physical.watchdog import run_watched


class Slow:
    """Work that ends when it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.cleaned = False

    def cancel(self) -> bool:
        self.cancelled.set()
        return False

    def run(self) -> str:
        if not self.cancelled.wait(30):
            return "never stopped"
        self.cleaned = True
        raise RuntimeError("cancelled")


def _signal_soon(number: int) -> threading.Timer:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), number))
    timer.start()
    return timer


def test_what_the_work_gives_is_given() -> None:
    assert run_watched(lambda: 7, cancel=lambda: False) == 7


def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    def work() -> None:
        raise InputError("rows_columns_differ", "no such column")

    with pytest.raises(InputError, match="no such column"):
        run_watched(work, cancel=lambda: False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_work_and_waits_for_its_end(number: int) -> None:
    slow = Slow()
    timer = _signal_soon(number)
    with pytest.raises(RolledBackError) as caught:
        run_watched(slow.run, cancel=slow.cancel)
    timer.join()
    assert (caught.value.reason, slow.cleaned) == ("attempt_interrupted", True)


def test_the_end_of_the_time_cancels_the_work() -> None:
    slow = Slow()
    with pytest.raises(RolledBackError) as caught:
        run_watched(slow.run, cancel=slow.cancel, seconds=0.2)
    assert (caught.value.reason, slow.cleaned) == ("attempt_timed_out", True)


def test_work_that_was_through_in_the_same_moment_is_not_thrown_away() -> None:
    cancelled = threading.Event()

    def work() -> str:
        cancelled.wait(30)
        return "through"

    def cancel() -> bool:
        cancelled.set()
        return False

    assert run_watched(work, cancel=cancel, seconds=0.2) == "through"


def test_work_that_cannot_be_stopped_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "STOP_SECONDS", 0.3)
    never = threading.Event()
    begun = time.monotonic()
    with pytest.raises(RolledBackError):
        run_watched(lambda: never.wait(20), cancel=lambda: False, seconds=0.1)
    assert time.monotonic() - begun < 5
    never.set()


def test_work_that_need_not_be_waited_for_is_left_to_itself() -> None:
    never = threading.Event()
    begun = time.monotonic()
    with pytest.raises(RolledBackError):
        run_watched(lambda: never.wait(20), cancel=lambda: True, seconds=0.1)
    assert time.monotonic() - begun < 5
    never.set()


def test_cancelling_that_fails_does_not_hide_why_it_was_stopped() -> None:
    ended = threading.Event()

    def cancel() -> bool:
        ended.set()
        raise OSError("no connection")

    def work() -> None:
        ended.wait(30)
        raise RuntimeError("stopped")

    with pytest.raises(RolledBackError, match="too long"):
        run_watched(work, cancel=cancel, seconds=0.1)


def test_the_handler_of_signals_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run_watched(lambda: None, cancel=lambda: False)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_beside_the_main_one_can_be_watched_too() -> None:
    slow, found = Slow(), []

    def run() -> None:
        try:
            run_watched(slow.run, cancel=slow.cancel, seconds=0.2)
        except RolledBackError as error:
            found.append(error.reason)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == ["attempt_timed_out"]
