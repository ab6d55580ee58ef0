"""Gaps in protection: when they were, what they left without a proof, and that each has to be accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.cli.evidence.audit_text import report_lines
from pvdm.lake.format.manifest.entry import DataFile, IdMap
from pvdm.lake.format.manifest.manifest_list import ManifestFile
from pvdm.metadata.audit import audit as audit_module
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.evidence import Evidence, parse_audit_bundle
from pvdm.metadata.audit.report import AuditReport, CountedFiles, Gap, Standing
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import NamespaceTarget, ProtectionAction
from pvdm.model.statements.table import NamespaceRef
from tests.support.audit.crafted_history import HASH, History, codes, listing, standings, with_deletes
from tests.support.stores.places import file_at
from tools.proof_kit import NOW, ORIGIN, ROOT, fixed

UNPROTECT = ProtectionAction.UNPROTECT
OK, BEFORE, IN_GAP = Standing.OK, Standing.BEFORE, Standing.IN_GAP
GAP, UNKNOWN = "audit_protection_gap", "audit_gap_unknown"
NONE = CountedFiles(0, 0)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A snapshot from before the protection, and two publications of a file each."""
    history = History(tmp_path)
    history.snapshot([history.data_file("old")])
    history.protect()
    history.publish(history.data_file("first"))
    history.publish(history.data_file("second"))
    return history


def file_paths(history: History, *names: str) -> list[str]:
    return [history.data_file(name).file_path for name in names]


def snapshot_ids(history: History) -> list[int]:
    return [each.snapshot_id for each in history.metadata.snapshots]


def expire_all(history: History) -> None:
    history.expire(*(each for each in snapshot_ids(history) if each != history.head))


def rewrite(history: History, *, expired: bool = True) -> None:
    """Unprotect the table, replace all files by one without a proof, expire the old snapshots, and protect it again."""
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("rewritten", 30)], file_paths(history, "old", "first", "second"))
    if expired:
        expire_all(history)
    history.protect()


def only_gap(report: AuditReport) -> Gap:
    (gap,) = report.gaps
    return gap


def audit_with_accepted_gaps(history: History) -> AuditReport:
    """An audit that accepts every gap."""
    return history.audit(accepted=[each.gap_id for each in history.audit().gaps])


# What is reported


def test_a_table_that_was_rewritten_and_expired_without_protection_does_not_hold(history: History) -> None:
    rewrite(history)
    report = history.audit()
    assert (report.holds, codes(report), standings(report)) == (False, {GAP}, [IN_GAP])
    gap = only_gap(report)
    assert (gap.uncovered, gap.lost, gap.bytes_proved) == (CountedFiles(1, 30), CountedFiles(2, 20), NONE)
    assert (gap.publications_expired, gap.snapshots_expired, gap.snapshot_ids) == (2, True, (history.head,))
    assert not gap.same_snapshot


def test_a_gap_says_from_when_to_when_by_whom_and_why(history: History) -> None:
    before = history.head
    rewrite(history)
    gap = only_gap(history.audit())
    assert gap.begun is not None
    assert (gap.ended.snapshot_id, gap.begun.snapshot_id) == (before, history.head)
    assert gap.ended.logged_at < gap.begun.logged_at
    assert (gap.ended.operator, gap.begun.reason) == ("operator-tom", "orders go live")


def test_a_gap_that_is_named_is_accepted_and_still_reported(history: History) -> None:
    rewrite(history)
    report = audit_with_accepted_gaps(history)
    assert (report.holds, codes(report), only_gap(report).accepted) == (True, set(), True)
    assert report.to_json()["gaps"] == [only_gap(report).to_json()]
    assert only_gap(report).to_json()["uncovered"] == {"files": 1, "rows": 30}


def test_the_first_protection_of_a_table_that_has_rows_is_no_gap(history: History) -> None:
    assert (history.audit().holds, history.audit().gaps) == (True, ())


def test_without_the_check_a_gap_is_no_finding(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(history)
    monkeypatch.setattr(audit_module, "require_accepted", lambda _: None)
    assert history.audit().holds


def test_a_gap_in_which_nothing_changed_covers_every_row_and_has_to_be_accepted(history: History) -> None:
    """The audit cannot know what `main` showed in between: it may have been changed and changed back."""
    history.protect(UNPROTECT)
    history.protect()
    report = history.audit()
    gap = only_gap(report)
    assert (codes(report), standings(report)) == ({GAP}, [BEFORE, OK, OK])
    assert (gap.same_snapshot, gap.uncovered, gap.lost, gap.snapshot_ids) == (True, NONE, NONE, ())
    assert audit_with_accepted_gaps(history).holds


def test_a_gap_in_which_only_old_snapshots_expired_covers_every_row(history: History) -> None:
    history.protect(UNPROTECT)
    expire_all(history)
    history.protect()
    gap = only_gap(history.audit())
    assert (gap.same_snapshot, gap.uncovered, gap.lost, gap.publications_expired) == (True, NONE, NONE, 1)


def test_files_added_and_removed_in_a_gap_are_counted_while_the_last_publication_is_there(history: History) -> None:
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free", 7)], file_paths(history, "first"))
    history.protect()
    report = history.audit()
    assert standings(report) == [BEFORE, OK, OK, IN_GAP]
    assert (only_gap(report).uncovered, only_gap(report).lost) == (CountedFiles(1, 7), CountedFiles(1, 10))


def test_files_of_an_expired_last_publication_are_uncovered_with_proved_bytes(history: History) -> None:
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free", 7)])
    expire_all(history)
    history.protect()
    gap = only_gap(history.audit())
    assert (gap.uncovered, gap.bytes_proved, gap.lost) == (CountedFiles(4, 37), CountedFiles(2, 20), NONE)


def test_publications_after_a_gap_are_covered_and_the_gap_keeps_its_id(history: History) -> None:
    rewrite(history)
    before = only_gap(history.audit())
    history.publish(history.data_file("third"))
    history.publish(history.data_file("fourth"), removed=file_paths(history, "third"))
    report = audit_with_accepted_gaps(history)
    assert (report.holds, standings(report)) == (True, [IN_GAP, OK, OK])
    assert (only_gap(report).gap_id, only_gap(report).uncovered) == (before.gap_id, before.uncovered)
    history.expire(*snapshot_ids(history)[:-1])
    later = audit_with_accepted_gaps(history)
    assert (later.holds, only_gap(later).uncovered) == (True, before.uncovered)


def test_uncovered_rows_that_a_publication_replaced_are_not_counted(history: History) -> None:
    rewrite(history)
    history.publish(history.data_file("third"), removed=file_paths(history, "rewritten"))
    gap = only_gap(history.audit())
    assert (gap.uncovered, gap.lost) == (NONE, CountedFiles(2, 20))


def test_a_file_that_a_later_publication_removed_is_not_lost_in_the_gap(history: History) -> None:
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")])
    history.protect()
    history.publish(history.data_file("third"), removed=file_paths(history, "first"))
    assert (only_gap(history.audit()).uncovered, only_gap(history.audit()).lost) == (CountedFiles(1, 10), NONE)


def test_a_table_that_is_not_protected_now_has_a_gap_without_an_end(history: History) -> None:
    history.protect(UNPROTECT)
    still = only_gap(history.audit())
    assert (still.begun, still.same_snapshot, codes(history.audit())) == (None, True, {GAP})
    history.snapshot([history.data_file("free")])
    changed = only_gap(history.audit())
    assert (changed.uncovered, changed.same_snapshot) == (CountedFiles(1, 10), False)


def test_a_table_that_was_born_protected_has_no_gap_before_it_is_unprotected(tmp_path: Path) -> None:
    history = History(tmp_path)
    space = NamespaceTarget(NamespaceRef("lake", fixed("space", 16), "sales"), HASH)
    history.say(replace(history.protection(), target=space), "operator-tom")
    history.publish(history.data_file("first"))
    assert history.audit().gaps == ()
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")])
    history.protect()
    assert only_gap(history.audit()).uncovered == CountedFiles(1, 10)


def test_a_gap_of_a_table_that_showed_nothing_leaves_all_its_rows_uncovered(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.protect()
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")])
    history.protect()
    report = history.audit()
    assert (standings(report), only_gap(report).uncovered) == ([IN_GAP], CountedFiles(1, 10))


# Two gaps


def make_two_gaps(history: History) -> tuple[Gap, Gap]:
    """Make two gaps with a publication between them; return both as the audit reports them."""
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free", 7)])
    history.protect()
    history.publish(history.data_file("third"))
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("freer", 5)], file_paths(history, "second"))
    history.protect()
    one, two = history.audit().gaps
    return one, two


def test_each_of_two_gaps_has_its_own_rows(history: History) -> None:
    one, two = make_two_gaps(history)
    assert (one.uncovered, one.lost) == (CountedFiles(1, 7), NONE)
    assert (two.uncovered, two.lost) == (CountedFiles(1, 5), CountedFiles(1, 10))
    assert standings(history.audit()) == [BEFORE, OK, OK, IN_GAP, OK, IN_GAP]


def test_each_of_two_gaps_has_to_be_accepted(history: History) -> None:
    one, two = make_two_gaps(history)
    for some in ((one.gap_id,), (two.gap_id,)):
        report = history.audit(accepted=some)
        assert (codes(report), [each.accepted for each in report.gaps].count(True)) == ({GAP}, 1)
    assert history.audit(accepted=(one.gap_id, two.gap_id)).holds


def test_files_that_may_belong_to_either_gap_are_counted_once_apart_from_both(history: History) -> None:
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free", 7)])
    history.protect()
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("freer", 5)])
    history.snapshot([history.data_file("freest", 3)])
    expire_all(history)
    history.protect()
    report = history.audit()
    one, two = report.gaps
    for each in (one, two):
        assert (each.uncovered, each.bytes_proved, each.snapshot_ids, each.snapshots_expired) == (NONE, NONE, (), True)
    found = report.undecided_gaps
    assert found is not None
    assert (found.gap_ids, found.snapshot_ids) == ((one.gap_id, two.gap_id), (history.head,))
    assert (found.uncovered, found.bytes_proved, found.lost) == (CountedFiles(6, 45), CountedFiles(2, 20), NONE)
    assert (standings(report), report.to_json()["undecided_gaps"]) == ([IN_GAP], found.to_json())
    words = [line.strip() for line, _ in report_lines(report)]
    sentence = f"IN ONE OF THE GAPS {one.gap_id}, {two.gap_id}: no proof shows in which"
    assert words.count(sentence) == 1
    assert words.count("main shows 45 rows in 6 files that no proof covers") == 1


def test_files_lost_in_either_gap_are_counted_once_apart_from_both(history: History) -> None:
    history.protect(UNPROTECT)
    history.protect()
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free", 5)], file_paths(history, "first", "second"))
    expire_all(history)
    history.protect()
    report = history.audit()
    assert [each.lost for each in report.gaps] == [NONE, NONE]
    assert report.undecided_gaps is not None
    assert report.undecided_gaps.lost == CountedFiles(2, 20)


def test_gaps_with_a_publication_between_them_leave_nothing_undecided(history: History) -> None:
    make_two_gaps(history)
    assert history.audit().undecided_gaps is None


# A gap cannot be made to look smaller


def test_an_acceptance_does_not_cover_later_changes(history: History) -> None:
    history.protect(UNPROTECT)
    small = only_gap(history.audit()).gap_id
    history.snapshot([history.data_file("free")])
    assert codes(history.audit(accepted=[small])) == {GAP, UNKNOWN}
    larger = only_gap(history.audit()).gap_id
    history.protect()
    assert codes(history.audit(accepted=[larger])) == {GAP, UNKNOWN}


def test_a_gap_whose_manifest_list_changed_needs_another_acceptance(history: History) -> None:
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")])
    known = only_gap(history.audit()).gap_id
    listed = history.metadata.current_snapshot
    assert listed is not None
    place = file_at(listed.manifest_list or "")
    place.write_bytes(history.bundle().files[listed.manifest_list or ""][:-16] + bytes(16))
    assert known not in [each.gap_id for each in history.audit().gaps]


def test_accepting_an_unknown_gap_is_a_finding(history: History) -> None:
    assert codes(history.audit(accepted=["ab" * 16])) == {UNKNOWN}


def evidence_without(history: History, is_left_out: Callable[[int], bool]) -> Evidence:
    evidence = history.evidence()
    kept = (each for at, each in enumerate(evidence.statements) if not is_left_out(at))
    return replace(evidence, statements=tuple(kept))


def test_leaving_out_the_end_of_protection_makes_the_table_unproved(history: History) -> None:
    rewrite(history)
    approvals = [at for at, each in enumerate(history.statements) if each.kind is StatementKind.PROTECTION]
    for left_out in ({approvals[1]}, set(approvals[1:])):
        report = history.audit(evidence=evidence_without(history, left_out.__contains__))
        assert codes(report) == {"audit_receipt_missing"}


def test_leaving_out_a_proof_of_an_expired_publication_is_a_finding(history: History) -> None:
    """Without the proof the gap's lost rows would look fewer."""
    rewrite(history)
    proof = next(at for at, each in enumerate(history.statements) if each.kind is StatementKind.PROOF)
    report = history.audit(evidence=evidence_without(history, proof.__eq__))
    assert codes(report) == {GAP, "audit_proof_missing"}


def test_lost_rows_of_a_file_without_its_listing_are_counted_too_high(tmp_path: Path) -> None:
    """The proof has the row count of two files together, and the gap's manifests are not trusted."""
    history = History(tmp_path)
    history.protect()
    history.publish(history.data_file("one"), history.data_file("two"))
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")], file_paths(history, "two"))
    expire_all(history)
    history.protect()
    assert only_gap(history.audit()).lost == CountedFiles(1, 20)


def test_a_manifest_list_without_a_receipt_covers_no_row(tmp_path: Path) -> None:
    """The list has the hashes of its manifests, like the Steward's lists, but anybody can write such a list."""
    history = History(tmp_path)
    history.snapshot([history.data_file("old")], by_steward=True)
    history.protect()
    history.protect(UNPROTECT)
    history.protect()
    gap = only_gap(history.audit())
    assert (gap.same_snapshot, gap.uncovered) == (False, CountedFiles(1, 10))


Listed = Callable[[DataFile], Sequence[DataFile]]
LIES: dict[str, Listed] = {
    "with fewer rows": lambda file: [replace(file, record_count=1)],
    "shorter than it is": lambda file: [replace(file, file_size_in_bytes=4)],
    "with bounds that hide its rows": lambda file: [replace(file, lower_bounds=IdMap([(1, b"\xff" * 8)]))],
    "twice": lambda file: [file, file],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_proved_file_that_a_gap_lists_with_other_values_is_not_covered(lie: str, history: History) -> None:
    first = history.data_file("first")
    history.protect(UNPROTECT)
    history.snapshot([], [first.file_path])
    history.snapshot(LIES[lie](first))
    history.protect()
    gap = only_gap(history.audit())
    assert gap.uncovered is not None
    assert gap.uncovered.files == len(LIES[lie](first))


def test_a_proved_file_that_a_gap_lists_once_more_is_covered_once(history: History) -> None:
    """A copy of a published manifest with the same entries is listed, so its rows are shown twice."""
    copy = history.folder / "vault" / "copy.avro"

    def list_once_more(listed: list[ManifestFile]) -> list[ManifestFile]:
        copy.write_bytes(file_at(listed[-1].manifest_path).read_bytes())
        return [*listed, replace(listed[-1], manifest_path=f"file://{copy}")]

    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")], relist=listing(list_once_more))
    history.protect()
    assert only_gap(history.audit()).uncovered == CountedFiles(2, 20)


def test_a_delete_file_of_a_gap_leaves_no_row_covered(history: History) -> None:
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")], relist=with_deletes(history))
    history.protect()
    gap = only_gap(history.audit())
    assert (gap.delete_files, gap.uncovered) == (1, CountedFiles(4, 40))


# Audits of a bundle, and audits that read files again


def test_a_gap_is_the_same_from_a_bundle(history: History) -> None:
    make_two_gaps(history)
    bundle = parse_audit_bundle(history.bundle().to_bytes())
    report = audit(bundle.evidence, bundle, AuditTrust(ROOT, ORIGIN, NOW))
    assert report.gaps == history.audit().gaps


def test_files_with_proofs_of_expired_publications_are_read_again(history: History) -> None:
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")])
    expire_all(history)
    history.protect()
    report = history.audit(again=True)
    assert report.rehashed is not None
    assert report.rehashed.data_files == 2
    file_at(history.data_file("first").file_path).write_bytes(b"other rows")
    assert codes(history.audit(again=True)) == {GAP, "audit_bytes_changed"}


def test_a_head_that_cannot_be_read_leaves_the_counts_unknown(history: History) -> None:
    rewrite(history)
    listed = history.metadata.current_snapshot
    assert listed is not None
    file_at(listed.manifest_list or "").write_bytes(b"no list")
    gap = only_gap(history.audit())
    assert (gap.uncovered, gap.lost, gap.delete_files) == (None, None, None)
    assert not audit_with_accepted_gaps(history).holds
