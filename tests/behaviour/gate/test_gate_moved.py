"""Publishing when `main` has moved since the verdict: safe changes are published, others go back to verification."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import VerificationError
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest_list import ListHeader
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.read.entries import header_of, listed_manifests, live_entries
from pvdm.ledger.catalog import tables
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.metadata.gate.proposal import VERIFY_AGAIN_CODES
from pvdm.model.filter.claim import Claim
from pvdm.steward.access import STEWARD_GRANT
from tests.support import fault
from tests.support.catalog.core import to_ref
from tests.support.gate.approvals import SALES
from tests.support.gate.protected_tables import Doc, House, Row, contract, day, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.stores.places import file_at, location_of

BEFORE: Sequence[Row] = [(1, 1, "Ulm"), (2, 2, "Bonn")]
FIRST_DAY = {"day": "2026-11-01"}


@pytest.fixture
def house() -> Iterator[House]:
    with memory_folder() as folder, house_at(folder) as made:
        yield made


def publish(house: House, attempt: Attempt, claim: Claim | None = None) -> None:
    proposal = house.proposal(attempt)
    validate_then_commit(replace(proposal, claim=claim or proposal.claim), house.gate())


def claim_on(number: int) -> Claim:
    return Claim.value("day", "date", number)


@pytest.mark.parametrize("version", [2, 3])
def test_two_appends_from_one_base_are_both_published(house: House, version: int) -> None:
    house.table(rows=BEFORE, version=version)
    first, second = house.proved("one", [(3, 3, "Ulm")]), house.proved("two", [(4, 3, "Ulm")])
    publish(house, first, claim_on(1))
    publish(house, second, claim_on(2))
    assert house.rows() == [1, 2, 3, 4]


def test_two_first_appends_to_an_empty_table_are_both_published(house: House) -> None:
    house.table()
    first, second = house.proved("one", [(3, 3, "Ulm")]), house.proved("two", [(4, 3, "Ulm")])
    publish(house, first, claim_on(1))
    publish(house, second, claim_on(2))
    assert house.rows() == [3, 4]


def test_overwrites_of_different_partitions_are_both_published(house: House) -> None:
    house.table(rows=BEFORE, text=contract(operation="overwrite-partitions"))
    first = house.proved("one", [(11, 1, "Ulm")], removed=house.paths(of_day=1))
    second = house.proved("two", [(12, 2, "Ulm")], removed=house.paths(of_day=2))
    publish(house, first)
    publish(house, second)
    assert house.rows() == [11, 12]


def test_a_main_that_moves_after_the_first_checks_is_checked_again(house: House) -> None:
    house.table(rows=BEFORE)
    first, second = house.proved("one", [(3, 3, "Ulm")]), house.proved("two", [(4, 3, "Ulm")])
    with fault.armed("gate.after_rehash", fault.Call(lambda: _publish_once(house, first))):
        publish(house, second, claim_on(2))
    assert house.rows() == [1, 2, 3, 4]


def _publish_once(house: House, attempt: Attempt) -> None:
    fault.disarm("gate.after_rehash")
    publish(house, attempt, claim_on(1))


def test_an_overwrite_of_a_part_that_another_replaced_goes_back_to_verification(house: House) -> None:
    house.table(rows=BEFORE, text=contract(operation="overwrite-partitions", partition=FIRST_DAY))
    gone = house.paths(of_day=1)
    first = house.proved("one", [(11, 1, "Ulm")], removed=gone)
    second = house.proved("two", [(12, 1, "Ulm")], removed=gone)
    publish(house, first)
    with pytest.raises(VerificationError) as caught:
        publish(house, second)
    assert (caught.value.reason, caught.value.reason in VERIFY_AGAIN_CODES) == ("boundary_moved", True)
    assert house.rows() == [2, 11]


def test_an_overwrite_of_a_part_that_got_new_rows_is_refused(house: House) -> None:
    house.table(rows=BEFORE, text=contract(operation="overwrite"))
    attempt = house.proved("one", [(11, 1, "Ulm")], removed=house.paths())
    commit_unprotected(
        house, house.write_files(f"{house.table_state().metadata.location}/data/later", [(5, 5, "Bonn")])
    )
    with pytest.raises(VerificationError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, house.rows()) == ("boundary_moved", [1, 2, 5])


def commit_unprotected(house: House, files: Sequence[DataFile]) -> None:
    """Commit files to main, as another publication would; the table is unprotected for that moment."""
    with without_protection(house):
        house.commit(files, "main")


def commit_deletes(house: House, path: str, branch: str = "main") -> None:
    """Commit a snapshot that deletes rows of this file, as an engine with merge-on-read writes it."""
    metadata = house.table_state().metadata
    head = metadata.snapshot(metadata.refs[branch].snapshot_id)
    assert head is not None
    place = file_at(metadata.location) / "metadata"
    snapshot_id = 8_000_000 + house.number()
    file = DataFile(
        file_path=location_of(place / f"{snapshot_id}-deletes.parquet"),
        file_format="PARQUET",
        record_count=1,
        file_size_in_bytes=100,
        content=FileContent.POSITION_DELETES,
        partition=IdMap([(1000, day(1))]),
        referenced_data_file=path,
    )
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DELETES)
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=file, snapshot_id=snapshot_id)
    written = write_manifest(header, [entry])
    (place / f"{snapshot_id}-d0.avro").write_bytes(written.data)
    listed = write_manifest_list(
        ListHeader(
            format_version=2,
            snapshot_id=snapshot_id,
            parent_snapshot_id=head.snapshot_id,
            sequence_number=metadata.next_sequence_number,
        ),
        [
            *listed_manifests(metadata, head, house.files),
            written.list_entry(location_of(place / f"{snapshot_id}-d0.avro"), snapshot_id),
        ],
    )
    (place / f"snap-{snapshot_id}.avro").write_bytes(listed.data)
    snapshot: Doc = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": head.snapshot_id,
        "sequence-number": metadata.next_sequence_number,
        "timestamp-ms": house.scene.now // 1_000,
        "manifest-list": location_of(place / f"snap-{snapshot_id}.avro"),
        "schema-id": metadata.current_schema_id,
        "summary": {"operation": "delete", "total-delete-files": "1", "total-position-deletes": "1"},
    }
    by = house.scene.grant() if branch == "main" else STEWARD_GRANT
    house.notary.catalog.commits.commit(by, [Change(SALES, "orders", (), to_ref(branch, snapshot))])


@contextlib.contextmanager
def without_protection(house: House) -> Iterator[None]:
    row = house.table_state().row
    house.transact(lambda unit: tables.protect(unit, row, None))
    yield
    house.scene.protect(house.scene.protection("orders", contract=house.contracts["orders"]))


def test_an_overwrite_of_a_file_with_newer_deletes_goes_back_to_verification(house: House) -> None:
    house.table(rows=BEFORE, text=contract(operation="overwrite-partitions", partition=FIRST_DAY))
    (gone,) = house.paths(of_day=1)
    attempt = house.proved("one", [(11, 1, "Ulm")], removed=[gone])
    with without_protection(house):
        commit_deletes(house, gone)
    with pytest.raises(VerificationError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, caught.value.reason in VERIFY_AGAIN_CODES) == ("deletes_newer", True)


def test_a_branch_that_deletes_rows_is_not_published(house: House) -> None:
    house.table(rows=BEFORE)
    house.open("one")
    attempt = house.attempt("one")
    base = house.table_state().metadata.current_snapshot_id
    files = house.stage(attempt, [(3, 3, "Ulm")])
    commit_deletes(house, house.paths(of_day=1)[0], attempt.branch)
    house.prove(attempt, files, base)
    with pytest.raises(VerificationError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, house.rows()) == ("staged_deletes", [1, 2])


def test_an_overwrite_removes_the_delete_files_of_the_files_it_removes(house: House) -> None:
    house.table(rows=BEFORE, text=contract(operation="overwrite-partitions", partition=FIRST_DAY))
    (gone,) = house.paths(of_day=1)
    with without_protection(house):
        commit_deletes(house, gone)
    publish(house, house.proved("one", [(11, 1, "Ulm")], removed=[gone]))
    metadata = house.table_state().metadata
    head = metadata.current_snapshot
    assert head is not None
    kinds = [entry.data_file.content for entry in live_entries(metadata, head, house.files)]
    assert kinds == [FileContent.DATA] * 2
    assert (head.summary["total-delete-files"], head.summary["total-position-deletes"]) == ("0", "0")


def test_an_overwrite_without_rows_empties_its_partition(house: House) -> None:
    house.table(rows=BEFORE, text=contract(operation="overwrite-partitions", partition=FIRST_DAY))
    publish(house, house.proved("one", [], removed=house.paths(of_day=1)))
    assert house.rows() == [2]


def test_a_chunk_without_rows_publishes_an_empty_snapshot(house: House) -> None:
    house.table(rows=BEFORE)
    before = house.table_state().metadata.current_snapshot_id
    publish(house, house.proved("one", []))
    head = house.table_state().metadata.current_snapshot
    assert head is not None
    assert (house.rows(), head.parent_id) == ([1, 2], before)


def test_a_chunk_without_rows_publishes_on_an_empty_table_too(house: House) -> None:
    house.table()
    publish(house, house.proved("one", []))
    assert (house.rows(), house.table_state().metadata.current_snapshot is None) == ([], False)


@pytest.mark.parametrize("version", [2, 3])
def test_files_that_stay_keep_their_sequence_numbers_and_row_ids(house: House, version: int) -> None:
    house.table(rows=BEFORE, version=version, text=contract(operation="overwrite-partitions", partition=FIRST_DAY))
    kept = numbers_by_day(house)[day(2)]
    publish(house, house.proved("one", [(11, 1, "Ulm")], removed=house.paths(of_day=1)))
    after = numbers_by_day(house)
    assert after[day(2)] == kept
    assert after[day(1)] != kept


def numbers_by_day(house: House) -> dict[object, tuple[object, ...]]:
    metadata = house.table_state().metadata
    head = metadata.current_snapshot
    assert head is not None
    return {
        entry.data_file.partition[1000]: (
            entry.sequence_number,
            entry.file_sequence_number,
            entry.data_file.first_row_id,
        )
        for entry in live_entries(metadata, head, house.files)
    }


def test_a_publication_keeps_the_retention_of_main(house: House) -> None:
    house.scene.make()
    files = house.write_files(f"{house.table_state().metadata.location}/data/before", BEFORE)
    house.commit(files, "main")
    keep = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "max-snapshot-age-ms": 77}
    house.scene.commit([{**keep, "snapshot-id": house.table_state().metadata.current_snapshot_id}])
    house.contracts["orders"] = contract()
    house.scene.protect(house.scene.protection(contract=contract()))
    publish(house, house.proved("one", [(3, 3, "Ulm")]))
    assert house.table_state().metadata.refs["main"].max_snapshot_age_ms == 77
