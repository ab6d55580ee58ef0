"""Calls for which the Steward works long before it answers: they are waited for, and not sent again."""

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


def after(gate: threading.Event, behaviour: Behaviour) -> Behaviour:
    """The behaviour, once the gate is open."""

    def behave(*words: object) -> None:
        assert gate.wait(20)
        behaviour(*words)  # type: ignore[arg-type]

    return behave


@pytest.mark.parametrize("call", CALLS)
def test_a_slow_answer_is_waited_for_and_asked_for_once(call: str) -> None:
    """The answer comes long after other calls would have been sent again."""
    gate = threading.Event()
    with Peer(after(gate, GOOD), answer(status=500)) as peer, client(peer.url, time_outs=IMPATIENT) as steward:
        timer = threading.Timer(1.0, gate.set)
        timer.start()
        assert CALLS[call](steward) == ()
        assert len(peer.requests) == 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("lost", [drop, silence(3), raw(b"HTTP/1.1 200"), answer(status=504)])
def test_what_was_sent_is_not_sent_again_when_its_answer_is_lost(lost: Behaviour, call: str) -> None:
    limits = TimeOuts(long_seconds=0.3)
    with Peer(lost, GOOD) as peer, client(peer.url, time_outs=limits) as steward:
        with pytest.raises(UnavailableError) as caught:
            CALLS[call](steward)
        assert len(peer.requests) == 1
        assert caught.value.reason.startswith("steward_")


@pytest.mark.parametrize("call", CALLS)
def test_what_the_steward_put_off_is_sent_again(call: str) -> None:
    with Peer(error(503, "unavailable"), GOOD) as peer, client(peer.url) as steward:
        assert CALLS[call](steward) == ()
        assert len(peer.requests) == 2
