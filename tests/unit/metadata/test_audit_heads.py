"""From which snapshot on a table must be proved: from the head of `main` that the protection names, not by times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.metadata.audit import protection as audit_heads
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.evidence import parse_audit_bundle
from pvdm.metadata.audit.protection import Edge, Past, find_required_spans
from pvdm.metadata.audit.report import AuditReport, Notes, Standing
from pvdm.model.statements.migration import NamespaceTarget, ProtectionAction, TableTarget
from pvdm.model.statements.table import NamespaceRef
from tests.support.audit.crafted_history import HASH, History, codes, standings
from tests.support.for_each import for_each
from tests.support.gate.approvals import COLUMN
from tools.proof_kit import NOW, ORIGIN, ROOT, SECOND, fixed

OK, BEFORE, UNPROVED, IN_GAP = Standing.OK, Standing.BEFORE, Standing.UNPROVED, Standing.IN_GAP
UNPROTECT = ProtectionAction.UNPROTECT
# A history begins at EARLY and goes on by a second at each step, so LATE is after them. Clocks may differ by as much.
EARLY, LATE = (NOW - 1_000 * SECOND) // 1_000, (NOW - 945 * SECOND) // 1_000
MISSING, NOT_SHOWN, GAP = "audit_receipt_missing", "audit_head_not_shown", "audit_protection_gap"


@pytest.fixture
def history(tmp_path: Path) -> History:
    """One snapshot, and a table that is protected since; nothing was published yet."""
    history = History(tmp_path)
    history.snapshot([history.data_file("old")])
    history.protect()
    return history


def at_time(timestamp_ms: int) -> Callable[[Any], Any]:
    """A change of a snapshot that gives it this time."""
    return lambda snapshot: {**snapshot, "timestamp-ms": timestamp_ms}


def add_backdated_snapshot(history: History, name: str = "slipped") -> None:
    """Add a snapshot without a proof, as a writer of the catalog's database can. Its time is before the protection."""
    history.snapshot([history.data_file(name)], said=at_time(EARLY))


def protect_at(history: History, snapshot_id: int | None, action: ProtectionAction) -> None:
    """An operator signs a protection, or its end, that names this snapshot as the head of `main`."""
    protection = history.protection(action)
    assert isinstance(protection.target, TableTarget)
    history.say(replace(protection, target=replace(protection.target, snapshot_id=snapshot_id)), "operator-tom")


def outcome(report: AuditReport) -> tuple[list[Standing], set[str]]:
    return standings(report), codes(report)


# Snapshots with a false time


def test_a_backdated_snapshot_between_protection_and_first_publication_is_unproved(history: History) -> None:
    add_backdated_snapshot(history)
    history.publish(history.data_file("first"))
    assert outcome(history.audit()) == ([BEFORE, UNPROVED, OK], {MISSING})


def test_a_backdated_snapshot_is_unproved_before_anything_was_published(history: History) -> None:
    add_backdated_snapshot(history)
    assert outcome(history.audit()) == ([BEFORE, UNPROVED], {MISSING})


def test_a_backdated_snapshot_is_unproved_from_a_bundle_too(history: History) -> None:
    add_backdated_snapshot(history)
    history.publish(history.data_file("first"))
    bundle = parse_audit_bundle(history.bundle().to_bytes())
    report = audit(bundle.evidence, bundle, AuditTrust(ROOT, ORIGIN, NOW))
    assert outcome(report) == ([BEFORE, UNPROVED, OK], {MISSING})


def test_every_snapshot_of_a_table_that_was_protected_empty_has_to_be_proved(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.protect()
    add_backdated_snapshot(history)
    history.publish(history.data_file("first"))
    assert outcome(history.audit()) == ([UNPROVED, OK], {MISSING})


def test_every_snapshot_of_a_table_that_was_born_protected_has_to_be_proved(tmp_path: Path) -> None:
    history = History(tmp_path)
    space = NamespaceTarget(NamespaceRef("lake", fixed("space", 16), "sales"), HASH)
    history.say(replace(history.protection(), target=space), "operator-tom")
    add_backdated_snapshot(history)
    history.publish(history.data_file("first"))
    assert outcome(history.audit()) == ([UNPROVED, OK], {MISSING})


def test_a_migration_does_not_begin_a_new_protection(history: History) -> None:
    add_backdated_snapshot(history)
    history.migrate(COLUMN)
    add_backdated_snapshot(history, "again")
    history.publish(history.data_file("first"))
    assert outcome(history.audit()) == ([BEFORE, UNPROVED, UNPROVED, OK], {MISSING})


def test_a_snapshot_from_before_the_protection_with_a_later_time_needs_no_proof(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.snapshot([history.data_file("old")], said=at_time(LATE))
    history.protect()
    assert outcome(history.audit()) == ([BEFORE], set())


# Protected, unprotected, and protected again


def test_each_protection_binds_its_own_head(history: History) -> None:
    history.publish(history.data_file("first"))
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")])
    history.protect()
    add_backdated_snapshot(history)
    history.publish(history.data_file("second"))
    assert outcome(history.audit()) == ([BEFORE, OK, IN_GAP, UNPROVED, OK], {MISSING, GAP})


def test_an_unproved_snapshot_before_the_end_of_protection_is_found(history: History) -> None:
    history.publish(history.data_file("first"))
    history.snapshot([history.data_file("slipped")], said=at_time(LATE))
    history.protect(UNPROTECT)
    history.snapshot([history.data_file("free")])
    history.protect()
    assert outcome(history.audit()) == ([BEFORE, OK, UNPROVED, IN_GAP], {MISSING, GAP})


def test_a_snapshot_after_the_end_of_protection_needs_no_proof(history: History) -> None:
    history.protect(UNPROTECT)
    add_backdated_snapshot(history, "free")
    assert outcome(history.audit()) == ([BEFORE, IN_GAP], {GAP})


# Heads that `main` does not show


def test_a_head_that_main_never_showed_is_found(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.snapshot([history.data_file("old")])
    protect_at(history, 7, ProtectionAction.PROTECT)
    history.publish(history.data_file("first"))
    assert outcome(history.audit()) == ([UNPROVED, OK], {NOT_SHOWN, MISSING})


def test_a_main_that_was_reset_to_before_its_head_is_found(history: History) -> None:
    history.commit([{"action": "remove-snapshot-ref", "ref-name": "main"}])
    assert outcome(history.audit()) == ([], {NOT_SHOWN})
    add_backdated_snapshot(history)
    assert outcome(history.audit()) == ([UNPROVED], {NOT_SHOWN, MISSING})


def test_an_end_of_protection_at_a_head_that_main_never_showed_is_found(history: History) -> None:
    protect_at(history, 7, UNPROTECT)
    add_backdated_snapshot(history)
    assert outcome(history.audit()) == ([BEFORE, UNPROVED], {NOT_SHOWN, MISSING, GAP})


def test_without_the_check_a_missing_head_is_not_found(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.commit([{"action": "remove-snapshot-ref", "ref-name": "main"}])
    monkeypatch.setattr(audit_heads, "require_expired", lambda *_: None)
    assert history.audit().holds


# Heads that have expired


def test_what_is_left_of_a_history_whose_head_expired_has_to_be_proved(history: History) -> None:
    old = history.head
    add_backdated_snapshot(history)
    history.expire(old)
    assert outcome(history.audit()) == ([UNPROVED], {MISSING})


def test_receipts_that_lead_back_to_an_expired_head_hold(history: History) -> None:
    expired = [history.head]
    expired += [history.publish(history.data_file(name)) for name in ("first", "second")]
    history.publish(history.data_file("third"))
    history.expire(*expired)
    assert outcome(history.audit()) == ([OK], set())


def test_a_changed_manifest_of_an_expired_snapshot_is_found_by_the_hash_in_the_newest_list(history: History) -> None:
    old = history.metadata.current_snapshot_id
    assert old is not None
    first = history.publish(history.data_file("first"))
    history.publish(history.data_file("second"))
    history.publish(history.data_file("third"))
    history.expire(old, first)
    assert codes(history.audit()) == set()
    carried = history.folder / "vault" / f"{first}-m0.avro"
    data = carried.read_bytes()
    carried.write_bytes(data[:-16].replace(data[-16:], bytes(16)) + bytes(16))
    assert codes(history.audit()) == {"audit_manifests_changed"}


def test_an_expired_head_without_receipts_that_lead_back_to_it_is_found(history: History) -> None:
    """The unproved snapshot has expired too, so the audit can only say that the head is missing."""
    old = history.head
    add_backdated_snapshot(history)
    slipped = history.head
    first = history.publish(history.data_file("first"))
    history.publish(history.data_file("second"))
    history.expire(old, slipped, first)
    assert outcome(history.audit()) == ([OK], {NOT_SHOWN})


def test_a_receipt_without_its_inclusion_proof_does_not_lead_back(history: History) -> None:
    expired = [history.head, history.publish(history.data_file("first"))]
    lost = history.statements[-1].index
    expired.append(history.publish(history.data_file("second")))
    history.publish(history.data_file("third"))
    history.expire(*expired)
    evidence = history.evidence()
    changed = (replace(each, hashes=()) if each.index == lost else each for each in evidence.statements)
    report = history.audit(evidence=replace(evidence, statements=tuple(changed)))
    assert outcome(report) == ([OK], {NOT_SHOWN})


def test_heads_before_a_time_without_protection_may_have_expired(history: History) -> None:
    expired = [history.head, history.publish(history.data_file("first"))]
    history.protect(UNPROTECT)
    for name in ("free", "freer", "freest"):
        history.snapshot([history.data_file(name)])
        expired.append(history.head)
    history.protect()
    history.publish(history.data_file("second"))
    history.expire(*expired[:-1])
    assert outcome(history.audit()) == ([IN_GAP, OK], {GAP})


def test_a_publication_that_was_taken_back_after_expired_heads_is_found(history: History) -> None:
    expired = [history.head]
    history.protect(UNPROTECT)
    for name in ("free", "freer", "freest"):
        history.snapshot([history.data_file(name)])
        expired.append(history.head)
    history.protect()
    history.expire(*expired[:-1])
    before = history.evidence().metadata
    history.publish(history.data_file("taken back"))
    evidence = replace(history.evidence(), metadata=before)
    assert outcome(history.audit(evidence=evidence)) == ([IN_GAP], {"audit_receipt_without_snapshot", GAP})


# The rule itself


CUT, WHOLE = 4, None
HEADS: dict[str, tuple[list[Edge], Past, list[bool], int]] = {
    "never protected": ([], Past({1: 0, 2: 1}, set(), WHOLE), [False, False], 0),
    "from the head on": ([Edge(0, True, 1)], Past({1: 0, 2: 1}, set(), WHOLE), [False, True], 0),
    "from nothing on": ([Edge(0, True, None)], Past({1: 0, 2: 1}, set(), WHOLE), [True, True], 0),
    "up to the end": (
        [Edge(0, True, 1), Edge(0, False, 2)],
        Past({1: 0, 2: 1, 3: 2}, set(), WHOLE),
        [False, True, False],
        0,
    ),
    "an end that showed nothing": (
        [Edge(0, True, None), Edge(0, False, None)],
        Past({1: 0}, set(), WHOLE),
        [False],
        0,
    ),
    "protected twice without an end": (
        [Edge(0, True, 1), Edge(0, True, 3)],
        Past({1: 0, 2: 1, 3: 2}, set(), WHOLE),
        [False, True, True],
        0,
    ),
    "the head is older than all": ([Edge(0, True, 1)], Past({2: 0}, {1}, CUT), [True], 0),
    "the head is out of sight under protection": ([Edge(0, True, 1)], Past({3: 0}, {2}, CUT), [True], 1),
    "the head is nowhere in a whole history": (
        [Edge(0, True, 9), Edge(0, False, 1)],
        Past({1: 0}, set(), WHOLE),
        [True],
        1,
    ),
    "heads are out of sight behind a free time": (
        [Edge(0, True, 1), Edge(0, False, 2), Edge(0, True, 5)],
        Past({5: 0, 6: 1}, {4}, CUT),
        [False, True],
        0,
    ),
    "heads are nowhere in a whole history, free time or not": (
        [Edge(0, True, 1), Edge(0, False, 2), Edge(0, True, 5)],
        Past({5: 0, 6: 1}, set(), WHOLE),
        [True, True],
        2,
    ),
    "a beginning is out of sight though its end is not": (
        [Edge(0, True, 1), Edge(0, False, 5)],
        Past({5: 0, 6: 1}, {4}, CUT),
        [True, False],
        1,
    ),
    "an end is out of sight though its beginning is not": (
        [Edge(0, True, 5), Edge(0, False, 9)],
        Past({5: 0, 6: 1}, {4}, CUT),
        [False, True],
        1,
    ),
    "an end is out of sight though its beginning is known to be older": (
        [Edge(0, True, 4), Edge(0, False, 9)],
        Past({5: 0}, {4}, CUT),
        [True],
        1,
    ),
}


@for_each("case", HEADS)
def test_snapshots_between_the_heads_of_a_protection_must_be_proved(case: str) -> None:
    edges, past, expected, finding_count = HEADS[case]
    notes = Notes()
    wanted = find_required_spans(edges, past, notes)
    assert [wanted.covers(position) for position in range(len(past.positions))] == expected
    assert [finding.code for finding in notes.findings] == [NOT_SHOWN] * finding_count
