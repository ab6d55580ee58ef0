"""Many small publications: their manifests are written together, and every file keeps all that is said of it."""

from __future__ import annotations

import pytest

from pvdm.lake.format.manifest.manifest_list import ManifestFile
from pvdm.lake.read.entries import listed_manifests, live_entries
from tests.behaviour.gate.test_gate_audit import BEFORE, OK, filled
from tests.support.audit.crafted_history import codes, standings
from tests.support.audit.expiring_history import audit_orders, publish_attempt
from tests.support.gate.protected_tables import House, Row, contract

CHUNKS = "abcde"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three are many."""
    monkeypatch.setattr("pvdm.metadata.gate.publication.MERGE_FROM", 3)


def row(chunk: str) -> Row:
    return (10 + CHUNKS.index(chunk), 3 + CHUNKS.index(chunk), "Ulm")


def append(house: House, chunks: str) -> None:
    for chunk in chunks:
        publish_attempt(house, house.proved("one", [row(chunk)], chunk_id=chunk, opened=False))


def listed(house: House) -> tuple[ManifestFile, ...]:
    metadata = house.found().metadata
    assert metadata.current_snapshot is not None
    return listed_manifests(metadata, metadata.current_snapshot, house.files)


def numbers(house: House) -> dict[str, tuple[int | None, int | None, int | None, int | None]]:
    """What readers go by, of every live file."""
    metadata = house.found().metadata
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
    filled(house, version=version)
    house.open("one", list(CHUNKS))
    append(house, "ab")
    before = numbers(house)
    assert len(listed(house)) == 3, "what was found, written anew, is one of them"
    append(house, "c")
    assert len(listed(house)) == 2
    append(house, "d")
    assert before.items() <= numbers(house).items()
    assert house.rows() == [1, 2, 10, 11, 12, 13]


@pytest.mark.parametrize("version", [2, 3])
def test_the_audit_holds_over_merged_manifests(house: House, version: int) -> None:
    filled(house, version=version)
    house.open("one", list(CHUNKS))
    append(house, CHUNKS)
    report = audit_orders(house)
    assert (codes(report), standings(report)) == (set(), [BEFORE, OK, OK, OK, OK, OK])


def test_a_manifest_of_anyone_else_is_taken_over_once(house: House) -> None:
    filled(house)
    (foreign,) = listed(house)
    house.open("one", list(CHUNKS))
    append(house, CHUNKS)
    assert foreign.manifest_path not in {each.manifest_path for each in listed(house)}


def test_a_manifest_that_is_not_small_is_left_as_it_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.next_snapshot.MERGED_BYTES", 10)
    filled(house)
    house.open("one", list(CHUNKS))
    append(house, CHUNKS)
    assert len(listed(house)) == 1 + len(CHUNKS)


def test_what_is_removed_goes_while_the_rest_is_merged(house: House) -> None:
    filled(house, contract(operation="overwrite-partitions"))
    house.open("one", [*CHUNKS, "again"])
    append(house, "abc")
    replaced = house.paths(of_day=4)
    again = house.proved("one", [(99, 4, "Bonn")], chunk_id="again", opened=False, removed=replaced)
    publish_attempt(house, again)
    assert house.rows() == [1, 2, 10, 12, 99]
    assert len(listed(house)) == 3
    assert codes(audit_orders(house)) == set()
