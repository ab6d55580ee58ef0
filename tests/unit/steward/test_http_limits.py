"""Buckets, turns and budgets of the door, without a server: what they allow, refuse, hand on and forget."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from pvdm.errors import UnavailableError
from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from pvdm.steward.config.steward import Limits
from pvdm.steward.http import limits as module
from pvdm.steward.http.limits import Limiter, peer_identity, token_identity


class Seconds:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(seconds: Seconds | None = None, **limits: int) -> Limiter:
    return Limiter(Limits(**limits), clock=seconds or Seconds())


def code_of(raised: pytest.ExceptionInfo[UnavailableError]) -> str:
    return raised.value.reason


def test_a_bucket_gives_its_burst_and_then_refuses() -> None:
    found = limiter(rate_per_second=1, burst=3)
    for _ in range(3):
        found.charge("a")
    with pytest.raises(UnavailableError) as raised:
        found.charge("a")
    assert code_of(raised) == "rate_limited"


def test_a_bucket_fills_with_time_and_not_above_its_burst() -> None:
    seconds = Seconds()
    found = limiter(seconds, rate_per_second=2, burst=3)
    for _ in range(3):
        found.charge("a")
    seconds.now += 1
    found.charge("a")
    found.charge("a")
    with pytest.raises(UnavailableError):
        found.charge("a")
    seconds.now += 1_000
    for _ in range(3):
        found.charge("a")
    with pytest.raises(UnavailableError):
        found.charge("a")


def test_a_refusal_says_when_to_come_back() -> None:
    found = limiter(rate_per_second=1, burst=1)
    found.charge("a")
    with pytest.raises(UnavailableError) as raised:
        found.charge("a")
    assert raised.value.details["retry_after_seconds"] == 1


def test_one_identity_does_not_pay_for_another() -> None:
    found = limiter(rate_per_second=1, burst=1)
    found.charge("a")
    found.charge("b")


def test_identities_are_forgotten_oldest_first_so_that_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTITIES_MAX", 10)
    found = limiter(rate_per_second=1, burst=1)
    found.charge("kept")
    for number in range(500):
        found.charge(f"peer {number}")
        if number % 5 == 0:
            with pytest.raises(UnavailableError):
                found.charge("kept")
    assert len(found._identities) == 10
    with pytest.raises(UnavailableError):
        found.charge("kept")


def test_known_tokens_are_forgotten_oldest_first_so_that_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTITIES_MAX", 10)
    found = limiter()
    for number in range(50):
        found.learn(f"token {number}", f"identity {number}")
    assert [found.known_identity(f"token {number}") for number in (39, 40, 49)] == [None, "identity 40", "identity 49"]


def test_an_identity_with_a_request_under_way_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTITIES_MAX", 2)

    async def scene() -> None:
        found = limiter(concurrent=1, wait_seconds=0)
        async with found.slot("busy"):
            for number in range(10):
                found.charge(f"peer {number}")
            with pytest.raises(UnavailableError):
                async with found.slot("busy"):
                    pass

    run(scene())


def test_where_every_identity_is_busy_a_new_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTITIES_MAX", 1)

    async def scene() -> None:
        found = limiter()
        async with found.slot("busy"):
            with pytest.raises(UnavailableError) as raised:
                found.charge("new")
            assert code_of(raised) == "service_busy"

    run(scene())


def test_turns_come_in_order_of_arrival() -> None:
    async def scene() -> list[int]:
        found = limiter(concurrent=2, wait_seconds=5)
        order: list[int] = []

        async def one(number: int) -> None:
            async with found.slot("a"):
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(one(number) for number in range(20)))
        return order

    assert run(scene()) == list(range(20))


async def served_in(found: Limiter, names: list[str], seconds: Seconds, *, waits: float = 0.0) -> list[str]:
    """Who of those that wait for one thing is served when: the first has it, the others come while it does."""
    served: list[str] = []
    release = asyncio.Event()

    async def ask(name: str) -> None:
        async with found.queue("table", most=1):
            await release.wait()
            served.append(name)

    tasks = []
    for name in names:
        tasks.append(asyncio.create_task(ask(name)))
        await asyncio.sleep(0)
    seconds.now += waits
    release.set()
    await asyncio.gather(*tasks)
    return served


def test_in_a_line_for_one_thing_the_newest_is_served_first() -> None:
    seconds = Seconds()
    found = asyncio.run(served_in(limiter(seconds), ["a", "b", "c", "d"], seconds))
    assert found == ["a", "d", "c", "b"]


def test_in_a_line_for_one_thing_whoever_waited_long_comes_before_all_others() -> None:
    seconds = Seconds()
    found = asyncio.run(served_in(limiter(seconds), ["a", "b", "c", "d"], seconds, waits=module.PATIENCE_SECONDS))
    assert found == ["a", "b", "c", "d"]


def test_two_things_have_two_lines() -> None:
    async def both() -> None:
        found = limiter(wait_seconds=1)
        async with found.queue("one", most=1), found.queue("another", most=1):
            pass

    asyncio.run(asyncio.wait_for(both(), 5))


def test_nothing_is_kept_of_a_line_that_nobody_is_in() -> None:
    seconds = Seconds()
    found = limiter(seconds)
    asyncio.run(served_in(found, ["a", "b", "c"], seconds))
    assert not found._queues


def test_whoever_waits_too_long_in_a_line_for_one_thing_is_refused() -> None:
    async def second(found: Limiter) -> None:
        async with found.queue("table", most=1), found.queue("table", most=1):
            pass

    with pytest.raises(UnavailableError) as raised:
        asyncio.run(second(limiter(wait_seconds=0)))
    assert code_of(raised) == "too_many_requests_at_once"


def test_a_turn_that_comes_in_the_moment_in_which_the_wait_ends_is_not_lost() -> None:
    async def scene() -> bool:
        found = Limiter(Limits(wait_seconds=0.1))  # type: ignore[arg-type]  # a shorter wait than people set
        release = asyncio.Event()

        async def hold() -> None:
            async with found.queue("table", most=1):
                await release.wait()

        async def wait() -> None:
            with contextlib.suppress(UnavailableError):
                async with found.queue("table", most=1):
                    pass

        def late() -> None:
            # When the loop looks next the wait is over, and the turn is handed on just before it says so.
            time.sleep(0.2)
            release.set()

        tasks = [asyncio.create_task(hold()), asyncio.create_task(wait())]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, late)
        await asyncio.gather(*tasks)
        return bool(found._queues)

    assert not asyncio.run(scene())


def test_never_more_than_its_share_runs_at_a_time() -> None:
    async def scene() -> int:
        found = limiter(concurrent=3, wait_seconds=5)
        running, most = 0, 0

        async def one() -> None:
            nonlocal running, most
            async with found.slot("a"):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.001)
                running -= 1

        await asyncio.gather(*(one() for _ in range(30)))
        return most

    assert run(scene()) == 3


def test_whoever_waits_too_long_is_refused_and_takes_no_turn() -> None:
    async def scene() -> str:
        found = limiter(concurrent=1, wait_seconds=1)
        object.__setattr__(found._limits, "wait_seconds", 0.01)
        async with found.slot("a"):
            with pytest.raises(UnavailableError) as raised:
                async with found.slot("a"):
                    pass
        async with found.slot("a"):
            return code_of(raised)

    assert run(scene()) == "too_many_requests_at_once"


def test_the_line_of_those_who_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)

    async def scene() -> list[str]:
        found = limiter(concurrent=1, wait_seconds=5)
        refused: list[str] = []

        async def one() -> None:
            try:
                async with found.slot("a"):
                    await asyncio.sleep(0.01)
            except UnavailableError as error:
                refused.append(error.reason)

        await asyncio.gather(*(one() for _ in range(5)))
        return refused

    assert run(scene()) == ["too_many_requests_at_once"] * 2


def test_a_cancelled_waiter_passes_its_turn_on() -> None:
    async def scene() -> bool:
        found = limiter(concurrent=1, wait_seconds=5)

        async def one() -> bool:
            async with found.slot("a"):
                return True

        async with found.slot("a"):
            gone, stays = asyncio.create_task(one()), asyncio.create_task(one())
            await asyncio.sleep(0)
            gone.cancel()
        return await asyncio.wait_for(stays, 1)

    assert run(scene()) is True


def test_a_turn_that_came_in_the_moment_of_cancelling_is_passed_on() -> None:
    async def scene() -> bool:
        found = limiter(concurrent=1, wait_seconds=5)

        async def one() -> bool:
            async with found.slot("a"):
                return True

        async with found.slot("a"):
            gone = asyncio.create_task(one())
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        return await asyncio.wait_for(one(), 1)

    assert run(scene()) is True


def test_all_requests_together_have_a_cap() -> None:
    found = limiter(in_flight=2)
    with found.in_flight(), found.in_flight():
        with pytest.raises(UnavailableError) as raised, found.in_flight():
            pass
        assert code_of(raised) == "service_busy"
    with found.in_flight():
        pass


def test_strangers_fill_only_a_part_of_the_room() -> None:
    found = limiter(in_flight=8)
    with found.in_flight(anonymous=True), found.in_flight(anonymous=True):
        with pytest.raises(UnavailableError) as raised, found.in_flight(anonymous=True):
            pass
        assert code_of(raised) == "service_busy"
        with found.in_flight():
            pass
    with found.in_flight(anonymous=True):
        pass


def test_bodies_in_memory_have_a_common_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODIES_MAX_BYTES", 100)
    found = limiter()
    with contextlib.ExitStack() as stack:
        for name in "abcd":
            stack.enter_context(found.body_budget(name))(25)
        take = stack.enter_context(found.body_budget("e"))
        with pytest.raises(UnavailableError) as raised:
            take(1)
        assert code_of(raised) == "service_busy"
    with found.body_budget("e") as take:
        take(25)


def test_one_identitys_bodies_fill_a_quarter_of_the_budget_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODIES_MAX_BYTES", 100)
    found = limiter()
    with found.body_budget("a") as one, found.body_budget("a") as two, found.body_budget("b") as other:
        one(20)
        with pytest.raises(UnavailableError) as raised:
            two(6)
        assert code_of(raised) == "too_many_requests_at_once"
        two(5)
        other(25)
    with found.body_budget("a") as one:
        one(25)


def test_whoever_waits_for_a_turn_takes_no_place_from_others() -> None:
    async def scene() -> None:
        found = limiter(concurrent=1, in_flight=2, wait_seconds=5)
        done = asyncio.Event()

        async def one(name: str) -> None:
            async with found.slot(name):
                with found.in_flight():
                    await done.wait()

        tasks = [asyncio.create_task(one("a")) for _ in range(20)]
        await asyncio.sleep(0)
        with found.in_flight():
            pass
        done.set()
        await asyncio.gather(*tasks)

    run(scene())


def test_all_who_wait_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_TOGETHER_MAX", 3)

    async def scene() -> list[str]:
        found = limiter(concurrent=1, wait_seconds=5)
        refused: list[str] = []

        async def one(name: str) -> None:
            try:
                async with found.slot(name):
                    await asyncio.sleep(0.01)
            except UnavailableError as error:
                refused.append(error.reason)

        await asyncio.gather(*(one(f"identity {number % 5}") for number in range(10)))
        async with found.slot("a"):
            return refused

    assert run(scene()) == ["service_busy"] * 2


def test_a_derived_token_is_on_the_account_of_the_one_it_came_from() -> None:
    own = Grant("parent", Role.PRODUCER, "sales", "job", 1)
    derived = Grant("child", Role.PRODUCER, "sales", "job", 1, parent_id="parent")
    assert token_identity(derived) == token_identity(own)


@pytest.mark.parametrize(
    ("host", "identity"),
    [
        ("10.1.2.3", "peer 10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "peer 2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "peer 2001:db8:1:2::/64"),
        ("127.0.0.1", "peer loopback"),
        ("127.0.0.2", "peer loopback"),
        ("127.255.1.3", "peer loopback"),
        ("::1", "peer loopback"),
        ("::ffff:127.0.0.9", "peer loopback"),
        ("::ffff:10.1.2.3", "peer 10.1.2.3"),
        (None, "peer unknown"),
        ("a.sock", "peer a.sock"),
    ],
)
def test_a_whole_network_of_one_caller_is_one_identity(host: str | None, identity: str) -> None:
    assert peer_identity(host) == identity


def run(scene: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(scene)
