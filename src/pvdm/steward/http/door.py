"""The door that every request passes: route, identity, role, limits, body; then the answer's headers, log and count."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pvdm.api.errors import kind_of
from pvdm.errors import NotAllowedError, PvdmError, StateUnknownError
from pvdm.ledger.actor import Actor, acting
from pvdm.model.role import Role
from pvdm.steward.access import TOKEN_TEXT_MAX_CHARACTERS
from pvdm.steward.http import oauth
from pvdm.steward.http.body import DisconnectedError, read_body, require_no_body, require_one_length
from pvdm.steward.http.catalog import errors, path
from pvdm.steward.http.errors import Refusal, refusal
from pvdm.steward.http.limits import Limiter, peer_of, token_identity
from pvdm.steward.http.metrics import Metrics
from pvdm.steward.http.receive import Inlet, send_refusal
from pvdm.steward.http.request import Asked, begin, header
from pvdm.steward.http.roles import Body, require_allowed
from pvdm.steward.http.routes import Found, RouteTable, require_query
from pvdm.steward.http.token_lookup import Lookup
from pvdm.steward.logs import log_exception, log_request

if TYPE_CHECKING:
    from pvdm.steward.notary import Notary

_ALWAYS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_BEARER: Final = "bearer "
CHANGES_AT_ONCE_MAX: Final = 4
CHANGES_OF_ONE_MAX: Final = 1
_PATH_VALUE_CHARACTERS: Final = 200
_PEOPLE: Final = frozenset({Role.OPERATOR, Role.AUDITOR, Role.ATTESTOR})
_NAMED_THINGS: Final = frozenset({"table", "view"})


@dataclass(slots=True)
class _Answer:
    """The way out: adds the headers that every answer has, and remembers how far it came."""

    asked: Asked
    send: Send
    metrics: Metrics
    seconds: float
    status: int | None = None
    _ended: bool = False

    async def __call__(self, message: Message) -> None:
        """The next piece; whoever has the whole answer finds it in the log and in the counts."""
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.end()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            request_id = (b"x-request-id", self.asked.request_id.encode("ascii"))
            message = {**message, "headers": [*message.get("headers", ()), *_ALWAYS, request_id]}
        try:
            async with asyncio.timeout(self.seconds):
                await self.send(message)
        except TimeoutError:
            raise DisconnectedError from None  # a caller that does not read its answer keeps no place

    def end(self) -> None:
        """Log and count the request, once."""
        if not self._ended:
            self._ended = True
            self.metrics.ended(self.asked, self.status)
            log_request(self.asked, self.status)


class Door:
    """ASGI middleware; everything that may be refused without the route's own work is refused here."""

    def __init__(self, app: ASGIApp, notary: Notary, table: RouteTable, lookup: Lookup, metrics: Metrics) -> None:
        self._app = app
        self._notary = notary
        self._table = table
        self._lookup = lookup
        self._limiter: Limiter = lookup.limiter
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, from its first line to its line in the log."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        asked = begin(scope)
        asked.of_catalog = path.is_catalog(scope["path"])
        scope["path"] = path.segments_kept(scope)
        answer = _Answer(asked, send, self._metrics, self._notary.config.service.limits.request_seconds)
        inlet = Inlet(scope, receive)
        self._metrics.in_flight.inc()
        try:
            await self._admitted(scope, inlet, answer, asked)
        except DisconnectedError:
            pass
        except asyncio.CancelledError:
            await self._refuse(_stopped(), inlet, answer)
            raise
        except Exception as error:
            await self._refuse(error, inlet, answer)
        finally:
            self._metrics.in_flight.dec()
            answer.end()

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _admitted(self, scope: Scope, receive: Inlet, answer: _Answer, asked: Asked) -> None:
        require_one_length(scope)
        found = self._table.find(scope["method"], scope["path"], asked)
        require_query(scope["query_string"], found.query_names)
        require_no_body(receive, found.rule)
        if not found.rule.limited:
            await self._app(scope, receive, answer)
            return
        identity = await self._identified(scope, found, asked)
        async with self._limiter.slot(identity), self._changing(found, identity, scope):
            with self._limiter.in_flight(stranger=found.rule.public), self._limiter.body_budget(identity) as take:
                limits = self._notary.config.service.limits
                asked.body = await read_body(scope, receive, found.rule, limits, take)
                with acting(_person(asked, found)):
                    if found.straight is None:
                        await self._app(scope, receive, answer)
                    else:
                        scope["path_params"] = found.path_params
                        told = await run_sync(found.straight, Request(scope))
                        await told(scope, receive, answer)

    @contextlib.asynccontextmanager
    async def _changing(self, found: Found, identity: str, scope: Scope) -> AsyncIterator[None]:
        """A change of the catalog may wait for its table, and keeps a thread meanwhile: one caller never keeps all."""
        if found.rule.body is not Body.COMMIT:
            yield
            return
        async with (
            self._alone(found, identity, scope),
            self._limiter.slot(f"changing {identity}", most=CHANGES_AT_ONCE_MAX),
        ):
            yield

    def _alone(self, found: Found, identity: str, scope: Scope) -> contextlib.AbstractAsyncContextManager[None]:
        """Changes of one table are made one after the other anyway: whoever waits for it here keeps no thread.

        A path that names no table or view is about many: there one change makes no other stale, and holds none up.
        """
        if not _NAMED_THINGS & found.path_params.keys():
            return contextlib.nullcontext()
        place = hashlib.sha256(f"{identity} {scope['path']}".encode()).hexdigest()
        return self._limiter.line(place, most=CHANGES_OF_ONE_MAX)

    async def _identified(self, scope: Scope, found: Found, asked: Asked) -> str:
        """Who is charged for the request: the token once it was checked, else the address it came from."""
        peer = peer_of(scope)
        if found.rule.public:
            if found.rule.charged:
                self._limiter.charge(peer)
            return peer
        try:
            token = bearer(scope)
        except NotAllowedError:
            self._limiter.charge(peer)
            raise
        payer = self._limiter.known_identity(token)
        if payer is None:
            asked.grant = await self._lookup(token, peer)
            self._limiter.charge(token_identity(asked.grant))
        else:
            self._limiter.charge(payer)
            asked.grant = await run_sync(self._notary.access.authenticate, token)
        identity = token_identity(asked.grant)
        require_allowed(found.rule, asked.grant, found.path_params)
        return identity

    async def _refuse(self, error: Exception, inlet: Inlet, answer: _Answer) -> None:
        asked = answer.asked
        if isinstance(error, PvdmError):
            self._metrics.refused(error)
        if kind_of(error) in ("bug", "state_unknown"):
            log_exception(asked, error)
        if answer.status is not None:
            return  # the answer has begun: it cannot be taken back, and the server ends the connection
        told = _told(error, asked)
        named = [("content-type", "application/json"), ("content-length", str(len(told.body))), *told.headers]
        headers = [(name.encode("ascii"), value.encode("ascii", "replace")) for name, value in named]
        start = {"type": "http.response.start", "status": told.status, "headers": headers}
        with contextlib.suppress(DisconnectedError):
            await send_refusal(start, told.body, inlet, answer)


def _person(asked: Asked, found: Found) -> Actor | None:
    """Who the step log names for what the request changes; jobs are not named, they come many times a second."""
    if asked.grant is None or asked.grant.role not in _PEOPLE or asked.method == "GET":
        return None
    named = {name: _plain(value) for name, value in found.path_params.items()}
    asked.workload_id = named.get("workload_id")
    facts = {**named, "route": f"{asked.method} {asked.route}", "token_id": asked.grant.token_id}
    return Actor(asked.grant.name, asked.request_id, facts)


def _plain(value: str) -> str:
    """A value of the path as it can be stored and printed, whatever the caller made of it."""
    return "".join(each if each.isprintable() else "." for each in value[:_PATH_VALUE_CHARACTERS])


def _told(error: Exception, asked: Asked) -> Refusal:
    """In the words of whoever asked: the Steward's own, OAuth2's or Iceberg's."""
    if asked.route == oauth.PATH:
        return oauth.refusal(error)
    return errors.refusal(error) if asked.of_catalog else refusal(error, asked.request_id)


def _stopped() -> StateUnknownError:
    return StateUnknownError(
        "service_stopped",
        "the Steward stopped before the request was done: it may have happened or not",
        hint="ask for the state of things before sending it again",
    )


def bearer(scope: Mapping[str, Any]) -> str:
    """The token of the one Authorization header."""
    given = header(scope, b"authorization")
    if given is None:
        raise NotAllowedError(
            "token_missing", "this needs a token", expected="one header Authorization: Bearer …", got="none, or several"
        )
    token = given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else ""
    if not 0 < len(token) <= TOKEN_TEXT_MAX_CHARACTERS or not token.isascii():
        raise NotAllowedError(
            "token_malformed", "the token cannot be read", expected="Authorization: Bearer …", got="something else"
        )
    return token
