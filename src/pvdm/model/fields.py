"""Reads and checks JSON documents strictly: exactly the known keys, and each value in its type and form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType
from typing import Final, TypeVar

from pvdm.errors import InputError
from pvdm.errors.registry import entries_by_reason
from pvdm.model.canonical_json import INTEGER_MAX, Value

TEXT_MAX_BYTES: Final = 4_096
LONG_MAX: Final = 2**63 - 1
PAIRS_MAX: Final = 1_000
MICROS_PER_SECOND: Final = 1_000_000
CLOCK_SKEW_MAX_SECONDS: Final = 60
"""The tolerated difference of two clocks, for every time that was written or signed elsewhere."""

_E = TypeVar("_E", bound=Enum)
_HEX: Final = re.compile(r"[0-9a-f]*")
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_JSON_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (NoneType, "null"),
    (bool, "a boolean"),  # before int, whose subclass it is
    (int, "an integer"),
    (str, "a string"),
    (Mapping, "an object"),
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FORMS: Final = {
    "id": re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,128}"),
    "identity": re.compile(r"[a-z0-9][a-z0-9._@/:-]{0,127}"),
    "uuid": re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    "name": re.compile(r"[a-z0-9][a-z0-9._-]{0,63}"),
}


class Fields:
    """One JSON object with exactly these keys; `what` names it in errors. Each method reads the value of one key."""

    __slots__ = ("_found", "_what")

    def __init__(self, value: Value, what: str, keys: Iterable[str]) -> None:
        self._what = what
        if not isinstance(value, Mapping):
            raise invalid(what, "an object", _json_type(value))
        wanted = set(keys)
        if missing := sorted(wanted - set(value)):
            raise InputError("document_key_missing", f"{what} lacks a key", expected=missing[0], got="no such key")
        if unknown := sorted(set(value) - wanted):
            known, got = ", ".join(sorted(wanted)), repr(unknown[0][:64])
            raise InputError("document_key_unknown", f"{what} has an unknown key", expected=known, got=got)
        self._found = value

    def value(self, key: str) -> Value:
        """The value, unchecked."""
        return self._found[key]

    def text(self, key: str) -> str:
        """A string."""
        found = self._found[key]
        if not isinstance(found, str):
            raise invalid(f"{key} of {self._what}", "a string", _json_type(found))
        return found

    def number(self, key: str) -> int:
        """An integer written as a JSON number."""
        found = self._found[key]
        if not isinstance(found, int) or isinstance(found, bool):
            raise invalid(f"{key} of {self._what}", "an integer", _json_type(found))
        return found

    def boolean(self, key: str) -> bool:
        """True or false."""
        found = self._found[key]
        if not isinstance(found, bool):
            raise invalid(f"{key} of {self._what}", "a boolean", _json_type(found))
        return found

    def decimal(self, key: str) -> int:
        """A whole number of at most 19 digits, written as a decimal string."""
        return self._decimal(key, self.text(key))

    def decimals(self, key: str) -> tuple[int, ...]:
        """An array of decimal strings, as numbers."""
        return tuple(self._decimal(key, text) for text in self.texts(key))

    def _decimal(self, key: str, text: str) -> int:
        if not _DECIMAL.fullmatch(text):
            raise invalid(f"{key} of {self._what}", "a decimal string without leading zeros", repr(text[:32]))
        return int(text)

    def optional_text(self, key: str) -> str | None:
        """A string, or null."""
        return None if self._found[key] is None else self.text(key)

    def items(self, key: str, *, least: int = 0, most: int | None = None) -> Sequence[Value]:
        """An array with `least` to `most` items."""
        found = self._found[key]
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise invalid(f"{key} of {self._what}", "an array", _json_type(found))
        if len(found) < least or (most is not None and len(found) > most):
            raise invalid(f"{key} of {self._what}", f"{least} to {most}", str(len(found)))
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of strings."""
        found = []
        for item in self.items(key):
            if not isinstance(item, str):
                raise invalid(f"{key} of {self._what}", "strings", _json_type(item))
            found.append(item)
        return tuple(found)

    def pairs(self, key: str) -> tuple[tuple[str, str | None], ...]:
        """An object whose values are strings or null: its keys with their values, in order of the keys."""
        found = self._found[key]
        if not isinstance(found, Mapping):
            raise invalid(f"{key} of {self._what}", "an object", _json_type(found))
        pairs: list[tuple[str, str | None]] = []
        for name in sorted(found):
            inner = found[name]
            if inner is not None and not isinstance(inner, str):
                raise invalid(f"{key} of {self._what}", "strings or null", _json_type(inner))
            pairs.append((name, inner))
        return tuple(pairs)

    def choice(self, key: str, choices: type[_E]) -> _E:
        """One of an enumeration's values."""
        return self._choose(key, self.text(key), choices)

    def choices(self, key: str, choices: type[_E]) -> tuple[_E, ...]:
        """An array of an enumeration's values."""
        return tuple(self._choose(key, text, choices) for text in self.texts(key))

    def _choose(self, key: str, text: str, choices: type[_E]) -> _E:
        for choice in choices:
            if choice.value == text:
                return choice
        raise invalid(f"{key} of {self._what}", "one of " + ", ".join(str(c.value) for c in choices), repr(text[:64]))


def _json_type(value: object) -> str:
    """The name of the JSON type, for errors. Errors do not show the value, which may be secret or large."""
    return next((name for kind, name in _JSON_TYPES if isinstance(value, kind)), "an array")


def invalid(what: str, expected: str, got: str) -> InputError:
    """The error for a value of the wrong form."""
    return InputError("document_value_invalid", f"{what} cannot be accepted", expected=expected, got=got)


def inconsistent(reason: str, expected: str, got: str) -> InputError:
    """The error for a document whose parts contradict each other, with the message of the reason in the registry."""
    return InputError(reason, entries_by_reason()[reason].default_message, expected=expected, got=got)


def require_form(text: str, form: str, what: str) -> None:
    """Raise unless the text has the form with this name: id, identity, uuid or name (`_FORMS`)."""
    if not _FORMS[form].fullmatch(text):
        raise invalid(what, f"{form}: {_FORMS[form].pattern}", repr(text[:64]))


def require_hex(text: str, size_bytes: int, what: str) -> None:
    """Raise unless the text is lower-case hex of exactly this many bytes."""
    if len(text) != 2 * size_bytes or not _HEX.fullmatch(text):
        raise invalid(what, f"{2 * size_bytes} lower-case hex digits", repr(text[:80]))


def require_sha256(text: str, what: str) -> None:
    """Raise unless the text is a SHA-256 in lower-case hex."""
    require_hex(text, 32, what)


def require_random(text: str, what: str) -> None:
    """Raise unless the text is 128 bits in lower-case hex: the form of nonces and of random ids."""
    require_hex(text, 16, what)


def text_size(text: str, what: str) -> int:
    """The size in bytes of UTF-8. Raises for a lone surrogate."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise invalid(what, "well-formed Unicode", "a lone surrogate") from None


def require_text(text: str, what: str) -> None:
    """Raise if the text is blank, longer than `TEXT_MAX_BYTES`, or has control characters."""
    size = text_size(text, what)
    if not text.strip() or size > TEXT_MAX_BYTES:
        raise invalid(what, f"1 to {TEXT_MAX_BYTES} bytes of text", f"{size} bytes")
    if _CONTROL.search(text):
        raise invalid(what, "no control character", repr(text[:64]))


def require_pairs(pairs: tuple[tuple[str, str | None], ...], what: str) -> None:
    """Raise unless the pairs have distinct names in order. A value is None, or any text up to `TEXT_MAX_BYTES`."""
    names = [name for name, _ in pairs]
    if len(pairs) > PAIRS_MAX:
        raise invalid(what, f"at most {PAIRS_MAX} entries", str(len(pairs)))
    if names != sorted(set(names)):
        raise invalid(what, "distinct names in order", "another order")
    for name, value in pairs:
        require_text(name, f"a name in {what}")
        if value is not None and text_size(value, what) > TEXT_MAX_BYTES:
            raise invalid(what, f"values of at most {TEXT_MAX_BYTES} bytes", f"{text_size(value, what)} bytes")


def require_long(number: int, what: str) -> None:
    """Raise unless this is a whole number of at most 63 bits."""
    if not 0 <= number <= LONG_MAX:
        raise invalid(what, "0 to 2^63-1", str(number)[:32])


def require_number(number: int, what: str, *, least: int = 0, most: int = INTEGER_MAX) -> None:
    """Raise unless the number is from `least` to `most`; by default from 0 to 2^53 - 1 (`INTEGER_MAX`)."""
    if not least <= number <= most:
        raise invalid(what, f"{least} to {most}", str(number)[:32])


def require_sequence(items: Sequence[str], what: str, *, least: int, most: int) -> None:
    """Raise unless these are `least` to `most` texts in code-point order, each once."""
    if not least <= len(items) <= most:
        raise invalid(what, f"{least} to {most} entries", str(len(items)))
    if list(items) != sorted(set(items)):
        raise invalid(what, "distinct entries in order", "a repeated entry, or another order")


def require_lifetime(lifetime: int, most: int, reason: str, what: str) -> None:
    """Raise unless the time from issue to expiry of a document is positive and at most `most`, in microseconds."""
    if not 0 < lifetime <= most:
        message, expected = f"the lifetime of {what} cannot be accepted", f"more than 0 and at most {most} microseconds"
        raise InputError(reason, message, expected=expected, got=str(lifetime))
