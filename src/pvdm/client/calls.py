"""Builds the client's requests from checked values and the models of `pvdm.api`, and reads their responses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, ParamSpec, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from pvdm.api.base import PAGE_ROWS_MAX, ReasonRequest, RequestModel, error_field, expected_value
from pvdm.client.responses import parse, read_response
from pvdm.client.wire import Call, Response, Wire, require_json
from pvdm.errors import Code

Query: TypeAlias = dict[str, str | int | None]

_M = TypeVar("_M", bound=BaseModel)
_P = ParamSpec("_P")
_HEX: Final = re.compile(r"[0-9a-f]+")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_DOTS: Final = re.compile(r"\.+")


class Calls:
    """Sends calls over one wire and reads their responses."""

    _wire: Wire

    def _read(self, call: Call, model: type[_M]) -> _M:
        return self._wire.send(call, lambda response: read_response(model, parse_json(response, call)))

    def _get(self, path: str, model: type[_M], query: Query | None = None, *, long: bool = False) -> _M:
        """The response to a GET; parameters that are None are left out of the query."""
        given = tuple((name, str(value)) for name, value in (query or {}).items() if value is not None)
        return self._read(Call("GET", path, query=given, long=long), model)

    def _get_bytes(self, path: str, query: tuple[tuple[str, str], ...] = ()) -> bytes:
        return self._wire.send(Call("GET", path, query=query), lambda response: response.body)


def new_post(
    path: str,
    body: RequestModel | None,
    *,
    lost_hint: str = "",
    repeatable: bool = False,
    patient: bool = False,
    long: bool = False,
) -> Call:
    """A POST of JSON, not sent yet; see `Call` for its options."""
    content = b"{}" if body is None else body.model_dump_json(exclude_none=True).encode()
    return Call("POST", path, lost_hint, content=content, repeatable=repeatable, patient=patient, long=long)


def build_request(build: Callable[_P, _M], *args: _P.args, **fields: _P.kwargs) -> _M:
    """Call `build`, which makes a model. Raises `request_invalid` for the first wrong field, without its value."""
    try:
        return build(*args, **fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = error_field(first) or "the request"
    raise Code.REQUEST_INVALID(f"{field} cannot be accepted", expected=expected_value(first), got="another value")


def with_reason(reason: str) -> ReasonRequest:
    """The body of a request that gives only a reason."""
    return build_request(ReasonRequest, reason=reason)


def page_query(after: str | int | None, limit: int) -> Query:
    """The query of one page of at most `limit` rows, after the row `after`. Raises if the limit is out of range."""
    given: object = limit  # a caller without type checks may pass anything; the functions below expect that too
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= PAGE_ROWS_MAX:
        raise Code.REQUEST_INVALID(reason="page_size_invalid", expected=f"1 to {PAGE_ROWS_MAX}", got=ascii(given)[:40])
    return {"after": after, "limit": limit}


def parse_json(response: Response, call: Call) -> object:
    """The JSON value of a response. Raises unless its content type is JSON."""
    what = f"{call.method} {call.path}"
    return parse(require_json(response, what), what)


def number_text(value: int, what: str) -> str:
    """A number of 64 bits in a path or query. Raises if it is out of range."""
    given: object = value
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**63:
        return str(given)
    raise Code.IDENTIFIER_INVALID(f"the {what} cannot be accepted", expected="0 to 2^63-1", got=ascii(given)[:40])


def sha256_text(value: str, what: str = "proof id") -> str:
    """A SHA-256 in a path, called `what` in the error. Raises for other text."""
    given: object = value
    if isinstance(given, str) and len(given) == 64 and _HEX.fullmatch(given):
        return given
    message = f"the {what} cannot be accepted"
    raise Code.IDENTIFIER_INVALID(message, expected="64 lower-case hex digits", got=ascii(given)[:80])


def segment(value: str, what: str) -> str:
    """One part of a path. Raises unless it is letters, digits, dots, underscores and hyphens, and not dots alone."""
    given: object = value
    if isinstance(given, str) and _SEGMENT.fullmatch(given) and not _DOTS.fullmatch(given):
        return given
    raise Code.IDENTIFIER_INVALID(
        f"the {what} cannot be accepted",
        expected="1 to 128 letters (A to Z, a to z), digits, dots, underscores and hyphens, not dots alone",
        got=ascii(given)[:80],
    )
