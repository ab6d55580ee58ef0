"""Seals (encrypts) a keystore with a passphrase: scrypt derives the key, and AES-256-GCM encrypts the content."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from pvdm.errors import Code
from pvdm.model.canonical_json import Value
from pvdm.model.secret import Secret

PASSPHRASE_MAX_BYTES: Final = 1_024
SCRYPT_COST_LOG2: Final = 17  # scrypt's cost N is 2^17
SCRYPT_COST_LOG2_MIN: Final = 14
SCRYPT_COST_LOG2_MAX: Final = 20

_KDF: Final = "scrypt-r8-p1"
_CIPHER: Final = "aes-256-gcm"
_CHECK_LABEL: Final = b"pvdm/keystore-passphrase/v1\0"
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_SALT: Final = re.compile(rf"[0-9a-f]{{{2 * _SALT_BYTES}}}")


class Passphrase(Secret):
    """A passphrase or PIN."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__(text.encode())
        del text
        if not 1 <= len(self._material) <= PASSPHRASE_MAX_BYTES:
            expected, got = f"1 to {PASSPHRASE_MAX_BYTES} bytes", f"{len(self._material)} bytes"
            raise Code.KEY_INVALID(reason="passphrase_invalid", expected=expected, got=got)


class Seal:
    """Encrypts a keystore with a key that is derived from its passphrase. Each encryption has a new nonce."""

    __slots__ = ("_cost_log2", "_key", "_salt")

    def __init__(self, key: Secret, salt: str, cost_log2: int) -> None:
        self._key = key
        self._salt = salt
        self._cost_log2 = cost_log2

    @classmethod
    def new(cls, passphrase: Passphrase, *, cost_log2: int) -> Seal:
        """A seal with a new salt."""
        salt = os.urandom(_SALT_BYTES).hex()
        return cls(_derive(passphrase, salt, cost_log2), salt, cost_log2)

    @classmethod
    def from_header(cls, header: Value, passphrase: Passphrase) -> Seal:
        """The seal of an existing keystore. Raises `passphrase_wrong`, or `seal_malformed` for a damaged header."""
        match header:
            case {
                "kdf": kdf,
                "cipher": cipher,
                "salt": str(salt),
                "cost_log2": int(cost_log2),
                "check": str(check),
            } if (kdf, cipher) == (_KDF, _CIPHER) and _SALT.fullmatch(salt):
                seal = cls(_derive(passphrase, salt, cost_log2), salt, cost_log2)
                if not hmac.compare_digest(check.encode(), seal._passphrase_check().encode()):
                    raise Code.KEY_NOT_OPENED(reason="passphrase_wrong", got="another passphrase")
                return seal
        expected = f"a header for {_KDF} and {_CIPHER}"
        raise Code.KEY_INVALID(reason="seal_malformed", expected=expected, got="something else")

    def header(self) -> dict[str, Value]:
        """What the keystore file says about its seal, beside the sealed content."""
        return {
            "kdf": _KDF,
            "cipher": _CIPHER,
            "cost_log2": self._cost_log2,
            "salt": self._salt,
            "check": self._passphrase_check(),
        }

    def encrypt(self, content: Secret, *, bound: bytes) -> Secret:
        """Nonce and ciphertext of the content. `bound` is only authenticated; `decrypt` must get the same bytes."""
        nonce = os.urandom(_NONCE_BYTES)
        return Secret(nonce + AESGCM(self._key.reveal()).encrypt(nonce, content.reveal(), bound))

    def decrypt(self, sealed: Secret, *, bound: bytes) -> Secret:
        """The content. Raises `seal_malformed` if a bit of `sealed` or `bound` was changed."""
        nonce, ciphertext = sealed.reveal()[:_NONCE_BYTES], sealed.reveal()[_NONCE_BYTES:]
        try:
            return Secret(AESGCM(self._key.reveal()).decrypt(nonce, ciphertext, bound))
        except (InvalidTag, ValueError):
            raise Code.KEY_INVALID(reason="seal_malformed", got="something else") from None

    def _passphrase_check(self) -> str:
        return hmac.digest(self._key.reveal(), _CHECK_LABEL, hashlib.sha256)[:16].hex()


def _derive(passphrase: Passphrase, salt: str, cost_log2: int) -> Secret:
    if not SCRYPT_COST_LOG2_MIN <= cost_log2 <= SCRYPT_COST_LOG2_MAX:
        expected = f"2^{SCRYPT_COST_LOG2_MIN} to 2^{SCRYPT_COST_LOG2_MAX}"
        raise Code.KEY_INVALID(reason="scrypt_cost", expected=expected, got=f"2^{cost_log2}"[:40])
    kdf = Scrypt(salt=bytes.fromhex(salt), length=32, n=2**cost_log2, r=8, p=1)
    return Secret(kdf.derive(passphrase.reveal()))
