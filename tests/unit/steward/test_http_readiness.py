"""Readiness is asked of the Steward's parts a few times a second at most, and the answer is never an old one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pvdm.errors import PvdmError, UnavailableError
from pvdm.steward.http.dependencies import READINESS_CHECKS_MAX, Readiness

GONE = UnavailableError("ledger_unreachable", "gone")


class Parts:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.now = 100.0
        self.found: tuple[PvdmError, ...] = ()
        self.failure: Exception | None = None
        self.go = threading.Event()
        self.go.set()

    def readiness(self) -> tuple[PvdmError, ...]:
        self.asked += 1
        self.go.wait(10)
        if self.failure is not None:
            raise self.failure
        return self.found

    def clock(self) -> float:
        return self.now


def test_each_of_a_few_questions_gets_a_fresh_answer() -> None:
    async def scene() -> None:
        parts = Parts()
        readiness = Readiness(parts.readiness, clock=parts.clock)
        assert await readiness.reasons() == ()
        parts.found = (GONE,)
        assert await readiness.reasons() == (GONE,)

    asyncio.run(scene())


def test_many_questions_within_a_second_are_answered_from_the_last_check() -> None:
    async def scene() -> None:
        parts = Parts()
        readiness = Readiness(parts.readiness, clock=parts.clock)
        for _ in range(50):
            assert await readiness.reasons() == ()
        assert parts.asked == READINESS_CHECKS_MAX
        parts.found = (GONE,)
        parts.now += 1
        assert await readiness.reasons() == (GONE,)

    asyncio.run(scene())


def test_questions_at_the_same_time_share_one_check_and_one_thread() -> None:
    async def scene() -> None:
        parts = Parts()
        parts.go.clear()
        readiness = Readiness(parts.readiness, clock=parts.clock)
        asking = [asyncio.create_task(readiness.reasons()) for _ in range(100)]
        await asyncio.sleep(0.05)
        asking[0].cancel()
        parts.go.set()
        told = await asyncio.gather(*asking, return_exceptions=True)
        assert told[1:] == [()] * 99
        assert parts.asked == 1

    asyncio.run(scene())


def test_a_check_that_fails_does_not_stop_the_next() -> None:
    async def scene() -> None:
        parts = Parts()
        parts.failure = ValueError("planted")
        readiness = Readiness(parts.readiness, clock=parts.clock)
        with pytest.raises(ValueError, match="planted"):
            await readiness.reasons()
        parts.failure = None
        assert await readiness.reasons() == ()

    asyncio.run(scene())
