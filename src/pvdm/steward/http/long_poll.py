"""Long polls: requests wait without a thread until an attempt is settled (ended, waits for other chunks, or failed)."""

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

WAITS_AT_ONCE_MAX: Final = 16  # of one caller
POLL_SECONDS: Final = 5.0


class LongPolls:
    """The waiting requests, counted for each identity; used from one event loop."""

    def __init__(self, notary: Notary, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._notary = notary
        self._poll_seconds = poll_seconds
        self._waiting_by_identity: Counter[str] = Counter()
        self._events: dict[str, set[asyncio.Event]] = {}
        self._poll_task: asyncio.Task[None] | None = None

    async def attempt(self, grant: Grant, attempt_id: str, seconds: float) -> AttemptView:
        """The attempt, once it is settled or the time is over; at once if too many requests of the caller wait."""
        identity = token_identity(grant)
        if seconds <= 0 or self._waiting_by_identity[identity] >= WAITS_AT_ONCE_MAX:
            return await run_sync(self._notary.work.get_attempt, grant, attempt_id)
        self._waiting_by_identity[identity] += 1
        try:
            return await self._wait_until_settled(grant, attempt_id, seconds)
        finally:
            self._waiting_by_identity -= Counter([identity])  # drops an identity whose count is 0

    async def _wait_until_settled(self, grant: Grant, attempt_id: str, seconds: float) -> AttemptView:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        deadline = loop.time() + seconds
        with self._notary.changes.listen(attempt_id, wake), self._watch(attempt_id, changed):
            while True:
                changed.clear()
                is_over = loop.time() >= deadline or self._notary.changes.closed
                # `is_settled` is far cheaper for the ledger than the whole view.
                if is_over or await run_sync(self._notary.work.is_settled, grant, attempt_id):
                    return await run_sync(self._notary.work.get_attempt, grant, attempt_id)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), max(0.0, deadline - loop.time()))

    @contextlib.contextmanager
    def _watch(self, attempt_id: str, changed: asyncio.Event) -> Iterator[None]:
        """Set the event also when another Steward on the same ledger settles the attempt."""
        self._events.setdefault(attempt_id, set()).add(changed)
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._events[attempt_id].discard(changed)
            if not self._events[attempt_id]:
                del self._events[attempt_id]

    async def _poll(self) -> None:
        """Poll the ledger for all waited-for attempts, in one transaction each time, as long as there are any."""
        while self._events:
            await asyncio.sleep(self._poll_seconds)
            waited_for = list(self._events)
            try:
                settled = await run_sync(self._notary.work.list_settled, waited_for)
            except PvdmError:
                settled = waited_for  # each request then reads its attempt and reports the error
            for attempt_id in settled:
                for changed in self._events.get(attempt_id, ()):
                    changed.set()
