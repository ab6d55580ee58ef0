"""Runs a workload in segments: one process after the other, each for a bounded time, until the workload has ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final, TypeAlias

from pvdm.client import StewardClient
from pvdm.durable import failure_text
from pvdm.durable.outcome import Outcome
from pvdm.durable.progress import (
    FAILURES_MAX,
    Progress,
    Result,
    count_handed_in,
    end_text,
    may_continue,
    waits_for_steward,
)
from pvdm.durable.segment import elapsed_seconds
from pvdm.errors import PvdmError
from pvdm.physical.watchdog import SigtermReceived, raise_on_sigterm

_WAIT_FIRST_SECONDS: Final = 1.0
_WAIT_LONGEST_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2

RunSegment: TypeAlias = Callable[[int, float], Outcome]
"""Works on the workload until a time by `elapsed_seconds`, which every process of the host shares.

It runs in another process, so it can be pickled. Segments count from 1.
"""


@dataclass(frozen=True, slots=True)
class _Crash:
    """A segment whose process ended without a result."""

    text: str


_Result: TypeAlias = Result | _Crash


class Supervisor:
    """Starts one segment after the other, and stops when the workload has ended or segments fail without progress."""

    def __init__(
        self,
        client: StewardClient,
        workload_id: str,
        run_segment: RunSegment,
        *,
        segment_timeout: float,
        notify: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`notify` is called with a text when a segment has ended and another one follows."""
        self._client = client
        self._workload_id = workload_id
        self._run_segment = run_segment
        self._timeout = segment_timeout
        self._notify = notify

    def run(self) -> Outcome:
        """Run segments until the workload has ended. Raises `crash_loop` after several segments without progress."""
        number, progress = 1, Progress(self._count_handed_in())
        try:
            with raise_on_sigterm():
                while True:
                    result = self._run_one(number)
                    if not isinstance(result, _Crash) and not may_continue(result):
                        return _outcome_of(result)
                    waits = not isinstance(result, _Crash) and waits_for_steward(result)
                    progress.note(self._count_handed_in(), waits=waits)
                    if isinstance(result, PvdmError) and progress.failures >= FAILURES_MAX:
                        raise result  # it says what is wrong
                    progress.require(self._workload_id, _text_of(result))
                    self._wait(number, progress.failures, result)
                    number += 1
        except (KeyboardInterrupt, SigtermReceived):  # between two segments
            raise failure_text.interrupted_error(staged=bool(progress.handed_in)) from None

    def _run_one(self, number: int) -> _Result:
        """Run a segment in a process of its own, and kill that process if it outlives its time."""
        context = multiprocessing.get_context("spawn")
        receiving, sending = context.Pipe(duplex=False)
        ends_at = elapsed_seconds() + self._timeout
        arguments = (sending, self._run_segment, number, ends_at)
        process = context.Process(target=_run_in_process, args=arguments, name=f"pvdm segment {number}")
        with receiving:
            process.start()
            sending.close()
            try:
                return _await_result(process, receiving, ends_at)
            except (KeyboardInterrupt, SigtermReceived):
                process.terminate()  # it rolls back, and says so
                return _await_result(process, receiving, ends_at)
            finally:
                process.kill()
                process.join()

    def _count_handed_in(self) -> int:
        """The chunks that need no further segment. Zero while the Steward cannot say."""
        try:
            return count_handed_in(self._client.workload(self._workload_id, look_up_source=False))
        except PvdmError:
            return 0

    def _wait(self, number: int, failures: int, result: _Result) -> None:
        """Wait before the next segment, longer with each failure."""
        seconds = min(_WAIT_LONGEST_SECONDS, _WAIT_FIRST_SECONDS * 2 ** (failures - 1)) if failures else 0.0
        when = f" in {seconds:g} s" if seconds else ""
        self._notify(f"segment {number} ended ({_text_of(result)}); the next one begins{when}")
        time.sleep(seconds)


def _outcome_of(result: Result) -> Outcome:
    if isinstance(result, PvdmError):
        raise result
    return result


def _text_of(result: _Result) -> str:
    return result.text if isinstance(result, _Crash) else end_text(result)


def _await_result(process: SpawnProcess, receiving: Connection, ends_at: float) -> _Result:
    """What the segment sends at its end. A process that is killed, or that outlives its time, sends nothing."""
    while not receiving.poll(_POLL_SECONDS):
        if elapsed_seconds() >= ends_at:
            process.kill()
            process.join()
            return _Crash("it outlived its time and was killed")
    try:
        result: Result = receiving.recv()
    except EOFError:
        process.join()
        return _Crash(_exit_text(process.exitcode))
    process.join(max(0.0, ends_at - elapsed_seconds()))  # Spark takes seconds to stop
    return result


def _exit_text(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"its process ended with exit code {exit_code}"
    return f"its process was ended by {signal.Signals(-exit_code).name}"


def _run_in_process(sending: Connection, run_segment: RunSegment, number: int, ends_at: float) -> None:
    """The main function of a segment's process."""
    os.setsid()  # a Ctrl-C in the terminal reaches the supervisor only, which then ends the segment in order
    threading.Thread(target=_end_with_parent, name="pvdm supervisor watch", daemon=True).start()
    result: Result
    try:
        result = run_segment(number, ends_at)
    except PvdmError as error:
        result = error
    sending.send(result)


def _end_with_parent() -> None:
    """Interrupt this process when the supervisor's process has ended, even if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
