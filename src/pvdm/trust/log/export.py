"""Exports the log as static files that any reader of tiled logs understands: entry bundles, tiles, the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from pvdm.errors import Code
from pvdm.lake.stores.stores import FilePath
from pvdm.trust.log.checkpoint import Checkpoint, read_unverified
from pvdm.trust.log.disk import drop_leftovers, make_folders, replace_durably, sync_folder, write_atomically
from pvdm.trust.log.log import LogStorage
from pvdm.trust.log.merkle import Node, root_at
from pvdm.trust.log.tiles import ENTRIES_LEVEL, TILE_HEIGHT, TILE_WIDTH, Tile, pack_bundle, tile_at, tiles_between
from pvdm.trust.refusal import refused

CHECKPOINT_FILE: Final = "checkpoint"
_LEVELS: Final = 64  # more levels than a tree of 2^63 leaves has


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export: the size of the log, and the number of files written."""

    size: int
    files_written: int


def export(storage: LogStorage, folder: FilePath, *, verify: bool = False) -> ExportResult:
    """Bring the folder to the newest checkpoint. The checkpoint is written last, so that readers never miss a tile.

    Tiles that an earlier export wrote are compared, and written again if missing: with `verify` all of them, else only
    those at the tree's right edge.
    """
    note = storage.newest_checkpoint()
    if note is None:
        raise Code.LOG_EMPTY("the log has no checkpoint yet, so there is nothing to export")
    target = read_unverified(note).checkpoint
    make_folders(folder)
    drop_leftovers(folder)
    old_note: bytes | None = None
    with suppress(FileNotFoundError):
        old_note = (folder / CHECKPOINT_FILE).read_bytes()
    old_size = 0 if old_note is None else _require_earlier(storage, old_note, target)
    new = dict.fromkeys(tiles_between(old_size, target.size))
    compared = tiles_between(0, target.size) if verify else _right_edge(target.size)
    written = _write_tiles(storage, folder, new, existing_synced=False)
    written += _write_tiles(storage, folder, (tile for tile in compared if tile not in new), existing_synced=True)
    if old_note != note:
        replace_durably(folder / CHECKPOINT_FILE, old_note, note)
        written += 1
    _drop_partials(folder, old_size, target.size)
    return ExportResult(target.size, written)


def tile_bytes(storage: LogStorage, tile: Tile) -> bytes:
    """The bytes of one tile or entry bundle, from the storage."""
    first = tile.index * TILE_WIDTH
    if tile.level == ENTRIES_LEVEL:
        return pack_bundle(storage.read_entries(first, first + tile.width))
    level = tile.level * TILE_HEIGHT
    return b"".join(storage.read_hashes([Node(level, at) for at in range(first, first + tile.width)]))


def _require_earlier(storage: LogStorage, note: bytes, target: Checkpoint) -> int:
    """The size of the log in the folder. Raises unless the folder has this log in the same or an earlier state."""
    old = read_unverified(note).checkpoint
    if old.size > target.size:
        message = "the folder has a longer log than the one to be exported"
        raise refused(Code.LOG_BEHIND_CHECKPOINT, f"at least {old.size} entries", target.size, message=message)
    root = root_at(storage, old.size)
    if old.origin != target.origin or not compare_digest(root, old.root):
        raise Code.LOG_FORKED("the folder has another history", expected=f"root {old.root.hex()}", got=root.hex())
    return old.size


def _right_edge(size: int) -> Iterator[Tile]:
    """The last entry bundle, and the last tile of each level, full or not. The tree grows from them."""
    for level in range(ENTRIES_LEVEL, _LEVELS):
        count = size >> (TILE_HEIGHT * max(level, 0))
        if count == 0:
            return
        yield tile_at(size, level, (count - 1) // TILE_WIDTH)


def _write_tiles(storage: LogStorage, folder: FilePath, tiles: Iterable[Tile], *, existing_synced: bool) -> int:
    """Write missing tiles and compare the others. `existing_synced`: an earlier export has synced the existing ones."""
    written, unsynced = 0, set[FilePath]()
    for tile in tiles:
        path, data = folder / tile.path, tile_bytes(storage, tile)
        if not path.exists():
            make_folders(path.parent)
            write_atomically(path, data)
            written += 1
        else:
            if path.read_bytes() != data:
                expected = f"{tile.path} as the log has it"
                raise Code.TILE_INVALID(reason="export_conflict", expected=expected, got="other bytes")
            if existing_synced:
                continue
        unsynced.add(path.parent)
    # Unless `existing_synced`, these include the folders of existing tiles, which a crashed export may not have synced.
    for parent in unsynced:
        sync_folder(parent)
    return written


def _drop_partials(folder: FilePath, old_size: int, new_size: int) -> None:
    """Remove partial tiles whose full tile exists. Readers of older checkpoints use the full tile."""
    for tile in tiles_between(old_size, new_size):
        if tile.width != TILE_WIDTH:
            continue
        partials = folder / (tile.path + ".p")
        if partials.is_dir():
            for path in partials.iterdir():
                path.unlink()
            partials.rmdir()
