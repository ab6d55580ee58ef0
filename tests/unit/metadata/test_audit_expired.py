"""Expired snapshots are still audited, by their receipts and proofs and by the files of the oldest snapshot left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.metadata.audit.protection import Edge, Past, find_required_spans
from pvdm.metadata.audit.report import Notes, Standing
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import NamespaceTarget, ProtectionAction
from pvdm.model.statements.table import NamespaceRef
from tests.support.audit.crafted_history import HASH, History, codes, local, standings, with_deletes
from tests.support.for_each import for_each
from tools.proof_kit import fixed

UNPROTECT = ProtectionAction.UNPROTECT
MISSING, DIFFER, GAP = "audit_receipt_missing", "audit_files_carried_differ", "audit_protection_gap"


@pytest.fixture
def empty_history(tmp_path: Path) -> History:
    """A table that was protected while it was empty."""
    history = History(tmp_path)
    history.protect()
    return history


@pytest.fixture
def filled_history(tmp_path: Path) -> History:
    """A table with a file from before its protection."""
    folder = tmp_path / "filled"
    folder.mkdir()
    history = History(folder)
    history.snapshot([history.data_file("old")])
    history.protect()
    return history


@pytest.fixture(params=["empty", "filled"])
def any_history(request: pytest.FixtureRequest) -> History:
    history = request.getfixturevalue(f"{request.param}_history")
    assert isinstance(history, History)
    return history


def publish(history: History, *names: str) -> None:
    for name in names:
        history.publish(history.data_file(name))


def expire_all_but(history: History, count: int) -> None:
    """Expire all snapshots of `main` except the newest `count`."""
    shown = [each.snapshot_id for each in history.metadata.ancestry(history.head)]
    history.expire(*shown[count:])


# Receipts that lead back to the beginning of the protection


def test_an_expired_snapshot_without_a_receipt_is_found_in_a_table_protected_empty(empty_history: History) -> None:
    empty_history.snapshot([empty_history.data_file("slipped")])
    slipped = empty_history.head
    publish(empty_history, "first", "second")
    expire_all_but(empty_history, 1)
    report = empty_history.audit()
    assert codes(report) == {MISSING}
    assert [each.expected for each in report.findings] == [f"a receipt of snapshot {slipped}"]


def test_an_expired_snapshot_without_a_receipt_is_found_in_a_table_that_was_born_protected(tmp_path: Path) -> None:
    history = History(tmp_path)
    space = NamespaceTarget(NamespaceRef("lake", fixed("space", 16), "sales"), HASH)
    history.say(replace(history.protection(), target=space), "operator-tom")
    history.snapshot([history.data_file("slipped")])
    publish(history, "first", "second")
    expire_all_but(history, 1)
    assert codes(history.audit()) == {MISSING}


def test_accepting_a_lost_snapshot_does_not_accept_one_without_a_receipt(empty_history: History) -> None:
    publish(empty_history, "first")
    first = empty_history.head
    empty_history.snapshot([empty_history.data_file("slipped")])
    publish(empty_history, "second", "third")
    expire_all_but(empty_history, 1)
    assert codes(empty_history.audit(accept_lost=frozenset({first}))) == {MISSING}


def test_expired_publications_with_receipts_back_to_the_beginning_hold(any_history: History) -> None:
    publish(any_history, "first", "second", "third", "fourth")
    expire_all_but(any_history, 2)
    report = any_history.audit()
    assert (codes(report), standings(report)) == (set(), [Standing.OK, Standing.OK])


def test_an_expired_snapshot_without_a_receipt_before_the_end_of_protection_is_found(empty_history: History) -> None:
    empty_history.snapshot([empty_history.data_file("slipped")])
    publish(empty_history, "first", "second")
    empty_history.protect(UNPROTECT)
    expire_all_but(empty_history, 1)
    assert codes(empty_history.audit()) == {MISSING, GAP}


def test_a_protection_that_began_empty_before_a_gap_may_have_expired(empty_history: History) -> None:
    publish(empty_history, "first")
    empty_history.protect(UNPROTECT)
    for name in ("free", "freer"):
        empty_history.snapshot([empty_history.data_file(name)])
    empty_history.protect()
    publish(empty_history, "second")
    expire_all_but(empty_history, 1)
    assert codes(empty_history.audit()) == {GAP}


def test_receipts_in_a_cycle_are_found(empty_history: History) -> None:
    publish(empty_history, "first")
    empty_history.publish(
        empty_history.data_file("second"),
        receipt=lambda receipt: replace(receipt, old_snapshot_id=receipt.new_snapshot_id),
    )
    publish(empty_history, "third")
    expire_all_but(empty_history, 1)
    assert "audit_receipt_wrong_snapshot" in codes(empty_history.audit())


CUT: dict[str, tuple[list[Edge], Past, int]] = {
    "goes on": ([Edge(0, True, None)], Past({3: 0}, {2}, 2), 1),
    "goes on, whole": ([Edge(0, True, None)], Past({3: 0}, {2}, None), 0),
    "ended with nothing": ([Edge(0, True, None), Edge(1, False, None), Edge(2, True, 2)], Past({3: 0}, {2}, 2), 0),
    "ended in sight": ([Edge(0, True, None), Edge(1, False, 3)], Past({3: 0, 4: 1}, {2}, 2), 1),
    "ended where the way is cut": ([Edge(0, True, None), Edge(1, False, 2)], Past({3: 0}, {2}, 2), 1),
    "ended out of sight": ([Edge(0, True, None), Edge(1, False, 1), Edge(2, True, 2)], Past({3: 0}, {2}, 2), 0),
    "said again": ([Edge(0, True, None), Edge(1, True, 3)], Past({3: 0}, {2}, 2), 1),
}


@for_each("case", CUT)
def test_a_protection_that_began_empty_needs_receipts_back_to_the_beginning(case: str) -> None:
    edges, past, finding_count = CUT[case]
    notes = Notes()
    find_required_spans(edges, past, notes)
    assert [finding.code for finding in notes.findings] == [MISSING] * finding_count


# Files of expired publications


def test_an_unproved_file_of_an_expired_publication_is_found(any_history: History) -> None:
    proved, strange = any_history.data_file("proved"), any_history.data_file("strange")
    any_history.publish(proved, shown=[proved, strange])
    publish(any_history, "second", "third")
    expire_all_but(any_history, 2)
    report = any_history.audit()
    assert (codes(report), standings(report)) == ({DIFFER}, [Standing.UNPROVED, Standing.OK])
    assert report.snapshots[0].findings[0].got == strange.file_path


def test_a_file_of_another_size_than_was_proved_is_found(any_history: History) -> None:
    proved = any_history.data_file("proved")
    any_history.publish(proved, shown=[replace(proved, file_size_in_bytes=proved.file_size_in_bytes + 1)])
    publish(any_history, "second", "third")
    expire_all_but(any_history, 2)
    assert codes(any_history.audit()) == {DIFFER}


def test_a_file_that_an_expired_publication_left_out_is_found(any_history: History) -> None:
    proved = any_history.data_file("proved")
    any_history.publish(proved, shown=[])
    publish(any_history, "second", "third")
    expire_all_but(any_history, 2)
    report = any_history.audit()
    assert codes(report) == {DIFFER}
    assert report.snapshots[0].findings[0].expected == proved.file_path


def test_a_file_that_an_expired_publication_removed_and_main_still_shows_is_found(any_history: History) -> None:
    first = any_history.data_file("first")
    any_history.publish(first)
    any_history.publish(any_history.data_file("second"), removed=[first.file_path], gone=[])
    publish(any_history, "third", "fourth")
    expire_all_but(any_history, 2)
    assert codes(any_history.audit()) == {DIFFER}


def test_a_file_from_before_the_protection_that_a_proof_removed_is_found(filled_history: History) -> None:
    old = f"file://{filled_history.folder}/orders/data/old.parquet"
    filled_history.publish(filled_history.data_file("first"), removed=[old], gone=[])
    publish(filled_history, "second", "third")
    expire_all_but(filled_history, 2)
    assert codes(filled_history.audit()) == {DIFFER}


def test_files_that_expired_publications_replaced_are_no_finding(any_history: History) -> None:
    first, second = any_history.data_file("first"), any_history.data_file("second")
    any_history.publish(first)
    any_history.publish(second, removed=[first.file_path])
    any_history.publish(any_history.data_file("third"))
    any_history.publish(any_history.data_file("fourth"), removed=[second.file_path])
    expire_all_but(any_history, 1)
    assert codes(any_history.audit()) == set()


def test_another_row_count_of_an_expired_publication_is_found(any_history: History) -> None:
    proved = any_history.data_file("proved")
    any_history.publish(proved, shown=[replace(proved, record_count=99)])
    publish(any_history, "second", "third")
    expire_all_but(any_history, 2)
    assert codes(any_history.audit()) == {"audit_rows_differ"}


def test_a_delete_file_that_an_expired_publication_added_is_found(any_history: History) -> None:
    any_history.publish(any_history.data_file("first"), relist=with_deletes(any_history))
    publish(any_history, "second", "third")
    expire_all_but(any_history, 2)
    assert "audit_delete_file_added" in codes(any_history.audit())


def test_the_report_counts_files_from_before_the_oldest_receipt(
    filled_history: History, empty_history: History
) -> None:
    counts = []
    for history in (filled_history, empty_history):
        publish(history, "first", "second")
        expire_all_but(history, 1)
        counts.append(sum("about 1 file that" in each for each in history.audit().not_proved))
    assert counts == [1, 0]


# Proofs of expired publications

PROOFS: dict[str, tuple[Callable[[History], object], set[str]]] = {
    "a FAIL": (lambda h: h.publish(h.data_file("x"), passed=False), {"audit_verdict_not_pass"}),
    "a FAIL that was waived": (lambda h: h.publish(h.data_file("x"), passed=False, waived=True), set()),
    "a proof of another table": (
        lambda h: h.publish(
            h.data_file("x"),
            core=lambda core: replace(
                core,
                target=replace(
                    core.target, table=replace(core.target.table, uuid="4f0c2d5e-2222-4222-8333-9a8b7c6d5e4f")
                ),
            ),
        ),
        {"audit_proof_wrong_table"},
    ),
    "a proof under another contract": (
        lambda h: h.publish(
            h.data_file("x"),
            core=lambda core: replace(core, attempt=replace(core.attempt, contract_sha256=fixed("other", 32))),
        ),
        {"audit_proof_wrong_contract"},
    ),
}


@pytest.mark.parametrize("case", PROOFS)
def test_a_false_proof_of_an_expired_publication_is_found(any_history: History, case: str) -> None:
    change, expected = PROOFS[case]
    change(any_history)
    publish(any_history, "second", "third")
    expire_all_but(any_history, 1)
    assert codes(any_history.audit()) == expected


def test_a_missing_proof_of_an_expired_publication_is_found(any_history: History) -> None:
    publish(any_history, "first", "second", "third")
    expire_all_but(any_history, 1)
    evidence = any_history.evidence()
    lost = next(each for each in evidence.statements if each.kind is StatementKind.PROOF)
    others = replace(evidence, statements=tuple(each for each in evidence.statements if each is not lost))
    report = any_history.audit(evidence=others)
    assert codes(report) == {"audit_proof_missing"}
    assert "which has expired" in report.findings[0].message


def test_a_nonce_that_an_expired_publication_used_is_found_when_used_again(any_history: History) -> None:
    publish(any_history, "first")

    def publish_with_the_same_nonce(history: History) -> None:
        history.publish(
            history.data_file("x"),
            core=lambda core: replace(core, attempt=replace(core.attempt, nonce=fixed("same", 16))),
        )

    publish_with_the_same_nonce(any_history)
    publish(any_history, "second")
    publish_with_the_same_nonce(any_history)
    expire_all_but(any_history, 1)
    assert codes(any_history.audit()) == {"audit_used_twice"}


# Bytes that are read again


def test_files_of_expired_publications_are_read_again_while_main_shows_them(any_history: History) -> None:
    first, second = any_history.data_file("first"), any_history.data_file("second")
    any_history.publish(first)
    any_history.publish(second)
    publish(any_history, "third", "fourth")
    expire_all_but(any_history, 2)
    report = any_history.audit(again=True)
    assert (codes(report), report.rehashed and report.rehashed.data_files) == (set(), 4)
    local(second.file_path).write_bytes(b"others")
    assert codes(any_history.audit(again=True)) == {"audit_bytes_changed"}
    any_history.publish(any_history.data_file("fifth"), removed=[second.file_path])
    assert codes(any_history.audit(again=True)) == set()


def test_the_report_uses_the_singular_for_one_snapshot_manifest_and_file(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.protect()
    history.publish(history.data_file("only"))
    sentences = history.audit(again=True).proved
    assert sentences[0].startswith("1 of 1 snapshot of main has a receipt")
    assert sentences[2] == "the 1 manifest that main shows has the hash that its receipt binds"
    assert sentences[3] == "1 data file was read, and compared with what the proofs bind, by SHA-256"
