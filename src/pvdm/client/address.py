"""The Steward's address, which is checked before a token is sent there, and its certificates."""

from __future__ import annotations

import ipaddress
import re
import ssl
from pathlib import Path
from typing import Final

import httpx

from pvdm.errors import Code, InputError

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_DOTS: Final = re.compile(r"\.+")


def require_address(text: str, *, insecure: bool) -> httpx.URL:
    """An http or https address without name, password, query or fragment; plain http only to loopback."""
    given: object = text
    try:
        url = httpx.URL(given if isinstance(given, str) else "")
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host or url.query or url.fragment:
        raise _invalid(given)
    if url.userinfo:
        # The text may hold a password: it is not shown.
        raise Code.STEWARD_ADDRESS_INVALID(got="an address with a name or password")
    if url.scheme == "http" and not insecure and not is_loopback(url.host):
        raise Code.STEWARD_ADDRESS_INSECURE(got=f"http to {url.host}")
    return url.copy_with(raw_path=url.raw_path.rstrip(b"/"))


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, by its name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """The system's certificates, or those of one file only."""
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError):
        pass
    raise Code.CA_FILE_INVALID(
        "the file of certificates cannot be used", expected="certificates in PEM", got=ascii(str(ca_file))[:200]
    )


def segment(value: str, what: str) -> str:
    """One part of a path: letters, digits, dots, underscores and hyphens, and not dots alone."""
    given: object = value
    if isinstance(given, str) and _SEGMENT.fullmatch(given) and not _DOTS.fullmatch(given):
        return given
    raise Code.IDENTIFIER_INVALID(
        f"the {what} cannot be accepted",
        expected="1 to 128 letters (a to z), digits, dots, underscores and hyphens, not dots alone",
        got=ascii(given)[:80],
    )


def segments(path: str, what: str) -> str:
    """Several parts of a path; raises if one of them cannot be accepted."""
    return "/".join(segment(part, what) for part in path.split("/"))


def _invalid(given: object) -> InputError:
    return InputError(
        Code.STEWARD_ADDRESS_INVALID,
        "the Steward's address cannot be accepted",
        expected="https://host:port",
        got=ascii(given)[:200] if "@" not in str(given) else "something else",
    )
