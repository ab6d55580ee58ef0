"""Contexts: the facts that a derived key is bound to. The key is the HMAC of a message made of them (spec/keys.md)."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum
from typing import Annotated, ClassVar, Final, TypeAlias

from pvdm.digest.plan import Mode, framed
from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import Value
from pvdm.model.codec import Document, FieldType, UncheckedDecimalText
from pvdm.model.fields import LONG_MAX, TEXT_MAX_BYTES, Fields
from pvdm.model.projection import ProjectionName

_COUNTER: Final = b"\x01"  # the last byte of each message (spec/keys.md section 2)
_HASH_BYTES: Final = 32
_RANDOM_ID: Final = (re.compile(r"[0-9a-f]{32}"), "32 lower-case hex digits")
_PATTERNS: Final = {
    "workload_id": (re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,128}"), "1 to 128 of A-Z a-z 0-9 . _ -, not dots alone"),
    "attempt_id": _RANDOM_ID,
    "nonce": _RANDOM_ID,
    "table_uuid": (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "a UUID in lower case"),
    "attestor": (re.compile(r"[a-z0-9][a-z0-9._@/:-]{0,127}"), "1 to 128 of a-z 0-9 . _ @ / : -"),
}
_LEAST: Final = {"epoch": 1, "snapshot_id": 0}  # the smallest allowed numbers
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Purpose(Enum):
    """The purpose of a derived key. The value is the first field of its message."""

    ROW_HASH = "pvdm/row-hash/v1"
    COMMITMENT = "pvdm/commitment/v1"
    SOURCE_ROW_HASH = "pvdm/source-row-hash/v1"
    SOURCE_COMMITMENT = "pvdm/source-commitment/v1"


def _read_fingerprints(fields: Fields, key: str) -> tuple[tuple[ProjectionName, bytes], ...]:
    found = dict(fields.pairs(key))
    return tuple((name, bytes.fromhex(found[name.value] or "")) for name in ProjectionName if name.value in found)


_Hash: TypeAlias = Annotated[bytes, FieldType(lambda fields, key: bytes.fromhex(fields.text(key)), bytes.hex)]
Fingerprints: TypeAlias = Annotated[
    tuple[tuple[ProjectionName, bytes], ...],
    FieldType(_read_fingerprints, lambda pairs: {name.value: fingerprint.hex() for name, fingerprint in pairs}),
]


@dataclass(frozen=True, slots=True)
class AttemptContext(Document, title="the context of an attempt's keys"):
    """The facts that an attempt's keys are bound to. None of them is secret."""

    row_hash_purpose: ClassVar[Purpose] = Purpose.ROW_HASH
    commitment_purpose: ClassVar[Purpose] = Purpose.COMMITMENT
    holder: ClassVar[str] = "an attempt"  # what the keys are for, in error messages

    epoch: UncheckedDecimalText  # a number; text in JSON
    workload_id: str
    chunk_id: str
    attempt_id: str
    nonce: str
    mode: Mode
    fingerprints: Fingerprints  # the schema fingerprint of each projection
    intent_root: _Hash  # the hash over the frozen files of the source
    staged_root: _Hash  # the hash over the frozen staged files

    def require_consistent(self) -> None:
        """Raise `context_invalid` unless every field can be part of a key."""
        _require_fields(self)

    @property
    def projections(self) -> tuple[ProjectionName, ...]:
        """The projections that have a key, in order."""
        return tuple(name for name, _ in self.fingerprints)

    def message(self, purpose: Purpose, projection: ProjectionName) -> bytes:
        """The 33 bytes whose HMAC under the epoch's root key is the derived key (spec/keys.md section 2)."""
        attempt = (bytes.fromhex(self.attempt_id), bytes.fromhex(self.nonce))
        holder_fields = (self.workload_id.encode(), self.chunk_id.encode(), *attempt)
        return _build_message(self, purpose, projection, holder_fields, (self.intent_root, self.staged_root))

    @classmethod
    def parse(cls, document: Value) -> AttemptContext:
        """The context that `to_json` wrote. Raises `context_invalid` for any other document."""
        context: AttemptContext | None = None
        with suppress(InputError, ValueError):
            context = cls.from_json(document)
        # The documents are compared, because `bytes.fromhex` also accepts upper-case digits and spaces.
        if context is None or context.to_json() != document:
            raise _invalid("document", "what to_json writes", "another document")
        return context


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The facts that the keys of a source attestation are bound to: source snapshot, attestor and challenge."""

    row_hash_purpose: ClassVar[Purpose] = Purpose.SOURCE_ROW_HASH
    commitment_purpose: ClassVar[Purpose] = Purpose.SOURCE_COMMITMENT
    holder: ClassVar[str] = "a source attestation"  # what the keys are for, in error messages

    epoch: int
    catalog: str
    table_uuid: str
    snapshot_id: int
    attestor: str
    nonce: str
    mode: Mode
    fingerprints: Fingerprints

    def __post_init__(self) -> None:
        _require_fields(self)

    def message(self, purpose: Purpose, projection: ProjectionName) -> bytes:
        """The 33 bytes whose HMAC under the epoch's root key is the derived key (spec/keys.md section 3)."""
        table = (self.catalog.encode(), self.table_uuid.encode(), str(self.snapshot_id).encode())
        holder_fields = (*table, self.attestor.encode(), bytes.fromhex(self.nonce))
        return _build_message(self, purpose, projection, holder_fields)


def _build_message(
    context: AttemptContext | SourceContext,
    purpose: Purpose,
    projection: ProjectionName,
    holder_fields: tuple[bytes, ...],  # the fields that identify the attempt or the attestation
    freeze_roots: tuple[bytes, ...] = (),
) -> bytes:
    if purpose not in (context.row_hash_purpose, context.commitment_purpose):
        raise _invalid("purpose", f"a purpose of {context.holder}", purpose.value)
    fingerprint = dict(context.fingerprints).get(projection)
    if fingerprint is None:
        message, expected = "the context has no such projection", "a projection of the context"
        raise Code.PROJECTION_INVALID(message, reason="projection_unknown", expected=expected, got=projection.value)
    digest_fields = (projection.value.encode(), fingerprint, context.mode.value.encode())
    # A framed part has its length, so that two different lists never give the same bytes.
    joined = b"".join(map(framed, (purpose.value.encode(), *holder_fields, *digest_fields, *freeze_roots)))
    return hashlib.sha256(joined).digest() + _COUNTER


def _require_fields(context: AttemptContext | SourceContext) -> None:
    for field in fields(context):
        _require_field(field.name, getattr(context, field.name))


def _require_field(field: str, value: object) -> None:
    match field:
        case "epoch" | "snapshot_id":
            least = _LEAST[field]
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LONG_MAX:
                raise _invalid(field, f"{least} to 2^63-1", str(value)[:160])
        case "chunk_id" | "catalog":
            _require_text(field, value)
        case "mode":
            if not isinstance(value, Mode):
                raise _invalid("mode", "stored or portable", repr(value)[:160])
        case "fingerprints":
            _require_fingerprints(value)
        case "intent_root" | "staged_root":
            _require_hash(field, value)
        case _:
            pattern, expected = _PATTERNS[field]
            if not isinstance(value, str) or pattern.fullmatch(value) is None:
                raise _invalid(field, expected, repr(value)[:160])


def _require_text(field: str, text: object) -> None:
    expected = f"1 to {TEXT_MAX_BYTES} bytes of text without control characters"
    if not isinstance(text, str) or not text.strip() or _CONTROL.search(text):
        raise _invalid(field, expected, repr(text)[:160])
    size = len(text.encode())
    if size > TEXT_MAX_BYTES:
        raise _invalid(field, expected, f"{size} bytes")


def _require_hash(field: str, value: object) -> None:
    if not isinstance(value, bytes) or len(value) != _HASH_BYTES:
        raise _invalid(field, f"{_HASH_BYTES} bytes", f"{type(value).__name__} of another length")


def _require_fingerprints(fingerprints: object) -> None:
    expected = "identity, content or both, in this order"
    if not isinstance(fingerprints, tuple) or not fingerprints:
        raise _invalid("fingerprints", expected, "none")
    names = [name for name, _ in fingerprints]
    if names != [name for name in ProjectionName if name in names]:
        raise _invalid("fingerprints", expected, ", ".join(map(str, names))[:160])
    for name, fingerprint in fingerprints:
        _require_hash(f"fingerprint of {name.value}", fingerprint)


def _invalid(field: str, expected: str, got: str) -> InputError:
    return InputError(Code.CONTEXT_INVALID, f"{field} cannot be part of a key", expected=expected, got=got, field=field)
