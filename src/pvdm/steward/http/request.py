"""The context of one request: its id, its route, its caller, and its body once that was read."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request

from pvdm.errors import Code, NotAllowedError
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.roles import Rule

_KEY: Final = "pvdm.context"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
NO_ROUTE: Final = "(none)"


@dataclass(slots=True)
class RequestContext:
    """What is known of a request; the door fills it in."""

    method: str
    request_id: str
    started: float = field(default_factory=time.monotonic)
    route: str = NO_ROUTE
    rule: Rule | None = None
    grant: Grant | None = None
    body: bytes = b""
    workload_id: str | None = None  # the workload that a person changes
    of_catalog: bool = False  # errors are in Iceberg's form


def begin(scope: MutableMapping[str, Any]) -> RequestContext:
    """A new request; the caller's own id is taken if it is short and plain."""
    given = header(scope, b"x-request-id")
    usable = given is not None and _REQUEST_ID.fullmatch(given) is not None
    context = RequestContext(scope["method"], given if given is not None and usable else secrets.token_hex(16))
    scope[_KEY] = context
    return context


def context_of(scope: Mapping[str, Any]) -> RequestContext:
    """The context that the door put there."""
    found = scope[_KEY]
    assert isinstance(found, RequestContext)  # noqa: S101 - only `begin` writes it
    return found


def header(scope: Mapping[str, Any], name: bytes) -> str | None:
    """The header's value; None if it occurs twice, since readers differ in which one they take."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else None


async def caller(request: Request) -> Grant:
    """For routes: what the caller's token allows; the door has checked it."""
    return grant_of(request)


def grant_of(request: Request) -> Grant:
    """What the caller's token allows; not to have one is an error."""
    grant = context_of(request.scope).grant
    if grant is None:
        raise NotAllowedError(Code.TOKEN_MISSING, "this needs a token", expected="Authorization: Bearer", got="none")
    return grant
