"""Signing and checking: the algorithm is the key's, from the trust root, never the envelope's. Calls `trust.keys`."""

from __future__ import annotations

from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from pvdm.trust.envelope import STATEMENT_TYPE, Envelope, Signature, pae
from pvdm.trust.keys.public import Algorithm, PublicKey
from pvdm.trust.refusal import refused

_ED25519_BYTES: Final = 64
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class Signer(Protocol):
    """A private key in some home; it signs, and never shows itself. P-256 signatures are DER."""

    @property
    def public(self) -> PublicKey:
        """The public half, which names the algorithm and the key id."""
        ...

    def sign(self, data: bytes, /) -> bytes:
        """The signature over exactly these bytes."""
        ...


def seal(payload: bytes, signer: Signer, *, payload_type: str = STATEMENT_TYPE) -> Envelope:
    """The payload in an envelope with one signature, checked before it is handed out."""
    message = pae(payload_type, payload)
    signature = signer.sign(message)
    if signer.public.algorithm is Algorithm.ECDSA_P256:
        signature = low_s(signature)
    require_signature(signer.public, signature, message)
    return Envelope(payload_type, payload, (Signature(signer.public.key_id, signature),))


def low_s(signature: bytes) -> bytes:
    """The one accepted spelling of a P-256 signature: of s and n - s the smaller, in DER."""
    r, s = decode_dss_signature(signature)
    return encode_dss_signature(r, min(s, _P256_ORDER - s))


def require_signature(key: PublicKey, signature: bytes, message: bytes) -> None:
    """This key made this signature over this message, in the one form that its algorithm has here."""
    require_signature_form(key.algorithm, signature)
    require_signature_valid(key, signature, message)


def require_signature_form(algorithm: Algorithm, signature: bytes) -> None:
    """A signature of another algorithm, or a second spelling that a stranger can make of a good one, is refused."""
    if not _is_spelled(algorithm, signature):
        raise refused(
            "signature_form_invalid",
            "the signature has not the form of the key's algorithm",
            f"{_ED25519_BYTES} bytes" if algorithm is Algorithm.ED25519 else "DER with the smaller s",
            f"{len(signature)} other bytes",
        )


def _is_spelled(algorithm: Algorithm, signature: bytes) -> bool:
    if algorithm is Algorithm.ED25519:
        return len(signature) == _ED25519_BYTES
    try:
        return low_s(signature) == signature
    except ValueError:
        return False


def require_signature_valid(key: PublicKey, signature: bytes, message: bytes) -> None:
    """The arithmetic itself."""
    key.verify(signature, message)
