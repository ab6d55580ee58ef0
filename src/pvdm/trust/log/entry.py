"""The entries of the log: kind, SHA-256 and time of a signed envelope, without its content."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pvdm.errors import InputError
from pvdm.model import canonical_json
from pvdm.model.statements.kind import StatementKind

ENTRY_SIZE_MAX_BYTES: Final = 65_535
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry. `time` is in microseconds since the Unix epoch."""

    kind: StatementKind
    sha256: str
    time: int

    def __post_init__(self) -> None:
        if _SHA256.fullmatch(self.sha256) is None:
            raise _invalid("sha256: 64 lower-case hex digits", self.sha256[:80])
        if type(self.time) is not int or not 0 <= self.time <= canonical_json.INTEGER_MAX:
            raise _invalid("time: microseconds from 0 to 2^53 - 1", str(self.time)[:40])

    def to_bytes(self) -> bytes:
        """The leaf: canonical JSON."""
        return canonical_json.dump({"kind": str(self.kind), "sha256": self.sha256, "time": self.time})


def parse_entry(data: bytes) -> LogEntry:
    """The entry of a leaf. Any other spelling, field or kind is refused."""
    match canonical_json.parse(data, size_max_bytes=ENTRY_SIZE_MAX_BYTES):
        case {"kind": str(kind), "sha256": str(sha256), "time": int(time), **others} if not others:
            if kind not in set(StatementKind):
                raise _invalid("kind: one that spec/log.md lists", kind[:80])
            return LogEntry(StatementKind(kind), sha256, time)
        case _:
            raise _invalid("an object with kind, sha256 and time", "something else")


def _invalid(expected: str, got: str) -> InputError:
    return InputError("log_entry_invalid", "the log entry cannot be accepted", expected=expected, got=got)
