"""Public keys: their algorithms and key ids, and the verification of signatures."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_public_key,
)

from pvdm.errors import Code, InputError

PUBLIC_KEY_SIZE_MAX_BYTES: Final = 1_024


class Algorithm(Enum):
    """Signature algorithms. The algorithm is a property of the key, never of the signed document."""

    ED25519 = "ed25519"
    ECDSA_P256 = "ecdsa-p256"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One public key as SubjectPublicKeyInfo in canonical DER."""

    algorithm: Algorithm
    der: bytes

    def __post_init__(self) -> None:
        loaded = _load(self.der)
        if loaded.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != self.der:
            raise _malformed(expected="the canonical DER of the key", got="another spelling")
        if _algorithm(loaded) is not self.algorithm:
            raise _malformed(expected=self.algorithm.value, got=_algorithm(loaded).value)

    @classmethod
    def from_der(cls, der: bytes) -> PublicKey:
        """The key in SubjectPublicKeyInfo DER, which names the algorithm."""
        return cls(_algorithm(_load(der)), bytes(der))

    @classmethod
    def from_pem(cls, pem: bytes) -> PublicKey:
        """The key of one PEM block."""
        if len(pem) > 2 * PUBLIC_KEY_SIZE_MAX_BYTES:
            raise _malformed(expected=f"at most {2 * PUBLIC_KEY_SIZE_MAX_BYTES} bytes", got=str(len(pem)))
        try:
            loaded = load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm):
            raise _malformed(expected="a public key in PEM", got="something else") from None
        return cls.from_loaded(loaded)

    @classmethod
    def from_loaded(cls, key: PublicKeyTypes) -> PublicKey:
        """The key that an object of the cryptography library holds."""
        return cls.from_der(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    @property
    def key_id(self) -> str:
        """Lower-case hex SHA-256 over the SubjectPublicKeyInfo DER."""
        return hashlib.sha256(self.der).hexdigest()

    def to_pem(self) -> bytes:
        """The key as one PEM block."""
        return _load(self.der).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def verify(self, signature: bytes, data: bytes) -> None:
        """Raise unless this key signed exactly these bytes."""
        try:
            match _load(self.der):
                case ed25519.Ed25519PublicKey() as key:
                    key.verify(signature, data)
                case key:
                    key.verify(signature, data, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise Code.SIGNATURE_INVALID(key_id=self.key_id) from None


class SigningKey(Protocol):
    """A private key that can sign, in a key home or in memory."""

    @property
    def public(self) -> PublicKey:
        """The public half, which has the algorithm and the key id."""

    def sign(self, data: bytes, /) -> bytes:
        """The signature over exactly these bytes: 64 bytes for Ed25519, DER over SHA-256 for ECDSA."""


def _load(der: bytes) -> ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey:
    if len(der) > PUBLIC_KEY_SIZE_MAX_BYTES:
        raise _malformed(expected=f"at most {PUBLIC_KEY_SIZE_MAX_BYTES} bytes", got=str(len(der)))
    try:
        loaded = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        raise _malformed(expected="SubjectPublicKeyInfo in DER", got="something else") from None
    match loaded:
        case ed25519.Ed25519PublicKey():
            return loaded
        case ec.EllipticCurvePublicKey() if isinstance(loaded.curve, ec.SECP256R1):
            return loaded
        case _:
            raise _malformed(expected="Ed25519 or ECDSA on P-256", got=type(loaded).__name__)


def _malformed(expected: str, got: str) -> InputError:
    return InputError(Code.PUBLIC_KEY_MALFORMED, "the public key cannot be accepted", expected=expected, got=got)


def _algorithm(key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey) -> Algorithm:
    return Algorithm.ED25519 if isinstance(key, ed25519.Ed25519PublicKey) else Algorithm.ECDSA_P256
