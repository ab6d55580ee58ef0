"""Request bodies: received within limits of size and time, then parsed strictly into a model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NoReturn, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError
from starlette.types import Message, Receive, Send

from pvdm.api.base import FIELD_NAME_MAX_CHARACTERS, FROM_WIRE, ReasonRequest, error_field, expected_value
from pvdm.errors import Code, PvdmError
from pvdm.steward.config.steward import Limits
from pvdm.steward.http.request import context_of, header
from pvdm.steward.http.roles import Body, Rule

# The most opening brackets, opening braces and commas in a JSON body. Requests need few, since a signed document is one
# string. A body with more is refused before it is parsed: parsed values take many times the memory of their text.
BODY_MARKS_MAX: Final = 1_024
ANONYMOUS_BODY_MAX_SECONDS: Final = 5
# How much of a refused body is still read, and for how long.
LINGER_MAX_BYTES: Final = 1_048_576
LINGER_MAX_SECONDS: Final = 2
MODEL_ATTRIBUTE: Final = "pvdm_body_model"
# Pydantic's error types for numbers out of range.
_RANGE_ERRORS: Final = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_CONTENT_TYPES: Final[Mapping[Body, str]] = {
    Body.JSON: "application/json",
    Body.ENVELOPE: "application/json",
    Body.CATALOG: "application/json",
    Body.FORM: "application/x-www-form-urlencoded",
}
_M = TypeVar("_M", bound=BaseModel)


class BodyReceiver:
    """Receives the body of one request, and knows whether it has ended."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive) -> None:
        self._receive = receive
        has_body = any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0") != b"")
            for name, value in scope["headers"]
        )
        self.ended = not has_body

    async def __call__(self) -> Message:
        """Receive the next message."""
        message = await self._receive()
        self.ended = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Read and discard the rest of the body, within `LINGER_MAX_BYTES` and `LINGER_MAX_SECONDS`."""
        seen = 0
        try:
            async with asyncio.timeout(LINGER_MAX_SECONDS):
                while not self.ended and seen <= LINGER_MAX_BYTES:
                    seen += len((await self()).get("body", b""))
        except TimeoutError:
            return


async def send_refusal(start: dict[str, Any], body: bytes, receiver: BodyReceiver, send: Send) -> None:
    """Send an error response. If the caller is still sending its body, read on for a while before closing.

    If the server closed the connection at once, the caller's system would discard the response.
    """
    if receiver.ended:
        await send(start)
        await send({"type": "http.response.body", "body": body, "more_body": False})
        return
    await send({**start, "headers": [*start["headers"], (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await receiver.drain()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class DisconnectedError(Exception):
    """The caller has disconnected, or does not read the response."""


async def read_body(
    scope: Mapping[str, Any], receive: Receive, rule: Rule, limits: Limits, take: Callable[[int], None]
) -> bytes:
    """Receive the whole body; `take` counts its bytes. Raises if it is too large, too slow or of the wrong type."""
    kind = rule.body
    if kind is Body.NONE:
        return b""  # `require_no_body` has refused a request with a body
    max_bytes = limits.envelope_max_bytes if kind in (Body.ENVELOPE, Body.CATALOG) else limits.body_max_bytes
    seconds = min(limits.request_seconds, ANONYMOUS_BODY_MAX_SECONDS) if rule.public else limits.request_seconds
    declared = header(scope, b"content-length")
    if declared is not None and _DIGITS.fullmatch(declared) and int(declared) > max_bytes:
        raise Code.REQUEST_INVALID(reason="body_too_large", expected=f"at most {max_bytes} bytes", got="more")
    if kind in _CONTENT_TYPES:
        require_content_type(header(scope, b"content-type"), _CONTENT_TYPES[kind])
    try:
        async with asyncio.timeout(seconds):
            return await _receive_all(receive, max_bytes, take)
    except TimeoutError:
        raise Code.BODY_TOO_SLOW(expected=f"the whole body within {seconds} seconds", got="a part of it") from None


async def _receive_all(receive: Receive, max_bytes: int, take: Callable[[int], None]) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        piece: bytes = message.get("body", b"")
        if len(body) + len(piece) > max_bytes:
            raise Code.REQUEST_INVALID(reason="body_too_large", expected=f"at most {max_bytes} bytes", got="more")
        take(len(piece))
        body += piece
        if not message.get("more_body", False):
            return bytes(body)


def require_one_length(scope: Mapping[str, Any]) -> None:
    """Raise if two headers give the body's length: a proxy might use one of them, and the Steward the other."""
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
        raise Code.REQUEST_INVALID(reason="http_malformed", got="both")


def require_no_body(receiver: BodyReceiver, rule: Rule) -> None:
    """Raise if the route takes no body and the headers announce one."""
    if rule.body is Body.NONE and not receiver.ended:
        raise Code.REQUEST_INVALID(reason="body_unexpected", expected="no body", got="one")


def require_content_type(given: str | None, expected: str) -> None:
    """Raise unless the content type is the expected one, in UTF-8."""
    kind, _, parameters = (given or "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() != expected or charset not in ("", "charset=utf-8"):
        raise Code.CONTENT_TYPE_WRONG(expected=expected, got=ascii((given or "none")[:FIELD_NAME_MAX_CHARACTERS]))


def body_of(model: type[_M]) -> Any:
    """A route's dependency on the body, parsed as this model in a thread, since a body may be large."""

    def read(request: Request) -> _M:
        return parse(model, context_of(request.scope).body)

    setattr(read, MODEL_ATTRIBUTE, model)  # the OpenAPI document is made from it
    return Depends(read)


ReasonBody = Annotated[ReasonRequest, body_of(ReasonRequest)]


def require_empty(request: Request) -> None:
    """A dependency of POST routes without a body. Raises unless the body is empty or an empty JSON object."""
    body = context_of(request.scope).body
    if body.strip(b" \t\r\n") and _parse_json(body) != {}:
        raise Code.REQUEST_INVALID(reason="body_unexpected", expected="no body, or {}", got="another")


def parse(model: type[_M], body: bytes) -> _M:
    """The model of a JSON body. Raises for a key that occurs twice, for NaN, and for a wrong field."""
    value = _parse_json(body)
    try:
        return model.model_validate(value, context=FROM_WIRE)  # values must have JSON's types
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        raise invalid_request_error(errors) from None


def _parse_json(body: bytes) -> object:
    # Counted without a parser, so marks inside strings count too. No valid request has that many.
    marks = sum(body.count(mark) for mark in (b"[", b"{", b","))
    if marks > BODY_MARKS_MAX:
        expected = f"at most {BODY_MARKS_MAX} brackets, braces and commas"
        raise Code.REQUEST_INVALID(reason="body_parts_too_many", expected=expected, got=str(marks))
    try:
        return json.loads(body.decode(), object_pairs_hook=_require_distinct, parse_constant=_refuse_constant)
    except RecursionError:
        raise _malformed_error("nested too deeply") from None
    except UnicodeDecodeError:
        raise _malformed_error("bytes that are not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _malformed_error(f"{error.msg.lower()} at character {error.pos}") from None
    except ValueError:
        raise _malformed_error("an integer of thousands of digits") from None


def _require_distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _malformed_error("a key twice")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise _malformed_error(text)


def _malformed_error(got: str) -> PvdmError:
    return Code.REQUEST_INVALID(reason="body_malformed", got=got)


def invalid_request_error(errors: Any) -> PvdmError:
    """The error for the first wrong field. Only a number in the query is shown: other values may be secret."""
    first = errors[0] if errors else {"loc": (), "msg": "another request"}
    field = error_field(first) or "the request"
    got = "another value"
    if first.get("type") in _RANGE_ERRORS and first["loc"][:1] == ("query",) and "input" in first:
        got = ascii(first["input"]).strip("'")[:FIELD_NAME_MAX_CHARACTERS]
    return Code.REQUEST_INVALID(f"{field} cannot be accepted", expected=expected_value(first), got=got)
