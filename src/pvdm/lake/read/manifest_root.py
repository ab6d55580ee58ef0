"""Hashes of manifests in the header of a manifest list: who knows the list's hash knows every manifest's.

Iceberg's list says where a manifest lies and how long it is, not which bytes it has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

MANIFESTS_KEY: Final = "pvdm.manifests-sha256"
FOUND_KEY: Final = "pvdm.found-sha256"
_DOMAIN: Final = b"pvdm/found/v1\0"
_HEX: Final = re.compile(r"(?:[0-9a-f]{64})*", re.ASCII)


def manifest_hashes_text(hashes: Iterable[str]) -> str:
    """The SHA-256 of every manifest of a list, in the list's order, in hex and without a separator."""
    return "".join(hashes)


def read_manifest_hashes(text: str | None, count: int) -> tuple[str, ...] | None:
    """The hashes of a list's manifests; None where the header does not have one for each of them."""
    if text is None or len(text) != 64 * count or _HEX.fullmatch(text) is None:
        return None
    return tuple(text[at : at + 64] for at in range(0, len(text), 64))


def found_root(files: Iterable[tuple[str, str]]) -> str:
    """One hash over a manifest list and its manifests as they were found: location and SHA-256 of each.

    They are taken in the order of the locations, each field with its length before it.
    """
    digest = hashlib.sha256(_DOMAIN)
    for location, sha256 in sorted(files):
        for field in (location.encode(), bytes.fromhex(sha256)):
            digest.update(len(field).to_bytes(8, "big") + field)
    return digest.hexdigest()
