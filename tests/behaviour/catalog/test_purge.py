"""Purging removes a dropped table's own files, follows no link, and leaves whatever another table may need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pvdm.catalog import purge
from pvdm.catalog.purge import Purge
from pvdm.lake.format.manifest_list import ListHeader
from pvdm.lake.format.manifest_list_write import write_manifest_list
from pvdm.lake.format.manifest_write import write_manifest
from pvdm.lake.paths import parse_location
from pvdm.store import tables
from tests.catalog_examples import OPERATOR, Core, core_in, to_ref
from tests.lake_metadata_examples import statistics
from tests.manifest_examples import data_file, entry, header, listed


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        yield made


def dropped(core: Core, name: str = "gone") -> Path:
    """The folder of a table that was dropped, with a data file in it."""
    row = core.table(name, shown=False, protected=False).row
    core.ledger.transact(lambda unit: tables.drop(unit, row), at_micros=core.micros)
    place = parse_location(row.location).local
    (place / "data").mkdir(parents=True)
    (place / "data" / "a.parquet").write_text("rows")
    return place


def run(core: Core, place: Path) -> bool:
    return Purge(core.ledger, core.states, core.warehouse, parse_location(str(place))).run()


def other(core: Core, *files: str) -> tuple[Path, Path]:
    """A live table whose one snapshot holds these files; gives its manifest list and its manifest."""
    base = core.table("other", shown=False, protected=False).metadata
    place = parse_location(base.location).local / "metadata"
    place.mkdir(parents=True)
    manifest, manifest_list = place / "m.avro", place / "snap.avro"
    manifest.write_bytes(write_manifest(header(), [entry(file=data_file(file)) for file in files]).data)
    head = ListHeader(format_version=2, snapshot_id=7, sequence_number=1)
    made = listed(str(manifest), added_files_count=len(files), sequence_number=1, min_sequence_number=1)
    manifest_list.write_bytes(write_manifest_list(head, [made]).data)
    core.commit(
        "other",
        to_ref("main", core.snapshot(base, snapshot_id=7, **{"manifest-list": f"file://{manifest_list}"})),
        by=OPERATOR,
    )
    return manifest_list, manifest


def test_the_folder_of_a_dropped_table_goes_and_nothing_beside_it(core: Core) -> None:
    place, beside = dropped(core), dropped(core, "beside")
    other(core, "file:///elsewhere/a.parquet")
    assert run(core, place)
    assert (place.exists(), beside.exists(), list(place.parent.glob(".pvdm-*"))) == (False, True, [])


@pytest.mark.parametrize(
    "spelled", ["{}/data/a.parquet", "file:{}/data/a.parquet", "file://localhost{}//data/a.parquet"]
)
def test_a_file_that_another_tables_manifest_names_stays_however_it_is_spelled(core: Core, spelled: str) -> None:
    place = dropped(core)
    other(core, "file:///elsewhere/b.parquet", spelled.format(place))
    assert not run(core, place)
    assert (place / "data" / "a.parquet").read_text() == "rows"


NAMED: dict[str, Callable[[Core, Path], None]] = {
    "a manifest list": lambda core, place: planted(core, **{"manifest-list": f"file://{place}/snap.avro"}),
    "statistics": lambda core, place: planted_statistics(core, f"file://{place}/s.puffin"),
}


def planted(core: Core, **changes: str) -> None:
    """A live table, as an operator registers one whose files lie elsewhere."""
    base = core.table("other", shown=False, protected=False).metadata
    core.commit("other", to_ref("main", core.snapshot(base, snapshot_id=7, **changes)), by=OPERATOR)


def planted_statistics(core: Core, path: str) -> None:
    other(core)
    said = statistics(7) | {"statistics-path": path}
    core.commit("other", [{"action": "set-statistics", "snapshot-id": 7, "statistics": said}], by=OPERATOR)


@pytest.mark.parametrize("what", NAMED)
def test_a_file_that_another_tables_document_names_stays(core: Core, what: str) -> None:
    place = dropped(core)
    NAMED[what](core, place)
    assert not run(core, place)
    assert place.is_dir()


@pytest.mark.parametrize("spoilt", ["gone", "damaged", "a pipe", "a link", "too many"])
def test_what_cannot_be_decided_is_not_removed(core: Core, spoilt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = dropped(core)
    _, manifest = other(core, "file:///elsewhere/b.parquet")
    copy = manifest.with_name("copy.avro")
    copy.write_bytes(manifest.read_bytes())
    match spoilt:
        case "gone":
            manifest.unlink()
        case "damaged":
            manifest.write_bytes(b"Obj\x01 and no more")
        case "a pipe":
            manifest.unlink()
            os.mkfifo(manifest)
        case "a link":
            manifest.unlink()
            manifest.symlink_to(copy)
        case _:
            monkeypatch.setattr(purge, "PURGE_FILES_READ_MAX", 1)
    assert not run(core, place)
    assert place.is_dir()


def test_a_link_inside_goes_and_what_it_leads_to_stays(core: Core) -> None:
    place, beside = dropped(core), dropped(core, "beside")
    (place / "data" / "folder").symlink_to(beside)
    (place / "data" / "file").symlink_to(beside / "data" / "a.parquet")
    assert run(core, place)
    assert (beside / "data" / "a.parquet").read_text() == "rows"


@pytest.mark.parametrize("depth", ["the folder itself", "a folder above"])
def test_a_place_behind_a_link_is_not_purged(core: Core, depth: str) -> None:
    place, beside = dropped(core), dropped(core, "beside")
    moved = place if depth == "the folder itself" else place.parent
    real = moved.with_name("real")
    moved.rename(real)
    moved.symlink_to(real if depth == "a folder above" else beside)
    assert not run(core, place)
    assert len(list(real.rglob("a.parquet"))) == (2 if depth == "a folder above" else 1)
    assert (beside / "data" / "a.parquet").read_text() == "rows"


@pytest.mark.parametrize(
    "where", ["warehouse", "warehouse/sales", "elsewhere", "warehouse/nothing", "warehouse/" + "x" * 300]
)
def test_no_place_but_a_tables_own_folder_in_the_warehouse_is_purged(core: Core, where: str) -> None:
    core.table("live", shown=False)
    dropped(core)
    (core.folder / "elsewhere").mkdir()
    assert not run(core, core.folder / where)
    assert (core.folder / "elsewhere").is_dir()
    assert list(core.warehouse.local.rglob("a.parquet"))


def test_a_table_that_comes_back_meanwhile_gets_its_files_back(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    place = dropped(core)
    looked: list[bool] = []
    really = Purge._may_be_needed

    def and_then_back(self: Purge) -> bool:
        if looked:
            core.table("gone", shown=False, protected=False)
        looked.append(place.exists())
        return really(self)

    monkeypatch.setattr(Purge, "_may_be_needed", and_then_back)
    assert not run(core, place)
    assert (looked, (place / "data" / "a.parquet").read_text()) == ([True, False], "rows")
