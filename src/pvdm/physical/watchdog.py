"""Runs work in a thread and stops it on an interruption or a time-out."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, Generic, TypeVar

from pvdm.errors import Code

STOP_SECONDS: Final = 60.0
STOP_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
_WAIT_SECONDS: Final = 0.2
_T = TypeVar("_T")


class SigtermReceived(BaseException):
    """The process received SIGTERM; a BaseException, so that `except Exception` does not catch it."""


def run_watched(work: Callable[[], _T], *, cancel: Callable[[], bool], check: Callable[[], None] = lambda: None) -> _T:
    """Run `work` in its own thread and return its result, so that this thread can be interrupted.

    An error of the work is raised as it is. `check` is called several times a second. On Ctrl-C, SIGTERM or an error
    of `check`, `cancel` is called until it returns True, the work ends or a minute is over. If the work has succeeded
    meanwhile, its result is returned; else this raises `attempt_interrupted` or the error of `check`.
    """
    running = _Running(work)
    with raise_on_sigterm():
        try:
            running.start()
            while not running.wait_for_end():
                check()
        except (KeyboardInterrupt, SigtermReceived, Exception) as stop:
            _stop(running, cancel)
            if running.has_result:
                return running.result()  # the work ended at the same moment
            if isinstance(stop, Exception):
                raise
            raise Code.ATTEMPT_INTERRUPTED("the attempt was interrupted and stopped") from None
        return running.result()


class _Running(Generic[_T]):
    """A thread with a result."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._results: list[_T] = []
        self._error: BaseException | None = None
        # The thread puts None here at its end. A signal can break `join` and Event: after an interrupted `join` the
        # thread counts as ended (CPython 3.11 and 3.12), and an Event's lock can stay locked.
        self._end: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="pvdm attempt", daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # too many threads
            self._is_over = True
            raise

    def wait_for_end(self) -> bool:
        """Wait a short time. Returns whether the work has ended."""
        if not self._is_over:
            with contextlib.suppress(queue.Empty):
                self._end.get(timeout=_WAIT_SECONDS)
                self._is_over = True
        return self._is_over

    @property
    def has_result(self) -> bool:
        return bool(self._results)

    def result(self) -> _T:
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # `result` raises it in the waiting thread
            self._error = error
        finally:
            self._end.put(None)


def _stop(running: _Running[_T], cancel: Callable[[], bool]) -> None:
    """Call `cancel` until it returns True, the work ends or a minute is over.

    One call is not enough: a Spark job that begins after it is not cancelled.
    """
    deadline = time.monotonic() + STOP_SECONDS
    while True:
        # An error of `cancel` is dropped: the caller gets the reason of the stop.
        with contextlib.suppress(Exception):
            if cancel():
                return
        if running.wait_for_end() or time.monotonic() >= deadline:
            return


@contextlib.contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Raise `SigtermReceived` on the first SIGTERM in the block. Outside of the main thread this does nothing.

    Later SIGTERMs in the block are ignored: the work is being stopped already, and a process may get two of them.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is None:
        yield  # None: the handler was not set by Python, so it could not be restored
        return

    def raise_received(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SigtermReceived

    previous_handler = signal.signal(signal.SIGTERM, raise_received)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def ignore_stop_signals() -> None:
    """Ignore SIGINT and SIGTERM from now on. Outside of the main thread this does nothing."""
    if threading.current_thread() is threading.main_thread():
        for each in STOP_SIGNALS:
            if signal.getsignal(each) is not None:  # None: not set by Python, so it could not be restored
                signal.signal(each, signal.SIG_IGN)


@contextlib.contextmanager
def restore_stop_signals() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM after the block. Outside of the main thread this does nothing."""
    handlers = {each: signal.getsignal(each) for each in STOP_SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for each, handler in handlers.items():
                if handler is not None:
                    signal.signal(each, handler)


@contextlib.contextmanager
def hold_stop_signals() -> Iterator[list[int]]:
    """Put SIGINT and SIGTERM that come in the block into a list instead of handling them.

    Blocking these signals is not enough: another thread may get them, and Python handles them in the main thread.
    Outside of the main thread this does nothing.
    """
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        keep = (signal.SIG_IGN, None)  # ignored, for example under `nohup`; or not set by Python
        handlers = {each: signal.signal(each, note) for each in STOP_SIGNALS if signal.getsignal(each) not in keep}
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
