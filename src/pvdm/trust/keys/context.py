"""Contexts of derived keys, and the message whose HMAC under the epoch's root is the key (spec/keys.md)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar, Final, TypeAlias

from pvdm.digest.plan import Mode, framed
from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import Value
from pvdm.model.fields import LONG_MAX, TEXT_MAX_BYTES
from pvdm.model.projection import ProjectionName

_COUNTER: Final = b"\x01"
_ROOT_BYTES: Final = 32
_RANDOM_ID: Final = (re.compile(r"[0-9a-f]{32}"), "32 lower-case hex digits")
_PATTERNS: Final = {
    "workload_id": (re.compile(r"[A-Za-z0-9._-]{1,128}"), "1 to 128 of A-Z a-z 0-9 . _ -"),
    "attempt_id": _RANDOM_ID,
    "nonce": _RANDOM_ID,
    "table_uuid": (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "a UUID in lower case"),
    "attestor": (re.compile(r"[a-z0-9][a-z0-9._@/:-]{0,127}"), "1 to 128 of a-z 0-9 . _ @ / : -"),
}
_LEAST: Final = {"epoch": 1, "snapshot_id": 0}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Purpose(Enum):
    """The purpose of a derived key. The value is the first field of its message."""

    ROW_HASH = "pvdm/row-hash/v1"
    COMMITMENT = "pvdm/commitment/v1"
    SOURCE_ROW_HASH = "pvdm/source-row-hash/v1"
    SOURCE_COMMITMENT = "pvdm/source-commitment/v1"


Fingerprints: TypeAlias = tuple[tuple[ProjectionName, bytes], ...]


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """Everything that an attempt's keys are bound to. It has the freeze roots, so it exists only after the freeze."""

    row_hash_purpose: ClassVar = Purpose.ROW_HASH
    commitment_purpose: ClassVar = Purpose.COMMITMENT
    holder: ClassVar = "an attempt"

    epoch: int
    workload_id: str
    chunk_id: str
    attempt_id: str
    nonce: str
    mode: Mode
    fingerprints: Fingerprints
    intent_root: bytes
    staged_root: bytes

    def __post_init__(self) -> None:
        _require_fields(self)

    @property
    def projections(self) -> tuple[ProjectionName, ...]:
        """The projections that have a key, in order."""
        return tuple(name for name, _ in self.fingerprints)

    def message(self, purpose: Purpose, projection: ProjectionName) -> bytes:
        """The 33 bytes whose HMAC under the epoch's root is the key (spec/keys.md section 2)."""
        attempt = (bytes.fromhex(self.attempt_id), bytes.fromhex(self.nonce))
        named = (self.workload_id.encode(), self.chunk_id.encode(), *attempt)
        return _message(self, purpose, projection, named, (self.intent_root, self.staged_root))

    def to_json(self) -> dict[str, Value]:
        """The context as a document. Nothing in it is secret."""
        return {
            "epoch": str(self.epoch),
            "workload_id": self.workload_id,
            "chunk_id": self.chunk_id,
            "attempt_id": self.attempt_id,
            "nonce": self.nonce,
            "mode": self.mode.value,
            "fingerprints": {name.value: fingerprint.hex() for name, fingerprint in self.fingerprints},
            "intent_root": self.intent_root.hex(),
            "staged_root": self.staged_root.hex(),
        }

    @classmethod
    def from_json(cls, document: Value) -> AttemptContext:
        """The context that `to_json` wrote. Raises `context_invalid` for any other document."""
        try:
            match document:
                case {"fingerprints": Mapping() as prints, **rest} if all(
                    isinstance(each, str) for each in rest.values()
                ):
                    texts = {str(name): str(text) for name, text in rest.items()}
                    names = [name for name in ProjectionName if name.value in prints]
                    context = cls(
                        epoch=int(texts.pop("epoch")),
                        mode=Mode(texts.pop("mode")),
                        fingerprints=tuple((name, bytes.fromhex(str(prints[name.value]))) for name in names),
                        intent_root=bytes.fromhex(texts.pop("intent_root")),
                        staged_root=bytes.fromhex(texts.pop("staged_root")),
                        **texts,
                    )
                    if context.to_json() == document:
                        return context
        except (KeyError, TypeError, ValueError):
            pass  # a key is missing or unknown, or a value cannot be read
        raise _invalid("document", "what to_json writes", "another document")


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Everything that the keys of a source attestation are bound to: source snapshot, attestor and challenge."""

    row_hash_purpose: ClassVar = Purpose.SOURCE_ROW_HASH
    commitment_purpose: ClassVar = Purpose.SOURCE_COMMITMENT
    holder: ClassVar = "a source attestation"

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
        """The 33 bytes whose HMAC under the epoch's root is the key (spec/keys.md section 3)."""
        table = (self.catalog.encode(), self.table_uuid.encode(), str(self.snapshot_id).encode())
        named = (*table, self.attestor.encode(), bytes.fromhex(self.nonce))
        return _message(self, purpose, projection, named)


def _message(
    context: AttemptContext | SourceContext,
    purpose: Purpose,
    projection: ProjectionName,
    named: tuple[bytes, ...],
    roots: tuple[bytes, ...] = (),
) -> bytes:
    if purpose not in (context.row_hash_purpose, context.commitment_purpose):
        raise _invalid("purpose", f"a purpose of {context.holder}", purpose.value)
    fingerprint = dict(context.fingerprints).get(projection)
    if fingerprint is None:
        message = "the context has no such projection"
        raise Code.PROJECTION_INVALID(
            message, reason="projection_unknown", expected="one of its own", got=projection.value
        )
    about = (projection.value.encode(), fingerprint, context.mode.value.encode())
    joined = join_fields(purpose.value.encode(), *named, *about, *roots)
    return hashlib.sha256(joined).digest() + _COUNTER


def join_fields(*fields: bytes) -> bytes:
    """The framed fields. Each has its length, so that two different lists never give the same bytes."""
    return b"".join(framed(field) for field in fields)


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
    if not isinstance(value, bytes) or len(value) != _ROOT_BYTES:
        raise _invalid(field, f"{_ROOT_BYTES} bytes", f"{type(value).__name__} of another length")


def _require_fingerprints(fingerprints: object) -> None:
    expected = "identity, content or both, in this order"
    if not isinstance(fingerprints, tuple) or not fingerprints:
        raise _invalid("fingerprints", expected, "none")
    order = list(ProjectionName)
    places = [order.index(name) if name in order else -1 for name, _ in fingerprints]
    if -1 in places or places != sorted(set(places)):
        raise _invalid("fingerprints", expected, ", ".join(str(name) for name, _ in fingerprints)[:160])
    for name, fingerprint in fingerprints:
        _require_hash(f"fingerprint of {name.value}", fingerprint)


def _invalid(field: str, expected: str, got: str) -> InputError:
    return InputError(Code.CONTEXT_INVALID, f"{field} cannot be part of a key", expected=expected, got=got, field=field)
