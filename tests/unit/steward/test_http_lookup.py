"""Unknown tokens are looked up few at a time, and the addresses they come from take turns."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from pvdm.steward.config.steward import Limits
from pvdm.steward.http.limits import LOOKUP_THREADS_MAX, Limiter, TokenLookup


class Ledger:
    """Answers slowly and remembers in which order, and how many were asked for at the same time."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.most = 0
        self._running = 0
        self._lock = threading.Lock()

    def authenticate(self, token: str) -> Grant:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        time.sleep(0.005)
        with self._lock:
            self._running -= 1
            self.answered.append(token)
        return Grant(token, Role.PRODUCER, "sales", "job", 1)


def looked_up(*asked: tuple[str, str]) -> Ledger:
    ledger = Ledger()
    notary: Any = SimpleNamespace(access=ledger)

    async def scene() -> None:
        lookup = TokenLookup(notary, Limiter(Limits()))
        await asyncio.gather(*(lookup(token, peer) for token, peer in asked))

    asyncio.run(scene())
    return ledger


def test_many_addresses_together_take_few_threads() -> None:
    assert looked_up(*((f"token {n}", f"peer {n}") for n in range(20))).most <= LOOKUP_THREADS_MAX


def test_an_address_that_asks_for_many_does_not_keep_another_waiting() -> None:
    ledger = looked_up(*((f"guess {n}", "peer a") for n in range(40)), ("honest", "peer b"))
    assert ledger.answered.index("honest") < 10
