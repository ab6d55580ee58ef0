"""Limits of rate and concurrency, for each identity and for all together, in bounded memory."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
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
WAITING_MAX: Final = 256
LOOPBACK: Final = "peer loopback"
WAITING_TOGETHER_MAX: Final = 1_024
PATIENCE_SECONDS: Final = 0.25
BODIES_MAX_BYTES: Final = 268_435_456
# Callers without a token may send a body slowly, so they share a quarter of the places.
_ANONYMOUS_SHARE: Final = 4
# One identity's bodies fill at most a quarter of what is kept for all bodies.
_BODY_SHARES: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """One waiting request, and since when it waits."""

    turn: asyncio.Future[None]
    since: float


@dataclass(slots=True, kw_only=True)
class _Line:
    """A queue: the number of running requests, the waiting ones, and how long one may be overtaken."""

    patience: float = 0.0
    running: int = 0
    waiting: deque[_Place] = field(default_factory=deque)

    @property
    def idle(self) -> bool:
        return self.running == 0 and not self.waiting


@dataclass(slots=True, kw_only=True)
class _Identity(_Line):
    """One caller's bucket, and the line of its requests."""

    tokens: float
    filled_at: float
    body_bytes: int = 0


class Limiter:
    """All limits of one service; used from its event loop only, so nothing is locked."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._identities: OrderedDict[str, _Identity] = OrderedDict()
        self._lines: dict[str, _Line] = {}
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._in_flight = 0
        self._anonymous = 0
        self._waiting = 0
        self._body_bytes = 0

    def __len__(self) -> int:
        return len(self._identities)

    @contextmanager
    def in_flight(self, *, anonymous: bool = False) -> Iterator[None]:
        """Count one of the requests that run at the same time; those without a token have a quarter of the places.

        A request that waits for a turn of its own identity is not counted yet.
        """
        most = max(1, self._limits.in_flight // _ANONYMOUS_SHARE) if anonymous else self._limits.in_flight
        if self._in_flight >= self._limits.in_flight or (anonymous and self._anonymous >= most):
            raise busy("the Steward is at its request limit", f"at most {most} such requests at a time")
        self._in_flight += 1
        self._anonymous += anonymous
        try:
            yield
        finally:
            self._in_flight -= 1
            self._anonymous -= anonymous

    def charge(self, identity: str) -> None:
        """Take one from the identity's bucket, or refuse until it has one again."""
        found = self._filled(identity)
        if found.tokens < 1:
            rate = self._limits.rate_per_second
            expected = f"{rate} a second, {self._limits.burst} at once"
            raise _limited(Code.RATE_LIMITED, expected, math.ceil((1 - found.tokens) / rate))
        found.tokens -= 1

    @asynccontextmanager
    async def slot(self, identity: str, *, most: int | None = None) -> AsyncIterator[None]:
        """Run a request within the identity's share, or wait for a place, for a limited time."""
        async with self._turn(self._filled(identity), self._limits.concurrent if most is None else most):
            yield

    @asynccontextmanager
    async def line(self, name: str, *, most: int) -> AsyncIterator[None]:
        """Run at most `most` requests of a queue at a time, the last one first.

        It is for requests about one thing, each of which makes the waiting ones stale. A request that has waited for
        `PATIENCE_SECONDS` comes before all others.
        """
        found = self._lines.setdefault(name, _Line(patience=PATIENCE_SECONDS))
        try:
            async with self._turn(found, most):
                yield
        finally:
            if found.idle:
                self._lines.pop(name, None)

    @contextmanager
    def body_budget(self, identity: str) -> Iterator[Callable[[int], None]]:
        """Limit the bytes of bodies in memory, of the identity and of all together."""
        found = self._filled(identity)
        share = BODIES_MAX_BYTES // _BODY_SHARES
        held = 0

        def take(size: int) -> None:
            nonlocal held
            if found.body_bytes + size > share:
                raise self._too_many(f"bodies of {share} bytes together")
            if self._body_bytes + size > BODIES_MAX_BYTES:
                raise busy("the Steward holds too many large bodies", f"at most {BODIES_MAX_BYTES} bytes together")
            self._body_bytes += size
            found.body_bytes += size
            held += size

        try:
            yield take
        finally:
            self._body_bytes -= held
            found.body_bytes -= held

    def known_identity(self, token: str) -> str | None:
        """The identity that a token is charged to before it is looked up; None for a token not seen before."""
        key = _fingerprint(token)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def learn(self, token: str, identity: str) -> None:
        """Remember the identity of a token, for the limits of the next request only."""
        self._known[_fingerprint(token)] = identity
        while len(self._known) > IDENTITIES_MAX:
            self._known.popitem(last=False)

    @asynccontextmanager
    async def _turn(self, found: _Line, most: int) -> AsyncIterator[None]:
        # A leaving request hands its turn to a waiting one, so a new request cannot take it.
        if found.running < most:
            found.running += 1
        else:
            await self._wait(found)
        try:
            yield
        finally:
            self._leave(found)

    async def _wait(self, found: _Line) -> None:
        if len(found.waiting) >= WAITING_MAX or self._limits.wait_seconds == 0:
            raise self._too_many()
        if self._waiting >= WAITING_TOGETHER_MAX:
            raise busy("too many requests wait", f"at most {WAITING_TOGETHER_MAX} that wait")
        place = _Place(asyncio.get_running_loop().create_future(), self._clock())
        found.waiting.append(place)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.wait_seconds):
                await place.turn
        except TimeoutError:
            if place.turn.cancelled():  # else the turn came in the same moment: it is taken
                raise self._too_many() from None
        except asyncio.CancelledError:
            if place.turn.done() and not place.turn.cancelled():
                self._leave(found)  # the turn came in the same moment: pass it on
            raise
        finally:
            self._waiting -= 1
            if place in found.waiting:
                found.waiting.remove(place)

    def _leave(self, found: _Line) -> None:
        """Hand the turn to the longest waiting request if it is overdue, else to the last one."""
        while found.waiting:
            overdue = self._clock() - found.waiting[0].since >= found.patience
            place = found.waiting.popleft() if overdue else found.waiting.pop()
            if not place.turn.done():
                place.turn.set_result(None)
                return
        found.running -= 1

    def _filled(self, identity: str) -> _Identity:
        now = self._clock()
        found = self._identities.get(identity)
        if found is None:
            while len(self._identities) >= IDENTITIES_MAX:
                # The least recently used one that has no running request goes.
                oldest = next((name for name, each in self._identities.items() if each.idle), None)
                if oldest is None:
                    raise busy("too many callers at once", f"at most {IDENTITIES_MAX} identities")
                del self._identities[oldest]
            found = self._identities[identity] = _Identity(tokens=float(self._limits.burst), filled_at=now)
        self._identities.move_to_end(identity)
        gained = (now - found.filled_at) * self._limits.rate_per_second
        found.tokens = min(float(self._limits.burst), found.tokens + gained)
        found.filled_at = now
        return found

    def _too_many(self, expected: str | None = None) -> PvdmError:
        most, seconds = self._limits.concurrent, self._limits.wait_seconds
        wanted = expected or f"{most} at a time, and {seconds} seconds of waiting"
        return _limited(Code.TOO_MANY_REQUESTS_AT_ONCE, wanted, max(1, seconds))


class TokenLookup:
    """Looks unknown tokens up in the ledger, in threads of its own.

    There is no rate limit on the address. A token has 256 random bits, so guessing is hopeless, and a limit would let
    one caller behind a proxy shut out all others there. Each address looks up few tokens at a time, and its other
    requests wait in line. Addresses take turns, and none takes a thread from callers with known tokens.
    """

    def __init__(self, notary: Notary, limiter: Limiter) -> None:
        self.limiter = limiter
        self._notary = notary
        self._threads = CapacityLimiter(LOOKUP_THREADS_MAX)

    async def __call__(self, token: str, peer: str) -> Grant:
        """The token's grant; the limiter remembers its identity."""
        async with self.limiter.slot(f"lookup {peer}", most=LOOKUP_THREADS_MAX):
            grant = await run_sync(self._notary.access.authenticate, token, limiter=self._threads)
        self.limiter.learn(token, token_identity(grant))
        return grant


def token_identity(grant: Grant) -> str:
    """The identity of a token; tokens derived from one token share its limits."""
    return f"token {grant.parent_id or grant.token_id}"


def peer_of(scope: Mapping[str, Any]) -> str:
    """Where a request comes from, as an identity."""
    client = scope.get("client")
    return peer_identity(client[0] if client else None)


def peer_identity(host: str | None) -> str:
    """An address as an identity; this machine is one, and so is an IPv6 network of 64 bits, which one caller has."""
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


def busy(message: str, expected: str) -> PvdmError:
    """The error for a limit of the whole service."""
    return _limited(Code.SERVICE_BUSY, expected, 1, message)


def _limited(code: Code, expected: str, seconds: int, message: str | None = None) -> PvdmError:
    hint = f"nothing happened; try again in {seconds} seconds"
    return code(message, expected=expected, got="more", hint=hint, retry_after_seconds=seconds)


def _fingerprint(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
