"""What workers report, sealed under a key that only their job has: sums of row hashes are secrets on every disk.

So is the credential by which workers read a store; it goes the other way, under the same seal.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pvdm.digest import Keys
from pvdm.digest.plan import framed
from pvdm.errors import Code
from pvdm.model.canonical_json import dump, parse
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import Secret

_LABEL: Final = b"pvdm/worker-seal/v1\0"
_STORE_MAX_BYTES: Final = 65_536
_STORE: Final = b"pvdm/worker-store/v1\0"
_NONCE_BYTES: Final = 12


class JobSeal:
    """Closes and opens the reports of one job; who has its digest keys has it, and nobody else."""

    __slots__ = ("_key",)

    def __init__(self, keys: Keys, job_id: str) -> None:
        first = next(name for name in ProjectionName if name in keys)
        self._key = Secret(hmac.digest(keys[first].reveal(), _LABEL + framed(job_id.encode()), hashlib.sha256))

    def close(self, report: bytes, bound: bytes) -> bytes:
        """Nonce and ciphertext; `bound` says what the report is about, and must be the same at opening."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key.reveal()).encrypt(nonce, report, bound)

    def close_store(self, config: Mapping[str, str]) -> bytes:
        """The way to a store, credential and all, for the workers of this job alone."""
        return self.close(dump(dict(config)), _STORE)

    def open_store(self, sealed: bytes) -> dict[str, str]:
        """The same on a worker, which has the job's keys by then."""
        found = parse(self.open(sealed, _STORE), size_max_bytes=_STORE_MAX_BYTES)
        if not isinstance(found, dict):
            raise AssertionError("as `close_store` wrote it")
        return {str(name): str(found[name]) for name in found}

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """The report, if it was made under this job's keys, about this, and not one bit of it was changed."""
        try:
            return AESGCM(self._key.reveal()).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise Code.WORKER_REPORT_FORGED(got="another") from None


def bound_to(common: bytes, task: bytes) -> bytes:
    """What a report is about: exactly these orders."""
    return hashlib.sha256(b"pvdm/worker-orders/v1\0" + framed(common) + framed(task)).digest()
