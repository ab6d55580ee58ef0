"""Rate and concurrency for each identity, and caps for all together; memory is bounded whoever knocks. One loop."""

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

from pvdm.errors import UnavailableError
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.config.steward import Limits
from pvdm.steward.http.errors import RETRY_DETAIL

IDENTITIES_MAX: Final = 10_000
WAITING_MAX: Final = 256
LOOPBACK: Final = "peer loopback"
WAITING_TOGETHER_MAX: Final = 1_024
PATIENCE_SECONDS: Final = 0.25
BODIES_MAX_BYTES: Final = 268_435_456
# Callers that have shown no token, and may send a body as slowly as they like, share a quarter of the room.
_STRANGERS: Final = 4
# One identity's bodies fill at most a quarter of what is kept for all bodies.
_BODY_SHARES: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Somebody who waits, and since when."""

    turn: asyncio.Future[None]
    since: float


@dataclass(slots=True, kw_only=True)
class _Line:
    """How many run, who waits, and how long whoever waits may be passed by."""

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
        self._strangers = 0
        self._waiting = 0
        self._body_bytes = 0

    def __len__(self) -> int:
        return len(self._identities)

    @contextmanager
    def in_flight(self, *, stranger: bool = False) -> Iterator[None]:
        """One of all requests that the service works on at a time; strangers fill only a part of the room.

        Whoever waits for a turn of its own identity has no place here yet, so that waiting takes nobody else's.
        """
        most = max(1, self._limits.in_flight // _STRANGERS) if stranger else self._limits.in_flight
        if self._in_flight >= self._limits.in_flight or (stranger and self._strangers >= most):
            raise busy("the Steward has its hands full", f"at most {most} such requests at a time")
        self._in_flight += 1
        self._strangers += stranger
        try:
            yield
        finally:
            self._in_flight -= 1
            self._strangers -= stranger

    def charge(self, identity: str) -> None:
        """Take one from the identity's bucket, or refuse until it has one again."""
        found = self._filled(identity)
        if found.tokens < 1:
            raise self._rate_limited(found)
        found.tokens -= 1

    @asynccontextmanager
    async def slot(self, identity: str, *, most: int | None = None) -> AsyncIterator[None]:
        """One of the identity's requests at a time; beyond its share it waits in line, for a while."""
        async with self._turn(self._filled(identity), self._limits.concurrent if most is None else most):
            yield

    @asynccontextmanager
    async def line(self, name: str, *, most: int) -> AsyncIterator[None]:
        """So many at a time in a line that is there only while somebody is in it. Who came last is served first.

        For requests about one thing, each of which makes those that wait stale: what was asked last still fits. Whoever
        has waited for a while comes before all others, so that nobody is passed by for long.
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
        """Bytes of bodies that are held in memory, of the identity's requests and of all together."""
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
        """Whose bucket a token is charged to before anyone looks it up; only tokens that were good are known."""
        key = _fingerprint(token)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def learn(self, token: str, identity: str) -> None:
        """Remember whose token it is, for the next request's limits and for nothing else."""
        self._known[_fingerprint(token)] = identity
        while len(self._known) > IDENTITIES_MAX:
            self._known.popitem(last=False)

    @asynccontextmanager
    async def _turn(self, found: _Line, most: int) -> AsyncIterator[None]:
        # Whoever waits is handed a turn, so nobody takes it from them.
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
        """Hand the turn to whoever waits longest, or came last as long as all can be patient; else give it back."""
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
            self._make_room()
            found = self._identities[identity] = _Identity(tokens=float(self._limits.burst), filled_at=now)
        self._identities.move_to_end(identity)
        gained = (now - found.filled_at) * self._limits.rate_per_second
        found.tokens = min(float(self._limits.burst), found.tokens + gained)
        found.filled_at = now
        return found

    def _make_room(self) -> None:
        """Drop the identity that was silent longest; one with requests under way is never dropped."""
        while len(self._identities) >= IDENTITIES_MAX:
            oldest = next((name for name, found in self._identities.items() if found.idle), None)
            if oldest is None:
                raise busy("too many callers at once", f"at most {IDENTITIES_MAX} identities")
            del self._identities[oldest]

    def _rate_limited(self, found: _Identity) -> UnavailableError:
        return _limited(
            "rate_limited",
            "too many requests a second",
            f"{self._limits.rate_per_second} a second, {self._limits.burst} at once",
            math.ceil((1 - found.tokens) / self._limits.rate_per_second),
        )

    def _too_many(self, expected: str | None = None) -> UnavailableError:
        return _limited(
            "too_many_requests_at_once",
            "too many requests at the same time",
            expected or f"{self._limits.concurrent} at a time, and {self._limits.wait_seconds} seconds of waiting",
            max(1, self._limits.wait_seconds),
        )


def token_identity(grant: Grant) -> str:
    """Whose account a token's requests are on: all that were derived from one token share its limits."""
    return f"token {grant.parent_id or grant.token_id}"


def peer_of(scope: Mapping[str, Any]) -> str:
    """Where a request comes from, as an identity."""
    client = scope.get("client")
    return peer_identity(client[0] if client else None)


def peer_identity(host: str | None) -> str:
    """An address as an identity; this machine is one, and so is an IPv6 network of 64 bits: one caller has them all."""
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


def busy(message: str, expected: str) -> UnavailableError:
    """The service as a whole is at its limit: nobody's fault, and soon over."""
    return _limited("service_busy", message, expected, 1)


def _limited(code: str, message: str, expected: str, seconds: int) -> UnavailableError:
    return UnavailableError(
        code,
        message,
        expected=expected,
        got="more",
        hint=f"nothing happened; try again in {seconds} seconds",
        **{RETRY_DETAIL: seconds},
    )


def _fingerprint(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
