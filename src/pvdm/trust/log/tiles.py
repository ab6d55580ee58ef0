"""Tiles of height 8 (c2sp.org/tlog-tiles) and entry bundles: their paths, which ones a tree has, and reading them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, VerificationError
from pvdm.lake.stores.stores import FilePath
from pvdm.trust.log.entry import ENTRY_SIZE_MAX_BYTES
from pvdm.trust.log.merkle import HASH_BYTES, TREE_SIZE_MAX, Node, fold

TILE_HEIGHT: Final = 8
TILE_WIDTH: Final = 1 << TILE_HEIGHT
ENTRIES_LEVEL: Final = -1
_LEVELS: Final = 64  # more levels than a tree of 2^63 leaves has
_WIDTH: Final = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
_PATH: Final = re.compile(
    r"tile/(?P<level>entries|0|[1-9][0-9]?)/(?P<index>(?:x[0-9]{3}/)*[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """`width` hashes of tree level `8 * level`, from hash `index * 256` on. Level -1 is a bundle of entries."""

    level: int
    index: int
    width: int = TILE_WIDTH

    @property
    def path(self) -> str:
        """The path of the tile under the log's folder."""
        *groups, last = f"{self.index:,}".split(",")
        name = "/".join([*(f"x{group:0>3}" for group in groups), f"{last:0>3}"])
        level = "entries" if self.level == ENTRIES_LEVEL else str(self.level)
        return f"tile/{level}/{name}" + ("" if self.width == TILE_WIDTH else f".p/{self.width}")


def parse_path(path: str) -> Tile:
    """The tile of a path. Other spellings of the same numbers are refused."""
    match = _PATH.fullmatch(path)
    if match is not None:
        level = ENTRIES_LEVEL if match["level"] == "entries" else int(match["level"])
        index = int(match["index"].replace("/", "").replace("x", ""))
        tile = Tile(level, index, int(match["width"] or TILE_WIDTH))
        if level < _LEVELS and tile.width <= TILE_WIDTH and index <= TREE_SIZE_MAX and tile.path == path:
            return tile
    raise Code.LOG_REQUEST_INVALID(reason="tile_path_invalid", got=path[:200])


def tiles_between(old_size: int, new_size: int) -> Iterator[Tile]:
    """The tiles and bundles of a tree of `new_size` that a tree of `old_size` lacks, bundles first."""
    for level in range(ENTRIES_LEVEL, _LEVELS):
        shift = TILE_HEIGHT * max(level, 0)
        old, new = old_size >> shift, new_size >> shift
        if new == 0:
            return
        if old == new:
            continue
        for index in range(old >> TILE_HEIGHT, new >> TILE_HEIGHT):
            yield Tile(level, index)
        if new % TILE_WIDTH:
            yield Tile(level, new >> TILE_HEIGHT, new % TILE_WIDTH)


def tile_at(size: int, level: int, index: int) -> Tile:
    """The tile with this level and index in a tree of `size` leaves."""
    count = size >> (TILE_HEIGHT * max(level, 0))
    width = min(count - index * TILE_WIDTH, TILE_WIDTH)
    if width <= 0:
        message, got = "the tree has no such tile", f"{level}/{index}"
        raise Code.LOG_REQUEST_INVALID(message, reason="tile_path_invalid", expected=f"size {size}", got=got)
    return Tile(level, index, width)


def pack_bundle(entries: Iterable[bytes]) -> bytes:
    """An entry bundle: each entry after its length as two big-endian bytes."""
    parts = []
    for entry in entries:
        if len(entry) > ENTRY_SIZE_MAX_BYTES:
            most = f"at most {ENTRY_SIZE_MAX_BYTES} bytes"
            raise Code.LOG_REQUEST_INVALID(reason="log_entry_too_large", expected=most, got=str(len(entry)))
        parts += [len(entry).to_bytes(2, "big"), entry]
    return b"".join(parts)


def unpack_bundle(data: bytes, *, width: int) -> list[bytes]:
    """The entries of a bundle, which must have exactly `width` of them."""
    entries, at = [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            raise _bundle_malformed(width, f"an entry cut short at byte {at}")
        entries.append(data[at + 2 : end])
        at = end
    if len(entries) != width:
        raise _bundle_malformed(width, f"{len(entries)} entries")
    return entries


class StaticTiles:
    """Reads hashes and entries of a tree of a known size from exported files. The files are not trusted."""

    def __init__(self, folder: FilePath, size: int) -> None:
        self._folder = folder
        self._size = size

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """Each node's hash, computed from the stored hashes below the node, which are all in one tile."""
        tiles: dict[Tile, bytes] = {}
        return [self._hash(node, tiles) for node in nodes]

    def read_entries(self, start: int, end: int) -> list[bytes]:
        """The entries from `start` up to, but without, `end`, from the bundles."""
        found: list[bytes] = []
        for index in range(start // TILE_WIDTH, -(-end // TILE_WIDTH)):
            tile = tile_at(self._size, ENTRIES_LEVEL, index)
            data, width = self._load(tile)
            first = index * TILE_WIDTH
            entries = unpack_bundle(data, width=width)[: tile.width]
            found += entries[max(start - first, 0) : end - first]
        return found

    def _hash(self, node: Node, tiles: dict[Tile, bytes]) -> bytes:
        level, height = divmod(node.level, TILE_HEIGHT)
        first = node.offset << height
        tile = tile_at(self._size, level, first // TILE_WIDTH)
        if tile not in tiles:
            data, width = self._load(tile)
            if len(data) != width * HASH_BYTES:
                message, expected = f"the tile {tile.path} has the wrong length", f"{width * HASH_BYTES} bytes"
                raise Code.TILE_INVALID(message, reason="tile_malformed", expected=expected, got=str(len(data)))
            tiles[tile] = data
        at = (first % TILE_WIDTH) * HASH_BYTES
        part = tiles[tile][at : at + (HASH_BYTES << height)]
        return _subtree_root([part[i : i + HASH_BYTES] for i in range(0, len(part), HASH_BYTES)])

    def _load(self, tile: Tile) -> tuple[bytes, int]:
        """The file's bytes and its width. A file that is wider than the tile begins with the tile's bytes."""
        for width in (tile.width, *self._wider(tile), TILE_WIDTH):
            try:
                return (self._folder / Tile(tile.level, tile.index, width).path).read_bytes(), width
            except FileNotFoundError:
                continue
        raise Code.TILE_INVALID(reason="tile_missing", expected=f"{tile.path}, or a wider one", got="none")

    def _wider(self, tile: Tile) -> list[int]:
        """The larger partial widths in the folder. Each export writes partial tiles only for its own tree size."""
        partials = self._folder / (Tile(tile.level, tile.index).path + ".p")
        if not partials.is_dir():
            return []
        found = (int(path.name) for path in partials.iterdir() if _WIDTH.fullmatch(path.name))
        return sorted(width for width in found if tile.width < width < TILE_WIDTH)


def _subtree_root(hashes: list[bytes]) -> bytes:
    while len(hashes) > 1:
        hashes = [fold(hashes[at : at + 2]) for at in range(0, len(hashes), 2)]
    return hashes[0]


def _bundle_malformed(width: int, got: str) -> VerificationError:
    return VerificationError("bundle_malformed", "the entry bundle is malformed", expected=f"{width} entries", got=got)
