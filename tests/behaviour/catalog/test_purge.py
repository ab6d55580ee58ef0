"""Purging removes a dropped table's own files, follows no link, and leaves whatever another table may need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pvdm.catalog import purge
from pvdm.catalog.purge import Leftover, Purge
from pvdm.errors import UnavailableError
from pvdm.lake.format.manifest.manifest_list import ListHeader
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.paths import parse_location
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from tests.support.catalog.core import OPERATOR, RISK, SALES, Core, core_in, to_ref
from tests.support.lake.manifests import data_file, entry, header, listed
from tests.support.lake.metadata import statistics


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        yield made


def drop_table(core: Core, name: str = "gone", levels: Levels = SALES) -> Path:
    """Create and drop a table; returns its folder, which has a data file."""
    row = core.table(name, levels=levels, shown=False, protected=False).row
    core.ledger.transact(lambda unit: tables.drop(unit, row), at_micros=core.micros)
    place = parse_location(row.location).local
    (place / "data").mkdir(parents=True)
    (place / "data" / "a.parquet").write_text("rows")
    return place


def run_purge(core: Core, place: Path, domain: str = "sales") -> Leftover | None:
    """Purge the place for the domain; returns what was left, and why."""
    return Purge(core.ledger, core.states, core.warehouse, parse_location(str(place)), domain).run()


def removes_everything(core: Core, place: Path, domain: str = "sales") -> bool:
    return run_purge(core, place, domain) is None


def make_other_table(core: Core, *files: str, levels: Levels = SALES) -> tuple[Path, Path]:
    """Make a live table whose one snapshot has these files; returns its manifest list and its manifest."""
    base = core.table("other", levels=levels, shown=False, protected=False).metadata
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
        levels=levels,
        by=OPERATOR,
    )
    return manifest_list, manifest


def test_the_folder_of_a_dropped_table_is_removed_and_nothing_beside_it(core: Core) -> None:
    place, beside = drop_table(core), drop_table(core, "beside")
    make_other_table(core, "file:///elsewhere/a.parquet")
    assert run_purge(core, place) is None
    assert (place.exists(), beside.exists(), list(place.parent.glob(".pvdm-*"))) == (False, True, [])


@pytest.mark.parametrize(
    "spelled", ["{}/data/a.parquet", "file:{}/data/a.parquet", "file://localhost{}//data/a.parquet"]
)
def test_a_file_that_another_tables_manifest_names_stays_however_it_is_spelled(core: Core, spelled: str) -> None:
    place = drop_table(core)
    make_other_table(core, "file:///elsewhere/b.parquet", spelled.format(place))
    assert not removes_everything(core, place)
    assert (place / "data" / "a.parquet").read_text() == "rows"


NAMED: dict[str, Callable[[Core, Path], None]] = {
    "a manifest list": lambda core, place: make_other_with(core, **{"manifest-list": f"file://{place}/snap.avro"}),
    "statistics": lambda core, place: make_other_with_statistics(core, f"file://{place}/s.puffin"),
}


def make_other_with(core: Core, **changes: str) -> None:
    """Make a live table whose snapshot has these fields, as an operator may register one with files elsewhere."""
    base = core.table("other", shown=False, protected=False).metadata
    core.commit("other", to_ref("main", core.snapshot(base, snapshot_id=7, **changes)), by=OPERATOR)


def make_other_with_statistics(core: Core, path: str) -> None:
    make_other_table(core)
    update = statistics(7) | {"statistics-path": path}
    core.commit("other", [{"action": "set-statistics", "snapshot-id": 7, "statistics": update}], by=OPERATOR)


@pytest.mark.parametrize("what", NAMED)
def test_a_file_that_another_tables_document_names_stays(core: Core, what: str) -> None:
    place = drop_table(core)
    NAMED[what](core, place)
    assert not removes_everything(core, place)
    assert place.is_dir()


@pytest.mark.parametrize("spoilt", ["gone", "damaged", "a pipe", "a link", "too many"])
def test_files_stay_if_another_tables_manifest_cannot_be_read(
    core: Core, spoilt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = drop_table(core)
    _, manifest = make_other_table(core, "file:///elsewhere/b.parquet")
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
    assert not removes_everything(core, place)
    assert place.is_dir()


def test_a_link_inside_is_removed_and_its_target_stays(core: Core) -> None:
    place, beside = drop_table(core), drop_table(core, "beside")
    (place / "data" / "folder").symlink_to(beside)
    (place / "data" / "file").symlink_to(beside / "data" / "a.parquet")
    assert removes_everything(core, place)
    assert (beside / "data" / "a.parquet").read_text() == "rows"


@pytest.mark.parametrize("depth", ["the folder itself", "a folder above"])
def test_a_place_behind_a_link_is_not_purged(core: Core, depth: str) -> None:
    place, beside = drop_table(core), drop_table(core, "beside")
    moved = place if depth == "the folder itself" else place.parent
    real = moved.with_name("real")
    moved.rename(real)
    moved.symlink_to(real if depth == "a folder above" else beside)
    assert not removes_everything(core, place)
    assert len(list(real.rglob("a.parquet"))) == (2 if depth == "a folder above" else 1)
    assert (beside / "data" / "a.parquet").read_text() == "rows"


@pytest.mark.parametrize(
    "where", ["warehouse", "warehouse/sales", "warehouse/sales/raw", "elsewhere", "warehouse/" + "x" * 300]
)
@pytest.mark.parametrize("live", [True, False])
def test_no_place_but_a_tables_own_folder_in_the_warehouse_is_purged(core: Core, where: str, live: bool) -> None:
    if live:
        core.table("live", shown=False)
    drop_table(core)
    (core.folder / "elsewhere").mkdir()
    assert not removes_everything(core, core.folder / where)
    assert (core.folder / "elsewhere").is_dir()
    assert list(core.warehouse.local.rglob("a.parquet"))


@pytest.mark.parametrize("written", [None, "data/new.parquet", "data/more/new.parquet"])
def test_a_table_that_comes_back_meanwhile_gets_its_files_back(
    core: Core, monkeypatch: pytest.MonkeyPatch, written: str | None
) -> None:
    place = drop_table(core)
    checks: list[bool] = []
    original_check = Purge._require_unneeded

    def bring_table_back(self: Purge) -> None:
        if checks:
            core.table("gone", shown=False, protected=False)
            if written is not None:
                (place / written).parent.mkdir(parents=True)
                (place / written).write_text("new rows")
        checks.append(place.exists())
        original_check(self)

    monkeypatch.setattr(Purge, "_require_unneeded", bring_table_back)
    assert run_purge(core, place) == Leftover(f"file://{place}", "a table lies there")
    assert (place / "data" / "a.parquet").read_text() == "rows"
    assert written is None or (place / written).read_text() == "new rows"
    assert (checks[0], list(place.parent.glob(".pvdm-*"))) == (True, [])


def test_files_that_cannot_be_moved_back_are_reported_and_stay(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    place = drop_table(core)
    checks: list[bool] = []

    def take_place(self: Purge) -> None:
        if checks:
            place.write_text("something else")
            raise purge._RefusedError("a table lies there")
        checks.append(True)

    monkeypatch.setattr(Purge, "_require_unneeded", take_place)
    leftover = run_purge(core, place)
    (aside,) = place.parent.glob(".pvdm-purged-*")
    assert leftover is not None
    assert (str(aside) in leftover.why, (aside / "data" / "a.parquet").read_text()) == (True, "rows")


def test_a_table_of_another_domain_does_not_stop_a_purge(core: Core) -> None:
    """Otherwise one branch with a missing manifest list would stop every purge of the catalog."""
    place = drop_table(core)
    manifest_list, _ = make_other_table(core, f"file://{place}/data/a.parquet", levels=RISK)
    manifest_list.unlink()
    assert run_purge(core, place) is None
    assert not place.exists()


def test_an_operators_table_outside_its_namespaces_folder_stops_a_purge_of_its_files(core: Core) -> None:
    place = drop_table(core)
    base = core.table("other", levels=RISK, shown=False, protected=False).metadata
    away = {"action": "set-location", "location": str(core.warehouse.child("away"))}
    named = core.snapshot(base, snapshot_id=7, **{"manifest-list": f"file://{place}/snap.avro"})
    core.commit("other", [away, *to_ref("main", named)], levels=RISK, by=OPERATOR)
    leftover = run_purge(core, place)
    assert leftover is not None
    assert (leftover.why.endswith("names a file there"), place.is_dir()) == (True, True)


@pytest.mark.parametrize("where", ["its folder", "a folder around it", "a folder in it"])
def test_files_of_a_table_that_another_domain_dropped_stay(core: Core, where: str) -> None:
    """That domain may register the table again, even if its namespace is dropped too."""
    foreign = drop_table(core, levels=RISK)
    with core.ledger.read() as unit:
        risk = namespaces.get(unit, RISK)
    core.ledger.transact(lambda unit: namespaces.drop(unit, risk), at_micros=core.micros)
    place = {"its folder": foreign, "a folder around it": foreign.parent, "a folder in it": foreign / "data"}[where]
    assert run_purge(core, place) == Leftover(f"file://{place}", "a dropped table of another domain lies there")
    assert (foreign / "data" / "a.parquet").read_text() == "rows"
    assert removes_everything(core, foreign, "risk")


def test_files_of_a_table_that_another_domain_may_be_creating_stay(core: Core) -> None:
    new_data = parse_location(core.place("new", RISK)).local / "data"
    new_data.mkdir(parents=True)
    leftover = run_purge(core, new_data.parent)
    assert leftover == Leftover(f"file://{new_data.parent}", "it lies in a namespace's folder of another domain")
    assert new_data.is_dir()


def test_a_purge_while_the_ledger_is_unreachable_leaves_the_files(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise UnavailableError("ledger_unreachable", "away")

    place = drop_table(core)
    monkeypatch.setattr(tables, "list_live", away)
    assert run_purge(core, place) == Leftover(f"file://{place}", "the ledger cannot be read: ledger_unreachable")
    assert place.is_dir()


def foresee(core: Core, name: str = "orders") -> Leftover | None:
    state = core.get(name)
    return Purge(core.ledger, core.states, core.warehouse, parse_location(state.row.location), "sales").foresee(state)


def test_a_purge_of_a_table_that_was_ever_protected_is_foreseen_to_leave_evidence(core: Core) -> None:
    row = core.table(shown=False).row
    core.ledger.transact(lambda unit: tables.protect(unit, row, None), at_micros=core.micros)
    leftover = foresee(core)
    assert leftover is not None
    assert "evidence" in leftover.why


def test_a_purge_of_a_table_with_files_elsewhere_is_foreseen_to_leave_them(core: Core, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere.parquet"
    make_other_table(core, f"file://{outside}")
    assert foresee(core, "other") is None  # a file that does not exist is not left
    outside.write_text("rows")
    leftover = foresee(core, "other")
    assert leftover is not None
    assert leftover.why == f"the table has files outside its place, file://{outside} among them"


def test_a_purge_of_a_table_whose_own_manifest_cannot_be_read_is_foreseen_as_undecided(core: Core) -> None:
    _, manifest = make_other_table(core, "file:///elsewhere/a.parquet")
    manifest.write_bytes(b"Obj\x01 and no more")
    leftover = foresee(core, "other")
    assert leftover is not None
    assert leftover.why.startswith("the table's own files cannot be listed")


def test_a_purge_of_a_table_whose_files_another_needs_is_foreseen_to_leave_them(core: Core) -> None:
    place = core.table(protected=False).row.location
    make_other_table(core, f"{place}/data/a.parquet")
    leftover = foresee(core)
    assert leftover is not None
    assert leftover.why.endswith("names a file there")


def test_a_purge_of_a_table_without_such_files_is_foreseen_to_leave_nothing(core: Core) -> None:
    core.table(protected=False)
    assert foresee(core) is None
