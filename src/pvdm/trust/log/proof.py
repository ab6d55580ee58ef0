"""Verification of inclusion and consistency proofs by RFC 9162's loops, which share no code with how they are made."""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest

from pvdm.errors import VerificationError
from pvdm.trust.log.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    TREE_SIZE_MAX,
    ConsistencyProof,
    InclusionProof,
    leaf_hash,
    node_hash,
)


def verify_inclusion(proof: InclusionProof, *, entry: bytes, size: int, root: bytes) -> None:
    """The tree with this size and root, as a checkpoint names them, holds `entry` at the proof's index, or an error."""
    if proof.size != size:
        raise _refused("inclusion_size", "the inclusion proof is for a tree of another size", size, proof.size)
    if not 0 <= proof.index < size <= TREE_SIZE_MAX:
        raise _refused("inclusion_index", "the tree has no such entry", f"an index below {size}", proof.index)
    _require_hashes("inclusion_malformed", proof.hashes)
    at, last, value = proof.index, size - 1, leaf_hash(entry)
    for sibling in proof.hashes:
        if last == 0:
            raise _length("inclusion_length", "inclusion")
        if at & 1 or at == last:
            value = node_hash(sibling, value)
            at, last = _climb(at, last)
        else:
            value = node_hash(value, sibling)
        at, last = at >> 1, last >> 1
    if last != 0:
        raise _length("inclusion_length", "inclusion")
    if not compare_digest(value, root):
        raise _refused("inclusion_root", "the entry is not in the tree at this index", root.hex(), value.hex())


def verify_consistency(
    proof: ConsistencyProof, *, old_size: int, old_root: bytes, new_size: int, new_root: bytes
) -> None:
    """The tree with the new size and root begins with the tree of the old size and root, or an error."""
    if (proof.old_size, proof.new_size) != (old_size, new_size):
        raise _refused(
            "consistency_size",
            "the consistency proof is for trees of other sizes",
            f"{old_size} and {new_size}",
            f"{proof.old_size} and {proof.new_size}",
        )
    if not 0 <= old_size <= new_size <= TREE_SIZE_MAX:
        raise _refused("consistency_order", "the older tree is larger", f"at most {new_size}", old_size)
    _require_hashes("consistency_malformed", proof.hashes)
    if old_size in (0, new_size):
        _verify_trivial(proof, old_root, new_root)
        return
    path = list(proof.hashes)
    if old_size & (old_size - 1) == 0:
        path.insert(0, old_root)
    old, new = _run(path, old_size - 1, new_size - 1)
    # The new root first: where it holds, every hash of the proof belongs to the new tree, and the old root is at fault.
    if not compare_digest(new, new_root):
        raise _refused("consistency_new_root", "the proof does not lead to the newer root", new_root.hex(), new.hex())
    if not compare_digest(old, old_root):
        raise _refused("consistency_old_root", "the proof does not lead to the older root", old_root.hex(), old.hex())


def _verify_trivial(proof: ConsistencyProof, old_root: bytes, new_root: bytes) -> None:
    if proof.hashes:
        raise _length("consistency_length", "consistency")
    known = new_root if proof.old_size == proof.new_size else EMPTY_ROOT
    if not compare_digest(old_root, known):
        raise _refused("consistency_old_root", "the older root is another one", known.hex(), old_root.hex())


def _run(path: Sequence[bytes], at: int, last: int) -> tuple[bytes, bytes]:
    """The old and the new root that a proof leads to (RFC 9162 section 2.1.4.2, steps 4 to 6)."""
    if not path:
        raise _length("consistency_length", "consistency")
    while at & 1:
        at, last = at >> 1, last >> 1
    old = new = path[0]
    for value in path[1:]:
        if last == 0:
            raise _length("consistency_length", "consistency")
        if at & 1 or at == last:
            old, new = node_hash(value, old), node_hash(value, new)
            at, last = _climb(at, last)
        else:
            new = node_hash(new, value)
        at, last = at >> 1, last >> 1
    if last != 0:
        raise _length("consistency_length", "consistency")
    return old, new


def _climb(at: int, last: int) -> tuple[int, int]:
    while not at & 1 and at != 0:
        at, last = at >> 1, last >> 1
    return at, last


def _require_hashes(code: str, hashes: Sequence[bytes]) -> None:
    for value in hashes:
        if len(value) != HASH_BYTES:
            raise _refused(code, "a hash of the proof has the wrong length", f"{HASH_BYTES} bytes", len(value))


def _length(code: str, what: str) -> VerificationError:
    return VerificationError(code, f"the {what} proof has more or fewer hashes than the sizes ask for")


def _refused(code: str, message: str, expected: str | int, got: str | int) -> VerificationError:
    return VerificationError(code, message, expected=str(expected), got=str(got))
