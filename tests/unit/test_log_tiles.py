"""Tiles of the log: their paths, bundles of entries, and hashes that are read from tiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from pvdm.errors import InputError, VerificationError
from pvdm.trust.log.export import export
from pvdm.trust.log.merkle import Node, prove_consistency, prove_inclusion, root_at
from pvdm.trust.log.tiles import (
    ENTRIES_LEVEL,
    StaticTiles,
    Tile,
    pack_bundle,
    parse_path,
    tile_at,
    tiles_between,
    unpack_bundle,
)
from tests.support.for_each import for_each
from tests.support.ledger.log_storage import entries, filled_log, log_grown_to


@for_each(
    ("tile", "path"),
    [
        (Tile(0, 0), "tile/0/000"),
        (Tile(0, 1_234_067), "tile/0/x001/x234/067"),
        (Tile(1, 999), "tile/1/999"),
        (Tile(1, 1_000), "tile/1/x001/000"),
        (Tile(2, 0, 17), "tile/2/000.p/17"),
        (Tile(ENTRIES_LEVEL, 273, 112), "tile/entries/273.p/112"),
        (Tile(63, 0, 255), "tile/63/000.p/255"),
    ],
)
def test_a_tile_has_the_path_that_the_specification_gives_it(tile: Tile, path: str) -> None:
    assert tile.path == path
    assert parse_path(path) == tile


@for_each(
    "path",
    [
        "tile/64/000",
        "tile/00/000",
        "tile/-1/000",
        "tile/0/0",
        "tile/0/x000/001",
        "tile/0/001/000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/01",
        "tile/0/000/",
        "/tile/0/000",
        "tile/8/0/000/../000",
        "tile/0/٠٠٠",
    ],
)
def test_another_spelling_of_a_tile_path_is_refused(path: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_path(path)
    assert caught.value.reason == "tile_path_invalid"


def test_the_specification_s_example_of_70000_entries_has_these_tiles() -> None:
    tiles = list(tiles_between(0, 70_000))
    assert sum(tile.level == 0 and tile.width == 256 for tile in tiles) == 273
    assert [tile for tile in tiles if tile.level >= 0 and tile.width != 256] == [
        Tile(0, 273, 112),
        Tile(1, 1, 17),
        Tile(2, 0, 1),
    ]


def test_a_tree_of_256_has_a_full_tile_and_one_hash_above() -> None:
    assert [tile.path for tile in tiles_between(0, 256)] == ["tile/entries/000", "tile/0/000", "tile/1/000.p/1"]


def test_between_two_sizes_only_the_changed_tiles_are_listed() -> None:
    assert [tile.path for tile in tiles_between(300, 301)] == ["tile/entries/001.p/45", "tile/0/001.p/45"]


def test_a_tile_beyond_the_tree_is_refused() -> None:
    with pytest.raises(InputError):
        tile_at(256, 0, 1)


def test_the_entries_of_a_bundle_are_read_back() -> None:
    leaves = [b"", b"x", b"y" * 65_535]
    assert unpack_bundle(pack_bundle(leaves), width=3) == leaves


def test_an_entry_that_does_not_fit_its_length_prefix_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        pack_bundle([b"y" * 65_536])
    assert caught.value.reason == "log_entry_too_large"


@for_each(
    ("data", "width"),
    [(b"\x00\x01x", 2), (b"\x00\x01x\x00\x01y", 1), (b"\x00\x02x", 1), (b"\x00\x01x\x00", 2), (b"", 1)],
)
def test_a_bundle_of_another_width_or_cut_short_is_refused(data: bytes, width: int) -> None:
    with pytest.raises(VerificationError) as caught:
        unpack_bundle(data, width=width)
    assert caught.value.reason == "bundle_malformed"


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1_000])
def test_tiles_have_the_same_roots_and_proofs_as_the_storage(tmp_path: Path, size: int) -> None:
    storage, _ = filled_log(size)
    export(storage, tmp_path)
    tiles = StaticTiles(tmp_path, size)
    assert root_at(tiles, size) == root_at(storage, size)
    for index in {0, size // 2, size - 1}:
        assert prove_inclusion(tiles, index=index, size=size) == prove_inclusion(storage, index=index, size=size)
        assert prove_consistency(tiles, old_size=index, new_size=size) == prove_consistency(
            storage, old_size=index, new_size=size
        )


def test_hashes_above_a_full_tile_are_read_from_the_level_above(tmp_path: Path) -> None:
    storage, _ = filled_log(7_000)
    export(storage, tmp_path)
    nodes = [Node(3, 5), Node(8, 2), Node(9, 1), Node(12, 0)]
    assert list(StaticTiles(tmp_path, 7_000).read_hashes(nodes)) == list(storage.read_hashes(nodes))


def test_entries_are_read_back_from_bundles(tmp_path: Path) -> None:
    storage, _ = filled_log(600)
    export(storage, tmp_path)
    assert StaticTiles(tmp_path, 600).read_entries(250, 520) == storage.entries[250:520]


def test_an_older_tree_is_still_readable_after_its_partial_tiles_are_gone(tmp_path: Path) -> None:
    storage, log, _ = log_grown_to([300])
    export(storage, tmp_path)
    older = StaticTiles(tmp_path, 300)
    root = root_at(older, 300)
    log.append(entries(300, 600))
    export(storage, tmp_path)
    assert not (tmp_path / "tile/0/001.p").exists()
    assert root_at(older, 300) == root


def test_a_missing_tile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerificationError) as caught:
        StaticTiles(tmp_path, 10).read_hashes([Node(0, 3)])
    assert caught.value.reason == "tile_missing"


def test_a_tile_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tile/0/000.p").mkdir(parents=True)
    (tmp_path / "tile/0/000.p/10").write_bytes(b"\x00" * 319)
    with pytest.raises(VerificationError) as caught:
        StaticTiles(tmp_path, 10).read_hashes([Node(0, 3)])
    assert caught.value.reason == "tile_malformed"


def test_a_wider_tile_is_read_for_a_smaller_tree(tmp_path: Path) -> None:
    storage, _, (early, _) = log_grown_to([7, 100])
    export(storage, tmp_path)
    tiles = StaticTiles(tmp_path, early.checkpoint.size)
    assert root_at(tiles, 7) == early.checkpoint.root
    assert tiles.read_entries(0, 7) == storage.read_entries(0, 7)


def test_the_narrowest_tile_that_is_wide_enough_is_read(tmp_path: Path) -> None:
    storage, log, _ = log_grown_to([7, 100])
    export(storage, tmp_path)
    log.append(entries(100, 110))
    export(storage, tmp_path)
    (tmp_path / "tile/0/000.p/110").write_bytes(b"")
    (tmp_path / "tile/0/000.p/7x").write_bytes(b"")
    assert root_at(StaticTiles(tmp_path, 7), 7) == root_at(storage, 7)


def test_a_tile_that_is_too_narrow_is_refused_with_a_hint(tmp_path: Path) -> None:
    export(filled_log(7)[0], tmp_path)
    with pytest.raises(VerificationError) as caught:
        root_at(StaticTiles(tmp_path, 8), 8)
    assert (caught.value.reason, caught.value.expected) == ("tile_missing", "tile/0/000.p/8, or a wider one")
    assert caught.value.hint is not None
