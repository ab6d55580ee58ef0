"""The limits of the HTTP service without a server: rates, slots, queues, running requests, and bytes of bodies."""

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
from tests.support.for_each import for_each


class ManualClock:
    """A clock that only tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(clock: ManualClock | None = None, **limits: int) -> Limiter:
    return Limiter(Limits(**limits), clock=clock or ManualClock())


def reason_of(raised: pytest.ExceptionInfo[UnavailableError]) -> str:
    return raised.value.reason


def test_requests_above_the_burst_are_refused() -> None:
    limits = limiter(rate_per_second=1, burst=3)
    for _ in range(3):
        limits.charge("a")
    with pytest.raises(UnavailableError) as raised:
        limits.charge("a")
    assert reason_of(raised) == "rate_limited"


def test_the_allowance_grows_with_time_up_to_the_burst() -> None:
    clock = ManualClock()
    limits = limiter(clock, rate_per_second=2, burst=3)
    for _ in range(3):
        limits.charge("a")
    clock.now += 1
    limits.charge("a")
    limits.charge("a")
    with pytest.raises(UnavailableError):
        limits.charge("a")
    clock.now += 1_000
    for _ in range(3):
        limits.charge("a")
    with pytest.raises(UnavailableError):
        limits.charge("a")


def test_a_refusal_says_when_to_retry() -> None:
    limits = limiter(rate_per_second=1, burst=1)
    limits.charge("a")
    with pytest.raises(UnavailableError) as raised:
        limits.charge("a")
    assert raised.value.details["retry_after_seconds"] == 1


def test_each_identity_has_its_own_allowance() -> None:
    limits = limiter(rate_per_second=1, burst=1)
    limits.charge("a")
    limits.charge("b")


def test_the_oldest_identities_are_removed_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTITIES_MAX", 10)
    limits = limiter(rate_per_second=1, burst=1)
    limits.charge("kept")
    for number in range(500):
        limits.charge(f"peer {number}")
        if number % 5 == 0:
            with pytest.raises(UnavailableError):
                limits.charge("kept")
    assert len(limits._identities) == 10
    with pytest.raises(UnavailableError):
        limits.charge("kept")


def test_the_oldest_known_tokens_are_removed_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTITIES_MAX", 10)
    limits = limiter()
    for number in range(50):
        limits.learn(f"token {number}", f"identity {number}")
    assert [limits.known_identity(f"token {number}") for number in (39, 40, 49)] == [None, "identity 40", "identity 49"]


def test_an_identity_with_a_running_request_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTITIES_MAX", 2)

    async def scene() -> None:
        limits = limiter(concurrent=1, wait_seconds=0)
        async with limits.slot("busy"):
            for number in range(10):
                limits.charge(f"peer {number}")
            with pytest.raises(UnavailableError):
                async with limits.slot("busy"):
                    pass

    run(scene())


def test_a_new_identity_is_refused_if_every_other_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTITIES_MAX", 1)

    async def scene() -> None:
        limits = limiter()
        async with limits.slot("busy"):
            with pytest.raises(UnavailableError) as raised:
                limits.charge("new")
            assert reason_of(raised) == "service_busy"

    run(scene())


def test_slots_are_granted_in_order_of_arrival() -> None:
    async def scene() -> list[int]:
        limits = limiter(concurrent=2, wait_seconds=5)
        order: list[int] = []

        async def one(number: int) -> None:
            async with limits.slot("a"):
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(one(number) for number in range(20)))
        return order

    assert run(scene()) == list(range(20))


async def order_served(
    limits: Limiter, names: list[str], clock: ManualClock, *, advance_seconds: float = 0.0
) -> list[str]:
    """The names in the order in which they leave a queue: all others arrive while the first one holds it."""
    served: list[str] = []
    release = asyncio.Event()

    async def ask(name: str) -> None:
        async with limits.queue("table", most=1):
            await release.wait()
            served.append(name)

    tasks = []
    for name in names:
        tasks.append(asyncio.create_task(ask(name)))
        await asyncio.sleep(0)
    clock.now += advance_seconds
    release.set()
    await asyncio.gather(*tasks)
    return served


def test_in_a_queue_the_newest_request_is_served_first() -> None:
    clock = ManualClock()
    served = asyncio.run(order_served(limiter(clock), ["a", "b", "c", "d"], clock))
    assert served == ["a", "d", "c", "b"]


def test_in_a_queue_requests_that_waited_long_are_served_first() -> None:
    clock = ManualClock()
    patience = module.PATIENCE_SECONDS
    served = asyncio.run(order_served(limiter(clock), ["a", "b", "c", "d"], clock, advance_seconds=patience))
    assert served == ["a", "b", "c", "d"]


def test_two_names_have_separate_queues() -> None:
    async def both() -> None:
        limits = limiter(wait_seconds=1)
        async with limits.queue("one", most=1), limits.queue("another", most=1):
            pass

    asyncio.run(asyncio.wait_for(both(), 5))


def test_an_empty_queue_is_removed() -> None:
    clock = ManualClock()
    limits = limiter(clock)
    asyncio.run(order_served(limits, ["a", "b", "c"], clock))
    assert not limits._queues


def test_a_request_that_waits_too_long_in_a_queue_is_refused() -> None:
    async def second(limits: Limiter) -> None:
        async with limits.queue("table", most=1), limits.queue("table", most=1):
            pass

    with pytest.raises(UnavailableError) as raised:
        asyncio.run(second(limiter(wait_seconds=0)))
    assert reason_of(raised) == "too_many_requests_at_once"


def test_a_turn_that_is_granted_as_the_wait_ends_is_not_lost() -> None:
    async def scene() -> bool:
        limits = Limiter(Limits(wait_seconds=0.1))  # type: ignore[arg-type]  # shorter than the settings allow
        release = asyncio.Event()

        async def hold() -> None:
            async with limits.queue("table", most=1):
                await release.wait()

        async def wait() -> None:
            with contextlib.suppress(UnavailableError):
                async with limits.queue("table", most=1):
                    pass

        def late() -> None:
            # The loop is blocked until the wait is over. So it grants the turn just before it ends the wait.
            time.sleep(0.2)
            release.set()

        tasks = [asyncio.create_task(hold()), asyncio.create_task(wait())]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, late)
        await asyncio.gather(*tasks)
        return bool(limits._queues)

    assert not asyncio.run(scene())


def test_an_identity_runs_at_most_its_concurrent_requests() -> None:
    async def scene() -> int:
        limits = limiter(concurrent=3, wait_seconds=5)
        running, running_most = 0, 0

        async def one() -> None:
            nonlocal running, running_most
            async with limits.slot("a"):
                running += 1
                running_most = max(running_most, running)
                await asyncio.sleep(0.001)
                running -= 1

        await asyncio.gather(*(one() for _ in range(30)))
        return running_most

    assert run(scene()) == 3


def test_a_request_that_waits_too_long_for_a_slot_is_refused_and_takes_no_slot() -> None:
    async def scene() -> str:
        limits = limiter(concurrent=1, wait_seconds=1)
        object.__setattr__(limits._limits, "wait_seconds", 0.01)
        async with limits.slot("a"):
            with pytest.raises(UnavailableError) as raised:
                async with limits.slot("a"):
                    pass
        async with limits.slot("a"):
            return reason_of(raised)

    assert run(scene()) == "too_many_requests_at_once"


def test_the_number_of_waiting_requests_of_an_identity_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)

    async def scene() -> list[str]:
        limits = limiter(concurrent=1, wait_seconds=5)
        refused: list[str] = []

        async def one() -> None:
            try:
                async with limits.slot("a"):
                    await asyncio.sleep(0.01)
            except UnavailableError as error:
                refused.append(error.reason)

        await asyncio.gather(*(one() for _ in range(5)))
        return refused

    assert run(scene()) == ["too_many_requests_at_once"] * 2


def test_a_cancelled_request_does_not_keep_its_slot() -> None:
    async def scene() -> bool:
        limits = limiter(concurrent=1, wait_seconds=5)

        async def one() -> bool:
            async with limits.slot("a"):
                return True

        async with limits.slot("a"):
            cancelled, other = asyncio.create_task(one()), asyncio.create_task(one())
            await asyncio.sleep(0)
            cancelled.cancel()
        return await asyncio.wait_for(other, 1)

    assert run(scene()) is True


def test_a_slot_that_was_granted_as_the_request_was_cancelled_is_passed_on() -> None:
    async def scene() -> bool:
        limits = limiter(concurrent=1, wait_seconds=5)

        async def one() -> bool:
            async with limits.slot("a"):
                return True

        async with limits.slot("a"):
            cancelled = asyncio.create_task(one())
            await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        return await asyncio.wait_for(one(), 1)

    assert run(scene()) is True


def test_the_number_of_running_requests_is_limited() -> None:
    limits = limiter(in_flight=2)
    with limits.in_flight(), limits.in_flight():
        with pytest.raises(UnavailableError) as raised, limits.in_flight():
            pass
        assert reason_of(raised) == "service_busy"
    with limits.in_flight():
        pass


def test_anonymous_requests_are_at_most_a_quarter_of_the_running_ones() -> None:
    limits = limiter(in_flight=8)
    with limits.in_flight(anonymous=True), limits.in_flight(anonymous=True):
        with pytest.raises(UnavailableError) as raised, limits.in_flight(anonymous=True):
            pass
        assert reason_of(raised) == "service_busy"
        with limits.in_flight():
            pass
    with limits.in_flight(anonymous=True):
        pass


def test_the_bytes_of_all_bodies_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODIES_MAX_BYTES", 100)
    limits = limiter()
    with contextlib.ExitStack() as stack:
        for name in "abcd":
            stack.enter_context(limits.body_budget(name))(25)
        take = stack.enter_context(limits.body_budget("e"))
        with pytest.raises(UnavailableError) as raised:
            take(1)
        assert reason_of(raised) == "service_busy"
    with limits.body_budget("e") as take:
        take(25)


def test_the_bodies_of_an_identity_are_at_most_a_quarter_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODIES_MAX_BYTES", 100)
    limits = limiter()
    with limits.body_budget("a") as one, limits.body_budget("a") as two, limits.body_budget("b") as other:
        one(20)
        with pytest.raises(UnavailableError) as raised:
            two(6)
        assert reason_of(raised) == "too_many_requests_at_once"
        two(5)
        other(25)
    with limits.body_budget("a") as one:
        one(25)


def test_a_waiting_request_does_not_count_as_running() -> None:
    async def scene() -> None:
        limits = limiter(concurrent=1, in_flight=2, wait_seconds=5)
        done = asyncio.Event()

        async def one(name: str) -> None:
            async with limits.slot(name):
                with limits.in_flight():
                    await done.wait()

        tasks = [asyncio.create_task(one("a")) for _ in range(20)]
        await asyncio.sleep(0)
        with limits.in_flight():
            pass
        done.set()
        await asyncio.gather(*tasks)

    run(scene())


def test_the_number_of_waiting_requests_of_all_identities_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_TOGETHER_MAX", 3)

    async def scene() -> list[str]:
        limits = limiter(concurrent=1, wait_seconds=5)
        refused: list[str] = []

        async def one(name: str) -> None:
            try:
                async with limits.slot(name):
                    await asyncio.sleep(0.01)
            except UnavailableError as error:
                refused.append(error.reason)

        await asyncio.gather(*(one(f"identity {number % 5}") for number in range(10)))
        async with limits.slot("a"):
            return refused

    assert run(scene()) == ["service_busy"] * 2


def test_a_derived_token_has_the_identity_of_its_parent() -> None:
    own = Grant("parent", Role.PRODUCER, "sales", "job", 1)
    derived = Grant("child", Role.PRODUCER, "sales", "job", 1, parent_id="parent")
    assert token_identity(derived) == token_identity(own)


@for_each(
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
def test_addresses_of_one_caller_are_one_identity(host: str | None, identity: str) -> None:
    assert peer_identity(host) == identity


def run(scene: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(scene)
