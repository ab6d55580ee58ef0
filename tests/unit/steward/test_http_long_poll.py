"""Long polls of an attempt: what they read from the ledger while they wait, and when they end."""

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
    """Says whether attempts are settled, as the test sets it; `calls` and `list_calls` record what it was asked."""

    calls: list[str] = field(default_factory=list)
    list_calls: list[list[str]] = field(default_factory=list)
    settled: bool = False
    broken: bool = False

    def is_settled(self, _: object, __: str) -> bool:
        self.calls.append("settled")
        return self.settled

    def list_settled(self, attempt_ids: Sequence[str]) -> list[str]:
        self.list_calls.append(list(attempt_ids))
        if self.broken:
            raise UnavailableError("ledger_busy", "busy")
        return list(attempt_ids) if self.settled else []

    def get_attempt(self, _: object, attempt_id: str) -> Any:
        self.calls.append("view")
        return attempt_id


async def poll_attempt(desk: Desk, changes: Changes, seconds: float) -> Any:
    notary: Any = SimpleNamespace(work=desk, changes=changes)
    grant: Any = SimpleNamespace(parent_id=None, token_id="one")
    return await LongPolls(notary).attempt(grant, ATTEMPT, seconds)


async def wait_for_calls(desk: Desk, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while len(desk.calls) < count:
            await asyncio.sleep(0.005)


def test_a_change_that_does_not_settle_the_attempt_reads_no_view() -> None:
    async def scenario() -> None:
        desk, changes = Desk(), Changes()
        poll = asyncio.create_task(poll_attempt(desk, changes, SECONDS))
        await wait_for_calls(desk, 1)
        changes.notify(ATTEMPT)
        await wait_for_calls(desk, 2)
        desk.settled = True
        changes.notify(ATTEMPT)
        assert await poll == ATTEMPT
        assert desk.calls == ["settled", "settled", "settled", "view"]

    asyncio.run(scenario())


def test_a_change_of_another_attempt_does_not_wake_the_poll() -> None:
    async def scenario() -> None:
        desk, changes = Desk(), Changes()
        poll = asyncio.create_task(poll_attempt(desk, changes, SECONDS))
        await wait_for_calls(desk, 1)
        changes.notify("cd" * 16)
        await asyncio.sleep(0.05)
        assert desk.calls == ["settled"]
        changes.close()
        await poll

    asyncio.run(scenario())


def test_a_poll_whose_time_is_over_returns_the_attempt() -> None:
    desk = Desk()
    assert asyncio.run(poll_attempt(desk, Changes(), 0.05)) == ATTEMPT
    assert desk.calls == ["settled", "view"]


def long_polls_of(desk: Desk, changes: Changes) -> Any:
    notary: Any = SimpleNamespace(work=desk, changes=changes)
    return LongPolls(notary, poll_seconds=0.02)


def test_many_polls_share_one_query_for_changes_of_other_stewards() -> None:
    async def scenario() -> None:
        desk = Desk()
        long_polls = long_polls_of(desk, Changes())
        ids = [f"{number:032x}" for number in range(10)]
        grants: list[Any] = [SimpleNamespace(parent_id=None, token_id=each) for each in ids]
        polls = [
            asyncio.create_task(long_polls.attempt(grant, attempt_id, SECONDS))
            for grant, attempt_id in zip(grants, ids, strict=True)
        ]
        await wait_for_calls(desk, len(ids))
        async with asyncio.timeout(SECONDS):
            while not desk.list_calls:
                await asyncio.sleep(0.005)
        desk.settled = True
        assert await asyncio.gather(*polls) == ids
        assert all(call == ids for call in desk.list_calls)
        assert desk.calls.count("settled") == 2 * len(ids)

    asyncio.run(scenario())


def test_after_a_failed_query_each_poll_asks_for_itself() -> None:
    async def scenario() -> None:
        desk = Desk(broken=True)
        grant: Any = SimpleNamespace(parent_id=None, token_id="one")
        poll = asyncio.create_task(long_polls_of(desk, Changes()).attempt(grant, ATTEMPT, SECONDS))
        await wait_for_calls(desk, 1)
        desk.settled = True
        assert await poll == ATTEMPT

    asyncio.run(scenario())


def test_queries_end_with_the_last_poll() -> None:
    async def scenario() -> None:
        desk, changes = Desk(settled=True), Changes()
        long_polls = long_polls_of(desk, changes)
        grant: Any = SimpleNamespace(parent_id=None, token_id="one")
        assert await long_polls.attempt(grant, ATTEMPT, SECONDS) == ATTEMPT
        await asyncio.sleep(0.1)
        assert len(desk.list_calls) <= 1

    asyncio.run(scenario())
