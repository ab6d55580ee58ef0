"""Unknown tokens are looked up in few threads, and the addresses that send them take turns."""

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


class SlowAccess:
    """Authenticates tokens slowly; records their order, and the largest number at the same time."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.most_at_once = 0
        self._running = 0
        self._lock = threading.Lock()

    def authenticate(self, token: str) -> Grant:
        with self._lock:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        time.sleep(0.005)
        with self._lock:
            self._running -= 1
            self.answered.append(token)
        return Grant(token, Role.PRODUCER, "sales", "job", 1)


def look_up(*lookups: tuple[str, str]) -> SlowAccess:
    access = SlowAccess()
    notary: Any = SimpleNamespace(access=access)

    async def look_up_all() -> None:
        lookup = TokenLookup(notary, Limiter(Limits()))
        await asyncio.gather(*(lookup(token, peer) for token, peer in lookups))

    asyncio.run(look_up_all())
    return access


def test_lookups_of_many_addresses_use_few_threads() -> None:
    assert look_up(*((f"token {n}", f"peer {n}") for n in range(20))).most_at_once <= LOOKUP_THREADS_MAX


def test_many_lookups_of_one_address_do_not_delay_another_address() -> None:
    access = look_up(*((f"guess {n}", "peer a") for n in range(40)), ("honest", "peer b"))
    assert access.answered.index("honest") < 10
