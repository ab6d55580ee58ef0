"""Reads the TOML file that names the keys of a trust root."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from pvdm.cli.common.files import read_file
from pvdm.cli.common.times import parse_duration, parse_time, to_micros
from pvdm.errors import Code, InputError, PvdmError, expect
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.trust.keys.public import PUBLIC_KEY_SIZE_MAX_BYTES, PublicKey
from pvdm.trust.root import RootRole, TrustedKey

ROOT_SPEC_SIZE_MAX_BYTES: Final = 1024 * 1024
# Clocks differ: a key that is valid from now on would be refused by a host whose clock is a minute behind.
_CLOCK_TOLERANCE_MICROS: Final = 24 * 3_600 * MICROS_PER_SECOND
_TOP_NAMES: Final = frozenset({"expires", "thresholds", "keys"})
_KEY_NAMES: Final = frozenset({"file", "identity", "roles", "epochs", "valid_from", "valid_until"})


@dataclass(frozen=True, slots=True)
class RootSpec:
    """The keys of the file, the root's expiry, and its thresholds; None for what is not given."""

    keys: tuple[TrustedKey, ...]
    expires_at: int | None
    notary_threshold: int | None
    root_threshold: int | None


def read_spec(path: Path, *, now: int, expires_at: int | None = None) -> RootSpec:
    """Read the file. The root expires at the file's `expires`, or at `expires_at` if the file has none.

    Keys without `valid_until` expire then too.
    """
    try:
        spec = tomllib.loads(read_file(path, size_max_bytes=ROOT_SPEC_SIZE_MAX_BYTES).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _invalid(path, "the file", "TOML", str(error)) from None
    _require_known_names(path, "the file", spec, _TOP_NAMES)
    end = _parse_moment(path, "expires", spec["expires"], now) if "expires" in spec else expires_at
    thresholds = spec.get("thresholds", {})
    if not isinstance(thresholds, Mapping):
        raise _invalid(path, "thresholds", "a table", type(thresholds).__name__)
    _require_known_names(path, "thresholds", thresholds, frozenset({"notary", "root"}))
    keys = spec.get("keys")
    if not isinstance(keys, list) or not keys:
        raise _invalid(path, "keys", "one [[keys]] table for each key", "none")
    return RootSpec(
        tuple(_parse_key(path, f"keys[{number}]", key, now, end) for number, key in enumerate(keys)),
        end,
        _require_count(path, "thresholds.notary", thresholds.get("notary")),
        _require_count(path, "thresholds.root", thresholds.get("root")),
    )


def _parse_key(path: Path, field_name: str, key: object, now: int, end: int | None) -> TrustedKey:
    if not isinstance(key, Mapping):
        raise _invalid(path, field_name, "a table", type(key).__name__)
    _require_known_names(path, field_name, key, _KEY_NAMES)
    until = key.get("valid_until")
    if until is None and end is None:
        raise _invalid(path, f"{field_name}.valid_until", "a time, or `expires` at the top", "neither")
    roles = _parse_roles(path, f"{field_name}.roles", key.get("roles"))
    epochs = _parse_epochs(path, f"{field_name}.epochs", key.get("epochs", []))
    if not epochs and {RootRole.NOTARY, RootRole.LOG} & set(roles):
        message = f"{path}: {field_name}.epochs is missing"
        raise Code.INPUT_FILE_INVALID(message, reason="root_spec_epochs_missing", got="none")
    public = read_public_key(path.parent / _require_text(path, f"{field_name}.file", key.get("file")))
    identity = _require_text(path, f"{field_name}.identity", key.get("identity"))
    valid_from = now - _CLOCK_TOLERANCE_MICROS
    if "valid_from" in key:
        valid_from = _parse_moment(path, f"{field_name}.valid_from", key["valid_from"], now)
    valid_until = end if until is None else _parse_moment(path, f"{field_name}.valid_until", until, now)
    return TrustedKey(public, identity, roles, epochs, valid_from, expect(valid_until, "checked above"))


def read_public_key(path: Path) -> PublicKey:
    """The public key of a PEM file. Raises for a private key."""
    data = read_file(path, size_max_bytes=2 * PUBLIC_KEY_SIZE_MAX_BYTES)  # the limit is for DER; PEM is longer
    if b"PRIVATE KEY-----" in data:
        message, hint = f"{path} is a private key", f"the public key is in {path.name}.pub; never send the private key"
        raise Code.INPUT_FILE_INVALID(message, reason="private_key_given", got="the private key", hint=hint)
    try:
        return PublicKey.from_pem(data)
    except InputError as error:
        raise InputError(error.reason, f"{path} cannot be accepted", expected=error.expected, got=error.got) from None


def _parse_roles(path: Path, field_name: str, value: object) -> tuple[RootRole, ...]:
    known = {role.value: role for role in RootRole}
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name in known for name in value):
        raise _invalid(path, field_name, "a list of " + ", ".join(known), repr(value)[:80])
    return tuple(sorted({known[name] for name in value}, key=lambda role: role.value))


def _parse_epochs(path: Path, field_name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise _invalid(path, field_name, "a list of numbers", repr(value)[:80])
    return tuple(sorted(set(value)))


def _parse_moment(path: Path, field_name: str, value: object, now: int) -> int:
    """Microseconds of a TOML date, or a date-time with a zone; or of text: a time, or a duration from now."""
    try:
        if isinstance(value, date):
            return to_micros(value)
        if isinstance(value, str):
            return parse_time(value) if "-" in value else now + parse_duration(value)
    except InputError as error:
        raise _invalid(path, field_name, error.expected or "a time", error.got or "something else") from None
    raise _invalid(path, field_name, "a date, a time with its zone, or a duration such as 365d", repr(value)[:80])


def _require_count(path: Path, field_name: str, value: object) -> int | None:
    if value is None or (type(value) is int and value >= 1):
        return value
    raise _invalid(path, field_name, "a number of at least 1", repr(value)[:80])


def _require_text(path: Path, field_name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _invalid(path, field_name, "text", repr(value)[:80])
    return value


def _require_known_names(path: Path, field_name: str, table: Mapping[str, object], names: frozenset[str]) -> None:
    if unknown := sorted(table.keys() - names):
        raise _invalid(path, field_name, ", ".join(sorted(names)), unknown[0][:80])


def _invalid(path: Path, field_name: str, expected: str, got: str) -> PvdmError:
    message = f"{path}: {field_name} cannot be accepted"
    return Code.INPUT_FILE_INVALID(message, reason="root_spec_invalid", expected=expected, got=got)
