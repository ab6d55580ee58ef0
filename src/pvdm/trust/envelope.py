"""DSSE envelopes: pre-authentication encoding, and a parser with limits that knows one spelling only. Calls `model`."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, VerificationError
from pvdm.model.canonical_json import Value, dump
from pvdm.model.fields import Fields, require_sha256
from pvdm.trust.refusal import refused, refusing
from pvdm.trust.strict_json import read

STATEMENT_TYPE: Final = "application/vnd.in-toto+json"
TRUST_ROOT_TYPE: Final = "application/vnd.pvdm.trust-root+json"

ENVELOPE_SIZE_MAX_BYTES: Final = 32 * 1024 * 1024
SIGNATURE_SIZE_MAX_BYTES: Final = 256
ROOT_SIGNATURES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature and the id of the key that is said to have made it."""

    key_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload, its type and its signatures; nothing in it is believed before a signature was checked."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    @property
    def signature(self) -> Signature:
        """The only signature of a statement."""
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
        """The envelope as it stands inside a bundle."""
        return {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [
                {"keyid": each.key_id, "sig": base64.b64encode(each.value).decode()} for each in self.signatures
            ],
        }

    def to_bytes(self) -> bytes:
        """The envelope's one spelling; the log holds the SHA-256 of these bytes."""
        return dump(self.to_json())


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding, version 1."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def parse_envelope(data: bytes, *, payload_type: str = STATEMENT_TYPE, signatures_max: int = 1) -> Envelope:
    """The envelope of these bytes; any other spelling, type, key or number of signatures is refused."""
    value = read(data, "the envelope", size_max_bytes=ENVELOPE_SIZE_MAX_BYTES)
    with refusing():
        fields = Fields(value, "the envelope", ("payload", "payloadType", "signatures"))
        kind, payload, found = fields.text("payloadType"), fields.text("payload"), fields.items("signatures")
    require_payload_type(kind, payload_type)
    require_signed(found)
    require_not_more_signatures(found, signatures_max)
    signatures = tuple(_signature(each) for each in found)
    require_distinct_keys(signatures)
    return Envelope(kind, _decoded(payload, "the payload"), signatures)


def _signature(value: Value) -> Signature:
    with refusing():
        fields = Fields(value, "a signature", ("keyid", "sig"))
        key_id, signature = fields.text("keyid"), _decoded(fields.text("sig"), "the signature")
        require_sha256(key_id, "the key id")
    require_signature_size(signature)
    return Signature(key_id, signature)


def _decoded(text: str, what: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _base64(what, str(error)) from None
    if base64.b64encode(data).decode() != text:
        raise _base64(what, "bits that belong to no byte")
    return data


def _base64(what: str, got: str) -> VerificationError:
    return refused("envelope_base64_invalid", f"{what} is not base64", "standard base64 with padding", got)


def require_payload_type(got: str, expected: str) -> None:
    """A trust root is no statement, and neither is anything else."""
    if got != expected:
        raise refused("payload_type_wrong", "the payload is of another type", expected, repr(got[:80]))


def require_signed(signatures: Sequence[Value]) -> None:
    """An envelope without a signature says nothing."""
    if not signatures:
        raise refused(Code.ENVELOPE_UNSIGNED, "the envelope is not signed", "a signature", "none")


def require_not_more_signatures(signatures: Sequence[Value], most: int) -> None:
    """One statement a notary: a second signature would leave open whose word it is."""
    if len(signatures) > most:
        raise refused("envelope_signatures_many", "the envelope has too many signatures", most, len(signatures))


def require_distinct_keys(signatures: Sequence[Signature]) -> None:
    """One key signs once."""
    ids = [signature.key_id for signature in signatures]
    if len(set(ids)) != len(ids):
        raise refused(
            "envelope_key_repeated", "a key signed the envelope twice", "distinct keys", f"{len(ids)} signatures"
        )


def require_signature_size(signature: bytes) -> None:
    """No algorithm here has long signatures."""
    if not 1 <= len(signature) <= SIGNATURE_SIZE_MAX_BYTES:
        raise refused(
            "signature_size",
            "the signature has an impossible size",
            f"1 to {SIGNATURE_SIZE_MAX_BYTES} bytes",
            len(signature),
        )
