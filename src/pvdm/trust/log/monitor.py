"""A monitor's question: are two checkpoints of one log two moments of one history, or a fork?"""

from __future__ import annotations

from dataclasses import dataclass
from hmac import compare_digest

from pvdm.errors import Code, InputError, VerificationError
from pvdm.trust.log.checkpoint import SignedCheckpoint
from pvdm.trust.log.merkle import ConsistencyProof, HashReader, prove_consistency, root_at
from pvdm.trust.log.proof import verify_consistency


@dataclass(frozen=True, slots=True)
class Consistent:
    """Two checkpoints of one history, with the proof of it."""

    older: SignedCheckpoint
    newer: SignedCheckpoint
    proof: ConsistencyProof


def compare(first: SignedCheckpoint, second: SignedCheckpoint, tiles: HashReader) -> Consistent:
    """The proof that both are of one history; `log_forked` if they are not, another code if the tiles cannot tell.

    Both checkpoints were opened with the log's key. `tiles` are those of the larger tree and are not trusted: what they
    say counts only as far as it leads to the newer root.
    """
    older, newer = sorted((first, second), key=lambda one: one.checkpoint.size)
    old, new = older.checkpoint, newer.checkpoint
    if old.origin != new.origin:
        raise InputError(Code.CHECKPOINT_ORIGIN, "the checkpoints are of two logs", expected=old.origin, got=new.origin)
    if old.size == new.size:
        if not compare_digest(old.root, new.root):
            raise _fork(older, newer, old.root)
        return Consistent(older, newer, ConsistencyProof(old.size, new.size, ()))
    found = root_at(tiles, new.size)
    if not compare_digest(found, new.root):
        raise _tiles_mismatch(new.root, found)
    proof = prove_consistency(tiles, old_size=old.size, new_size=new.size)
    genuine = root_at(tiles, old.size)
    try:
        verify_consistency(proof, old_size=old.size, old_root=genuine, new_size=new.size, new_root=new.root)
    except VerificationError as error:
        raise _tiles_mismatch(new.root, found) from error
    if not compare_digest(genuine, old.root):
        raise _fork(older, newer, genuine)
    return Consistent(older, newer, proof)


def _fork(older: SignedCheckpoint, newer: SignedCheckpoint, genuine: bytes) -> VerificationError:
    size = older.checkpoint.size
    return VerificationError(
        Code.LOG_FORKED,
        f"the log has signed two histories: they differ within the first {size} entries",
        expected=f"root {older.checkpoint.root.hex()} at {size}, as the older checkpoint says",
        got=f"{genuine.hex()} in the tree of the newer one"
        if newer.checkpoint.size > size
        else f"{newer.checkpoint.root.hex()} at {size}",
        hint="keep both checkpoints: together they prove it to anybody",
        older=older.note.decode(),
        newer=newer.note.decode(),
    )


def _tiles_mismatch(expected: bytes, got: bytes) -> VerificationError:
    return VerificationError(
        "tiles_mismatch",
        "the tiles are not those of the newer checkpoint, so nothing can be said about a fork",
        expected=f"root {expected.hex()}",
        got=got.hex(),
        hint="fetch the tiles again, from another mirror if there is one",
    )
