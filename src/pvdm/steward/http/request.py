"""One request: its id, route, caller and body; and names in the catalog's paths."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from fastapi import Request

from pvdm.errors import Code, NotAllowedError
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.roles import Rule

_SCOPE_KEY: Final = "pvdm.context"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CATALOG_PREFIX: Final = "/catalog/"
_PLAIN_SEGMENT: Final = re.compile(rb"[A-Za-z0-9_-]*")  # a segment of a path that needs no encoding


@dataclass(slots=True)
class RequestContext:
    """The facts of one request. The middleware and the route table set them."""

    method: str
    request_id: str
    started: float = field(default_factory=time.monotonic)
    route: str = "(none)"
    rule: Rule | None = None
    grant: Grant | None = None
    body: bytes = b""
    workload_id: str | None = None  # for the log: the workload that an operator, auditor or attestor changes
    is_catalog: bool = False  # whether its path is the catalog's: then errors are sent in Iceberg's form


def begin_request(scope: MutableMapping[str, Any]) -> RequestContext:
    """Create the context of a new request in its scope; the caller's request id is used if it is short and plain."""
    given = header(scope, b"x-request-id") or ""
    context = RequestContext(scope["method"], given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16))
    scope[_SCOPE_KEY] = context
    return context


def context_of(scope: Mapping[str, Any]) -> RequestContext:
    """The context that `begin_request` put into the scope."""
    found = scope[_SCOPE_KEY]
    assert isinstance(found, RequestContext)  # noqa: S101 - only `begin_request` writes it
    return found


def header(scope: Mapping[str, Any], name: bytes) -> str | None:
    """The header's value. None if it is missing, or if it occurs twice: a proxy might use the other value."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else None


async def caller(request: Request) -> Grant:
    """A route's dependency on the caller's grant, which the middleware has checked."""
    return grant_of(request)


def grant_of(request: Request) -> Grant:
    """The caller's grant. Raises `token_missing` if there is none."""
    grant = context_of(request.scope).grant
    if grant is None:
        raise NotAllowedError(Code.TOKEN_MISSING, "this needs a token", expected="Authorization: Bearer", got="none")
    return grant


def is_catalog(path: str) -> bool:
    """Whether the path is one of the catalog's."""
    return path.startswith(_CATALOG_PREFIX)


def routing_path(scope: Mapping[str, Any]) -> str:
    """The path by which the route is found. Catalog paths stay percent-encoded, since a name may contain slashes."""
    path: str = scope["path"]
    raw_path: bytes = scope.get("raw_path") or b""
    if not is_catalog(path) or not raw_path.startswith(_CATALOG_PREFIX.encode()):
        return path
    return "/".join(_encode_segment(segment) for segment in raw_path.partition(b"?")[0].split(b"/"))


def decode_name(segment: str) -> str:
    """The name in a percent-encoded segment of a catalog path."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        message = "a name in the path cannot be read"
        raise Code.IDENTIFIER_INVALID(message, reason="name_invalid", expected="UTF-8") from None


def _encode_segment(segment: bytes) -> str:
    """The segment, encoded so that each name has one spelling. Iceberg's Java client sends a space as a plus sign."""
    if _PLAIN_SEGMENT.fullmatch(segment):
        return segment.decode("ascii")
    data = unquote_to_bytes(segment.replace(b"+", b" "))
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in b"-_" else f"%{byte:02X}" for byte in data
    )
