"""Contexts of derived keys, and the message whose HMAC under the epoch's root is the key (spec/keys.md)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, TypeAlias

from pvdm.digest.plan import Mode, framed
from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import Value
from pvdm.model.fields import LONG_MAX, TEXT_MAX_BYTES
from pvdm.model.projection import ProjectionName

_COUNTER: Final = b"\x01"
_ROOT_BYTES: Final = 32
_WORKLOAD_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_RANDOM_ID: Final = re.compile(r"[0-9a-f]{32}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_IDENTITY: Final = re.compile(r"[a-z0-9][a-z0-9._@/:-]{0,127}")
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

    row_hash: ClassVar = Purpose.ROW_HASH
    commitment: ClassVar = Purpose.COMMITMENT

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
        _judge_long("epoch", self.epoch, least=1)
        _judge_match("workload_id", self.workload_id, _WORKLOAD_ID, "1 to 128 of A-Z a-z 0-9 . _ -")
        _judge_text("chunk_id", self.chunk_id)
        _judge_match("attempt_id", self.attempt_id, _RANDOM_ID, "32 lower-case hex digits")
        _judge_match("nonce", self.nonce, _RANDOM_ID, "32 lower-case hex digits")
        _judge_mode(self.mode)
        _judge_fingerprints(self.fingerprints)
        _judge_hash("intent_root", self.intent_root)
        _judge_hash("staged_root", self.staged_root)

    @property
    def projections(self) -> tuple[ProjectionName, ...]:
        """The projections that have a key, in order."""
        return tuple(name for name, _ in self.fingerprints)

    def message(self, purpose: Purpose, projection: ProjectionName) -> bytes:
        """The 33 bytes whose HMAC under the epoch's root is the key (spec/keys.md section 2)."""
        if purpose not in (self.row_hash, self.commitment):
            raise _invalid("purpose", "a purpose of an attempt", purpose.value)
        return _message(
            purpose.value.encode(),
            self.workload_id.encode(),
            self.chunk_id.encode(),
            bytes.fromhex(self.attempt_id),
            bytes.fromhex(self.nonce),
            projection.value.encode(),
            _fingerprint(self.fingerprints, projection),
            self.mode.value.encode(),
            self.intent_root,
            self.staged_root,
        )

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
                case {
                    "epoch": str(epoch),
                    "workload_id": str(workload_id),
                    "chunk_id": str(chunk_id),
                    "attempt_id": str(attempt_id),
                    "nonce": str(nonce),
                    "mode": str(mode),
                    "fingerprints": Mapping() as fingerprints,
                    "intent_root": str(intent_root),
                    "staged_root": str(staged_root),
                    **rest,
                } if not rest:
                    context = cls(
                        epoch=int(epoch),
                        workload_id=workload_id,
                        chunk_id=chunk_id,
                        attempt_id=attempt_id,
                        nonce=nonce,
                        mode=Mode(mode),
                        fingerprints=tuple(
                            (name, bytes.fromhex(str(fingerprints[name.value])))
                            for name in ProjectionName
                            if name.value in fingerprints
                        ),
                        intent_root=bytes.fromhex(intent_root),
                        staged_root=bytes.fromhex(staged_root),
                    )
                    if context.to_json() == document:
                        return context
        except ValueError:
            pass
        raise _invalid("document", "what to_json writes", "another document")


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Everything that the keys of a source attestation are bound to: source snapshot, attestor and challenge."""

    row_hash: ClassVar = Purpose.SOURCE_ROW_HASH
    commitment: ClassVar = Purpose.SOURCE_COMMITMENT

    epoch: int
    catalog: str
    table_uuid: str
    snapshot_id: int
    attestor: str
    nonce: str
    mode: Mode
    fingerprints: Fingerprints

    def __post_init__(self) -> None:
        _judge_long("epoch", self.epoch, least=1)
        _judge_text("catalog", self.catalog)
        _judge_match("table_uuid", self.table_uuid, _UUID, "a UUID in lower case")
        _judge_long("snapshot_id", self.snapshot_id, least=0)
        _judge_match("attestor", self.attestor, _IDENTITY, "1 to 128 of a-z 0-9 . _ @ / : -")
        _judge_match("nonce", self.nonce, _RANDOM_ID, "32 lower-case hex digits")
        _judge_mode(self.mode)
        _judge_fingerprints(self.fingerprints)

    @property
    def projections(self) -> tuple[ProjectionName, ...]:
        """The projections that have a key, in order."""
        return tuple(name for name, _ in self.fingerprints)

    def message(self, purpose: Purpose, projection: ProjectionName) -> bytes:
        """The 33 bytes whose HMAC under the epoch's root is the key (spec/keys.md section 3)."""
        if purpose not in (self.row_hash, self.commitment):
            raise _invalid("purpose", "a purpose of a source attestation", purpose.value)
        return _message(
            purpose.value.encode(),
            self.catalog.encode(),
            self.table_uuid.encode(),
            str(self.snapshot_id).encode(),
            self.attestor.encode(),
            bytes.fromhex(self.nonce),
            projection.value.encode(),
            _fingerprint(self.fingerprints, projection),
            self.mode.value.encode(),
        )


def _message(*fields: bytes) -> bytes:
    return hashlib.sha256(join_fields(*fields)).digest() + _COUNTER


def join_fields(*fields: bytes) -> bytes:
    """The framed fields. Each has its length, so that two different lists never give the same bytes."""
    return b"".join(framed(field) for field in fields)


def _fingerprint(fingerprints: Fingerprints, projection: ProjectionName) -> bytes:
    for name, fingerprint in fingerprints:
        if name is projection:
            return fingerprint
    raise Code.PROJECTION_INVALID(
        "the context has no such projection",
        reason="projection_unknown",
        expected="one of its own",
        got=projection.value,
    )


def _judge_long(field: str, number: object, *, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= LONG_MAX:
        raise _invalid(field, f"{least} to 2^63-1", str(number)[:160])


def _judge_match(field: str, text: object, pattern: re.Pattern[str], expected: str) -> None:
    if not isinstance(text, str) or pattern.fullmatch(text) is None:
        raise _invalid(field, expected, repr(text)[:160])


def _judge_text(field: str, text: object) -> None:
    expected = f"1 to {TEXT_MAX_BYTES} bytes of text without control characters"
    if not isinstance(text, str) or not text.strip() or _CONTROL.search(text):
        raise _invalid(field, expected, repr(text)[:160])
    size = len(text.encode())
    if size > TEXT_MAX_BYTES:
        raise _invalid(field, expected, f"{size} bytes")


def _judge_mode(mode: object) -> None:
    if not isinstance(mode, Mode):
        raise _invalid("mode", "stored or portable", repr(mode)[:160])


def _judge_hash(field: str, value: object) -> None:
    if not isinstance(value, bytes) or len(value) != _ROOT_BYTES:
        raise _invalid(field, f"{_ROOT_BYTES} bytes", f"{type(value).__name__} of another length")


def _judge_fingerprints(fingerprints: object) -> None:
    expected = "identity, content or both, in this order"
    if not isinstance(fingerprints, tuple) or not fingerprints:
        raise _invalid("fingerprints", expected, "none")
    order = list(ProjectionName)
    places = [order.index(name) if name in order else -1 for name, _ in fingerprints]
    if -1 in places or places != sorted(set(places)):
        raise _invalid("fingerprints", expected, ", ".join(str(name) for name, _ in fingerprints)[:160])
    for name, fingerprint in fingerprints:
        _judge_hash(f"fingerprint of {name.value}", fingerprint)


def _invalid(field: str, expected: str, got: str) -> InputError:
    return InputError(Code.CONTEXT_INVALID, f"{field} cannot be part of a key", expected=expected, got=got, field=field)
