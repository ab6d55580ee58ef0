"""Calls that take the Steward long: the client waits for the answer, and does not send the call again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pvdm.api.work import OrphanView
from pvdm.client import StewardClient, TimeOuts
from pvdm.errors import UnavailableError
from tests.unit.client.examples import client
from tests.unit.client.peer import Behaviour, Peer, answer, drop, error, raw, silence

IMPATIENT = TimeOuts(read_seconds=0.1, total_seconds=0.2, long_seconds=20)
GOOD = answer({"orphans": []})
CALLS: dict[str, Callable[[StewardClient], tuple[OrphanView, ...]]] = {
    "listing": lambda steward: steward.orphans("sales.orders"),
    "removal": lambda steward: steward.remove_orphans("sales.orders"),
}


def wait_for(opened: threading.Event, behaviour: Behaviour) -> Behaviour:
    """The behaviour, but only after the event is set."""

    def behave(*arguments: object) -> None:
        assert opened.wait(20)
        behaviour(*arguments)  # type: ignore[arg-type]

    return behave


@pytest.mark.parametrize("call", CALLS)
def test_the_client_waits_for_a_slow_answer_and_sends_the_call_once(call: str) -> None:
    """The answer comes after one second: other calls would have been sent again long before."""
    opened = threading.Event()
    with Peer(wait_for(opened, GOOD), answer(status=500)) as peer, client(peer.url, time_outs=IMPATIENT) as steward:
        timer = threading.Timer(1.0, opened.set)
        timer.start()
        assert CALLS[call](steward) == ()
        assert len(peer.requests) == 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("lost", [drop, silence(3), raw(b"HTTP/1.1 200"), answer(status=504)])
def test_a_long_call_is_not_sent_again_when_its_answer_is_lost(lost: Behaviour, call: str) -> None:
    limits = TimeOuts(long_seconds=0.3)
    with Peer(lost, GOOD) as peer, client(peer.url, time_outs=limits) as steward:
        with pytest.raises(UnavailableError) as caught:
            CALLS[call](steward)
        assert len(peer.requests) == 1
        assert caught.value.reason.startswith("steward_")


@pytest.mark.parametrize("call", CALLS)
def test_a_long_call_is_sent_again_after_the_steward_was_unavailable(call: str) -> None:
    with Peer(error(503, "unavailable"), GOOD) as peer, client(peer.url) as steward:
        assert CALLS[call](steward) == ()
        assert len(peer.requests) == 2
