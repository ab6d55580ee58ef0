"""Checks an exported log (spec/log.md) by its files alone. Shares no code with the writer except `pvdm.errors`."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from pvdm.errors import Code, VerificationError

_NOTE_BYTES: Final = 131_072  # of a signed note, at most
_SIGNATURE_LINES: Final = 64  # of a signed note, at most
_EXTENSION_LINES: Final = 16  # of a checkpoint, at most
_BUNDLE_BYTES: Final = 256 * (2 + 65_535)  # 256 entries, each after two bytes of length
_TILE_BYTES: Final = 256 * 32  # 256 hashes
_ENTRIES: Final = -1  # the level of entry bundles
_TEMPORARY: Final = ".pvdm-new-"  # how names of files begin that a writer has not finished
_FILE: Final = re.compile(
    r"tile/(entries|[0-9]|[1-5][0-9]|6[0-3])/((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?", re.ASCII
)
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_ENTRY: Final = re.compile(rb'\{"kind":"[a-z]+(?:-[a-z]+)*","sha256":"[0-9a-f]{64}","time":(?:0|[1-9][0-9]{0,15})\}')
_SIGNATURE: Final = re.compile("\N{EM DASH} ([^\\s+]+) ([A-Za-z0-9+/]+={0,2})")
_VKEY: Final = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44,}={0,2})")


@dataclass(frozen=True, slots=True)
class Report:
    """A valid log. `files` counts the checkpoint too. Files beyond the checkpoint belong to a later, larger tree."""

    origin: str
    size: int
    root: str
    files: int
    files_beyond_checkpoint: int


class _Checkpoint(NamedTuple):
    origin: str
    size: int
    root: bytes


@dataclass(slots=True)
class _Peaks:
    """The roots of the complete subtrees over the leaves so far: one for each binary digit 1 of their `count`."""

    count: int = 0
    roots: list[bytes] = field(default_factory=list)

    def add(self, leaf: bytes) -> None:
        carry, rest = leaf, self.count
        while rest % 2 == 1:
            carry = _node_hash(self.roots.pop(), carry)
            rest //= 2
        self.roots.append(carry)
        self.count += 1

    def root(self) -> bytes:
        total = None
        for peak in reversed(self.roots):
            total = peak if total is None else _node_hash(peak, total)
        return sha256(b"").digest() if total is None else total


# The widths of the files by level (-1 for entries) and tile number, narrowest first. A full tile has width 256.
_FileWidths = dict[int, dict[int, list[int]]]


def fsck(folder: Path, vkeys: Sequence[str], *, since: bytes | None = None) -> Report:
    """Check every file of an exported log. Raises for the first fault, and names its file.

    `vkeys` are the log's verifier keys. `since` is an earlier checkpoint, with which the log must still begin.
    """
    keys = [_parse_vkey(text) for text in vkeys]
    checkpoint = _open_checkpoint(_read(folder, "checkpoint", _NOTE_BYTES), keys, "checkpoint")
    checkpoints = [checkpoint]  # the earlier one first
    if since is not None:
        earlier = _open_checkpoint(since, keys, "since")
        checkpoints.insert(0, earlier)
        if earlier.origin != checkpoint.origin:
            _fail("fsck_origin", "since", "the earlier checkpoint is of another log", checkpoint.origin, earlier.origin)
        if earlier.size > checkpoint.size:
            sizes = str(earlier.size), str(checkpoint.size)
            _fail("fsck_behind", "checkpoint", "the log is shorter than at the earlier checkpoint", *sizes)
    file_widths = _list_files(folder)
    covered = _require_all_files(file_widths, checkpoint.size)
    full_roots = _check_leaves(folder, file_widths, checkpoints)
    for level in range(1, 64):
        full_roots = _check_level(folder, level, file_widths.get(level, {}), full_roots)
    files = sum(len(widths) for level_widths in file_widths.values() for widths in level_widths.values())
    return Report(checkpoint.origin, checkpoint.size, checkpoint.root.hex(), files + 1, files - covered)


# The checkpoint.


class _Key(NamedTuple):
    name: str
    key_id: bytes
    public: Ed25519PublicKey | ec.EllipticCurvePublicKey


def _parse_vkey(text: str) -> _Key:
    match = _VKEY.fullmatch(text)
    raw = _base64(match[3]) if match is not None else None
    public = _load_key(raw) if raw else None
    if match is None or raw is None or public is None:
        raise Code.LOG_REQUEST_INVALID(reason="fsck_vkey", expected="name+id+key", got=text[:200])
    # The key id hashes name and key for type 1 (Ed25519), and the key alone for type 2 (ECDSA).
    hashed = match[1].encode() + b"\n" + raw if raw[0] == 1 else raw[1:]
    key_id = sha256(hashed).digest()[:4]
    if key_id.hex() != match[2]:
        message = "the verifier key has another id"
        raise Code.LOG_REQUEST_INVALID(message, reason="fsck_vkey", expected=key_id.hex(), got=match[2])
    return _Key(match[1], key_id, public)


def _load_key(raw: bytes) -> Ed25519PublicKey | ec.EllipticCurvePublicKey | None:
    if raw[0] == 1 and len(raw) == 33:
        return Ed25519PublicKey.from_public_bytes(raw[1:])
    if raw[0] == 2:
        try:
            key = load_der_public_key(raw[1:])
        except ValueError:
            return None
        if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
            return key
    return None


def _open_checkpoint(note: bytes, keys: Sequence[_Key], place: str) -> _Checkpoint:
    """Verify the note's signature, then parse its text. `place` names the checkpoint in errors."""
    try:
        text, _, block = note.decode().rpartition("\n\n")
    except UnicodeDecodeError as error:
        _fail("fsck_checkpoint_malformed", place, "the checkpoint is not UTF-8", "UTF-8", error.reason)
    if any(ord(char) < 32 and char != "\n" for char in text + block) or not block.endswith("\n"):
        _fail("fsck_checkpoint_malformed", place, "the checkpoint is malformed", "a signed note", "something else")
    lines = block.split("\n")[:-1]
    if len(lines) > _SIGNATURE_LINES:
        most = f"at most {_SIGNATURE_LINES}"
        _fail("fsck_checkpoint_malformed", place, "there are too many signature lines", most, str(len(lines)))
    message = (text + "\n").encode()
    signed: set[tuple[str, bytes]] = set()
    for line in lines:
        match = _SIGNATURE.fullmatch(line)
        raw = _base64(match[2]) if match is not None else None
        if match is None or raw is None or len(raw) < 5:
            _fail("fsck_checkpoint_malformed", place, "a signature line is malformed", "name and base64", line[:80])
        signer = (match[1], raw[:4])
        if signer in signed:
            _fail("fsck_checkpoint_malformed", place, "one key has signed twice", "one line of each key", line[:80])
        for key in keys:
            if signer == (key.name, key.key_id):
                if not _is_signed(key, raw[4:], message):
                    _fail("fsck_signature", place, "the log key's signature does not verify", key.name, line[:80])
                signed.add(signer)
    if not signed:
        _fail_unknown_key(text, block, keys, place)
    return _parse_checkpoint(text, {name for name, _ in signed}, place)


def _fail_unknown_key(text: str, block: str, keys: Sequence[_Key], place: str) -> NoReturn:
    """Raise the error that names the known keys, and the log and the keys of the note."""
    wanted = dict.fromkeys(f"{key.name}+{key.key_id.hex()}" for key in keys)
    found = (_SIGNATURE.fullmatch(line) for line in block.split("\n")[:-1])
    signed = dict.fromkeys(f"{each[1]}+{(_base64(each[2]) or b'')[:4].hex()}" for each in found if each)
    origin = text.partition("\n")[0][:200]
    hint = "perhaps the trust root is older than the key: fetch the newest (`pvdm keys root fetch`)"
    if origin not in {key.name for key in keys}:
        hint = "the log has another name than the keys: a trust root must name it and its keys first"
    message = f"{place}: no known key has signed the checkpoint of {origin}"
    expected, got = " or ".join(wanted)[:400], ", ".join(signed)[:400]
    raise Code.FSCK_FAILED(message, reason="fsck_key", expected=expected, got=got, hint=hint, place=place)


def _parse_checkpoint(text: str, names: set[str], place: str) -> _Checkpoint:
    lines = text.split("\n")
    if len(lines) < 3 or not all(lines) or _NUMBER.fullmatch(lines[1]) is None or int(lines[1]) >= 1 << 63:
        _fail("fsck_checkpoint_malformed", place, "the checkpoint is malformed", "origin, size, root", text[:80])
    if len(lines) > 3 + _EXTENSION_LINES:
        most = f"at most {_EXTENSION_LINES}"
        _fail("fsck_checkpoint_malformed", place, "there are too many extension lines", most, str(len(lines) - 3))
    root = _base64(lines[2])
    if root is None or len(root) != 32:
        _fail("fsck_checkpoint_malformed", place, "the checkpoint's root is malformed", "32 bytes", lines[2][:80])
    if lines[0] not in names:
        _fail("fsck_origin", place, "the checkpoint's origin is not the key's name", " or ".join(names), lines[0][:200])
    return _Checkpoint(lines[0], int(lines[1]), root)


def _is_signed(key: _Key, signature: bytes, message: bytes) -> bool:
    try:
        if isinstance(key.public, Ed25519PublicKey):
            key.public.verify(signature, message)
        else:
            key.public.verify(signature, message, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


# The files.


def _list_files(folder: Path) -> _FileWidths:
    """The tiles and bundles in the folder. Raises for a file that is no part of a log."""
    file_widths: _FileWidths = {}
    for parent, folders, files in os.walk(folder, onerror=_raise_unreadable):
        folders.sort()
        for name in sorted(folders + files):
            path = Path(parent, name)
            place = path.relative_to(folder).as_posix()
            if path.is_symlink():
                _fail("fsck_file_unexpected", place, "a symbolic link is no part of a log", "a file", "a link")
            if name in folders or place == "checkpoint" or name.startswith(_TEMPORARY):
                continue
            match = _FILE.fullmatch(place)
            if match is None or int(match[3] or 1) > 255 or re.match("x000/", match[2]):
                _fail("fsck_file_unexpected", place, "this file is no part of a log", "tiles and bundles", place)
            level = _ENTRIES if match[1] == "entries" else int(match[1])
            index = int("".join(re.findall("[0-9]+", match[2])))
            file_widths.setdefault(level, {}).setdefault(index, []).append(int(match[3] or 256))
    for level_widths in file_widths.values():
        for widths in level_widths.values():
            widths.sort()
    return file_widths


def _raise_unreadable(error: OSError) -> NoReturn:
    message = f"the folder cannot be read: {error.strerror}"
    raise Code.LOG_REQUEST_INVALID(message, reason="fsck_folder", got=str(error.filename))


def _require_all_files(file_widths: _FileWidths, size: int) -> int:
    """Require each tile of a tree of `size` entries, with the tree's width or the full one. Counts the tree's files."""
    for level in range(_ENTRIES, 8):  # level 8 has no tile for a size below 2^63
        count = size // 256 ** max(level, 0)
        for index in range((count + 255) // 256):
            wanted = min(256, count - 256 * index)  # the width that the tile has in a tree of `size` entries
            if not {wanted, 256} & set(file_widths.get(level, {}).get(index, [])):
                place = _place(level, index, wanted)
                _fail("fsck_file_missing", place, "the checkpoint needs a file that is not there", place, "nothing")
    covered = 0
    for level, level_widths in file_widths.items():
        count = size // 256 ** max(level, 0)
        covered += sum(1 for index, widths in level_widths.items() for width in widths if 256 * index + width <= count)
    return covered


def _place(level: int, index: int, width: int) -> str:
    """The path of a tile or bundle under the log's folder."""
    parts = [f"{index % 1000:03d}"]
    while index >= 1000:
        index //= 1000
        parts.insert(0, f"x{index % 1000:03d}")
    suffix = "" if width == 256 else f".p/{width}"
    return f"tile/{'entries' if level == _ENTRIES else level}/{'/'.join(parts)}{suffix}"


def _read(folder: Path, place: str, size_max: int) -> bytes:
    try:
        descriptor = os.open(folder / place, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(size_max + 1)
    except FileNotFoundError:
        _fail("fsck_file_missing", place, "a file of the log is not there", place, "nothing")
    except OSError as error:
        _fail("fsck_file_unreadable", place, "a file of the log cannot be read", "a file", error.strerror or "an error")
    if len(data) > size_max:
        _fail("fsck_file_too_large", place, "a file of the log is too large", f"{size_max} bytes", "more")
    return data


# Entries, leaf hashes, and the root.


def _check_leaves(folder: Path, file_widths: _FileWidths, checkpoints: Sequence[_Checkpoint]) -> dict[int, bytes]:
    """Hash every entry and compare with the tiles of level 0 and the signed roots. Returns the roots of full tiles."""
    bundles, tiles = file_widths.get(_ENTRIES, {}), file_widths.get(0, {})
    peaks, full_roots, size = _Peaks(), dict[int, bytes](), checkpoints[-1].size
    _check_roots(peaks, checkpoints)
    for index in sorted(bundles | tiles):
        entries = _check_bundle(folder, index, bundles[index]) if index in bundles else []
        stored = _check_tile(folder, 0, index, tiles[index]) if index in tiles else []
        for at, entry in enumerate(entries):
            leaf = sha256(b"\x00" + entry).digest()
            number, place = 256 * index + at, _place(_ENTRIES, index, bundles[index][-1])
            if at < len(stored) and stored[at] != leaf:
                tile = _place(0, index, tiles[index][-1])
                what = f"entry {number} does not have the hash that {tile} gives it"
                _fail("fsck_entry_hash", place, what, stored[at].hex(), leaf.hex(), number)
            if _ENTRY.fullmatch(entry) is None:
                what = f"entry {number} is not a log entry"
                _fail("fsck_entry_form", place, what, "kind, sha256, time", "other", number)
            if number < size:
                peaks.add(leaf)
                _check_roots(peaks, checkpoints)
        if len(stored) == 256:
            full_roots[index] = _tree_root(stored)
    return full_roots


def _check_roots(peaks: _Peaks, checkpoints: Sequence[_Checkpoint]) -> None:
    """Compare the root of the leaves so far with each checkpoint whose size is their number."""
    for checkpoint in checkpoints:
        if peaks.count == checkpoint.size and peaks.root() != checkpoint.root:
            code, place = ("fsck_root", "checkpoint") if checkpoint is checkpoints[-1] else ("fsck_forked", "since")
            what = f"the first {checkpoint.size} entries do not have the root that was signed"
            _fail(code, place, what, checkpoint.root.hex(), peaks.root().hex())


def _check_bundle(folder: Path, index: int, widths: Sequence[int]) -> list[bytes]:
    """Compare the bundle's files of these widths. Returns the entries of the widest one."""
    whole: list[bytes] = []
    for width in reversed(widths):
        place = _place(_ENTRIES, index, width)
        data, at = _read(folder, place, _BUNDLE_BYTES), 0
        entries: list[bytes] = []
        while at + 2 <= len(data) and len(entries) < width:
            length = data[at] * 256 + data[at + 1]
            entries.append(data[at + 2 : at + 2 + length])
            at += 2 + length
        if at != len(data) or len(entries) != width:
            _fail("fsck_bundle_malformed", place, "the bundle is malformed", f"{width} entries", f"{len(entries)}")
        whole = whole or entries
        if whole[:width] != entries:
            _fail("fsck_partial", place, "a partial bundle is not the beginning of the wider one", "the same", "other")
    return whole


# Tiles.


def _check_tile(folder: Path, level: int, index: int, widths: Sequence[int]) -> list[bytes]:
    """Compare the tile's files of these widths. Returns the hashes of the widest one."""
    whole: list[bytes] = []
    for width in reversed(widths):
        place = _place(level, index, width)
        data = _read(folder, place, _TILE_BYTES)
        if len(data) != width * 32:
            _fail("fsck_tile_length", place, "the tile has the wrong length", f"{width * 32} bytes", str(len(data)))
        hashes = [data[at : at + 32] for at in range(0, len(data), 32)]
        whole = whole or hashes
        if whole[:width] != hashes:
            _fail("fsck_partial", place, "a partial tile is not the beginning of the wider one", "the same", "other")
    return whole


def _check_level(
    folder: Path, level: int, level_widths: dict[int, list[int]], below: dict[int, bytes]
) -> dict[int, bytes]:
    """Compare each hash with the root of the full tile below it (`below`). Returns the roots of full tiles."""
    full_roots = {}
    for index in sorted(level_widths):
        stored = _check_tile(folder, level, index, level_widths[index])
        place = _place(level, index, level_widths[index][-1])
        for at, value in enumerate(stored):
            child = 256 * index + at
            if child not in below:
                missing = _place(level - 1, child, 256)
                _fail("fsck_file_missing", missing, f"{place} needs a tile that is missing", missing, "nothing")
            if below[child] != value:
                what = f"hash {at} is not that of {_place(level - 1, child, 256)}"
                _fail("fsck_node_hash", place, what, below[child].hex(), value.hex())
        if len(stored) == 256:
            full_roots[index] = _tree_root(stored)
    return full_roots


def _tree_root(hashes: Sequence[bytes]) -> bytes:
    """The root over these hashes. Their number is a power of two."""
    while len(hashes) > 1:
        hashes = [_node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes), 2)]
    return hashes[0]


def _node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def _base64(text: str) -> bytes | None:
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    return raw if base64.standard_b64encode(raw).decode() == text else None


def _fail(code: str, place: str, message: str, expected: str, got: str, entry: int | None = None) -> NoReturn:
    error = VerificationError(code, f"{place}: {message}", expected=expected, got=got, place=place)
    if entry is not None:
        error.details["entry"] = entry
    raise error
