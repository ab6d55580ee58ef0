"""Search for a secret in anything: raw, hex, base64 at every alignment, and as Python and JSON would escape it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

_SHORTEST_BYTES = 8


def forms(secret: bytes) -> dict[str, bytes]:
    """Every spelling of the secret that is searched for, by name."""
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
        # Inside a longer text the secret starts at any of three alignments; only the whole characters are its own.
        encoded = base64.b64encode(bytes(shift) + secret)
        start = 0 if shift == 0 else shift + 1
        core = encoded[start : len(encoded) - len(encoded) % 4 - 4]
        found[f"base64 +{shift}"] = core
        found[f"base64url +{shift}"] = core.replace(b"+", b"-").replace(b"/", b"_")
    return found


def traces(secret: bytes, haystack: bytes | str) -> list[str]:
    """The names of the spellings under which the secret stands in the text; none is what one hopes for."""
    text = haystack.encode("utf-8", "surrogatepass") if isinstance(haystack, str) else haystack
    return [name for name, form in forms(secret).items() if form in text]


def traces_in_files(secret: bytes, folders: Iterable[Path]) -> list[str]:
    """The same over every file under the folders, names of files included."""
    return [
        f"{path}: {name}"
        for folder in folders
        for path in sorted(folder.rglob("*"))
        for name in (*traces(secret, str(path)), *(traces(secret, path.read_bytes()) if path.is_file() else ()))
    ]
