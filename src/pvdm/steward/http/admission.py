"""The middleware that every request passes: route, identity, role, limits and body; then headers, log and counts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pvdm.api.errors import kind_of
from pvdm.errors import Code, NotAllowedError, PvdmError
from pvdm.ledger.unit import Actor, acting_as
from pvdm.model.role import Role
from pvdm.steward.access import TOKEN_TEXT_MAX_CHARACTERS
from pvdm.steward.http import body, oauth
from pvdm.steward.http.errors import catalog_refusal, refusal
from pvdm.steward.http.limits import Limiter, TokenLookup, peer_of, token_identity
from pvdm.steward.http.metrics import Metrics
from pvdm.steward.http.request import RequestContext, begin_request, header, is_catalog, routing_path
from pvdm.steward.http.roles import Body, require_allowed
from pvdm.steward.http.routes import FoundRoute, RouteTable, require_query
from pvdm.steward.logs import log_exception, log_request
from pvdm.steward.notary import Notary

_COMMON_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_BEARER: Final = "bearer "
CHANGES_AT_ONCE_MAX: Final = 4  # catalog requests with a body, by one caller
CHANGES_OF_ONE_OBJECT_MAX: Final = 1  # such requests about one table or view, by one caller
_PATH_VALUE_CHARACTERS: Final = 200  # of a path parameter in the step log; the rest is left out
_ROLES_OF_PEOPLE: Final = frozenset({Role.OPERATOR, Role.AUDITOR, Role.ATTESTOR})
_OBJECT_PARAMS: Final = frozenset({"table", "view"})  # path parameters that name a table or view


@dataclass(slots=True)
class _ResponseSender:
    """Sends the response with the headers that every response has, and records its status."""

    context: RequestContext
    send: Send
    metrics: Metrics
    timeout_seconds: float  # a caller that does not read a message in this time counts as disconnected
    status: int | None = None
    _ended: bool = False

    async def __call__(self, message: Message) -> None:
        """Send the next message; the request is logged and counted before the last message."""
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.end()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            request_id = (b"x-request-id", self.context.request_id.encode("ascii"))
            message = {**message, "headers": [*message.get("headers", ()), *_COMMON_HEADERS, request_id]}
        try:
            async with asyncio.timeout(self.timeout_seconds):
                await self.send(message)
        except TimeoutError:
            raise body.DisconnectedError from None

    def end(self) -> None:
        """Log and count the request, once."""
        if not self._ended:
            self._ended = True
            self.metrics.count_request(self.context, self.status)
            log_request(self.context, self.status)


class AdmissionMiddleware:
    """ASGI middleware: refuses requests that can be refused before the route's own work."""

    def __init__(self, app: ASGIApp, notary: Notary, routes: RouteTable, lookup: TokenLookup, metrics: Metrics) -> None:
        self._app = app
        self._notary = notary
        self._routes = routes
        self._lookup = lookup
        self._limiter: Limiter = lookup.limiter
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, send its response or refusal, and log it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        context = begin_request(scope)
        context.is_catalog = is_catalog(scope["path"])
        scope["path"] = routing_path(scope)
        sender = _ResponseSender(context, send, self._metrics, self._notary.config.service.limits.request_seconds)
        receiver = body.BodyReceiver(scope, receive)
        self._metrics.in_flight.inc()
        try:
            await self._handle(scope, receiver, sender, context)
        except body.DisconnectedError:
            pass
        except asyncio.CancelledError:
            await self._refuse(Code.SERVICE_STOPPED(), receiver, sender)
            raise
        except Exception as error:
            await self._refuse(error, receiver, sender)
        finally:
            self._metrics.in_flight.dec()
            sender.end()

    async def _handle(
        self, scope: Scope, receiver: body.BodyReceiver, sender: _ResponseSender, context: RequestContext
    ) -> None:
        """Check the request, read its body, and call its route: through FastAPI, or directly on its fast path."""
        body.require_one_length(scope)
        found = self._routes.find(scope["method"], scope["path"], context)
        require_query(scope["query_string"], found.query_names)
        body.require_no_body(receiver, found.rule)
        if not found.rule.limited:  # /healthz and /readyz only: they are public and have no body
            await self._app(scope, receiver, sender)
            return
        identity = await self._authenticate(scope, found, context)
        async with self._limiter.slot(identity), self._limit_changes(found, identity, scope):
            with self._limiter.in_flight(anonymous=found.rule.public), self._limiter.body_budget(identity) as take:
                limits = self._notary.config.service.limits
                context.body = await body.read_body(scope, receiver, found.rule, limits, take)
                with acting_as(_identify_actor(context, found)):
                    if found.fast_path is None:
                        await self._app(scope, receiver, sender)
                    else:
                        scope["path_params"] = found.path_params
                        response = await run_sync(found.fast_path, Request(scope))
                        await response(scope, receiver, sender)

    @contextlib.asynccontextmanager
    async def _limit_changes(self, found: FoundRoute, identity: str, scope: Scope) -> AsyncIterator[None]:
        """Limit a caller's concurrent catalog requests with a body: each may block a thread while it waits.

        Requests about the same table or view (by path) run one at a time, and all together `CHANGES_AT_ONCE_MAX` at a
        time. The others wait here without a thread. Drops have no body, so only the general limits apply to them.
        """
        async with contextlib.AsyncExitStack() as turns:
            if found.rule.body is Body.CATALOG:
                if _OBJECT_PARAMS & found.path_params.keys():
                    name = hashlib.sha256(f"{identity} {scope['path']}".encode()).hexdigest()  # a path may be long
                    await turns.enter_async_context(self._limiter.queue(name, most=CHANGES_OF_ONE_OBJECT_MAX))
                slot = self._limiter.slot(f"changing {identity}", most=CHANGES_AT_ONCE_MAX)
                await turns.enter_async_context(slot)
            yield

    async def _authenticate(self, scope: Scope, found: FoundRoute, context: RequestContext) -> str:
        """Check the token, and count the request for the rate limit of the identity (token or peer) that it returns."""
        peer = peer_of(scope)
        if found.rule.public:
            if found.rule.charged:
                self._limiter.charge(peer)
            return peer
        try:
            token = bearer_token(scope)
        except NotAllowedError:
            self._limiter.charge(peer)
            raise
        known = self._limiter.known_identity(token)  # a request with a known token is counted before the token's lookup
        if known is None:
            # It is not known yet whose limits apply. So the lookup has its own threads, and a limit for each peer.
            context.grant = await self._lookup(token, peer)
            self._limiter.charge(token_identity(context.grant))
        else:
            self._limiter.charge(known)
            context.grant = await run_sync(self._notary.access.authenticate, token)
        require_allowed(found.rule, context.grant, found.path_params)
        return token_identity(context.grant)

    async def _refuse(self, error: Exception, receiver: body.BodyReceiver, sender: _ResponseSender) -> None:
        """Send the error in the form of its API, unless a response has begun. Also logs bugs and unknown states."""
        context = sender.context
        if isinstance(error, PvdmError):
            self._metrics.count_refusal(error)
        if kind_of(error) in ("bug", "state_unknown"):
            log_exception(context, error)
        if sender.status is not None:
            return  # a response has begun, so no error can be sent; the server closes the connection
        if context.route == oauth.PATH:
            response = oauth.refusal(error)
        else:
            response = catalog_refusal(error) if context.is_catalog else refusal(error, context.request_id)
        pairs = [("content-type", "application/json"), ("content-length", str(len(response.body))), *response.headers]
        headers = [(name.encode("ascii"), value.encode("ascii", "replace")) for name, value in pairs]
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        with contextlib.suppress(body.DisconnectedError):
            await body.send_refusal(start, response.body, receiver, sender)


def _identify_actor(context: RequestContext, found: FoundRoute) -> Actor | None:
    """The person for the step log; None for GET requests and for programs' roles. Also sets the context's workload."""
    if context.grant is None or context.grant.role not in _ROLES_OF_PEOPLE or context.method == "GET":
        return None
    params = {
        name: "".join(each if each.isprintable() else "." for each in value[:_PATH_VALUE_CHARACTERS])
        for name, value in found.path_params.items()
    }
    context.workload_id = params.get("workload_id")
    facts = {**params, "route": f"{context.method} {context.route}", "token_id": context.grant.token_id}
    return Actor(context.grant.name, context.request_id, facts)


def bearer_token(scope: Mapping[str, Any]) -> str:
    """The token of the one Authorization header. Raises `token_missing` or `token_malformed`."""
    authorization = header(scope, b"authorization")
    if authorization is None:
        expected = "one header Authorization: Bearer …"
        raise NotAllowedError(Code.TOKEN_MISSING, "this needs a token", expected=expected, got="none, or several")
    is_bearer = authorization[: len(_BEARER)].lower() == _BEARER
    token = authorization[len(_BEARER) :].strip() if is_bearer else ""
    if not 0 < len(token) <= TOKEN_TEXT_MAX_CHARACTERS or not token.isascii():
        raise NotAllowedError(
            Code.TOKEN_MALFORMED, "the token cannot be read", expected="Authorization: Bearer …", got="something else"
        )
    return token
