"""DSSE envelopes (Dead Simple Signing Envelope). A `require_` function raises unless its docstring is true."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from pvdm.errors import Code
from pvdm.model.canonical_json import Value, dump
from pvdm.model.fields import Fields, require_sha256
from pvdm.trust.keys.public import Algorithm, PublicKey, SigningKey
from pvdm.trust.log.note import decode_base64, encode_base64
from pvdm.trust.refusal import refuse_input_errors, refused
from pvdm.trust.strict_json import parse_strict

STATEMENT_TYPE: Final = "application/vnd.in-toto+json"
TRUST_ROOT_TYPE: Final = "application/vnd.pvdm.trust-root+json"

ENVELOPE_SIZE_MAX_BYTES: Final = 32 * 1024 * 1024
SIGNATURE_SIZE_MAX_BYTES: Final = 256
ROOT_SIGNATURES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature and the id of its key, not verified."""

    key_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload, its type and its signatures, not verified."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    @property
    def signature(self) -> Signature:
        """The signature of a statement, which has only one."""
        return self.signatures[0]

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return pae(self.payload_type, self.payload)

    @property
    def payload_sha256(self) -> str:
        """The id of the statement: SHA-256 of its canonical payload."""
        return hashlib.sha256(self.payload).hexdigest()

    def to_json(self) -> dict[str, Value]:
        """The envelope as a JSON object, as bundles have it."""
        return {
            "payload": encode_base64(self.payload),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": each.key_id, "sig": encode_base64(each.value)} for each in self.signatures],
        }

    def to_bytes(self) -> bytes:
        """The canonical bytes. The log has their SHA-256."""
        return dump(self.to_json())


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding (PAE), version 1: the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def parse_envelope(data: bytes, *, payload_type: str = STATEMENT_TYPE, signatures_max: int = 1) -> Envelope:
    """The envelope in these canonical bytes, of this type, with 1 to `signatures_max` signatures, none verified."""
    value = parse_strict(data, "the envelope", size_max_bytes=ENVELOPE_SIZE_MAX_BYTES)
    with refuse_input_errors():
        fields = Fields(value, "the envelope", ("payload", "payloadType", "signatures"))
        kind, payload, values = fields.text("payloadType"), fields.text("payload"), fields.items("signatures")
    require_payload_type(kind, payload_type)
    require_signed(values)
    require_not_more_signatures(values, signatures_max)
    signatures = tuple(_read_signature(value) for value in values)
    require_distinct_keys(signatures)
    return Envelope(kind, _decode_base64(payload, "the payload"), signatures)


def _read_signature(value: Value) -> Signature:
    with refuse_input_errors():
        fields = Fields(value, "a signature", ("keyid", "sig"))
        key_id, signature = fields.text("keyid"), _decode_base64(fields.text("sig"), "the signature")
        require_sha256(key_id, "the key id")
    require_signature_size(signature)
    return Signature(key_id, signature)


def _decode_base64(text: str, what: str) -> bytes:
    data = decode_base64(text)
    if data is None:
        message, expected = f"{what} is not base64", "standard base64 with padding, in canonical form"
        raise refused("envelope_base64_invalid", expected, ascii(text[:80]), message=message)
    return data


def require_payload_type(got: str, expected: str) -> None:
    """The payload has the expected type."""
    if got != expected:
        raise refused("payload_type_wrong", expected, repr(got[:80]))


def require_signed(signatures: Sequence[Value]) -> None:
    """The envelope has a signature."""
    if not signatures:
        raise refused(Code.ENVELOPE_UNSIGNED, "a signature", "none")


def require_not_more_signatures(signatures: Sequence[Value], most: int) -> None:
    """The envelope has at most `most` signatures. A statement has one, so that it is clear who signed it."""
    if len(signatures) > most:
        raise refused("envelope_signatures_many", most, len(signatures))


def require_distinct_keys(signatures: Sequence[Signature]) -> None:
    """No key signs twice."""
    ids = [signature.key_id for signature in signatures]
    if len(set(ids)) != len(ids):
        raise refused("envelope_key_repeated", "distinct keys", f"{len(ids)} signatures")


def require_signature_size(signature: bytes) -> None:
    """The signature is neither empty nor above the limit."""
    if not 1 <= len(signature) <= SIGNATURE_SIZE_MAX_BYTES:
        raise refused("signature_size", f"1 to {SIGNATURE_SIZE_MAX_BYTES} bytes", len(signature))


_ED25519_SIGNATURE_BYTES: Final = 64
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # n


def sign_envelope(payload: bytes, signer: SigningKey, *, payload_type: str = STATEMENT_TYPE) -> Envelope:
    """The payload in an envelope with one signature, which is verified before the envelope is returned."""
    message = pae(payload_type, payload)
    signature = signer.sign(message)
    if signer.public.algorithm is Algorithm.ECDSA_P256:
        signature = _use_smaller_s(signature)
    require_signature(signer.public, signature, message)
    return Envelope(payload_type, payload, (Signature(signer.public.key_id, signature),))


def _use_smaller_s(signature: bytes) -> bytes:
    """The canonical form of a P-256 signature: DER with the smaller of s and n - s."""
    r, s = decode_dss_signature(signature)
    return encode_dss_signature(r, min(s, _P256_ORDER - s))


def require_signature(key: PublicKey, signature: bytes, message: bytes) -> None:
    """The key made this signature over this message, in canonical form."""
    require_signature_form(key.algorithm, signature)
    require_signature_valid(key, signature, message)


def require_signature_form(algorithm: Algorithm, signature: bytes) -> None:
    """The signature has the canonical form of the key's algorithm. (Anyone can rewrite a signature in another form.)"""
    if not _is_canonical(algorithm, signature):
        expected = f"{_ED25519_SIGNATURE_BYTES} bytes" if algorithm is Algorithm.ED25519 else "DER with the smaller s"
        raise refused("signature_form_invalid", expected, f"{len(signature)} other bytes")


def _is_canonical(algorithm: Algorithm, signature: bytes) -> bool:
    if algorithm is Algorithm.ED25519:
        return len(signature) == _ED25519_SIGNATURE_BYTES
    try:
        return _use_smaller_s(signature) == signature
    except ValueError:
        return False


def require_signature_valid(key: PublicKey, signature: bytes, message: bytes) -> None:
    """The signature is valid."""
    key.verify(signature, message)
