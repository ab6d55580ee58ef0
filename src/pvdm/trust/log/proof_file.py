"""C2SP `tlog-proof` files: entry index, inclusion proof and checkpoint in one text that can be checked offline."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, VerificationError
from pvdm.trust.log.checkpoint import SignedCheckpoint, open_checkpoint
from pvdm.trust.log.merkle import HASH_BYTES, TREE_SIZE_MAX, InclusionProof
from pvdm.trust.log.note import NOTE_SIZE_MAX_BYTES, NoteKey, decode_base64
from pvdm.trust.log.proof import verify_inclusion

LOG_PROOF_SIZE_MAX_BYTES: Final = NOTE_SIZE_MAX_BYTES + 4_096
_HEADER: Final = "c2sp.org/tlog-proof@v1"
_INDEX: Final = re.compile(r"index (0|[1-9][0-9]{0,18})", re.ASCII)
_HASHES: Final = 64


@dataclass(frozen=True, slots=True)
class LogProof:
    """An inclusion proof with the note it leads to; parsed, not yet verified."""

    index: int
    hashes: tuple[bytes, ...]
    note: bytes

    def to_bytes(self) -> bytes:
        """The file."""
        lines = [_HEADER, f"index {self.index}", *(base64.b64encode(value).decode() for value in self.hashes)]
        return "\n".join(lines).encode() + b"\n\n" + self.note


def parse_log_proof(data: bytes) -> LogProof:
    """The parts of a file, judged by form alone; files with an `extra` line are not ours and refused."""
    if len(data) > LOG_PROOF_SIZE_MAX_BYTES:
        raise _malformed(f"at most {LOG_PROOF_SIZE_MAX_BYTES} bytes", str(len(data)))
    head, gap, note = data.partition(b"\n\n")
    lines = head.decode("ascii", "replace").split("\n")
    if not gap or lines[0] != _HEADER or len(lines) < 2:
        raise _malformed(_HEADER, lines[0][:80])
    index = _INDEX.fullmatch(lines[1])
    if index is None or int(index[1]) > TREE_SIZE_MAX or len(lines) - 2 > _HASHES:
        raise _malformed("`index N`, then hashes", lines[1][:80])
    hashes = []
    for line in lines[2:]:
        value = decode_base64(line)
        if value is None or len(value) != HASH_BYTES:
            raise _malformed("hashes in canonical base64", line[:80])
        hashes.append(value)
    return LogProof(int(index[1]), tuple(hashes), note)


def verify_log_proof(proof: LogProof, *, entry: bytes, origin: str, keys: Iterable[NoteKey]) -> SignedCheckpoint:
    """The checkpoint, once its signature and the entry's inclusion in it hold."""
    signed = open_checkpoint(proof.note, origin=origin, keys=keys)
    size, root = signed.checkpoint.size, signed.checkpoint.root
    verify_inclusion(InclusionProof(proof.index, size, proof.hashes), entry=entry, size=size, root=root)
    return signed


@dataclass(frozen=True, slots=True)
class LogProofChecker:
    """Knows one log by its origin and keys, and says whether a proof file shows an entry to be in it."""

    origin: str
    keys: tuple[NoteKey, ...]

    def require_included(self, leaf: bytes, inclusion: bytes) -> None:
        """Raise unless the leaf is in the tree of the signed checkpoint that the file carries."""
        verify_log_proof(parse_log_proof(inclusion), entry=leaf, origin=self.origin, keys=self.keys)


def _malformed(expected: str, got: str) -> VerificationError:
    return VerificationError(Code.LOG_PROOF_MALFORMED, "the log proof is malformed", expected=expected, got=got)
