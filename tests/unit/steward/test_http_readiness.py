"""The readiness of the Steward: its parts are checked a few times a second at most, and no answer is older."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pvdm.errors import PvdmError, UnavailableError
from pvdm.steward.http.dependencies import READINESS_CHECKS_MAX, Readiness

GONE = UnavailableError("ledger_unreachable", "gone")


class FakeParts:
    """Returns the readiness that a test sets; `checks` counts the calls."""

    def __init__(self) -> None:
        self.checks = 0
        self.now = 100.0
        self.found: tuple[PvdmError, ...] = ()
        self.failure: Exception | None = None
        self.go = threading.Event()
        self.go.set()

    def readiness(self) -> tuple[PvdmError, ...]:
        self.checks += 1
        self.go.wait(10)
        if self.failure is not None:
            raise self.failure
        return self.found

    def clock(self) -> float:
        return self.now


def test_each_of_a_few_requests_gets_a_new_check() -> None:
    async def scenario() -> None:
        parts = FakeParts()
        readiness = Readiness(parts.readiness, clock=parts.clock)
        assert await readiness.reasons() == ()
        parts.found = (GONE,)
        assert await readiness.reasons() == (GONE,)

    asyncio.run(scenario())


def test_many_requests_within_a_second_get_the_last_check() -> None:
    async def scenario() -> None:
        parts = FakeParts()
        readiness = Readiness(parts.readiness, clock=parts.clock)
        for _ in range(50):
            assert await readiness.reasons() == ()
        assert parts.checks == READINESS_CHECKS_MAX
        parts.found = (GONE,)
        parts.now += 1
        assert await readiness.reasons() == (GONE,)

    asyncio.run(scenario())


def test_concurrent_requests_share_one_check() -> None:
    async def scenario() -> None:
        parts = FakeParts()
        parts.go.clear()
        readiness = Readiness(parts.readiness, clock=parts.clock)
        requests = [asyncio.create_task(readiness.reasons()) for _ in range(100)]
        await asyncio.sleep(0.05)
        requests[0].cancel()
        parts.go.set()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert answers[1:] == [()] * 99
        assert parts.checks == 1

    asyncio.run(scenario())


def test_a_failed_check_does_not_stop_the_next_one() -> None:
    async def scenario() -> None:
        parts = FakeParts()
        parts.failure = ValueError("planted")
        readiness = Readiness(parts.readiness, clock=parts.clock)
        with pytest.raises(ValueError, match="planted"):
            await readiness.reasons()
        parts.failure = None
        assert await readiness.reasons() == ()

    asyncio.run(scenario())
