"""Searches bytes for a secret: raw, in hex, in base64 at every alignment, and escaped as in Python and JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

_SHORTEST_BYTES = 8


def forms(secret: bytes) -> dict[str, bytes]:
    """Every form of the secret that is searched for, by name."""
    if len(secret) < _SHORTEST_BYTES:
        raise ValueError("a secret this short would be found by chance")
    found = {
        "raw": secret,
        "hex": secret.hex().encode(),
        "HEX": secret.hex().upper().encode(),
        "decimal list": ", ".join(str(byte) for byte in secret).encode(),
        "decimal array": ",".join(str(byte) for byte in secret).encode(),
        "python": repr(secret)[2:-1].encode(),
        "json": json.dumps(secret.decode("latin-1"))[1:-1].encode(),
        "utf-8 of latin-1": secret.decode("latin-1").encode(),
    }
    for shift in range(3):
        # In a longer text the secret has one of three alignments. Characters that depend on other bytes are cut off.
        encoded = base64.b64encode(bytes(shift) + secret)
        start = 0 if shift == 0 else shift + 1
        core = encoded[start : len(encoded) - len(encoded) % 4 - 4]
        found[f"base64 +{shift}"] = core
        found[f"base64url +{shift}"] = core.replace(b"+", b"-").replace(b"/", b"_")
    return found


def traces(secret: bytes, haystack: bytes | str) -> list[str]:
    """The names of the forms in which the text contains the secret."""
    text = haystack.encode("utf-8", "surrogatepass") if isinstance(haystack, str) else haystack
    return [name for name, form in forms(secret).items() if form in text]


def traces_in_files(secret: bytes, folders: Iterable[Path]) -> list[str]:
    """The files under the folders whose name or content contains the secret, with the names of the forms."""
    return [
        f"{path}: {name}"
        for folder in folders
        for path in sorted(folder.rglob("*"))
        for name in (*traces(secret, str(path)), *(traces(secret, path.read_bytes()) if path.is_file() else ()))
    ]
