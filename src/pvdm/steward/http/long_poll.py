"""Long polls: a request for an attempt waits, without a thread, until the attempt is settled."""

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
# Changes by other Stewards on the same ledger are found by polling this often.
LOOK_SECONDS: Final = 5.0


class Waiting:
    """Waiting requests, counted for each identity; used from one event loop."""

    def __init__(self, notary: Notary) -> None:
        self._notary = notary
        self._held: Counter[str] = Counter()

    async def attempt(self, grant: Grant, attempt_id: str, seconds: float) -> AttemptView:
        """The attempt once it is settled or the time is over; at once if the identity has too many waiting requests."""
        payer = token_identity(grant)
        if seconds <= 0 or self._held[payer] >= WAITS_AT_ONCE_MAX:
            return await run_sync(self._notary.work.attempt, grant, attempt_id)
        self._held[payer] += 1
        try:
            return await self._wait_until_settled(grant, attempt_id, seconds)
        finally:
            self._held[payer] -= 1
            if not self._held[payer]:
                del self._held[payer]

    async def _wait_until_settled(self, grant: Grant, attempt_id: str, seconds: float) -> AttemptView:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        ends = loop.time() + seconds
        with self._notary.changes.listen(attempt_id, wake):
            while True:
                changed.clear()
                over = loop.time() >= ends or self._notary.changes.closed
                # Asking whether it is settled costs the ledger a fraction of its whole view.
                if over or await run_sync(self._notary.work.is_settled, grant, attempt_id):
                    return await run_sync(self._notary.work.attempt, grant, attempt_id)
                try:
                    await asyncio.wait_for(changed.wait(), max(0.0, min(ends - loop.time(), LOOK_SECONDS)))
                except TimeoutError:
                    continue
