"""JSON of signed documents, read so that each way to spoil it has its own code. Calls `model`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pvdm.errors import InputError, VerificationError
from pvdm.model.canonical_json import DOCUMENT_DEPTH_MAX, Value, dump
from pvdm.trust.refusal import refused


class _Objects:
    """Builds objects while the decoder runs and remembers the first key that came twice."""

    def __init__(self) -> None:
        self.repeated: str | None = None

    def __call__(self, pairs: list[tuple[str, Value]]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for key, value in pairs:
            if key in found and self.repeated is None:
                self.repeated = key
            found[key] = value
        return found


def read(data: bytes, what: str, *, size_max_bytes: int) -> Value:
    """The one JSON value that these bytes are the canonical spelling of."""
    require_size(data, what, size_max_bytes)
    text = _decoded(data, what)
    objects = _Objects()
    try:
        value, end = json.JSONDecoder(object_pairs_hook=objects).raw_decode(text)
    except RecursionError:
        raise _too_deep(what) from None
    except json.JSONDecodeError as error:
        require_complete(text, error, what)
        raise refused("json_malformed", f"{what} is not JSON", "one JSON value", error.msg) from None
    except ValueError:
        # Python refuses to read integers of thousands of digits.
        raise refused("json_not_canonical", f"{what} has no canonical form", "integers of 53 bits", "more") from None
    require_end(text, end, what)
    require_distinct_keys(objects.repeated, what)
    require_shallow(value, what)
    require_canonical(data, value, what)
    return value  # type: ignore[no-any-return]


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise refused("json_not_utf8", f"{what} is not text", "UTF-8", error.reason) from None


def require_size(data: bytes, what: str, size_max_bytes: int) -> None:
    """Nothing is read that is over its limit."""
    if len(data) > size_max_bytes:
        raise refused("json_too_large", f"{what} is too large", f"at most {size_max_bytes} bytes", len(data))


def require_complete(text: str, error: json.JSONDecodeError, what: str) -> None:
    """A document that ends in the middle was cut off."""
    if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
        raise refused("json_truncated", f"{what} ends too early", "a whole value", f"{len(text)} characters of one")


def require_end(text: str, end: int, what: str) -> None:
    """Nothing stands behind the value."""
    if end != len(text):
        raise refused("json_trailing_bytes", f"{what} has bytes behind it", "none", f"{len(text) - end} characters")


def require_distinct_keys(repeated: str | None, what: str) -> None:
    """Two readers of an object with a key twice may see two different objects."""
    if repeated is not None:
        raise refused("json_duplicate_key", f"{what} has a key twice", "each key once", repr(repeated[:64]))


def require_shallow(value: Value, what: str) -> None:
    """No deeper than a canonical document may be."""
    level: list[Value] = [value]
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
    return refused("json_too_deep", f"{what} is nested too deeply", f"at most {DOCUMENT_DEPTH_MAX} levels", "more")


def require_canonical(data: bytes, value: Value, what: str) -> None:
    """One value has one spelling; floats and large integers have none."""
    try:
        spelled = dump(value)
    except InputError as error:
        got = error.got or "something else"
        raise refused("json_not_canonical", f"{what} has no canonical form", error.expected, got) from None
    if spelled != data:
        raise refused("json_not_canonical", f"{what} is not in canonical JSON", "the one spelling", "another")
