"""What every call to the Steward is made of: a request that is judged first, one answer read, or a list of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from pvdm.client.reading import Reading, parse
from pvdm.client.wire import Answer, Call, Wire, require_json
from pvdm.errors import InputError, PvdmError
from pvdm.model.canonical_json import Value

PAGE_MAX_ROWS: Final = 1_000

_T = TypeVar("_T")
_HEX: Final = re.compile(r"[0-9a-f]+")


class Calls:
    """Asks and reads over one wire."""

    _wire: Wire

    def _read(self, call: Call, read: Callable[[object], _T | PvdmError]) -> _T:
        return self._wire.ask(call, lambda answer: read(_parsed(answer, call)))

    def _bytes(self, call: Call) -> bytes:
        return self._wire.ask(call, lambda answer: answer.body)

    def _list(
        self,
        path: str,
        key: str,
        read: Callable[[object], _T],
        wanted: Mapping[str, str | int | None] | None = None,
        *,
        long: bool = False,
    ) -> tuple[_T, ...]:
        query = tuple((name, str(value)) for name, value in (wanted or {}).items() if value is not None)
        return self._read(
            Call("GET", path, query=query, long=long), lambda value: Reading(value, "the list").items(key, read)
        )


def posted(path: str, value: Value, *, repeatable: bool = False, look: str = "", patient: bool = False) -> Call:
    """A POST of JSON; `repeatable` if twice is as good as once, else `look` says where to look for a lost one."""
    return Call("POST", path, look, content=json.dumps(value).encode(), repeatable=repeatable, patient=patient)


def page_of(after: str | int | None, limit: int) -> dict[str, str | int | None]:
    """The query of a page; how many rows is judged here."""
    given: object = limit
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= PAGE_MAX_ROWS:
        raise InputError(
            "page_size_invalid",
            "so many rows are not given at once",
            expected=f"1 to {PAGE_MAX_ROWS}",
            got=ascii(given)[:40],
        )
    return {"after": after, "limit": limit}


def _parsed(answer: Answer, call: Call) -> object:
    return parse(require_json(answer, f"{call.method} {call.path}"), f"{call.method} {call.path}")


def number_text(value: int, what: str) -> str:
    """A number of 64 bits in a path or query."""
    given: object = value
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**63:
        return str(given)
    raise InputError(
        "identifier_invalid", f"the {what} cannot be accepted", expected="0 to 2^63-1", got=ascii(given)[:40]
    )


def sha256_text(value: str, what: str = "proof id") -> str:
    """A hash in a path."""
    given: object = value
    if isinstance(given, str) and len(given) == 64 and _HEX.fullmatch(given):
        return given
    raise InputError(
        "identifier_invalid",
        f"the {what} cannot be accepted",
        expected="64 lower-case hex digits",
        got=ascii(given)[:80],
    )
