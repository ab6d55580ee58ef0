"""Work in a watched thread: what a signal, a time-out and an error do to it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from pvdm.errors import InputError, RolledBackError
from pvdm.physical import watchdog
from pvdm.physical.watchdog import run_watched


class CancellableWork:
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


def time_out(seconds: float) -> Callable[[], None]:
    """A check that raises after so many seconds."""
    ends = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() >= ends:
            raise RolledBackError("segment_timed_out", "too long")

    return check


def _signal_soon(number: int) -> threading.Timer:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), number))
    timer.start()
    return timer


def test_the_result_of_the_work_is_returned() -> None:
    assert run_watched(lambda: 7, cancel=lambda: False) == 7


def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    def work() -> None:
        raise InputError("rows_columns_differ", "no such column")

    with pytest.raises(InputError, match="no such column"):
        run_watched(work, cancel=lambda: False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_work_and_waits_for_its_end(number: int) -> None:
    slow = CancellableWork()
    timer = _signal_soon(number)
    with pytest.raises(RolledBackError) as caught:
        run_watched(slow.run, cancel=slow.cancel)
    timer.join()
    assert (caught.value.reason, slow.cleaned) == ("attempt_interrupted", True)


def test_a_bug_in_the_check_cancels_the_work() -> None:
    slow = CancellableWork()

    def check() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_watched(slow.run, cancel=slow.cancel, check=check)
    assert slow.cleaned


def test_a_thread_that_cannot_be_started_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="new thread"):
        run_watched(lambda: 7, cancel=lambda: False)
    assert time.monotonic() - began < 30


def test_an_error_of_the_check_cancels_the_work() -> None:
    slow = CancellableWork()
    with pytest.raises(RolledBackError) as caught:
        run_watched(slow.run, cancel=slow.cancel, check=time_out(0.2))
    assert (caught.value.reason, slow.cleaned) == ("segment_timed_out", True)


def test_the_result_of_work_that_ends_while_it_is_cancelled_is_returned() -> None:
    cancelled = threading.Event()

    def work() -> str:
        cancelled.wait(30)
        return "through"

    def cancel() -> bool:
        cancelled.set()
        return False

    assert run_watched(work, cancel=cancel, check=time_out(0.2)) == "through"


def test_waiting_for_work_that_does_not_stop_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "STOP_SECONDS", 0.3)
    never = threading.Event()
    start = time.monotonic()
    with pytest.raises(RolledBackError):
        run_watched(lambda: never.wait(20), cancel=lambda: False, check=time_out(0.1))
    assert time.monotonic() - start < 5
    never.set()


def test_work_is_not_waited_for_if_cancel_returns_true() -> None:
    never = threading.Event()
    start = time.monotonic()
    with pytest.raises(RolledBackError):
        run_watched(lambda: never.wait(20), cancel=lambda: True, check=time_out(0.1))
    assert time.monotonic() - start < 5
    never.set()


def test_an_error_of_cancel_does_not_replace_the_time_out() -> None:
    ended = threading.Event()

    def cancel() -> bool:
        ended.set()
        raise OSError("no connection")

    def work() -> None:
        ended.wait(30)
        raise RuntimeError("stopped")

    with pytest.raises(RolledBackError, match="too long"):
        run_watched(work, cancel=cancel, check=time_out(0.1))


def test_the_signal_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run_watched(lambda: None, cancel=lambda: False)
    assert signal.getsignal(signal.SIGTERM) is before


def test_work_can_be_watched_outside_of_the_main_thread() -> None:
    slow, found = CancellableWork(), []

    def run() -> None:
        try:
            run_watched(slow.run, cancel=slow.cancel, check=time_out(0.2))
        except RolledBackError as error:
            found.append(error.reason)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == ["segment_timed_out"]
