"""One request: its id, route, caller and body, and the names in paths of the catalog."""

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

_KEY: Final = "pvdm.context"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
NO_ROUTE: Final = "(none)"

PREFIX: Final = "/catalog/"
_PLAIN: Final = re.compile(rb"[A-Za-z0-9_-]*")


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
    given = header(scope, b"x-request-id") or ""
    context = RequestContext(scope["method"], given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16))
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


def is_catalog(path: str) -> bool:
    """Whether the catalog answers here."""
    return path.startswith(PREFIX)


def segments_kept(scope: Mapping[str, Any]) -> str:
    """The path for the routes: each segment as the caller sent it, in one spelling; other paths as they are."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    if not is_catalog(path) or not raw.startswith(PREFIX.encode()):
        return path
    return "/".join(_spell_segment(segment) for segment in raw.partition(b"?")[0].split(b"/"))


def name_in(segment: str) -> str:
    """The name that a segment of such a path holds."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise Code.NAME_INVALID("a name in the path cannot be read", expected="UTF-8") from None


def _spell_segment(segment: bytes) -> str:
    """Java spells a space as a plus sign and a plus sign in percent."""
    if _PLAIN.fullmatch(segment):
        return segment.decode("ascii")
    data = unquote_to_bytes(segment.replace(b"+", b" "))
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in b"-_" else f"%{byte:02X}" for byte in data
    )
