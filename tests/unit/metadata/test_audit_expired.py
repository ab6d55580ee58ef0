"""What has expired is still held to its receipts and proofs, by what the oldest snapshot that is left carries on."""

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
from tools.proof_kit import fixed

UNPROTECT = ProtectionAction.UNPROTECT
MISSING, DIFFER, GAP = "audit_receipt_missing", "audit_files_carried_differ", "audit_protection_gap"


@pytest.fixture
def empty(tmp_path: Path) -> History:
    """A table that was protected before it showed anything."""
    made = History(tmp_path)
    made.protect()
    return made


@pytest.fixture
def filled(tmp_path: Path) -> History:
    """A table with a file from before its protection."""
    folder = tmp_path / "filled"
    folder.mkdir()
    made = History(folder)
    made.snapshot([made.data_file("old")])
    made.protect()
    return made


@pytest.fixture(params=["empty", "filled"])
def either(request: pytest.FixtureRequest) -> History:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, History)
    return found


def publish(history: History, *names: str) -> None:
    for name in names:
        history.publish(history.data_file(name))


def expire_all_but(history: History, count: int) -> None:
    """Only so many snapshots of main are left."""
    shown = [each.snapshot_id for each in history.metadata.ancestry(history.head)]
    history.expire(*shown[count:])


# The way back


def test_an_expired_snapshot_without_a_receipt_is_found_in_a_table_that_was_protected_empty(empty: History) -> None:
    empty.snapshot([empty.data_file("slipped")])
    slipped = empty.head
    publish(empty, "first", "second")
    expire_all_but(empty, 1)
    report = empty.audit()
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


def test_who_accepts_what_is_lost_accepts_no_snapshot_without_a_receipt(empty: History) -> None:
    publish(empty, "first")
    first = empty.head
    empty.snapshot([empty.data_file("slipped")])
    publish(empty, "second", "third")
    expire_all_but(empty, 1)
    assert codes(empty.audit(accept_lost=frozenset({first}))) == {MISSING}


def test_receipts_that_lead_back_to_the_beginning_hold(either: History) -> None:
    publish(either, "first", "second", "third", "fourth")
    expire_all_but(either, 2)
    report = either.audit()
    assert (codes(report), standings(report)) == (set(), [Standing.OK, Standing.OK])


def test_what_slipped_in_before_an_end_that_is_in_sight_is_found(empty: History) -> None:
    empty.snapshot([empty.data_file("slipped")])
    publish(empty, "first", "second")
    empty.protect(UNPROTECT)
    expire_all_but(empty, 1)
    assert codes(empty.audit()) == {MISSING, GAP}


def test_a_beginning_with_nothing_may_lie_behind_a_time_without_protection(empty: History) -> None:
    publish(empty, "first")
    empty.protect(UNPROTECT)
    for name in ("free", "freer"):
        empty.snapshot([empty.data_file(name)])
    empty.protect()
    publish(empty, "second")
    expire_all_but(empty, 1)
    assert codes(empty.audit()) == {GAP}


def test_receipts_that_lead_in_a_circle_are_found(empty: History) -> None:
    publish(empty, "first")
    empty.publish(empty.data_file("second"), receipt=lambda said: replace(said, old_snapshot_id=said.new_snapshot_id))
    publish(empty, "third")
    expire_all_but(empty, 1)
    assert "audit_receipt_wrong_snapshot" in codes(empty.audit())


CUT: dict[str, tuple[list[Edge], Past, int]] = {
    "goes on": ([Edge(0, True, None)], Past({3: 0}, {2}, 2), 1),
    "goes on, whole": ([Edge(0, True, None)], Past({3: 0}, {2}, None), 0),
    "ended with nothing": ([Edge(0, True, None), Edge(1, False, None), Edge(2, True, 2)], Past({3: 0}, {2}, 2), 0),
    "ended in sight": ([Edge(0, True, None), Edge(1, False, 3)], Past({3: 0, 4: 1}, {2}, 2), 1),
    "ended where the way is cut": ([Edge(0, True, None), Edge(1, False, 2)], Past({3: 0}, {2}, 2), 1),
    "ended out of sight": ([Edge(0, True, None), Edge(1, False, 1), Edge(2, True, 2)], Past({3: 0}, {2}, 2), 0),
    "said again": ([Edge(0, True, None), Edge(1, True, 3)], Past({3: 0}, {2}, 2), 1),
}


@pytest.mark.parametrize("case", CUT)
def test_what_began_with_nothing_goes_back_to_the_beginning(case: str) -> None:
    edges, past, noted = CUT[case]
    notes = Notes()
    find_required_spans(edges, past, notes)
    assert [finding.code for finding in notes.findings] == [MISSING] * noted


# What expired publications brought


def test_a_file_that_an_expired_publication_brought_along_is_found(either: History) -> None:
    proved, strange = either.data_file("proved"), either.data_file("strange")
    either.publish(proved, shown=[proved, strange])
    publish(either, "second", "third")
    expire_all_but(either, 2)
    report = either.audit()
    assert (codes(report), standings(report)) == ({DIFFER}, [Standing.UNPROVED, Standing.OK])
    assert report.snapshots[0].findings[0].got == strange.file_path


def test_a_file_of_another_size_than_was_proved_is_found(either: History) -> None:
    proved = either.data_file("proved")
    either.publish(proved, shown=[replace(proved, file_size_in_bytes=proved.file_size_in_bytes + 1)])
    publish(either, "second", "third")
    expire_all_but(either, 2)
    assert codes(either.audit()) == {DIFFER}


def test_a_file_that_an_expired_publication_left_out_is_found(either: History) -> None:
    proved = either.data_file("proved")
    either.publish(proved, shown=[])
    publish(either, "second", "third")
    expire_all_but(either, 2)
    report = either.audit()
    assert codes(report) == {DIFFER}
    assert report.snapshots[0].findings[0].expected == proved.file_path


def test_a_file_that_an_expired_publication_removed_and_main_still_shows_is_found(either: History) -> None:
    first = either.data_file("first")
    either.publish(first)
    either.publish(either.data_file("second"), removed=[first.file_path], gone=[])
    publish(either, "third", "fourth")
    expire_all_but(either, 2)
    assert codes(either.audit()) == {DIFFER}


def test_a_file_from_before_the_protection_that_a_proof_removed_is_found(filled: History) -> None:
    old = f"file://{filled.folder}/orders/data/old.parquet"
    filled.publish(filled.data_file("first"), removed=[old], gone=[])
    publish(filled, "second", "third")
    expire_all_but(filled, 2)
    assert codes(filled.audit()) == {DIFFER}


def test_what_expired_publications_replaced_holds(either: History) -> None:
    first, second = either.data_file("first"), either.data_file("second")
    either.publish(first)
    either.publish(second, removed=[first.file_path])
    either.publish(either.data_file("third"))
    either.publish(either.data_file("fourth"), removed=[second.file_path])
    expire_all_but(either, 1)
    assert codes(either.audit()) == set()


def test_rows_that_an_expired_publication_counted_otherwise_are_found(either: History) -> None:
    proved = either.data_file("proved")
    either.publish(proved, shown=[replace(proved, record_count=99)])
    publish(either, "second", "third")
    expire_all_but(either, 2)
    assert codes(either.audit()) == {"audit_rows_differ"}


def test_a_delete_file_that_an_expired_publication_added_is_found(either: History) -> None:
    either.publish(either.data_file("first"), relist=with_deletes(either))
    publish(either, "second", "third")
    expire_all_but(either, 2)
    assert "audit_delete_file_added" in codes(either.audit())


def test_what_was_there_before_the_oldest_receipt_is_told(filled: History, empty: History) -> None:
    for history in (filled, empty):
        publish(history, "first", "second")
        expire_all_but(history, 1)
    told = [[each for each in history.audit().not_proved if "about 1 file that" in each] for history in (filled, empty)]
    assert [len(each) for each in told] == [1, 0]


# What expired publications rest on

RESTS: dict[str, tuple[Callable[[History], object], set[str]]] = {
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


@pytest.mark.parametrize("case", RESTS)
def test_what_an_expired_publication_rests_on_has_to_hold(either: History, case: str) -> None:
    happen, expected = RESTS[case]
    happen(either)
    publish(either, "second", "third")
    expire_all_but(either, 1)
    assert codes(either.audit()) == expected


def test_a_proof_of_an_expired_publication_that_is_not_there_is_found(either: History) -> None:
    publish(either, "first", "second", "third")
    expire_all_but(either, 1)
    evidence = either.evidence()
    lost = next(each for each in evidence.statements if each.kind is StatementKind.PROOF)
    left = replace(evidence, statements=tuple(each for each in evidence.statements if each is not lost))
    report = either.audit(evidence=left)
    assert codes(report) == {"audit_proof_missing"}
    assert "which has expired" in report.findings[0].message


def test_a_nonce_that_an_expired_publication_used_pays_no_more(either: History) -> None:
    publish(either, "first")

    def again(history: History) -> None:
        history.publish(
            history.data_file("x"),
            core=lambda core: replace(core, attempt=replace(core.attempt, nonce=fixed("same", 16))),
        )

    again(either)
    publish(either, "second")
    again(either)
    expire_all_but(either, 1)
    assert codes(either.audit()) == {"audit_used_twice"}


# Bytes that are read again


def test_files_of_expired_publications_are_read_again_while_main_shows_them(either: History) -> None:
    first, second = either.data_file("first"), either.data_file("second")
    either.publish(first)
    either.publish(second)
    publish(either, "third", "fourth")
    expire_all_but(either, 2)
    report = either.audit(again=True)
    assert (codes(report), report.rehashed and report.rehashed.data_files) == (set(), 4)
    local(second.file_path).write_bytes(b"others")
    assert codes(either.audit(again=True)) == {"audit_bytes_changed"}
    either.publish(either.data_file("fifth"), removed=[second.file_path])
    assert codes(either.audit(again=True)) == set()


def test_what_there_is_one_of_is_told_in_the_singular(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.protect()
    history.publish(history.data_file("only"))
    told = history.audit(again=True).proved
    assert told[0].startswith("1 of 1 snapshot of main has a receipt")
    assert told[2] == "the 1 manifest that main shows has the hash that its receipt binds"
    assert told[3] == "1 data file was read, and compared with what the proofs bind, by SHA-256"
