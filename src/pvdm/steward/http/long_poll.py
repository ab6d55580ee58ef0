"""Long polls: a request for an attempt waits, without a thread, until the attempt is settled."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from anyio.to_thread import run_sync

from pvdm.api.work import AttemptView
from pvdm.errors import PvdmError
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.limits import token_identity
from pvdm.steward.notary import Notary

WAITS_AT_ONCE_MAX: Final = 16
LOOK_SECONDS: Final = 5.0


class Waiting:
    """Waiting requests, counted for each identity; used from one event loop."""

    def __init__(self, notary: Notary, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._notary = notary
        self._look_seconds = look_seconds
        self._held: Counter[str] = Counter()
        self._events: dict[str, set[asyncio.Event]] = {}
        self._looking: asyncio.Task[None] | None = None

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
        with self._notary.changes.listen(attempt_id, wake), self._watch(attempt_id, changed):
            while True:
                changed.clear()
                over = loop.time() >= ends or self._notary.changes.closed
                # Asking whether it is settled costs the ledger a fraction of its whole view.
                if over or await run_sync(self._notary.work.is_settled, grant, attempt_id):
                    return await run_sync(self._notary.work.attempt, grant, attempt_id)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), max(0.0, ends - loop.time()))

    @contextlib.contextmanager
    def _watch(self, attempt_id: str, changed: asyncio.Event) -> Iterator[None]:
        """Set the event also when another Steward on the same ledger settles the attempt."""
        self._events.setdefault(attempt_id, set()).add(changed)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._events[attempt_id].discard(changed)
            if not self._events[attempt_id]:
                del self._events[attempt_id]

    async def _look(self) -> None:
        """Ask the ledger for all waiting attempts at once, as long as there are any."""
        while self._events:
            await asyncio.sleep(self._look_seconds)
            waiting = list(self._events)
            try:
                settled = await run_sync(self._notary.work.settled_among, waiting)
            except PvdmError:
                settled = waiting  # each of them asks for itself and reports the error
            for attempt_id in settled:
                for changed in self._events.get(attempt_id, ()):
                    changed.set()
