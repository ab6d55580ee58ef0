"""Long polls: what they ask the ledger while they wait, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pvdm.errors import UnavailableError
from pvdm.steward.http.long_poll import LongPolls
from pvdm.steward.pipeline.jobs import Changes

ATTEMPT = "ab" * 16
SECONDS = 20.0


@dataclass
class Desk:
    """Says whether the attempt is settled as a test sets it; what it was asked for is noted."""

    asked: list[str] = field(default_factory=list)
    looks: list[list[str]] = field(default_factory=list)
    settled: bool = False
    broken: bool = False

    def is_settled(self, _: object, __: str) -> bool:
        self.asked.append("settled")
        return self.settled

    def list_settled(self, attempt_ids: Sequence[str]) -> list[str]:
        self.looks.append(list(attempt_ids))
        if self.broken:
            raise UnavailableError("ledger_busy", "busy")
        return list(attempt_ids) if self.settled else []

    def get_attempt(self, _: object, attempt_id: str) -> Any:
        self.asked.append("view")
        return attempt_id


async def _poll(desk: Desk, changes: Changes, seconds: float) -> Any:
    notary: Any = SimpleNamespace(work=desk, changes=changes)
    grant: Any = SimpleNamespace(parent_id=None, token_id="one")
    return await LongPolls(notary).attempt(grant, ATTEMPT, seconds)


async def _until(desk: Desk, looks: int) -> None:
    async with asyncio.timeout(SECONDS):
        while len(desk.asked) < looks:
            await asyncio.sleep(0.005)


def test_a_change_that_settles_nothing_makes_no_view_of_the_attempt() -> None:
    async def run() -> None:
        desk, changes = Desk(), Changes()
        poll = asyncio.create_task(_poll(desk, changes, SECONDS))
        await _until(desk, 1)
        changes.notify(ATTEMPT)
        await _until(desk, 2)
        desk.settled = True
        changes.notify(ATTEMPT)
        assert await poll == ATTEMPT
        assert desk.asked == ["settled", "settled", "settled", "view"]

    asyncio.run(run())


def test_a_change_of_another_attempt_does_not_wake_the_poll() -> None:
    async def run() -> None:
        desk, changes = Desk(), Changes()
        poll = asyncio.create_task(_poll(desk, changes, SECONDS))
        await _until(desk, 1)
        changes.notify("cd" * 16)
        await asyncio.sleep(0.05)
        assert desk.asked == ["settled"]
        changes.close()
        await poll

    asyncio.run(run())


def test_a_poll_whose_time_is_over_gives_the_attempt_as_it_is() -> None:
    desk = Desk()
    assert asyncio.run(_poll(desk, Changes(), 0.05)) == ATTEMPT
    assert desk.asked == ["settled", "view"]


def waiting_on(desk: Desk, changes: Changes) -> Any:
    notary: Any = SimpleNamespace(work=desk, changes=changes)
    return LongPolls(notary, poll_seconds=0.02)


def test_many_polls_share_one_look_for_what_other_stewards_settle() -> None:
    async def run() -> None:
        desk = Desk()
        waiting = waiting_on(desk, Changes())
        ids = [f"{number:032x}" for number in range(10)]
        grants: list[Any] = [SimpleNamespace(parent_id=None, token_id=each) for each in ids]
        polls = [
            asyncio.create_task(waiting.attempt(grant, each, SECONDS)) for grant, each in zip(grants, ids, strict=True)
        ]
        await _until(desk, len(ids))
        async with asyncio.timeout(SECONDS):
            while not desk.looks:
                await asyncio.sleep(0.005)
        desk.settled = True
        assert await asyncio.gather(*polls) == ids
        assert all(look == ids for look in desk.looks)
        assert desk.asked.count("settled") == 2 * len(ids)

    asyncio.run(run())


def test_a_look_that_fails_lets_each_poll_ask_for_itself() -> None:
    async def run() -> None:
        desk = Desk(broken=True)
        grant: Any = SimpleNamespace(parent_id=None, token_id="one")
        poll = asyncio.create_task(waiting_on(desk, Changes()).attempt(grant, ATTEMPT, SECONDS))
        await _until(desk, 1)
        desk.settled = True
        assert await poll == ATTEMPT

    asyncio.run(run())


def test_the_looks_end_with_the_last_poll() -> None:
    async def run() -> None:
        desk, changes = Desk(settled=True), Changes()
        waiting = waiting_on(desk, changes)
        grant: Any = SimpleNamespace(parent_id=None, token_id="one")
        assert await waiting.attempt(grant, ATTEMPT, SECONDS) == ATTEMPT
        await asyncio.sleep(0.1)
        assert len(desk.looks) <= 1

    asyncio.run(run())
