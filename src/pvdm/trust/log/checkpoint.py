"""C2SP checkpoints: origin, size and root of the log as a signed note."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, VerificationError
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.log.merkle import EMPTY_ROOT, HASH_BYTES, TREE_SIZE_MAX
from pvdm.trust.log.note import NoteKey, decode_base64, open_note, sign_note, split_note

CHECKPOINT_EXTENSIONS_MAX: Final = 16
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The log at one size. This log writes no extension lines, and reads those of other logs."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The note's text."""
        lines = [self.origin, str(self.size), base64.b64encode(self.root).decode(), *self.extensions]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint with the exact note that was signed."""

    checkpoint: Checkpoint
    note: bytes


def sign_checkpoint(checkpoint: Checkpoint, signer: SigningKey) -> SignedCheckpoint:
    """The checkpoint as a note. The name of the key is the origin."""
    text = checkpoint.to_text()
    if parse_text(text) != checkpoint:
        raise Code.CHECKPOINT_UNWRITABLE(got=text[:200])
    return SignedCheckpoint(checkpoint, sign_note(text, name=checkpoint.origin, signer=signer))


def open_checkpoint(note: bytes, *, origin: str, keys: Iterable[NoteKey]) -> SignedCheckpoint:
    """The checkpoint of a note that a known key signed, of the log with this origin."""
    checkpoint = parse_text(open_note(note, keys))
    if checkpoint.origin != origin:
        raise VerificationError(
            Code.CHECKPOINT_ORIGIN,
            "the checkpoint is of another log",
            expected=origin,
            got=checkpoint.origin[:200],
        )
    return SignedCheckpoint(checkpoint, note)


def read_unverified(note: bytes) -> SignedCheckpoint:
    """The checkpoint of a note, without a check of its signature. The caller wrote the note or compares it."""
    text, _ = split_note(note)
    return SignedCheckpoint(parse_text(text), note)


def parse_text(text: str) -> Checkpoint:
    """Parse the text of a checkpoint. Only the canonical form is accepted."""
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1] != "" or "" in lines[:-1]:
        raise _malformed("at least three lines, none empty", f"{len(lines) - 1} lines")
    origin, size, root, *extensions = lines[:-1]
    if _SIZE.fullmatch(size) is None or int(size) > TREE_SIZE_MAX:
        raise Code.CHECKPOINT_INVALID(reason="checkpoint_size_malformed", got=size[:40])
    raw = decode_base64(root)
    if raw is None or len(raw) != HASH_BYTES:
        raise Code.CHECKPOINT_INVALID(
            "the checkpoint's root is malformed",
            reason="checkpoint_root_malformed",
            expected=f"{HASH_BYTES} bytes in canonical base64",
            got=root[:80],
        )
    if int(size) == 0 and raw != EMPTY_ROOT:
        raise Code.CHECKPOINT_INVALID(
            "an empty log has one root", reason="checkpoint_root_malformed", expected=EMPTY_ROOT.hex(), got=raw.hex()
        )
    if len(extensions) > CHECKPOINT_EXTENSIONS_MAX:
        raise Code.CHECKPOINT_INVALID(
            reason="checkpoint_extensions_too_many",
            expected=f"at most {CHECKPOINT_EXTENSIONS_MAX}",
            got=str(len(extensions)),
        )
    return Checkpoint(origin, int(size), raw, tuple(extensions))


def _malformed(expected: str, got: str) -> VerificationError:
    return VerificationError("checkpoint_malformed", "the checkpoint is malformed", expected=expected, got=got)
