"""Strict reading of the JSON of signed documents. A `require_` function raises unless its docstring is true."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from pvdm.errors import InputError, VerificationError
from pvdm.model.canonical_json import DOCUMENT_DEPTH_MAX, Value, dump
from pvdm.trust.refusal import refused


def parse_strict(data: bytes, what: str, *, size_max_bytes: int) -> Value:
    """The JSON value of these bytes. Raises unless they are canonical JSON (spec/proof.md section 1)."""
    require_size(data, what, size_max_bytes)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise refused("json_not_utf8", "UTF-8", error.reason, message=f"{what} is not text") from None
    repeated: list[str] = []

    def build_object(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return found

    try:
        value, end = json.JSONDecoder(object_pairs_hook=build_object).raw_decode(text)
    except RecursionError:
        raise _too_deep(what) from None
    except json.JSONDecodeError as error:
        require_complete(text, error, what)
        raise refused("json_malformed", "one JSON value", error.msg, message=f"{what} is not JSON") from None
    except ValueError:
        # Python refuses to read integers of thousands of digits.
        message = f"{what} has no canonical form"
        raise refused("json_not_canonical", "integers of 53 bits", "more", message=message) from None
    require_end(text, end, what)
    require_distinct_keys(repeated, what)
    require_shallow(value, what)
    require_canonical(data, value, what)
    return value  # type: ignore[no-any-return]


def require_size(data: bytes, what: str, size_max_bytes: int) -> None:
    """The document is not larger than its limit."""
    if len(data) > size_max_bytes:
        raise refused("json_too_large", f"at most {size_max_bytes} bytes", len(data), message=f"{what} is too large")


def require_complete(text: str, error: json.JSONDecodeError, what: str) -> None:
    """The document is not cut off. (A cut in a literal or an escape, or after a minus sign, gives `json_malformed`.)"""
    if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
        got = f"{len(text)} characters of one"
        raise refused("json_truncated", "a whole value", got, message=f"{what} ends too early")


def require_end(text: str, end: int, what: str) -> None:
    """No bytes follow the value."""
    if end != len(text):
        got = f"{len(text) - end} characters"
        raise refused("json_trailing_bytes", "none", got, message=f"{what} has bytes after its end")


def require_distinct_keys(repeated: Sequence[str], what: str) -> None:
    """No key occurs twice, because readers would differ in the value that they take."""
    if repeated:
        raise refused("json_duplicate_key", "each key once", repr(repeated[0][:64]), message=f"{what} has a key twice")


def require_shallow(value: Value, what: str) -> None:
    """The document is not nested deeper than a canonical document may be."""
    level: list[Value] = [value]  # all values of one depth
    for _ in range(DOCUMENT_DEPTH_MAX):
        inner: list[Value] = []
        for each in level:
            if isinstance(each, Mapping):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        if not inner:
            return
        level = inner
    raise _too_deep(what)


def _too_deep(what: str) -> VerificationError:
    message = f"{what} is nested too deeply"
    return refused("json_too_deep", f"at most {DOCUMENT_DEPTH_MAX} levels", "more", message=message)


def require_canonical(data: bytes, value: Value, what: str) -> None:
    """The bytes are the canonical form. Floats and large integers have no such form."""
    try:
        canonical = dump(value)
    except InputError as error:
        got = error.got or "something else"
        raise refused("json_not_canonical", error.expected, got, message=f"{what} has no canonical form") from None
    if canonical != data:
        message = f"{what} is not in canonical JSON"
        raise refused("json_not_canonical", "its canonical bytes", "other bytes", message=message)
