"""One hash over the manifests that a snapshot wrote; its manifest list carries it, so who knows the list knows them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

MANIFESTS_KEY: Final = "pvdm.manifests-sha256"
_DOMAIN: Final = b"pvdm/manifests/v1\0"


def manifests_root(manifests: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over location and SHA-256 of each, in the order of the locations, each field with its length before it.

    Iceberg's list says where a manifest lies and how long it is, not which bytes it has.
    """
    digest = hashlib.sha256(_DOMAIN)
    for location, sha256 in sorted(manifests):
        for field in (location.encode(), bytes.fromhex(sha256)):
            digest.update(len(field).to_bytes(8, "big") + field)
    return digest.hexdigest()
