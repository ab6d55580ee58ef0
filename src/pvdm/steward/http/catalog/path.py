"""Paths of the catalog: split before they are decoded, so that a name may hold a slash, a percent sign or a dot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from pvdm.errors import Code

PREFIX: Final = "/catalog/"
_PLAIN: Final = re.compile(rb"[A-Za-z0-9_-]*")


def is_catalog(path: str) -> bool:
    """Whether the catalog answers here."""
    return path.startswith(PREFIX)


def segments_kept(scope: Mapping[str, Any]) -> str:
    """The path for the routes: each segment as the caller sent it, in one spelling; other paths as they are."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    if not is_catalog(path) or not raw.startswith(PREFIX.encode()):
        return path
    return "/".join(_spelled(segment) for segment in raw.partition(b"?")[0].split(b"/"))


def name_in(segment: str) -> str:
    """The name that a segment of such a path holds."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise Code.NAME_INVALID("a name in the path cannot be read", expected="UTF-8") from None


def _spelled(segment: bytes) -> str:
    """Java spells a space as a plus sign and a plus sign in percent."""
    if _PLAIN.fullmatch(segment):
        return segment.decode("ascii")
    data = unquote_to_bytes(segment.replace(b"+", b" "))
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or byte in b"-_" else f"%{byte:02X}" for byte in data
    )
