"""Checkpoints (c2sp.org/tlog-checkpoint): origin, size and root of the log as a signed note."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.log.merkle import EMPTY_ROOT, HASH_BYTES, TREE_SIZE_MAX
from pvdm.trust.log.note import NoteKey, decode_base64, encode_base64, open_note, sign_note, split_note
from pvdm.trust.refusal import refused

CHECKPOINT_EXTENSIONS_MAX: Final = 16
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Origin (the log's name), size and root hash of a log. Our log writes no extension lines; others may."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The text of the note to be signed."""
        lines = [self.origin, str(self.size), encode_base64(self.root), *self.extensions]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint with the exact note that was signed."""

    checkpoint: Checkpoint
    note: bytes


def sign_checkpoint(checkpoint: Checkpoint, signer: SigningKey) -> SignedCheckpoint:
    """The checkpoint as a signed note. The name of the key is the origin."""
    text = checkpoint.to_text()
    if parse_checkpoint(text) != checkpoint:
        raise Code.LOG_REQUEST_INVALID(reason="checkpoint_unwritable", got=text[:200])
    return SignedCheckpoint(checkpoint, sign_note(text, name=checkpoint.origin, signer=signer))


def open_checkpoint(note: bytes, *, origin: str, keys: Iterable[NoteKey]) -> SignedCheckpoint:
    """The checkpoint of a note. Raises unless one of `keys` signed the note and its origin is `origin`."""
    checkpoint = parse_checkpoint(open_note(note, keys))
    if checkpoint.origin != origin:
        raise refused(Code.CHECKPOINT_ORIGIN, origin, checkpoint.origin[:200])
    return SignedCheckpoint(checkpoint, note)


def read_unverified(note: bytes) -> SignedCheckpoint:
    """A note's checkpoint, its signature unchecked. The caller wrote the note, checks it, or shows it as unverified."""
    text, _ = split_note(note)
    return SignedCheckpoint(parse_checkpoint(text), note)


def parse_checkpoint(text: str) -> Checkpoint:
    """Parse the text of a checkpoint. Only the canonical form is accepted."""
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1] != "" or "" in lines[:-1]:
        expected, got = "at least three lines, none empty", f"{len(lines) - 1} lines"
        raise Code.CHECKPOINT_INVALID(reason="checkpoint_malformed", expected=expected, got=got)
    origin, size, root, *extensions = lines[:-1]
    if _SIZE.fullmatch(size) is None or int(size) > TREE_SIZE_MAX:
        raise Code.CHECKPOINT_INVALID(reason="checkpoint_size_malformed", got=size[:40])
    root_hash = decode_base64(root)
    if root_hash is None or len(root_hash) != HASH_BYTES:
        raise Code.CHECKPOINT_INVALID(reason="checkpoint_root_malformed", got=root[:80])
    if int(size) == 0 and root_hash != EMPTY_ROOT:
        message = "the root is not that of an empty log"
        raise refused("checkpoint_root_malformed", EMPTY_ROOT.hex(), root_hash.hex(), message=message)
    if len(extensions) > CHECKPOINT_EXTENSIONS_MAX:
        raise refused("checkpoint_extensions_too_many", f"at most {CHECKPOINT_EXTENSIONS_MAX}", len(extensions))
    return Checkpoint(origin, int(size), root_hash, tuple(extensions))
