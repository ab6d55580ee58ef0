"""The client's settings, each checked: the Steward's address and certificates, time-outs, retries and sizes."""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import httpx

from pvdm.errors import Code, PvdmError
from pvdm.model.host import is_loopback

TRIES_MAX: Final = 100
WAIT_MAX_SECONDS: Final = 86_400
ANSWER_SIZE_MAX_BYTES: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TimeOuts:
    """Seconds for one try: to connect, between two pieces of the response, and for the whole exchange.

    For calls that take the Steward long, `long_seconds` replaces both `read_seconds` and `total_seconds`.
    """

    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    total_seconds: float = 60.0
    long_seconds: float = 1_800.0

    def __post_init__(self) -> None:
        _require_durations(self)


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request that may be repeated is sent, and how long the whole call may last, waiting included.

    The wait before a retry is random. Its upper limit starts at `first_wait_seconds` and doubles, up to
    `longest_wait_seconds`. A call ends when the Steward's `Retry-After` is over `retry_after_longest_seconds`. A
    job's calls wait `restart_seconds` for a Steward that does not answer, since the Steward may be restarting.
    """

    tries: int = 4
    total_seconds: float = 120.0
    restart_seconds: float = 60.0
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 5.0
    retry_after_longest_seconds: float = 30.0

    def __post_init__(self) -> None:
        given: object = self.tries  # a caller without type checks may pass anything
        if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= TRIES_MAX:
            raise _invalid("tries", f"1 to {TRIES_MAX}", given)
        _require_durations(self)


def require_answer_size(size_max_bytes: int) -> int:
    """The size of the largest response that is read. Raises if the setting is out of range."""
    given: object = size_max_bytes
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= ANSWER_SIZE_MAX_BYTES:
        raise _invalid("answer_max_bytes", f"1 to {ANSWER_SIZE_MAX_BYTES}", given)
    return given


def _require_durations(settings: TimeOuts | Retries) -> None:
    """Raise if a field in seconds is out of range."""
    for name in (field.name for field in fields(settings) if field.name.endswith("_seconds")):
        given: object = getattr(settings, name)
        seconds = given if isinstance(given, int | float) and not isinstance(given, bool) else math.nan
        if not 0 < seconds <= WAIT_MAX_SECONDS:  # also raises for NaN
            raise _invalid(name, f"more than 0 and at most {WAIT_MAX_SECONDS} seconds", given)


def _invalid(name: str, expected: str, given: object) -> PvdmError:
    message = f"{name} of the client cannot be accepted"
    return Code.CLIENT_SETTING_INVALID(message, expected=expected, got=ascii(given)[:40])


def require_address(text: str, *, insecure: bool) -> httpx.URL:
    """The address: https; http only to loopback or if `insecure`. Raises for user name, password, query or fragment."""
    given: object = text
    try:
        url = httpx.URL(given if isinstance(given, str) else "")
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    # A text with `@` may hold a password, so it is not shown.
    if url.scheme not in {"http", "https"} or not url.host or url.query or url.fragment:
        got = "something else" if "@" in str(given) else ascii(given)[:200]
        raise Code.CLIENT_SETTING_INVALID(reason="steward_address_invalid", got=got)
    if url.userinfo:
        raise Code.CLIENT_SETTING_INVALID(
            "the Steward's address holds a name or password",
            reason="steward_address_invalid",
            expected="https://host:port, and the token beside it",
            got="an address with a name or password",
        )
    if url.scheme == "http" and not insecure and not is_loopback(url.host):
        raise Code.STEWARD_ADDRESS_INSECURE(got=f"http to {url.host}")
    return url.copy_with(raw_path=url.raw_path.rstrip(b"/"))


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """A TLS context that trusts the system's certificate authorities, or those of one file only."""
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError):
        raise Code.CLIENT_SETTING_INVALID(reason="ca_file_invalid", got=ascii(str(ca_file))[:200]) from None
