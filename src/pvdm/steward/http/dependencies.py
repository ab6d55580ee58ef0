"""What routes depend on: the notary, the caller's grant, and parts of the app, with readiness checks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, Protocol, TypeAlias, TypeVar

from anyio.to_thread import run_sync
from fastapi import Depends, Request

from pvdm.errors import PvdmError
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.limits import TokenLookup
from pvdm.steward.http.long_poll import Waiting
from pvdm.steward.http.metrics import Metrics
from pvdm.steward.http.request import caller
from pvdm.steward.logs import log_error, log_event
from pvdm.steward.notary import Notary

# After this many checks within a second the last result is used again.
READINESS_CHECKS_MAX: Final = 5
_WINDOW_SECONDS: Final = 1.0

Reasons = tuple[PvdmError, ...]
_T = TypeVar("_T")


class _Ready(Protocol):
    def readiness(self) -> Reasons: ...


class Readiness:
    """Runs one check at a time, whose result all waiting callers get. Used from one event loop."""

    def __init__(self, notary: _Ready, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._notary = notary
        self._clock = clock
        self._checks: deque[float] = deque(maxlen=READINESS_CHECKS_MAX)
        self._running: asyncio.Task[Reasons] | None = None
        self._last: Reasons | None = None
        self._codes: frozenset[str] = frozenset()

    async def reasons(self) -> Reasons:
        """Every reason why the Steward takes no work."""
        if self._running is None:
            full = len(self._checks) == READINESS_CHECKS_MAX
            if self._last is not None and full and self._clock() - self._checks[0] < _WINDOW_SECONDS:
                return self._last
            self._checks.append(self._clock())
            self._running = asyncio.create_task(self._check())
        # Shielded, since others may wait for the result when one caller disconnects.
        return await asyncio.shield(self._running)

    def log_change(self, reasons: Reasons) -> None:
        """Log one line when the Steward is not ready, or for another reason than before, and one when it is again."""
        codes = frozenset(each.code for each in reasons)
        if codes == self._codes:
            return
        self._codes = codes
        if codes:
            log_error("not_ready", code=", ".join(sorted(codes)), why="; ".join(str(each) for each in reasons))
        else:
            log_event("ready")

    async def _check(self) -> Reasons:
        try:
            self._last = await run_sync(self._notary.readiness)
            self.log_change(self._last)
            return self._last
        finally:
            self._running = None


def _part(name: str, kind: type[_T]) -> Callable[[Request], Awaitable[_T]]:
    """A dependency on the part of the app that its state has under this name."""

    async def find(request: Request) -> _T:
        found = getattr(request.app.state, name)
        assert isinstance(found, kind)  # noqa: S101 - only `create_app` sets it
        return found

    return find


def notary_of(request: Request) -> Notary:
    """The notary that the app serves."""
    found = request.app.state.notary
    assert isinstance(found, Notary)  # noqa: S101 - only `create_app` sets it
    return found


NotaryPart: TypeAlias = Annotated[Notary, Depends(_part("notary", Notary))]
MetricsPart: TypeAlias = Annotated[Metrics, Depends(_part("metrics", Metrics))]
LookupPart: TypeAlias = Annotated[TokenLookup, Depends(_part("lookup", TokenLookup))]
ReadinessPart: TypeAlias = Annotated[Readiness, Depends(_part("readiness", Readiness))]
WaitingPart: TypeAlias = Annotated[Waiting, Depends(_part("waiting", Waiting))]
Caller: TypeAlias = Annotated[Grant, Depends(caller)]
