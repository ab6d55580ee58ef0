"""Runs a workload in segments: one process after the other, each for a bounded time, until the workload has ended."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final, TypeAlias, TypeGuard

from pvdm.api.work import WorkloadView
from pvdm.client import StewardClient
from pvdm.durable import failure_text
from pvdm.durable.final_outcome import count_as_published_now, find_published, rolled_back_outcome
from pvdm.durable.outcome import Outcome
from pvdm.durable.progress import (
    FAILURES_MAX,
    Progress,
    Result,
    end_text,
    may_continue,
    waits_for_steward,
)
from pvdm.durable.segment import elapsed_seconds
from pvdm.errors import Code, PvdmError, RolledBackError
from pvdm.physical.watchdog import STOP_SIGNALS, SigtermReceived, hold_stop_signals, raise_on_sigterm

_WAIT_FIRST_SECONDS: Final = 1.0
_WAIT_LONGEST_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2

RunSegment: TypeAlias = Callable[[int, float], Outcome]
"""Works on the workload until a time by `elapsed_seconds`, a clock that all processes of the host share.

The function must be picklable, since another process runs it. The first argument is the segment's number, from 1.
"""


@dataclass(frozen=True, slots=True)
class _Crash:
    """The result of a segment whose process sent none. `interrupted`: SIGINT or SIGTERM ended the process."""

    text: str
    interrupted: bool = False


_Result: TypeAlias = Result | _Crash


class Supervisor:
    """Starts one segment after the other, and stops when the workload has ended or segments fail without progress."""

    def __init__(
        self,
        client: StewardClient,
        workload: WorkloadView,
        run_segment: RunSegment,
        *,
        segment_timeout: float,
        notify: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`notify` is called with a text when a segment has ended and another one follows."""
        self._client = client
        self._workload = workload
        self._run_segment = run_segment
        self._timeout = segment_timeout
        self._notify = notify
        self._interrupted = False
        self._received: Result | None = None  # the result that the current or last segment has sent
        self._published_before: frozenset[str] | None = None  # the ids of chunks; None if they could not be read

    def run(self) -> Outcome:
        """Run segments until the workload has ended, `FAILURES_MAX` in a row make no progress, or a signal comes."""
        progress = Progress(self._workload.handed_in)
        with contextlib.suppress(PvdmError):
            self._published_before = find_published(self._client, self._workload)
        try:
            with raise_on_sigterm():
                return self._run_segments(progress)
        except (KeyboardInterrupt, SigtermReceived):  # between two segments, or after the last one
            if self._received is not None and _is_final(self._received):
                return self._outcome_of(self._received)
            return self._end_interrupted(progress)

    def _run_segments(self, progress: Progress) -> Outcome:
        for number in itertools.count(1):
            result = self._run_one(number)
            if _is_final(result):
                return self._outcome_of(result)
            if self._interrupted or _is_interrupted(result):
                return self._end_interrupted(progress)
            waits = not isinstance(result, _Crash) and waits_for_steward(result)
            progress.note(self._count_handed_in(progress), waits=waits)
            if isinstance(result, PvdmError) and progress.failures >= FAILURES_MAX:
                raise result  # this error says more than `crash_loop`
            try:
                progress.require(self._workload.workload_id, _text_of(result))
            except RolledBackError as error:
                return self._rolled_back_outcome(error)
            self._wait(number, progress.failures, result)
        raise AssertionError("the loop has no end of its own")

    def _end_interrupted(self, progress: Progress) -> Outcome:
        return self._rolled_back_outcome(failure_text.interrupted_error(staged=bool(progress.handed_in)))

    def _rolled_back_outcome(self, error: PvdmError) -> Outcome:
        return rolled_back_outcome(self._client, self._workload, error, self._published_before or ())

    def _outcome_of(self, result: Result) -> Outcome:
        """The outcome of the last segment. Chunks that earlier segments published count as published now."""
        if isinstance(result, PvdmError):
            raise result
        if self._published_before is None:
            return result
        return count_as_published_now(result, self._published_before)

    def _run_one(self, number: int) -> _Result:
        """Run a segment in a process of its own, and kill that process if it outlives its time.

        After SIGTERM or Ctrl-C, set `_interrupted`, and let the segment roll back. If the segment had sent a result
        before, return that result.
        """
        self._received = None
        context = multiprocessing.get_context("spawn")
        receiving, sending = context.Pipe(duplex=False)
        ends_at = elapsed_seconds() + self._timeout
        arguments = (sending, self._run_segment, number, ends_at)
        process = context.Process(target=_run_in_process, args=arguments, name=f"pvdm segment {number}")
        with receiving, sending:
            try:
                _start(process)
                sending.close()
                return self._await_result(process, receiving, ends_at)
            except (KeyboardInterrupt, SigtermReceived):
                self._interrupted = True
                if self._received is not None:
                    return self._received
                if process.pid is None:
                    return _Crash("it was interrupted before its start")
                sending.close()
                process.terminate()  # the segment rolls back, and sends its result
                return self._await_result(process, receiving, ends_at)
            finally:
                if process.pid is not None:
                    process.kill()
                    process.join()

    def _await_result(self, process: SpawnProcess, receiving: Connection, ends_at: float) -> _Result:
        """The result that the segment sends at its end; a `_Crash` if it sends none or outlives its time."""
        while not receiving.poll(_POLL_SECONDS):
            if elapsed_seconds() >= ends_at:
                process.kill()
                process.join()
                return _Crash("it outlived its time and was killed")
        try:
            with _signals_deferred():
                result: Result = receiving.recv()
                self._received = result
        except EOFError:
            process.join()
            interrupted = process.exitcode in {-number for number in STOP_SIGNALS}
            return _Crash(_exit_text(process.exitcode), interrupted)
        process.join(max(0.0, ends_at - elapsed_seconds()))  # Spark takes seconds to stop
        return result

    def _count_handed_in(self, progress: Progress) -> int:
        """How many attempts were handed in; the last known number if it cannot be read now."""
        try:
            return self._client.workload(self._workload.workload_id, limit=1, look_up_source=False).handed_in
        except PvdmError:
            return progress.handed_in

    def _wait(self, number: int, failures: int, result: _Result) -> None:
        """Wait before the next segment, longer with each failure."""
        seconds = min(_WAIT_LONGEST_SECONDS, _WAIT_FIRST_SECONDS * 2 ** (failures - 1)) if failures else 0.0
        when = f" in {seconds:g} s" if seconds else ""
        self._notify(f"segment {number} ended ({_text_of(result)}); the next one begins{when}")
        time.sleep(seconds)


def _text_of(result: _Result) -> str:
    return result.text if isinstance(result, _Crash) else end_text(result)


def _is_final(result: _Result) -> TypeGuard[Result]:
    """Whether this result ends the workload's run. A crash or an interruption without an outcome does not."""
    return not isinstance(result, _Crash) and not may_continue(result) and not _is_interrupted(result)


def _is_interrupted(result: _Result) -> bool:
    if isinstance(result, _Crash):
        return result.interrupted
    return isinstance(result, PvdmError) and result.code == Code.INTERRUPTED


def _start(process: SpawnProcess) -> None:
    """Start the process with SIGINT and SIGTERM blocked. The process unblocks them when it can roll back.

    This process handles a signal only after the start: a process that is ended during its start prints a traceback.
    """
    resource_tracker.ensure_running()  # else `process.start` does this, and unblocks the signals
    with _signals_deferred():
        allowed = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, allowed)


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Handle SIGINT and SIGTERM only after the block."""
    received: list[int] = []
    try:
        with hold_stop_signals() as received:
            yield
    finally:
        if received:
            signal.raise_signal(received[0])


def _exit_text(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"its process ended with exit code {exit_code}"
    return f"its process was ended by {signal.Signals(-exit_code).name}"


def _run_in_process(sending: Connection, run_segment: RunSegment, number: int, ends_at: float) -> None:
    """The main function of a segment's process."""
    os.setsid()  # Ctrl-C in the terminal then reaches only the supervisor, which lets the segment roll back
    threading.Thread(target=_end_with_parent, name="pvdm supervisor watch", daemon=True).start()
    result = _run_interruptibly(run_segment, number, ends_at)
    with contextlib.suppress(BrokenPipeError):  # the supervisor was killed
        sending.send(result)


def _run_interruptibly(run_segment: RunSegment, number: int, ends_at: float) -> Result:
    """Run the segment with SIGINT and SIGTERM unblocked. Both are blocked while the process starts and ends."""
    if STOP_SIGNALS & signal.sigpending():
        return failure_text.interrupted_error(staged=False)
    outcome: Outcome | None = None
    try:
        with raise_on_sigterm():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            try:
                outcome = run_segment(number, ends_at)
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        return outcome
    except (KeyboardInterrupt, SigtermReceived):
        return outcome or failure_text.interrupted_error(staged=False)
    except PvdmError as error:
        return error


def _end_with_parent() -> None:
    """Interrupt this process when the supervisor's process has ended, even if the supervisor was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
