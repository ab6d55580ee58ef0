"""What every call to the Steward is made of: a request that is checked first, and one response or a list."""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias, TypeVar

from pydantic import BaseModel

from pvdm.api.base import PAGE_ROWS_MAX
from pvdm.client.responses import parse, read_response
from pvdm.client.wire import Call, Response, Wire, require_json
from pvdm.errors import Code
from pvdm.model.canonical_json import Value

Query: TypeAlias = dict[str, str | int | None]

_M = TypeVar("_M", bound=BaseModel)
_HEX: Final = re.compile(r"[0-9a-f]+")


class Calls:
    """Sends calls over one wire and reads their responses."""

    _wire: Wire

    def _read(self, call: Call, model: type[_M]) -> _M:
        return self._wire.send(call, lambda response: read_response(model, parse_json(response, call)))

    def _get(self, path: str, model: type[_M], query: Query | None = None, *, long: bool = False) -> _M:
        """The response to a GET; parameters that are None are left out of the query."""
        given = tuple((name, str(value)) for name, value in (query or {}).items() if value is not None)
        return self._read(Call("GET", path, query=given, long=long), model)

    def _bytes(self, call: Call) -> bytes:
        return self._wire.send(call, lambda response: response.body)


def post(path: str, value: Value, *, repeatable: bool = False, look: str = "", patient: bool = False) -> Call:
    """A POST of JSON; `repeatable` if sending it twice is safe, else `look` says where to look for a lost one."""
    return Call("POST", path, look, content=json.dumps(value).encode(), repeatable=repeatable, patient=patient)


def page_query(after: str | int | None, limit: int) -> Query:
    """The query of one page. Raises if the limit is out of range."""
    given: object = limit
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= PAGE_ROWS_MAX:
        raise Code.PAGE_SIZE_INVALID("limit is out of range", expected=f"1 to {PAGE_ROWS_MAX}", got=ascii(given)[:40])
    return {"after": after, "limit": limit}


def parse_json(response: Response, call: Call) -> object:
    """The JSON value of a response that says that it is JSON."""
    what = f"{call.method} {call.path}"
    return parse(require_json(response, what), what)


def number_text(value: int, what: str) -> str:
    """A number of 64 bits in a path or query."""
    given: object = value
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**63:
        return str(given)
    raise Code.IDENTIFIER_INVALID(f"the {what} cannot be accepted", expected="0 to 2^63-1", got=ascii(given)[:40])


def sha256_text(value: str, what: str = "proof id") -> str:
    """A hash in a path."""
    given: object = value
    if isinstance(given, str) and len(given) == 64 and _HEX.fullmatch(given):
        return given
    raise Code.IDENTIFIER_INVALID(
        f"the {what} cannot be accepted", expected="64 lower-case hex digits", got=ascii(given)[:80]
    )
