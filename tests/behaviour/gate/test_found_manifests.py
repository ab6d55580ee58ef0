"""Manifests from before the protection: it reads, checks and binds them; the first publication rewrites them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from pvdm.errors import UnavailableError
from pvdm.lake.format.manifest.entry import DataFile, FileContent, IdMap, ManifestContent
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.read.entries import header_of, listed_manifests, live_entries
from pvdm.lake.read.found_manifests import UnchangingFiles
from pvdm.ledger.catalog import tables
from pvdm.metadata.audit.report import Standing
from pvdm.verify.fetch import Files
from tests.behaviour.gate.test_gate_audit import BEFORE, OK
from tests.support.audit.crafted_history import codes, standings
from tests.support.audit.expiring_history import audit_orders, publish_attempt
from tests.support.gate.approvals import reason_of, signed
from tests.support.gate.protected_tables import House, Row, contract, day
from tests.support.lake.found_manifests import Planted, added, data_file, live, overwrite, plant
from tests.support.lake.metadata import column, schema
from tests.support.stores.places import ON_S3, file_at

NEW: Sequence[Row] = [(3, 1, "Ulm")]
Doc = dict[str, Any]


def doubt_in_table(house: House, attempt: Any) -> str:
    """Require that publishing fails with the table in doubt, and that the attempt waits; returns the doubt's reason."""
    with pytest.raises(UnavailableError) as caught:
        publish_attempt(house, attempt)
    assert caught.value.reason == "table_in_doubt"
    assert house.state_of(attempt) == "COMMITTING"
    return str(caught.value.got).partition(":")[0]


def ids_read_by_pyiceberg(house: House) -> list[int]:
    table = StaticTable.from_metadata(house.table_state().row.pointer.location)
    found: list[Any] = table.scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def facts_of_files(house: House) -> set[tuple[Any, ...]]:
    """What the manifests say of every live file, whichever manifest says it."""
    metadata = house.table_state().metadata
    assert metadata.current_snapshot is not None
    return {
        (
            replace(entry.data_file, split_offsets=None),
            entry.snapshot_id,
            entry.sequence_number,
            entry.file_sequence_number,
        )
        for entry in live_entries(metadata, metadata.current_snapshot, house.files)
    }


def make_table_with_two_files(house: House) -> list[str]:
    house.scene.make("orders")
    return plant(house, [Planted([added(data_file(house, 1)), added(data_file(house, 2))])])


# Between protection and the first publication


def test_a_manifest_that_is_overwritten_before_the_first_publication_keeps_it_waiting(house: House) -> None:
    manifest, _ = make_table_with_two_files(house)
    house.protect()
    honest = file_at(manifest).read_bytes()
    attempt = house.proved("one", NEW)
    overwrite(house, manifest, [added(data_file(house, 98)), added(data_file(house, 99))])
    assert doubt_in_table(house, attempt) == "found_manifests_changed"
    file_at(manifest).write_bytes(honest)
    publish_attempt(house, attempt)
    assert house.rows() == [1, 2, 3]


def test_a_list_that_is_overwritten_before_the_first_publication_keeps_it_waiting(house: House) -> None:
    _, listed = make_table_with_two_files(house)
    house.protect()
    honest = file_at(listed).read_bytes()
    attempt = house.proved("one", NEW)
    # The same list with other sync markers: only its hash differs.
    file_at(listed).write_bytes(honest[:-16].replace(honest[-16:], bytes(16)) + bytes(16))
    assert doubt_in_table(house, attempt) == "found_manifests_changed"


def test_a_file_that_changes_between_two_reads_is_refused() -> None:
    class Changing:
        reads = 0

        def read(self, location: str, *, max_bytes: int) -> bytes:
            self.reads += location.endswith("changing")
            return f"{location} {self.reads}".encode()[:max_bytes]

    files = UnchangingFiles(Changing())
    assert [files.read("same", max_bytes=99), files.read("same", max_bytes=99)] == [b"same 0", b"same 0"]
    files.read("changing", max_bytes=99)
    assert reason_of(lambda: files.read("changing", max_bytes=99)) == "found_file_changed"


def test_protecting_a_table_again_binds_its_manifests_as_they_are_then(house: House) -> None:
    manifest, _ = make_table_with_two_files(house)
    house.protect()
    overwrite(house, manifest, [added(data_file(house, 98)), added(data_file(house, 99))])
    row = house.table_state().row
    house.transact(lambda unit: tables.protect(unit, row, None))
    house.protect()
    publish_attempt(house, house.proved("one", NEW))
    assert house.rows() == [3, 98, 99]


def test_an_overwrite_is_refused_if_a_manifest_lists_other_files_at_one_read(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, _ = make_table_with_two_files(house)
    house.protect(contract(operation="overwrite"))
    keep, gone = sorted(house.paths())
    honest = file_at(manifest).read_bytes()
    attempt = house.proved("one", NEW, removed=[gone])
    # The first read, which is for check 9, gets one file twice in place of both; later reads get both.
    overwrite(
        house, manifest, [added(entry.data_file) for entry in live(house) if entry.data_file.file_path == gone] * 2
    )
    lie = file_at(manifest).read_bytes()
    file_at(manifest).write_bytes(honest)
    reads = _watch_reads(monkeypatch, lambda location, at: lie if location == manifest and at == 1 else None)
    assert reason_of(lambda: publish_attempt(house, attempt)) == "proof_wrong_removals"
    assert reads.count(manifest) > 1
    assert set(house.paths()) == {keep, gone}


def _watch_reads(monkeypatch: pytest.MonkeyPatch, instead: Callable[[str, int], bytes | None]) -> list[str]:
    """The locations that are read from now on, in order; `instead` may give other bytes for the n-th read of one."""
    seen: list[str] = []
    honest = Files.read

    def read(self: Files, location: str, *, max_bytes: int) -> bytes:
        seen.append(location)
        found = instead(location, seen.count(location))
        return honest(self, location, max_bytes=max_bytes) if found is None else found

    monkeypatch.setattr(Files, "read", read)
    return seen


# What a protection refuses


def other_spec(house: House) -> list[str]:
    metadata = house.table_state().metadata
    header = header_of(metadata, 0, ManifestContent.DATA)
    (field,) = header.spec.fields
    spec = replace(header.spec, fields=(replace(field, source_ids=(1,)),))
    types = '"type":"date"'
    text = header.schema_text.replace('"type":"long"', types)
    return plant(house, [Planted([added(data_file(house, 1))], header=replace(header, spec=spec, schema_text=text))])


def other_types(house: House) -> list[str]:
    metadata = house.table_state().metadata
    header = header_of(metadata, 0, ManifestContent.DATA)
    text = header.schema_text.replace('"type":"date"', '"type":"int"')
    return plant(house, [Planted([added(data_file(house, 1))], header=replace(header, schema_text=text))])


def other_sequence(house: House) -> list[str]:
    return plant(house, [Planted([added(data_file(house, 1))])], header={"sequence_number": 0})


def listed_twice(house: House) -> list[str]:
    return plant(house, [Planted([added(data_file(house, 1))]), Planted([added(data_file(house, 1))])], twice=True)


def other_counts(house: House) -> list[str]:
    return plant(house, [Planted([added(data_file(house, 1))], listed={504: 0, 512: 0})])


def other_length(house: House) -> list[str]:
    return plant(house, [Planted([added(data_file(house, 1))], listed={501: 10_000})])


def missing(house: House) -> list[str]:
    paths = plant(house, [Planted([added(data_file(house, 1))])])
    file_at(paths[0]).unlink()
    return paths


REFUSED: dict[str, tuple[Callable[[House], list[str]], str]] = {
    "another spec": (other_spec, "found_spec_differs"),
    "other types of partition columns": (other_types, "found_schema_differs"),
    "a list of another sequence number": (other_sequence, "found_list_differs"),
    "a manifest that is listed twice": (listed_twice, "found_manifest_twice"),
    "counts that hide a manifest": (other_counts, "manifest_listed_files_lie"),
    "another length": (other_length, "manifest_listed_length_lies"),
    "a manifest that is gone": (missing, "file_missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_whose_manifests_contradict_it_is_not_protected(house: House, name: str) -> None:
    plant_manifests, code = REFUSED[name]
    house.scene.make("orders")
    plant_manifests(house)
    assert reason_of(house.protect) == code
    assert house.scene.contract_of() is None


def test_a_protection_that_was_interrupted_while_it_read_can_be_repeated(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, _ = make_table_with_two_files(house)
    house.contracts["orders"] = contract()
    envelope = signed(house.scene.protection("orders", contract=contract()))
    house.source()

    def broken(location: str, at: int) -> bytes | None:
        if location == manifest and at == 1:
            raise UnavailableError("store_unavailable", "the disk is gone for a moment")
        return None

    _watch_reads(monkeypatch, broken)
    with pytest.raises(UnavailableError):
        house.notary.protections.submit(envelope, house.scene.grant())
    assert house.scene.contract_of() is None
    once = house.notary.protections.submit(envelope, house.scene.grant())
    assert house.notary.protections.submit(envelope, house.scene.grant()) == once
    publish_attempt(house, house.proved("one", NEW))
    assert house.rows() == [1, 2, 3]


# Honest tables


def position_deletes(house: House, path: str) -> DataFile:
    """A delete file of the first row of a data file."""
    place = file_at(f"{house.table_state().metadata.location}/data/deletes-{house.number()}.parquet")
    place.parent.mkdir(parents=True, exist_ok=True)
    fields: Any = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([[path], [0]], schema=pa.schema(fields)), sink)
    place.write_bytes(sink.getvalue().to_pybytes())
    return DataFile(
        file_path=str(place) if path.startswith("/") else f"file://{place}",
        file_format="PARQUET",
        record_count=1,
        file_size_in_bytes=place.stat().st_size,
        content=FileContent.POSITION_DELETES,
        partition=IdMap([(1000, day(1))]),
    )


@pytest.mark.skipif(ON_S3, reason="PyIceberg reads local files here")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "open"])
def test_a_table_with_history_and_deletes_shows_the_same_rows_in_pyiceberg(
    house: House, version: int, copied: bool
) -> None:
    house.scene.make("orders", version=version)
    for number in (1, 2, 30, 40):
        house.commit([data_file(house, number)], "main")
    if version == 2:
        first = live(house)[-1].data_file
        deletes = Planted([added(position_deletes(house, first.file_path))], ManifestContent.DELETES)
        plant(house, [Planted(live(house)), deletes])
    before, rows = facts_of_files(house), ids_read_by_pyiceberg(house)
    assert len(rows) == (3 if version == 2 else 4)
    house.protect()
    publish_attempt(house, house.proved("one", NEW, copied=copied))
    assert ids_read_by_pyiceberg(house) == sorted([*rows, 3])
    assert before <= facts_of_files(house)
    summary = house.table_state().metadata.current_snapshot
    assert summary is not None
    assert summary.summary["total-records"] == "5"
    assert summary.summary["total-delete-files"] == ("1" if version == 2 else "0")
    report = audit_orders(house)
    assert (codes(report), standings(report)[-1]) == (set(), OK)


def test_a_table_that_was_upgraded_from_format_2_gets_row_ids_once(house: House) -> None:
    house.scene.make("orders")
    for number in (1, 2):
        house.commit([data_file(house, number)], "main")
    house.scene.commit([{"action": "upgrade-format-version", "format-version": 3}])
    house.protect()
    house.open("one", ["a", "b"])
    publish_attempt(house, house.proved("one", NEW, chunk_id="a", opened=False))
    ids = {file.file_path: file.first_row_id for file, *_ in facts_of_files(house)}
    assert len(set(ids.values())) == 3
    publish_attempt(house, house.proved("one", [(4, 1, "Ulm")], chunk_id="b", opened=False))
    again = {file.file_path: file.first_row_id for file, *_ in facts_of_files(house)}
    assert ids.items() <= again.items()
    assert len(set(again.values())) == 4
    assert codes(audit_orders(house)) == set()


BY_TOWN: list[Doc] = [
    {"action": "add-spec", "spec": {"fields": [{"name": "t", "transform": "identity", "source-id": 3}]}},
    {"action": "set-default-spec", "spec-id": -1},
]
WITHOUT_TOWN: list[Doc] = [
    {"action": "set-default-spec", "spec-id": 0},
    {"action": "add-schema", "schema": schema(1, column(1, "id"), column(2, "day", "date"))},
    {"action": "set-current-schema", "schema-id": -1},
]


@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "dropped"])
@pytest.mark.parametrize("version", [2, 3])
def test_files_of_an_older_partition_spec_keep_their_partitions(house: House, version: int, dropped: bool) -> None:
    house.scene.make("orders", version=version)
    house.commit([data_file(house, 1)], "main")
    house.scene.commit(BY_TOWN)
    (field,) = header_of(house.table_state().metadata, 1, ManifestContent.DATA).spec.fields
    by_town = replace(data_file(house, 2), partition=IdMap([(field.field_id, "Ulm")]))
    house.commit([by_town], "main")
    house.scene.commit(WITHOUT_TOWN if dropped else WITHOUT_TOWN[:1])
    before = facts_of_files(house)
    house.protect()
    if not dropped:
        publish_attempt(house, house.proved("one", NEW))
    else:
        metadata = house.table_state().metadata
        written = next_snapshot(
            metadata,
            SnapshotChange((), frozenset(), {}),
            branch="main",
            snapshot_id=77,
            now_ms=metadata.last_updated_ms,
            place=lambda name: f"{metadata.location}/vault/{name}",
            reader=house.files,
            in_vault=True,
        )
        for file in written.files:
            file_at(file.location).parent.mkdir(parents=True, exist_ok=True)
            file_at(file.location).write_bytes(file.data)
        row = house.table_state().row
        house.transact(lambda unit: tables.protect(unit, row, None))
        house.scene.commit(list(written.updates))  # type: ignore[arg-type]
    assert before <= facts_of_files(house)


def test_many_files_are_protected_quickly_and_read_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.scene.make("orders")
    file = data_file(house, 1)
    files = [replace(file, file_path=f"{file.file_path}-{at}") for at in range(1_000)]
    paths = plant(house, [Planted([added(each) for each in files[at : at + 5]]) for at in range(0, 1_000, 5)])
    began = time.monotonic()
    house.protect()
    assert time.monotonic() - began < 10
    house.open("one", ["a", "b"])
    first = house.proved("one", NEW, chunk_id="a", opened=False)
    reads = _watch_reads(monkeypatch, lambda *_: None)
    publish_attempt(house, first)
    assert set(paths) <= set(reads)
    metadata = house.table_state().metadata
    assert metadata.current_snapshot is not None
    listed = listed_manifests(metadata, metadata.current_snapshot, house.files)
    assert sum((each.existing_files_count or 0) for each in listed) == 1_000
    assert len(listed) < 10
    second = house.proved("one", [(4, 1, "Ulm")], chunk_id="b", opened=False)
    reads.clear()
    publish_attempt(house, second)
    assert not {each.manifest_path for each in listed} & set(reads)
    assert not set(paths) & set(reads)


# The audit


def test_the_audit_reports_a_manifest_from_before_the_protection_that_was_overwritten(house: House) -> None:
    manifest, _ = make_table_with_two_files(house)
    house.protect()
    publish_attempt(house, house.proved("one", NEW))
    assert (codes(audit_orders(house)), standings(audit_orders(house))) == (set(), [BEFORE, OK])
    overwrite(house, manifest, [added(data_file(house, 98)), added(data_file(house, 99))])
    report = audit_orders(house)
    assert "audit_found_changed" in codes(report)
    assert standings(report) == [BEFORE, Standing.CHANGED]
    assert house.rows() == [1, 2, 3]


def test_the_audit_reports_a_manifest_of_the_vault_that_was_overwritten(house: House) -> None:
    make_table_with_two_files(house)
    house.protect()
    house.open("one", ["a", "b"])
    publish_attempt(house, house.proved("one", NEW, chunk_id="a", opened=False))
    metadata = house.table_state().metadata
    assert metadata.current_snapshot is not None
    taken_over = next(
        each
        for each in listed_manifests(metadata, metadata.current_snapshot, house.files)
        if each.existing_files_count == 2
    )
    publish_attempt(house, house.proved("one", [(4, 1, "Ulm")], chunk_id="b", opened=False))
    data = file_at(taken_over.manifest_path).read_bytes()
    file_at(taken_over.manifest_path).write_bytes(data[:-16].replace(data[-16:], bytes(16)) + bytes(16))
    assert "audit_manifests_changed" in codes(audit_orders(house))


def test_the_audit_repeats_the_checks_on_a_table_to_which_nothing_was_published_yet(house: House) -> None:
    manifest, _ = make_table_with_two_files(house)
    house.protect()
    assert codes(audit_orders(house)) == set()
    overwrite(house, manifest, [added(data_file(house, 9), sequence_number=1, file_sequence_number=9)] * 2)
    assert codes(audit_orders(house)) == {"found_sequence_ahead"}
