"""Canonical JSON (RFC 8785 without floating point), and a parser that accepts no other form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from pvdm.errors import Code

Value: TypeAlias = "bool | int | str | Sequence[Value] | Mapping[str, Value] | None"

INTEGER_MAX: Final = 2**53 - 1
DOCUMENT_DEPTH_MAX: Final = 32  # the innermost value is a level too


def dump(value: Value) -> bytes:
    """The canonical bytes: keys in order of their UTF-16 code units, no white space, minimal escapes, UTF-8."""
    ordered = _canonicalize(value, depth=1)
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def parse(data: bytes, *, size_max_bytes: int) -> Value:
    """The value of canonical bytes. Duplicate keys, floats, trailing bytes and any other spelling are refused."""
    if len(data) > size_max_bytes:
        expected = f"at most {size_max_bytes} bytes"
        raise Code.DOCUMENT_MALFORMED(reason="document_too_large", expected=expected, got=str(len(data)))
    try:
        value: Value = json.loads(
            data.decode(), object_pairs_hook=_build_object, parse_float=_refuse_float, parse_constant=_refuse_float
        )
    except UnicodeDecodeError as error:
        raise Code.DOCUMENT_MALFORMED(expected="UTF-8", got=error.reason) from None
    except RecursionError:
        raise Code.DOCUMENT_MALFORMED(expected=f"at most {DOCUMENT_DEPTH_MAX} levels", got="more") from None
    except ValueError as error:
        raise Code.DOCUMENT_MALFORMED(expected="one JSON value", got=str(error)) from None
    if dump(value) != data:
        raise Code.DOCUMENT_MALFORMED(expected="canonical JSON", got="another spelling of the same value")
    return value


def _canonicalize(value: Value, depth: int) -> Value:
    """The value with its keys in order. It is checked in the same pass, because documents can be large."""
    if depth > DOCUMENT_DEPTH_MAX:
        raise Code.DOCUMENT_MALFORMED(expected=f"at most {DOCUMENT_DEPTH_MAX} levels", got="more")
    match value:
        case str():
            return _require_unicode(value)
        case None | bool():
            return value
        case int():
            if abs(value) > INTEGER_MAX:
                expected = "integers up to 2^53 - 1; larger ones as strings"
                raise Code.DOCUMENT_MALFORMED(expected=expected, got=str(value)[:40])
            return value
        case dict() | Mapping():  # here and below, the concrete classes come first: isinstance is fast for them
            return {key: _canonicalize(value[key], depth + 1) for key in _sort_keys(value)}
        case list() | tuple() | Sequence() if not isinstance(value, bytes | bytearray):
            return [_canonicalize(inner, depth + 1) for inner in value]
        case _:
            expected = "null, booleans, integers, strings, arrays and objects"
            raise Code.DOCUMENT_MALFORMED(expected=expected, got=type(value).__name__)


def _sort_keys(value: Mapping[str, Value]) -> list[str]:
    ascii_only = True
    for key in value:
        if not isinstance(key, str):
            raise Code.DOCUMENT_MALFORMED(expected="strings as keys", got=type(key).__name__)
        ascii_only = ascii_only and _require_unicode(key).isascii()
    # For ASCII, the order of code points is that of UTF-16 code units, and nearly every key is ASCII.
    return sorted(value) if ascii_only else sorted(value, key=lambda key: key.encode("utf-16-be"))


def _require_unicode(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Code.DOCUMENT_MALFORMED(expected="well-formed Unicode", got="a lone surrogate") from None
    return text


def _build_object(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Code.DOCUMENT_MALFORMED(expected="distinct keys", got="a key twice")
    return found


def _refuse_float(text: str) -> NoReturn:
    raise Code.DOCUMENT_MALFORMED(expected="no floating-point number", got=text[:40])
