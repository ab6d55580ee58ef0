"""Limits of rate and concurrency, for each identity (a token or an address) and for all together, in bounded memory."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from pvdm.errors import Code, PvdmError
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.config.steward import Limits
from pvdm.steward.notary import Notary

IDENTITIES_MAX: Final = 10_000
LOOKUP_THREADS_MAX: Final = 2
WAITING_MAX: Final = 256  # requests in one queue
WAITING_TOGETHER_MAX: Final = 1_024  # requests in all queues
LOOPBACK: Final = "peer loopback"
PATIENCE_SECONDS: Final = 0.25
BODIES_MAX_BYTES: Final = 268_435_456
# Callers without a token may send a body slowly, so at most a quarter of the running requests are theirs.
_ANONYMOUS_SHARE: Final = 4
# One identity's bodies have at most a quarter of `BODIES_MAX_BYTES`.
_BODY_SHARES: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """One waiting request, and the time when it began to wait."""

    turn: asyncio.Future[None]
    since: float


@dataclass(slots=True, kw_only=True)
class _Queue:
    """Running and waiting requests. The last waiter is next, unless the first has waited for `patience` seconds."""

    patience: float = 0.0
    running: int = 0
    waiting: deque[_Waiter] = field(default_factory=deque)

    @property
    def idle(self) -> bool:
        return self.running == 0 and not self.waiting


@dataclass(slots=True, kw_only=True)
class _Identity(_Queue):
    """One caller's queue of requests. `allowance` is the number of requests that its rate limit allows now."""

    allowance: float
    refilled_at: float
    body_bytes: int = 0


class Limiter:
    """All limits of one service; used from its event loop only, so it needs no locks."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._identities: OrderedDict[str, _Identity] = OrderedDict()
        self._queues: dict[str, _Queue] = {}
        self._identity_by_token: OrderedDict[bytes, str] = OrderedDict()
        self._in_flight = self._anonymous = self._waiting = self._body_bytes = 0

    @contextmanager
    def in_flight(self, *, anonymous: bool = False) -> Iterator[None]:
        """Count a running request. Raises `service_busy` at the limit; for anonymous requests at a quarter of it."""
        limit = max(1, self._limits.in_flight // _ANONYMOUS_SHARE) if anonymous else self._limits.in_flight
        if self._in_flight >= self._limits.in_flight or (anonymous and self._anonymous >= limit):
            raise busy_error("the Steward is at its request limit", f"at most {limit} such requests at a time")
        self._in_flight += 1
        self._anonymous += int(anonymous)
        try:
            yield
        finally:
            self._in_flight -= 1
            self._anonymous -= int(anonymous)

    def charge(self, identity: str) -> None:
        """Charge a request to the identity's rate limit. Raises `rate_limited` if the limit allows none now."""
        caller = self._find_identity(identity)
        if caller.allowance < 1:
            rate = self._limits.rate_per_second
            expected = f"{rate} a second, {self._limits.burst} at once"
            raise _limit_error(Code.RATE_LIMITED, expected, math.ceil((1 - caller.allowance) / rate))
        caller.allowance -= 1

    def slot(self, identity: str, *, most: int | None = None) -> AbstractAsyncContextManager[None]:
        """Run a request when fewer than `most` requests of the identity run; the default is the setting `concurrent`.

        Raises `too_many_requests_at_once` or `service_busy` if it would wait too long, or if too many requests wait.
        """
        return self._turn(self._find_identity(identity), self._limits.concurrent if most is None else most)

    @asynccontextmanager
    async def queue(self, name: str, *, most: int) -> AsyncIterator[None]:
        """Run at most `most` requests of a named queue at a time, the newest first.

        Of the waiting changes of a table, the newest was most likely made for the table's current state. A request
        that has waited for `PATIENCE_SECONDS` comes before all others.
        """
        queue = self._queues.setdefault(name, _Queue(patience=PATIENCE_SECONDS))
        try:
            async with self._turn(queue, most):
                yield
        finally:
            if queue.idle:
                self._queues.pop(name, None)

    @contextmanager
    def body_budget(self, identity: str) -> Iterator[Callable[[int], None]]:
        """Limit the bytes of request bodies in memory. Yields a function that reserves bytes, or raises at a limit."""
        caller = self._find_identity(identity)
        share = BODIES_MAX_BYTES // _BODY_SHARES
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if caller.body_bytes + size > share:
                raise self._too_many_error(f"bodies of {share} bytes together")
            if self._body_bytes + size > BODIES_MAX_BYTES:
                expected = f"at most {BODIES_MAX_BYTES} bytes together"
                raise busy_error("the Steward holds too many large bodies", expected)
            self._body_bytes += size
            caller.body_bytes += size
            taken += size

        try:
            yield take
        finally:
            self._body_bytes -= taken
            caller.body_bytes -= taken

    def known_identity(self, token: str) -> str | None:
        """The identity of a token that was looked up before and is remembered; None for other tokens."""
        key = _fingerprint(token)
        found = self._identity_by_token.get(key)
        if found is not None:
            self._identity_by_token.move_to_end(key)
        return found

    def learn(self, token: str, identity: str) -> None:
        """Remember the token's identity, so that its next request can be charged before the token is looked up."""
        self._identity_by_token[_fingerprint(token)] = identity
        while len(self._identity_by_token) > IDENTITIES_MAX:
            self._identity_by_token.popitem(last=False)

    @asynccontextmanager
    async def _turn(self, queue: _Queue, most: int) -> AsyncIterator[None]:
        # `_leave` gives the place of a finished request to a waiter, so a new request cannot take it.
        if queue.running < most:
            queue.running += 1
        else:
            await self._wait(queue)
        try:
            yield
        finally:
            self._leave(queue)

    async def _wait(self, queue: _Queue) -> None:
        if len(queue.waiting) >= WAITING_MAX or self._limits.wait_seconds == 0:
            raise self._too_many_error()
        if self._waiting >= WAITING_TOGETHER_MAX:
            raise busy_error("too many requests wait", f"at most {WAITING_TOGETHER_MAX} that wait")
        waiter = _Waiter(asyncio.get_running_loop().create_future(), self._clock())
        queue.waiting.append(waiter)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.wait_seconds):
                await waiter.turn
        except TimeoutError:
            if waiter.turn.cancelled():  # else the turn came at the same moment, and is used
                raise self._too_many_error() from None
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._leave(queue)  # the turn came at the same moment: pass it on
            raise
        finally:
            self._waiting -= 1
            if waiter in queue.waiting:
                queue.waiting.remove(waiter)

    def _leave(self, queue: _Queue) -> None:
        """Hand the turn to the first waiting request if it has waited for `patience` seconds, else to the last one."""
        while queue.waiting:
            is_overdue = self._clock() - queue.waiting[0].since >= queue.patience
            waiter = queue.waiting.popleft() if is_overdue else queue.waiting.pop()
            if not waiter.turn.done():
                waiter.turn.set_result(None)
                return
        queue.running -= 1

    def _find_identity(self, identity: str) -> _Identity:
        """Find or create the identity, and add to its allowance what the time since the last call allows."""
        now = self._clock()
        found = self._identities.get(identity)
        if found is None:
            while len(self._identities) >= IDENTITIES_MAX:
                # Drop the least recently used identity that has no request.
                oldest = next((name for name, each in self._identities.items() if each.idle), None)
                if oldest is None:
                    raise busy_error("too many callers at once", f"at most {IDENTITIES_MAX} identities")
                del self._identities[oldest]
            found = self._identities[identity] = _Identity(allowance=float(self._limits.burst), refilled_at=now)
        self._identities.move_to_end(identity)
        gained = (now - found.refilled_at) * self._limits.rate_per_second
        found.allowance = min(float(self._limits.burst), found.allowance + gained)
        found.refilled_at = now
        return found

    def _too_many_error(self, expected: str | None = None) -> PvdmError:
        seconds = self._limits.wait_seconds
        at_once = f"{self._limits.concurrent} at a time, and {seconds} seconds of waiting"
        return _limit_error(Code.TOO_MANY_REQUESTS_AT_ONCE, expected or at_once, max(1, seconds))


class TokenLookup:
    """Finds the grants of tokens in its own threads. It is for tokens that the limiter has perhaps not seen before.

    A lookup does not count for the rate limit of its address: a token has 256 random bits and cannot be guessed, and
    one caller behind a proxy could use up the limit of all others there. An address may have `LOOKUP_THREADS_MAX`
    lookups at a time; its other requests wait.
    """

    def __init__(self, notary: Notary, limiter: Limiter) -> None:
        self.limiter = limiter
        self._notary = notary
        self._threads = CapacityLimiter(LOOKUP_THREADS_MAX)

    async def __call__(self, token: str, peer: str) -> Grant:
        """The token's grant; the limiter remembers the token's identity."""
        async with self.limiter.slot(f"lookup {peer}", most=LOOKUP_THREADS_MAX):
            grant = await run_sync(self._notary.access.authenticate, token, limiter=self._threads)
        self.limiter.learn(token, token_identity(grant))
        return grant


def token_identity(grant: Grant) -> str:
    """The identity of a token; tokens derived from one token share its limits."""
    return f"token {grant.parent_id or grant.token_id}"


def peer_of(scope: Mapping[str, Any]) -> str:
    """The identity of the address that a request comes from."""
    client = scope.get("client")
    return peer_identity(client[0] if client else None)


def peer_identity(host: str | None) -> str:
    """The identity of an address. All loopback addresses share one, and so does a whole IPv6 /64 network."""
    if host is None:
        return "peer unknown"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"peer {host[:64]}"
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return LOOPBACK
    if isinstance(address, ipaddress.IPv6Address):
        return f"peer {ipaddress.ip_network((address, 64), strict=False)}"
    return f"peer {address}"


def busy_error(message: str, expected: str) -> PvdmError:
    """The error for a limit of the whole service."""
    return _limit_error(Code.SERVICE_BUSY, expected, 1, message)


def _limit_error(code: Code, expected: str, seconds: int, message: str | None = None) -> PvdmError:
    hint = f"nothing happened; try again in {seconds} seconds"
    return code(message, expected=expected, got="more", hint=hint, retry_after_seconds=seconds)


def _fingerprint(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
