"""Long polls: a request for an attempt waits, without a thread, until there is something new to say."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from anyio.to_thread import run_sync

from pvdm.api.work import AttemptView
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.limits import token_identity
from pvdm.steward.notary import Notary

WAITS_AT_ONCE_MAX: Final = 16
# Another Steward on the same ledger tells nobody here: so often is looked without being told.
LOOK_SECONDS: Final = 5.0


class Waiting:
    """Who waits for attempts, and how many of one identity do; used from one event loop."""

    def __init__(self, notary: Notary) -> None:
        self._notary = notary
        self._held: Counter[str] = Counter()

    async def attempt(self, grant: Grant, attempt_id: str, seconds: float) -> AttemptView:
        """The attempt once it is settled, or as it is when the time is over; who waits too often does not wait."""
        payer = token_identity(grant)
        if seconds <= 0 or self._held[payer] >= WAITS_AT_ONCE_MAX:
            return await run_sync(self._notary.work.attempt, grant, attempt_id)
        self._held[payer] += 1
        try:
            return await self._settled(grant, attempt_id, seconds)
        finally:
            self._held[payer] -= 1
            if not self._held[payer]:
                del self._held[payer]

    async def _settled(self, grant: Grant, attempt_id: str, seconds: float) -> AttemptView:
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        def told() -> None:
            loop.call_soon_threadsafe(news.set)

        ends = loop.time() + seconds
        with self._notary.changes.listen(attempt_id, told):
            while True:
                news.clear()
                found = await run_sync(self._notary.work.attempt, grant, attempt_id)
                left = ends - loop.time()
                if found.settled or left <= 0 or self._notary.changes.closed:
                    return found
                try:
                    await asyncio.wait_for(news.wait(), min(left, LOOK_SECONDS))
                except TimeoutError:
                    continue
