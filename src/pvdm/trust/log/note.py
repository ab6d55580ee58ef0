"""Signs and verifies notes (c2sp.org/signed-note) with Ed25519 and ECDSA P-256 keys, which have names and ids."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pvdm.errors import Code, InputError, VerificationError
from pvdm.trust.keys.public import Algorithm, PublicKey, SigningKey

NOTE_SIZE_MAX_BYTES: Final = 131_072
NOTE_SIGNATURES_MAX: Final = 64
KEY_NAME_MAX_BYTES: Final = 255

# Signature types that the specification assigns. The type is the first byte of a verifier key's material.
_ED25519_TYPE: Final = b"\x01"
_ECDSA_TYPE: Final = b"\x02"
_ED25519_KEY_BYTES: Final = 32
_DASH: Final = "\N{EM DASH} "
_KEY_ID_BYTES: Final = 4
_VKEY_ID: Final = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class NoteKey:
    """A public key with its name. A signature line names its key by name and key id."""

    name: str
    der: bytes  # SubjectPublicKeyInfo
    key_id: bytes = field(init=False)
    _material: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not is_key_name(self.name) or len(self.name.encode()) > KEY_NAME_MAX_BYTES:
            expected = "a name without spaces and plus signs"
            raise Code.KEY_INVALID(reason="note_key_malformed", expected=expected, got=self.name[:80])
        if _load(self.der).algorithm is Algorithm.ED25519:
            material = _ED25519_TYPE + self.der[-_ED25519_KEY_BYTES:]
            hashed = self.name.encode() + b"\n" + material
        else:
            material = _ECDSA_TYPE + self.der
            hashed = self.der  # for this type the specification leaves out the name
        object.__setattr__(self, "key_id", hashlib.sha256(hashed).digest()[:_KEY_ID_BYTES])
        object.__setattr__(self, "_material", material)

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raise unless this key signed exactly these bytes."""
        try:
            _load(self.der).verify(signature, message)
        except VerificationError:
            raise Code.NOTE_INVALID(reason="note_signature_invalid", key=self.to_vkey()) from None

    def to_vkey(self) -> str:
        """The verifier key for other tools: name, id and key, joined by plus signs."""
        return f"{self.name}+{self.key_id.hex()}+{encode_base64(self._material)}"


class _Signature(NamedTuple):
    name: str  # of the key
    key_id: bytes
    value: bytes


def parse_vkey(text: str) -> NoteKey:
    """The key in a verifier key (`to_vkey`). An id that does not belong to the key is refused."""
    parts = text.split("+", 2)
    if len(parts) != 3 or _VKEY_ID.fullmatch(parts[1]) is None:
        raise Code.KEY_INVALID(reason="note_key_malformed", expected="name+id+key", got=text[:80])
    raw = decode_base64(parts[2]) or b""
    key = NoteKey(parts[0], _ed25519_der(raw[1:]) if raw[:1] == _ED25519_TYPE else raw[1:])
    if key.to_vkey() != text:
        raise Code.KEY_INVALID(reason="note_key_malformed", expected=key.to_vkey(), got=text[:200])
    return key


def sign_note(text: str, *, name: str, signer: SigningKey) -> bytes:
    """The text with one signature line. The signature is verified before the note is returned."""
    key = NoteKey(name, signer.public.der)
    body = text.encode()
    note = body + f"\n{_DASH}{name} {encode_base64(key.key_id + signer.sign(body))}\n".encode()
    if open_note(note, [key]) != text:
        raise _malformed("a text that a verifier reads back unchanged", "another text")
    return note


def open_note(note: bytes, keys: Iterable[NoteKey]) -> str:
    """The text of a note. At least one known key signed it, and every signature of a known key is valid."""
    text, signatures = split_note(note)
    known = {(key.name, key.key_id): key for key in keys}
    seen: set[tuple[str, bytes]] = set()
    for signature in signatures:
        key = known.get((signature.name, signature.key_id))
        if key is None:
            continue
        if (key.name, key.key_id) in seen:
            raise Code.NOTE_INVALID(reason="note_signature_duplicate", key=key.to_vkey())
        seen.add((key.name, key.key_id))
        key.verify(signature.value, text.encode())
    if not seen:
        raise _key_unknown_error(known, signatures, text)
    return text


def split_note(note: bytes) -> tuple[str, Sequence[_Signature]]:
    """Text and signatures of a note. Only the form is checked."""
    if len(note) > NOTE_SIZE_MAX_BYTES:
        raise Code.NOTE_INVALID(reason="note_too_large", expected=f"{NOTE_SIZE_MAX_BYTES} bytes", got=str(len(note)))
    try:
        whole = note.decode()
    except UnicodeDecodeError as error:
        raise _malformed("UTF-8", error.reason) from None
    if any(char < " " and char != "\n" for char in whole):
        raise _malformed("no control character except the newline", "another control character")
    text, gap, block = whole.rpartition("\n\n")
    if not gap or not block.endswith("\n"):
        raise _malformed("text, an empty line, signature lines, each ended by a newline", "something else")
    lines = block[:-1].split("\n")
    if len(lines) > NOTE_SIGNATURES_MAX:
        most = f"at most {NOTE_SIGNATURES_MAX}"
        raise Code.NOTE_INVALID(reason="note_signatures_too_many", expected=most, got=str(len(lines)))
    return text + "\n", [_parse_signature(line) for line in lines]


def is_key_name(name: str) -> bool:
    """Whether this is a key name: not empty, no control character below U+0020, no Unicode space, no plus sign."""
    return name != "" and not any(char.isspace() or char == "+" or char < " " for char in name)


def encode_base64(data: bytes) -> str:
    """Standard base64 with padding."""
    return base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes | None:
    """The bytes of standard base64 in canonical form, otherwise None."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if encode_base64(data) == text else None


def _parse_signature(line: str) -> _Signature:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not space or not is_key_name(name):
        raise _malformed("em dash, key name, base64", line[:80])
    raw = decode_base64(encoded)
    if raw is None or len(raw) <= _KEY_ID_BYTES:
        raise _malformed("a key id and a signature in canonical base64", encoded[:80])
    return _Signature(name, raw[:_KEY_ID_BYTES], raw[_KEY_ID_BYTES:])


def _load(der: bytes) -> PublicKey:
    try:
        return PublicKey.from_der(der)
    except InputError as error:
        expected = error.expected or ""
        raise Code.KEY_INVALID(reason="note_key_malformed", expected=expected, got=error.got or "") from None


def _ed25519_der(raw: bytes) -> bytes:
    try:
        key = Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        expected = "32 bytes of Ed25519 key"
        raise Code.KEY_INVALID(reason="note_key_malformed", expected=expected, got=str(len(raw))) from None
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_unknown_error(
    known: Iterable[tuple[str, bytes]], signatures: Sequence[_Signature], text: str
) -> VerificationError:
    """The error with the known keys and those that signed. The note of another log gets its own message and hint."""
    expected = dict.fromkeys(f"{name}+{key_id.hex()}" for name, key_id in known)
    signed = dict.fromkeys(f"{signature.name}+{signature.key_id.hex()}" for signature in signatures)
    hint = "perhaps the trust root is older than the key: fetch the newest (`pvdm keys root fetch`)"
    message = "no known key has signed the note"
    names = sorted({name for name, _ in known})
    origin = text.partition("\n")[0][:200]
    if names and origin not in names:
        message = f"the note is of another log, {origin}"
        hint = f"if the log was renamed from {' or '.join(names)[:200]}, a trust root must name it and its keys first"
    wanted, got = " or ".join(expected)[:400] or "no key at all", ", ".join(signed)[:400]
    return VerificationError(Code.NOTE_KEY_UNKNOWN, message, expected=wanted, got=got, hint=hint)


def _malformed(expected: str, got: str) -> VerificationError:
    return VerificationError("note_malformed", "the signed note is malformed", expected=expected, got=got)
