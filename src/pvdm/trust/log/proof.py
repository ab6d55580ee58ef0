"""Verifies log proofs: inclusion, consistency, `tlog-proof` files (c2sp.org), and two checkpoints of one log.

The loops are those of RFC 9162, section 2.1; `at` and `last` are the RFC's fn and sn. The loops share only
hash functions with `merkle`, which makes the proofs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from pvdm.errors import Code, InputError, PvdmError, VerificationError
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import SignedCheckpoint, open_checkpoint
from pvdm.trust.log.note import NOTE_SIZE_MAX_BYTES, NoteKey, decode_base64, encode_base64
from pvdm.trust.refusal import refused

LOG_PROOF_SIZE_MAX_BYTES: Final = NOTE_SIZE_MAX_BYTES + 4_096
_HEADER: Final = "c2sp.org/tlog-proof@v1"
_INDEX: Final = re.compile(r"index (0|[1-9][0-9]{0,18})", re.ASCII)
_HASHES: Final = 64  # no inclusion proof of a tree below 2^63 leaves has more


def verify_inclusion(proof: merkle.InclusionProof, *, entry: bytes, size: int, root: bytes) -> None:
    """Raise unless the tree with this size and root, as a checkpoint names them, has `entry` at the proof's index."""
    if proof.size != size:
        raise refused("inclusion_size", size, proof.size)
    if not 0 <= proof.index < size <= merkle.TREE_SIZE_MAX:
        raise refused("inclusion_index", f"an index below {size}", proof.index)
    _require_hashes("inclusion_malformed", proof.hashes)
    at, last, value = proof.index, size - 1, merkle.leaf_hash(entry)
    for sibling in proof.hashes:
        if last == 0:
            raise Code.INCLUSION_PROOF_INVALID(reason="inclusion_length")
        if at & 1 or at == last:
            value = merkle.node_hash(sibling, value)
            at, last = _climb_without_sibling(at, last)
        else:
            value = merkle.node_hash(value, sibling)
        at, last = at >> 1, last >> 1
    if last != 0:
        raise Code.INCLUSION_PROOF_INVALID(reason="inclusion_length")
    if not compare_digest(value, root):
        raise refused("inclusion_root", root.hex(), value.hex())


def verify_consistency(
    proof: merkle.ConsistencyProof, *, old_size: int, old_root: bytes, new_size: int, new_root: bytes
) -> None:
    """Raise unless the tree with the new size and root begins with the tree of the old size and root."""
    if (proof.old_size, proof.new_size) != (old_size, new_size):
        raise refused("consistency_size", f"{old_size} and {new_size}", f"{proof.old_size} and {proof.new_size}")
    if not 0 <= old_size <= new_size <= merkle.TREE_SIZE_MAX:
        raise refused("consistency_order", f"at most {new_size}", old_size)
    _require_hashes("consistency_malformed", proof.hashes)
    if old_size in (0, new_size):
        _verify_without_hashes(proof, old_root, new_root)
        return
    path = list(proof.hashes)
    if old_size & (old_size - 1) == 0:  # a power of two: then the proof leaves out the old root
        path.insert(0, old_root)
    old, new = _climb_to_roots(path, old_size - 1, new_size - 1)
    # The new root is compared first. If it matches, all hashes of the proof are right, so a difference at the old root
    # means that the old root itself is wrong.
    if not compare_digest(new, new_root):
        raise refused("consistency_new_root", new_root.hex(), new.hex())
    if not compare_digest(old, old_root):
        raise refused("consistency_old_root", old_root.hex(), old.hex())


def _verify_without_hashes(proof: merkle.ConsistencyProof, old_root: bytes, new_root: bytes) -> None:
    """For an old tree that is empty or the whole new tree: the proof has no hash, because the old root is known."""
    if proof.hashes:
        raise Code.CONSISTENCY_PROOF_INVALID(reason="consistency_length")
    expected = new_root if proof.old_size == proof.new_size else merkle.EMPTY_ROOT
    if not compare_digest(old_root, expected):
        raise refused("consistency_old_root", expected.hex(), old_root.hex(), message="the older root is wrong")


def _climb_to_roots(path: Sequence[bytes], at: int, last: int) -> tuple[bytes, bytes]:
    """The old and the new root that the hashes of a proof give (RFC 9162 section 2.1.4.2, steps 4 to 6)."""
    if not path:
        raise Code.CONSISTENCY_PROOF_INVALID(reason="consistency_length")
    while at & 1:
        at, last = at >> 1, last >> 1
    old = new = path[0]
    for value in path[1:]:
        if last == 0:
            raise Code.CONSISTENCY_PROOF_INVALID(reason="consistency_length")
        if at & 1 or at == last:
            old, new = merkle.node_hash(value, old), merkle.node_hash(value, new)
            at, last = _climb_without_sibling(at, last)
        else:
            new = merkle.node_hash(new, value)
        at, last = at >> 1, last >> 1
    if last != 0:
        raise Code.CONSISTENCY_PROOF_INVALID(reason="consistency_length")
    return old, new


def _climb_without_sibling(at: int, last: int) -> tuple[int, int]:
    """Climb while the node is a left child without a sibling: the proof has no hash for these levels."""
    while not at & 1 and at != 0:
        at, last = at >> 1, last >> 1
    return at, last


def _require_hashes(code: str, hashes: Sequence[bytes]) -> None:
    for value in hashes:
        if len(value) != merkle.HASH_BYTES:
            message = "a hash of the proof has the wrong length"
            raise refused(code, f"{merkle.HASH_BYTES} bytes", len(value), message=message)


@dataclass(frozen=True, slots=True)
class LogProof:
    """A proof file: entry index, inclusion proof, and checkpoint as a signed note. It is parsed, not verified."""

    index: int
    hashes: tuple[bytes, ...]
    note: bytes

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        lines = [_HEADER, f"index {self.index}", *(encode_base64(value) for value in self.hashes)]
        return "\n".join(lines).encode() + b"\n\n" + self.note


def parse_log_proof(data: bytes) -> LogProof:
    """Parse a proof file and check its form. A file with an `extra` line is refused, because this log writes none."""
    if len(data) > LOG_PROOF_SIZE_MAX_BYTES:
        raise _malformed(f"at most {LOG_PROOF_SIZE_MAX_BYTES} bytes", str(len(data)))
    head, gap, note = data.partition(b"\n\n")
    lines = head.decode("ascii", "replace").split("\n")
    if not gap or lines[0] != _HEADER or len(lines) < 2:
        raise _malformed(_HEADER, lines[0][:80])
    index = _INDEX.fullmatch(lines[1])
    if index is None or int(index[1]) > merkle.TREE_SIZE_MAX or len(lines) - 2 > _HASHES:
        raise _malformed("`index N`, then hashes", lines[1][:80])
    hashes = []
    for line in lines[2:]:
        value = decode_base64(line)
        if value is None or len(value) != merkle.HASH_BYTES:
            raise _malformed("hashes in canonical base64", line[:80])
        hashes.append(value)
    return LogProof(int(index[1]), tuple(hashes), note)


def verify_log_proof(proof: LogProof, *, entry: bytes, origin: str, keys: Iterable[NoteKey]) -> SignedCheckpoint:
    """The checkpoint, if its signature and the inclusion of the entry are valid."""
    signed = open_checkpoint(proof.note, origin=origin, keys=keys)
    size, root = signed.checkpoint.size, signed.checkpoint.root
    verify_inclusion(merkle.InclusionProof(proof.index, size, proof.hashes), entry=entry, size=size, root=root)
    return signed


@dataclass(frozen=True, slots=True)
class KnownLog:
    """Checks proof files of the log with this origin and these keys."""

    origin: str
    keys: tuple[NoteKey, ...]

    def require_included(self, entry: bytes, proof_file: bytes) -> None:
        """Raise unless the entry is in the tree of the file's signed checkpoint."""
        verify_log_proof(parse_log_proof(proof_file), entry=entry, origin=self.origin, keys=self.keys)


def _malformed(expected: str, got: str) -> VerificationError:
    return VerificationError("log_proof_malformed", "the log proof is malformed", expected=expected, got=got)


def require_same_history(first: SignedCheckpoint, second: SignedCheckpoint, tiles: merkle.HashReader) -> None:
    """Raise `log_forked` unless both checkpoints are of one history, or `tiles_mismatch` if the tiles are wrong.

    The caller has verified both checkpoints with the log's key. `tiles` are those of the larger tree. They are not
    trusted: their hashes must lead to the newer root.
    """
    older, newer = sorted((first, second), key=lambda signed: signed.checkpoint.size)
    old, new = older.checkpoint, newer.checkpoint
    if old.origin != new.origin:
        raise InputError(Code.CHECKPOINT_ORIGIN, "the checkpoints are of two logs", expected=old.origin, got=new.origin)
    if old.size == new.size:
        if not compare_digest(old.root, new.root):
            raise _fork_error(older, newer, new.root)
        return
    found = merkle.root_at(tiles, new.size)
    if not compare_digest(found, new.root):
        raise Code.TILE_INVALID(reason="tiles_mismatch", expected=f"root {new.root.hex()}", got=found.hex())
    proof = merkle.prove_consistency(tiles, old_size=old.size, new_size=new.size)
    old_root = merkle.root_at(tiles, old.size)
    try:
        verify_consistency(proof, old_size=old.size, old_root=old_root, new_size=new.size, new_root=new.root)
    except VerificationError as error:
        expected = f"a tree of {new.size} entries that begins with the tree of {old.size}"
        got = f"the right root, but a wrong consistency proof ({error.reason})"
        raise Code.TILE_INVALID(reason="tiles_mismatch", expected=expected, got=got) from error
    if not compare_digest(old_root, old.root):
        raise _fork_error(older, newer, old_root)


def _fork_error(older: SignedCheckpoint, newer: SignedCheckpoint, newer_root: bytes) -> PvdmError:
    """The error for two histories; `newer_root` is the newer tree's root at the older size."""
    size = older.checkpoint.size
    return Code.LOG_FORKED(
        f"the log has signed two histories: they differ within the first {size} entries",
        expected=f"root {older.checkpoint.root.hex()} at {size}, as the older checkpoint says",
        got=f"{newer_root.hex()} in the tree of the newer one",
        hint="keep both checkpoints: together they prove it",
        older=older.note.decode(),
        newer=newer.note.decode(),
    )
