"""Each single false statement about a proved history is found with its own code, at the snapshot that it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.lake.format.avro.container import write_avro
from pvdm.lake.format.manifest.manifest_list import read_manifest_list
from pvdm.metadata.audit.report import Standing
from pvdm.model.statements.core import ProofCore, RowCounts
from pvdm.model.statements.receipt import Receipt
from tests.support.audit.crafted_history import TABLE, History, codes, listing, standings, unchanged, with_deletes
from tests.support.lake.manifests import extra_of
from tools.proof_kit import fixed

Lie = Callable[[History], Any]


@pytest.fixture
def history(tmp_path: Path) -> History:
    """One snapshot from before the protection, and one that was published."""
    history = History(tmp_path)
    history.snapshot([history.data_file("old")])
    history.protect()
    history.publish(history.data_file("first"))
    return history


def change_receipt(**changes: Any) -> Callable[[Receipt], Receipt]:
    return lambda receipt: replace(receipt, **changes)


def change_core(part: str, **changes: Any) -> Callable[[ProofCore], ProofCore]:
    return lambda core: replace(core, **{part: replace(getattr(core, part), **changes)})


OTHER_TABLE = replace(TABLE, uuid="4f0c2d5e-1111-4222-8333-000000000000")
OTHER_CATALOG = replace(TABLE, catalog="elsewhere")

RECEIPTS: dict[str, tuple[Lie, set[str]]] = {
    "no receipt": (lambda h: h.snapshot([h.data_file("x")]), {"audit_receipt_missing"}),
    "a receipt of another snapshot": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(new_snapshot_id=7)),
        {"audit_receipt_missing", "audit_receipt_without_snapshot"},
    ),
    "a receipt of another table": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(table=OTHER_TABLE)),
        {"audit_receipt_wrong_table"},
    ),
    "a receipt of another catalog": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(table=OTHER_CATALOG)),
        {"audit_receipt_wrong_table"},
    ),
    "a receipt of another branch": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(branch="stage")),
        {"audit_receipt_wrong_branch"},
    ),
    "a receipt from another parent": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(old_snapshot_id=7)),
        {"audit_receipt_wrong_snapshot"},
    ),
    "a receipt with another document's path": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(metadata_path="file:///elsewhere.json")),
        {"audit_metadata_unknown"},
    ),
    "a receipt with another document's hash": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(metadata_sha256=fixed("other"))),
        {"audit_metadata_changed"},
    ),
    "a receipt of another workload": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(workload_id="work-of-others")),
        {"audit_proof_wrong_workload"},
    ),
    "a receipt whose proof is not there": (
        lambda h: h.publish(h.data_file("x"), receipt=change_receipt(proof_ids=(fixed("no proof"),))),
        {"audit_proof_missing"},
    ),
}

PROOFS: dict[str, tuple[Lie, set[str]]] = {
    "a proof of other files": (
        lambda h: h.publish(h.data_file("x"), shown=[h.data_file("y")]),
        {"audit_files_added_differ"},
    ),
    "a file of another size": (
        lambda h: h.publish(h.data_file("x"), shown=[replace(h.data_file("x"), file_size_in_bytes=7)]),
        {"audit_files_added_differ"},
    ),
    "a file more than was proved": (
        lambda h: h.publish(h.data_file("x"), shown=[h.data_file("x"), h.data_file("extra", rows=0)]),
        {"audit_files_added_differ"},
    ),
    "a file less than was proved": (
        lambda h: h.publish(h.data_file("x"), h.data_file("y", rows=0), shown=[h.data_file("x")]),
        {"audit_files_added_differ"},
    ),
    "a file twice": (
        lambda h: h.publish(
            h.data_file("x"), h.data_file("z", 0), shown=[h.data_file("x"), h.data_file("z", 0), h.data_file("z", 0)]
        ),
        {"audit_files_added_differ"},
    ),
    "a removal that no proof binds": (
        lambda h: h.publish(h.data_file("x"), gone=[h.data_file("first").file_path]),
        {"audit_files_removed_differ"},
    ),
    "a bound removal that did not happen": (
        lambda h: h.publish(h.data_file("x"), removed=[h.data_file("first").file_path], gone=[]),
        {"audit_files_removed_differ"},
    ),
    "more rows than were proved": (
        lambda h: h.publish(h.data_file("x"), core=lambda core: replace(core, rows=RowCounts(9, 9))),
        {"audit_rows_differ"},
    ),
    "a proof for another table": (
        lambda h: h.publish(h.data_file("x"), core=change_core("target", table=OTHER_TABLE)),
        {"audit_proof_wrong_table"},
    ),
    "a proof for another branch": (
        lambda h: h.publish(h.data_file("x"), core=change_core("target", branch="stage")),
        {"audit_proof_wrong_table"},
    ),
    "a proof on a base that main never had": (
        lambda h: h.publish(h.data_file("x"), core=change_core("target", base_snapshot_id=7)),
        {"audit_base_not_ancestor"},
    ),
    "a proof on itself as base": (
        lambda h: h.publish(h.data_file("x"), core=change_core("target", base_snapshot_id=1_000 + h.counter + 3)),
        {"audit_base_not_ancestor"},
    ),
    "a proof under another schema": (
        lambda h: h.publish(h.data_file("x"), core=change_core("target", schema_fingerprint=fixed("other"))),
        {"audit_schema_differs"},
    ),
    "a proof under another partition spec": (
        lambda h: h.publish(h.data_file("x"), core=change_core("target", spec_id=9)),
        {"audit_spec_differs"},
    ),
    "a proof under another contract": (
        lambda h: h.publish(h.data_file("x"), core=change_core("attempt", contract_sha256=fixed("other"))),
        {"audit_proof_wrong_contract"},
    ),
    "a snapshot that is read with another schema": (
        lambda h: h.publish(h.data_file("x"), said=lambda snapshot: {**snapshot, "schema-id": None}),
        {"audit_schema_differs"},
    ),
    "a nonce that was published with before": (
        lambda h: h.publish(h.data_file("x"), core=change_core("attempt", nonce=fixed("nonce 3 all", 16))),
        {"audit_used_twice"},
    ),
    "a chunk that was published before": (
        lambda h: h.publish(
            h.data_file("x"),
            core=change_core("attempt", workload_id="work-3"),
            receipt=change_receipt(workload_id="work-3"),
        ),
        {"audit_used_twice"},
    ),
    "a FAIL that nobody waived": (lambda h: h.publish(h.data_file("x"), passed=False), {"audit_verdict_not_pass"}),
    "an override that is not there": (
        lambda h: h.publish(h.data_file("x"), passed=False, receipt=change_receipt(override_id=fixed("none"))),
        {"audit_override_missing", "audit_verdict_not_pass"},
    ),
}


@pytest.mark.parametrize("lie", [*RECEIPTS, *PROOFS])
def test_a_false_statement_is_found_at_its_snapshot(history: History, lie: str) -> None:
    apply, expected = {**RECEIPTS, **PROOFS}[lie]
    apply(history)
    report = history.audit()
    changed = expected == {"audit_metadata_changed"}
    assert codes(report) == expected
    assert standings(report) == [Standing.BEFORE, Standing.OK, Standing.CHANGED if changed else Standing.UNPROVED]
    assert not report.holds


def repeat_last_record(data: bytes) -> bytes:
    file = read_manifest_list(data).file
    return write_avro(file.schema_text, extra_of(file), [*file.records, file.records[-1]], codec=file.codec)


LISTS: dict[str, tuple[Callable[[History], Callable[[bytes], bytes]], set[str]]] = {
    "a manifest of the parent is gone": (lambda _: listing(lambda listed: listed[:-1]), {"audit_entries_not_carried"}),
    "a manifest of the parent is another": (
        lambda _: listing(lambda listed: [*listed[:-1], replace(listed[-1], added_rows_count=7)]),
        {"audit_manifest_not_carried"},
    ),
    "a manifest is said to be an older snapshot's": (
        lambda _: listing(lambda listed: [*listed, replace(listed[-1], manifest_path="file:///elsewhere.avro")]),
        {"audit_manifest_not_carried"},
    ),
    "a manifest is listed twice": (lambda _: repeat_last_record, {"audit_manifest_twice"}),
    "a delete file is added": (with_deletes, {"audit_delete_file_added"}),
}


@pytest.mark.parametrize("lie", LISTS)
def test_a_false_manifest_list_is_found(history: History, lie: str) -> None:
    change, expected = LISTS[lie]
    history.publish(history.data_file("x"), relist=change(history))
    assert codes(history.audit()) == expected


def test_a_true_history_holds(history: History) -> None:
    history.publish(history.data_file("x"), receipt=unchanged, core=unchanged, said=unchanged)
    report = history.audit(again=True)
    assert codes(report) == set()
    assert standings(report) == [Standing.BEFORE, Standing.OK, Standing.OK]
    assert report.holds
