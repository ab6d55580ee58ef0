"""Many small publications: their manifests are merged, and every file keeps its numbers."""

from __future__ import annotations

import pytest

from pvdm.lake.format.manifest.manifest_list import ManifestFile
from pvdm.lake.read.entries import listed_manifests, live_entries
from tests.behaviour.gate.test_gate_audit import BEFORE, OK, protect_with_rows
from tests.support.audit.crafted_history import codes, standings
from tests.support.audit.expiring_history import audit_orders, publish_attempt
from tests.support.gate.protected_tables import House, Row, contract

CHUNKS = "abcde"


@pytest.fixture(autouse=True)
def merge_from_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests are merged as soon as there are three."""
    monkeypatch.setattr("pvdm.metadata.gate.publication.MERGE_FROM", 3)


def row_of(chunk: str) -> Row:
    return (10 + CHUNKS.index(chunk), 3 + CHUNKS.index(chunk), "Ulm")


def append(house: House, chunks: str) -> None:
    for chunk in chunks:
        publish_attempt(house, house.proved("one", [row_of(chunk)], chunk_id=chunk, opened=False))


def manifests_of_main(house: House) -> tuple[ManifestFile, ...]:
    metadata = house.table_state().metadata
    assert metadata.current_snapshot is not None
    return listed_manifests(metadata, metadata.current_snapshot, house.files)


def numbers_of_files(house: House) -> dict[str, tuple[int | None, int | None, int | None, int | None]]:
    """Snapshot id, sequence numbers and first row id of every live file."""
    metadata = house.table_state().metadata
    assert metadata.current_snapshot is not None
    return {
        entry.data_file.file_path: (
            entry.snapshot_id,
            entry.sequence_number,
            entry.file_sequence_number,
            entry.data_file.first_row_id,
        )
        for entry in live_entries(metadata, metadata.current_snapshot, house.files)
    }


@pytest.mark.parametrize("version", [2, 3])
def test_small_manifests_of_the_steward_become_one_and_files_keep_their_numbers(house: House, version: int) -> None:
    protect_with_rows(house, version=version)
    house.open("one", list(CHUNKS))
    append(house, "ab")
    before = numbers_of_files(house)
    assert len(manifests_of_main(house)) == 3, "one is the rewritten manifest from before the protection"
    append(house, "c")
    assert len(manifests_of_main(house)) == 2
    append(house, "d")
    assert before.items() <= numbers_of_files(house).items()
    assert house.rows() == [1, 2, 10, 11, 12, 13]


@pytest.mark.parametrize("version", [2, 3])
def test_the_audit_holds_over_merged_manifests(house: House, version: int) -> None:
    protect_with_rows(house, version=version)
    house.open("one", list(CHUNKS))
    append(house, CHUNKS)
    report = audit_orders(house)
    assert (codes(report), standings(report)) == (set(), [BEFORE, OK, OK, OK, OK, OK])


def test_a_manifest_from_before_the_protection_is_rewritten(house: House) -> None:
    protect_with_rows(house)
    (foreign,) = manifests_of_main(house)
    house.open("one", list(CHUNKS))
    append(house, CHUNKS)
    assert foreign.manifest_path not in {each.manifest_path for each in manifests_of_main(house)}


def test_a_manifest_that_is_not_small_is_left_as_it_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.next_snapshot.MERGED_BYTES", 10)
    protect_with_rows(house)
    house.open("one", list(CHUNKS))
    append(house, CHUNKS)
    assert len(manifests_of_main(house)) == 1 + len(CHUNKS)


def test_an_overwrite_removes_its_files_while_the_others_are_merged(house: House) -> None:
    protect_with_rows(house, contract(operation="overwrite-partitions"))
    house.open("one", [*CHUNKS, "again"])
    append(house, "abc")
    replaced = house.paths(of_day=4)
    again = house.proved("one", [(99, 4, "Bonn")], chunk_id="again", opened=False, removed=replaced)
    publish_attempt(house, again)
    assert house.rows() == [1, 2, 10, 12, 99]
    assert len(manifests_of_main(house)) == 3
    assert codes(audit_orders(house)) == set()
