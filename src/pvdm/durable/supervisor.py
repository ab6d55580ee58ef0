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
from pvdm.durable.outcome import Outcome, RolledBack
from pvdm.durable.segment import elapsed_seconds
from pvdm.errors import Code, PvdmError, StateUnknownError, UnavailableError
from pvdm.model.states import AttemptState
from pvdm.physical.watchdog import SigtermReceived, raise_on_sigterm

FAILURES_MAX: Final = 5
"""After so many segments in a row without progress the supervisor stops."""
_WAIT_FIRST_SECONDS: Final = 1.0
_WAIT_LONGEST_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2

RunSegment: TypeAlias = Callable[[int, float], Outcome]
"""Works on the workload for so many seconds. Runs in another process, so it can be pickled. Segments count from 1."""

# The same call continues after these; see the table of codes with exit code 4 in docs/cli.md.
_CONTINUED: Final = frozenset(
    {Code.SEGMENT_TIMED_OUT, Code.ATTEMPT_ROLLED_BACK, Code.STAGING_UNKNOWN, Code.LEDGER_SERIALIZATION}
)
_WITH_STEWARD: Final = frozenset({AttemptState.VERIFYING, AttemptState.COMMITTING})
_HANDED_IN: Final = _WITH_STEWARD | {AttemptState.COMMITTED}


@dataclass(frozen=True, slots=True)
class _Crash:
    """A segment whose process ended without a result."""

    text: str


_Result: TypeAlias = Outcome | PvdmError | _Crash


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
        number, failures, handed_in = 1, 0, self._count_handed_in()
        try:
            with raise_on_sigterm():
                while True:
                    result = self._run_one(number)
                    if not _may_continue(result):
                        return _outcome_of(result)
                    before, handed_in = handed_in, max(handed_in, self._count_handed_in())
                    advanced = handed_in > before or _waits_for_steward(result)
                    failures = 0 if advanced else failures + 1
                    if failures >= FAILURES_MAX:
                        raise self._stop_error(result)
                    self._wait(number, failures, result)
                    number += 1
        except (KeyboardInterrupt, SigtermReceived):  # between two segments
            raise failure_text.interrupted_error(staged=bool(handed_in)) from None

    def _run_one(self, number: int) -> _Result:
        """Run a segment in a process of its own, and kill that process if it outlives its time."""
        context = multiprocessing.get_context("spawn")
        receiving, sending = context.Pipe(duplex=False)
        ends_at = elapsed_seconds() + self._timeout
        arguments = (sending, self._run_segment, number, self._timeout)
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
            states = self._client.workload(self._workload_id, look_up_source=False).chunk_states
        except PvdmError:
            return 0
        return sum(each.chunks for each in states if each.state in _HANDED_IN)

    def _wait(self, number: int, failures: int, result: _Result) -> None:
        """Wait before the next segment, longer with each failure."""
        seconds = min(_WAIT_LONGEST_SECONDS, _WAIT_FIRST_SECONDS * 2 ** (failures - 1)) if failures else 0.0
        when = f" in {seconds:g} s" if seconds else ""
        self._notify(f"segment {number} ended ({_text_of(result)}); the next one begins{when}")
        time.sleep(seconds)

    def _stop_error(self, result: _Result) -> PvdmError:
        """The error of the last segment if it says what is wrong; else `crash_loop`."""
        if isinstance(result, PvdmError):
            return result
        return Code.CRASH_LOOP(
            expected=f"progress within {FAILURES_MAX} segments of {self._timeout:g} seconds",
            got=_text_of(result),
            workload_id=self._workload_id,
        )


def _may_continue(result: _Result) -> bool:
    if isinstance(result, RolledBack):
        return result.error.code in _CONTINUED or result.error.reason == "lease_expired"
    return isinstance(result, (_Crash, UnavailableError, StateUnknownError))


def _waits_for_steward(result: _Result) -> bool:
    """Whether the segment ended while the Steward verified or published what was handed in."""
    return isinstance(result, RolledBack) and any(each.state in _WITH_STEWARD for each in result.chunks)


def _outcome_of(result: _Result) -> Outcome:
    if isinstance(result, PvdmError):
        raise result
    assert not isinstance(result, _Crash)  # noqa: S101 - after a crash another segment follows
    return result


def _text_of(result: _Result) -> str:
    if isinstance(result, _Crash):
        return result.text
    error = result if isinstance(result, PvdmError) else result.error if isinstance(result, RolledBack) else None
    return "" if error is None else f"{error.message} ({error.reason})"


def _await_result(process: SpawnProcess, receiving: Connection, ends_at: float) -> _Result:
    """What the segment sends at its end. A process that is killed, or that outlives its time, sends nothing."""
    while not receiving.poll(_POLL_SECONDS):
        if elapsed_seconds() >= ends_at:
            process.kill()
            process.join()
            return _Crash("it outlived its time and was killed")
    try:
        result: _Result = receiving.recv()
    except EOFError:
        process.join()
        return _Crash(_exit_text(process.exitcode))
    process.join(max(0.0, ends_at - elapsed_seconds()))  # Spark takes seconds to stop
    return result


def _exit_text(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"its process ended with exit code {exit_code}"
    return f"its process was ended by {signal.Signals(-exit_code).name}"


def _run_in_process(sending: Connection, run_segment: RunSegment, number: int, seconds: float) -> None:
    """The main function of a segment's process."""
    os.setsid()  # a Ctrl-C in the terminal reaches the supervisor only, which then ends the segment in order
    threading.Thread(target=_end_with_parent, name="pvdm supervisor watch", daemon=True).start()
    result: Outcome | PvdmError
    try:
        result = run_segment(number, seconds)
    except PvdmError as error:
        result = error
    sending.send(result)


def _end_with_parent() -> None:
    """Interrupt this process when the supervisor's process has ended, even if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
