"""Partial digests: digests of some of the rows, combined only under the same keys and plan (spec/digest.md 4)."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from pvdm.digest.plan import KEY_CHECK_BYTES, ByteReader, Construction, Mode, framed
from pvdm.errors import Code, PvdmError
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import EPOCH_MAX

_MAGIC: Final = b"pvdm\x01"
_MODULUS: Final = 1 << 256
_FINGERPRINT_BYTES: Final = 32
ROW_COUNT_MAX: Final = 2**63 - 1
_NAME_MAX_BYTES: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """The digest of some or all rows: their number, and the sum of their hashes, which is secret and not printed."""

    epoch: int
    construction: Construction
    mode: Mode
    projection: ProjectionName
    fingerprint: bytes
    key_check: bytes
    rows: int
    total: int = field(repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.epoch <= EPOCH_MAX:
            raise Code.EPOCH_INVALID(expected=f"0 to {EPOCH_MAX}", got=str(self.epoch))
        if not 0 <= self.rows <= ROW_COUNT_MAX:
            expected, got = f"at most {ROW_COUNT_MAX}", str(self.rows)
            raise Code.DIGESTER_MISUSED(reason="row_count_overflow", expected=expected, got=got)
        if len(self.fingerprint) != _FINGERPRINT_BYTES or len(self.key_check) != KEY_CHECK_BYTES:
            raise _malformed("32 bytes of fingerprint and 16 of key check", "other lengths")
        if not 0 <= self.total < _MODULUS or (self.rows == 0 and self.total):
            raise _malformed("a sum below 2^256, zero for no rows", "another sum")

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("digests are compared with matches(), in constant time")

    def __hash__(self) -> NoReturn:
        raise TypeError("digests are secrets and not hashed")

    def __reduce__(self) -> NoReturn:
        raise TypeError("digests are secrets and not pickled; Steward workers report to_bytes()")

    def to_bytes(self) -> bytes:
        """The bytes that Steward workers report."""
        names = (self.construction.value, self.mode.value, self.projection.value)
        head = _MAGIC + self.epoch.to_bytes(8, "big") + b"".join(framed(name.encode()) for name in names)
        sums = self.rows.to_bytes(8, "big") + self.total.to_bytes(32, "big")
        return head + self.fingerprint + self.key_check + sums

    @classmethod
    def from_bytes(cls, data: bytes) -> Partial:
        """The partial that `to_bytes` wrote; raises `partial_malformed` for anything else."""
        reader = ByteReader(bytes(data), _malformed)
        if reader.take(len(_MAGIC)) != _MAGIC:
            raise _malformed("the magic bytes of version 1", "other bytes")
        epoch = reader.number(8)
        try:
            construction, mode = Construction(_read_name(reader)), Mode(_read_name(reader))
            projection = ProjectionName(_read_name(reader))
        except ValueError as error:
            raise _malformed("a known name", str(error)) from None
        fingerprint, check = reader.take(_FINGERPRINT_BYTES), reader.take(KEY_CHECK_BYTES)
        rows, total = reader.number(8), reader.number(32)
        if left := len(reader.rest()):
            raise _malformed("nothing after the sum", f"{left} bytes")
        return cls(epoch, construction, mode, projection, fingerprint, check, rows, total)

    def require_alike(self, other: Partial) -> None:
        """Raise unless both were made under one epoch, construction, mode, projection, schema and key."""
        if not isinstance(other, Partial):
            message, got = "this is no partial digest", type(other).__name__
            raise Code.PARTIAL_MISMATCH(message, reason="partial_missing", expected="a Partial", got=got)
        theirs = other._origin()
        for name, ours in self._origin().items():
            if ours != theirs[name]:
                message = f"these partial digests do not belong together: the {name} differs"
                hint, reason = "both sides need one plan and one attempt's keys", f"partial_{name}_mismatch"
                raise Code.PARTIAL_MISMATCH(message, reason=reason, expected=ours, got=theirs[name], hint=hint)

    def _origin(self) -> dict[str, str]:
        """The values that must be equal in partials to be combined, by NAME of the reason `partial_NAME_mismatch`."""
        return {
            "epoch": str(self.epoch),
            "construction": self.construction.value,
            "mode": self.mode.value,
            "projection": self.projection.value,
            "schema": self.fingerprint.hex(),
            "key": self.key_check.hex(),
        }

    def matches(self, other: Partial) -> bool:
        """Whether both are of the same multiset of rows. Raises for partials that do not belong together."""
        self.require_alike(other)
        same_sum = hmac.compare_digest(self.total.to_bytes(32, "big"), other.total.to_bytes(32, "big"))
        return same_sum and self.rows == other.rows


def combine(partials: Iterable[Partial]) -> Partial:
    """The digest of all rows of these partials together."""
    first: Partial | None = None
    rows = total = 0
    for partial in partials:
        first = partial if first is None else first
        first.require_alike(partial)
        rows += partial.rows
        total = (total + partial.total) % _MODULUS
    if first is None:
        message, expected = "there is nothing to combine", "at least one partial digest"
        raise Code.PARTIAL_MISMATCH(message, reason="partial_missing", expected=expected, got="none")
    return replace(first, rows=rows, total=total)


def combine_each(parts: Sequence[Mapping[ProjectionName, Partial]]) -> dict[ProjectionName, Partial]:
    """For each projection the digest of all rows together; there must be at least one mapping."""
    return {name: combine(partials[name] for partials in parts) for name in parts[0]}


def _malformed(expected: str, got: str) -> PvdmError:
    return Code.PARTIAL_MISMATCH(reason="partial_malformed", expected=expected, got=got)


def _read_name(reader: ByteReader) -> str:
    size = reader.number(1)
    if size > _NAME_MAX_BYTES:
        raise _malformed(f"a name of at most {_NAME_MAX_BYTES} bytes", str(size))
    return reader.take(size).decode("ascii", errors="replace")
