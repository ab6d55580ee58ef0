"""Dependencies of routes: the notary, the caller's grant and other objects of the app; and readiness checks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeAlias, TypeVar

from anyio.to_thread import run_sync
from fastapi import Depends, Request

from pvdm.errors import PvdmError
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.limits import TokenLookup
from pvdm.steward.http.long_poll import LongPolls
from pvdm.steward.http.metrics import Metrics
from pvdm.steward.http.request import caller
from pvdm.steward.logs import log_error, log_event
from pvdm.steward.notary import Notary

# At most this many checks begin within `_WINDOW_SECONDS`; further calls get the last result.
READINESS_CHECKS_MAX: Final = 5
_WINDOW_SECONDS: Final = 1.0

Reasons = tuple[PvdmError, ...]
_T = TypeVar("_T")


class Readiness:
    """Runs one readiness check at a time for all waiting callers. Used from one event loop."""

    def __init__(self, check: Callable[[], Reasons], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._clock = clock
        self._check_times: deque[float] = deque(maxlen=READINESS_CHECKS_MAX)
        self._running: asyncio.Task[Reasons] | None = None
        self._last: Reasons | None = None
        self._logged_codes: frozenset[str] = frozenset()

    async def reasons(self) -> Reasons:
        """Every reason why the Steward accepts no work; empty if it is ready."""
        if self._running is None:
            is_full = len(self._check_times) == READINESS_CHECKS_MAX
            if self._last is not None and is_full and self._clock() - self._check_times[0] < _WINDOW_SECONDS:
                return self._last
            self._check_times.append(self._clock())
            self._running = asyncio.create_task(self._run_check())
        # Shielded: if this caller disconnects, others may still wait for the result.
        return await asyncio.shield(self._running)

    def log_change(self, reasons: Reasons) -> None:
        """Log the reasons why the Steward is not ready if they have changed, and log when it is ready again."""
        # In every line of the log, the field "code" has the reason.
        codes = frozenset(each.reason for each in reasons)
        if codes == self._logged_codes:
            return
        self._logged_codes = codes
        if codes:
            log_error("not_ready", code=", ".join(sorted(codes)), why="; ".join(str(each) for each in reasons))
        else:
            log_event("ready")

    async def _run_check(self) -> Reasons:
        try:
            self._last = await run_sync(self._check)
            self.log_change(self._last)
            return self._last
        finally:
            self._running = None


def _find_in_state(request: Request, name: str, kind: type[_T]) -> _T:
    """The object that the app's state has under this name."""
    found = getattr(request.app.state, name)
    assert isinstance(found, kind)  # noqa: S101 - only `create_app` sets it
    return found


def _state_dependency(name: str, kind: type[_T]) -> Callable[[Request], Awaitable[_T]]:
    """A route's dependency on the object that the app's state has under this name."""

    async def find(request: Request) -> _T:
        return _find_in_state(request, name, kind)

    return find


def notary_of(request: Request) -> Notary:
    """The notary that the app serves."""
    return _find_in_state(request, "notary", Notary)


NotaryPart: TypeAlias = Annotated[Notary, Depends(_state_dependency("notary", Notary))]
MetricsPart: TypeAlias = Annotated[Metrics, Depends(_state_dependency("metrics", Metrics))]
LookupPart: TypeAlias = Annotated[TokenLookup, Depends(_state_dependency("lookup", TokenLookup))]
ReadinessPart: TypeAlias = Annotated[Readiness, Depends(_state_dependency("readiness", Readiness))]
LongPollsPart: TypeAlias = Annotated[LongPolls, Depends(_state_dependency("long_polls", LongPolls))]
Caller: TypeAlias = Annotated[Grant, Depends(caller)]
