"""A protection binds the head of `main`, its snapshot or none; if the head has moved, nothing is protected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import ConflictError
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.report import AuditReport, Standing
from pvdm.model.role import Role
from pvdm.model.statements.migration import Protection, ProtectionAction
from pvdm.steward import protections
from pvdm.steward.record.recorder import Recorder
from tests.support.audit.crafted_history import Local, codes, standings
from tests.support.audit.published_history import CONTRACT as SOLD
from tests.support.audit.published_history import NAME, Audited, gather_evidence
from tests.support.gate.approvals import HASH, Scene, reason_of, scene_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import LOG_ORIGIN

UNPROTECT = ProtectionAction.UNPROTECT
OK, BEFORE, UNPROVED = Standing.OK, Standing.BEFORE, Standing.UNPROVED


@pytest.fixture
def scene() -> Iterator[Scene]:
    with memory_folder() as folder, scene_at(folder) as made:
        yield made


@pytest.fixture
def db_scene(ledger_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The scene on SQLite and PostgreSQL in turn."""
    with scene_at(tmp_path, ledger_url=ledger_url) as made:
        yield made


def head(scene: Scene, name: str = "orders") -> int | None:
    return scene.table_state(name).metadata.current_snapshot_id


# The head of `main` must be the signed one


def test_a_protection_binds_the_head_of_main(scene: Scene) -> None:
    in_main = head(scene)
    assert in_main is not None
    assert scene.protect().snapshot_id == in_main


def test_a_protection_of_an_empty_table_binds_no_snapshot(scene: Scene) -> None:
    scene.make("empty")
    view = scene.protect(scene.protection("empty"))
    assert (view.snapshot_id, view.table_uuid) == (None, scene.table_state("empty").row.table_uuid)


def test_a_table_whose_main_moved_since_the_signature_is_not_protected(scene: Scene) -> None:
    protection, size, before = scene.protection(), scene.notary.log.size(), head(scene)
    scene.stage(branch="main")
    with pytest.raises(ConflictError) as caught:
        scene.protect(protection)
    error = caught.value
    assert (error.reason, error.expected, error.got) == (
        "approval_main_moved",
        f"snapshot {before}",
        f"snapshot {head(scene)}",
    )
    assert "sign again" in str(error.hint)
    assert (scene.contract_of(), scene.notary.log.size()) == (None, size)
    assert scene.protect().snapshot_id == head(scene)


def test_a_protection_signed_for_an_empty_table_is_refused_once_it_has_rows(scene: Scene) -> None:
    scene.make("empty")
    protection = scene.protection("empty")
    scene.stage("empty", "main")
    with pytest.raises(ConflictError) as caught:
        scene.protect(protection)
    assert (caught.value.reason, caught.value.expected) == ("approval_main_moved", "no snapshot")


def call_before_storing(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Call this once, after all checks and before the transaction that stores a protection."""
    original = Recorder.store
    done: list[object] = []

    def store(self: Recorder, *args: Any) -> None:
        if not done:
            done.append(call())
        original(self, *args)

    monkeypatch.setattr(Recorder, "store", store)


def test_a_table_whose_main_moves_between_check_and_transaction_is_not_protected(
    db_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    protection, size = db_scene.protection(), db_scene.notary.log.size()
    call_before_storing(monkeypatch, lambda: db_scene.stage(branch="main"))
    assert reason_of(lambda: db_scene.protect(protection), ConflictError) == "approval_main_moved"
    assert (db_scene.contract_of(), db_scene.notary.log.size()) == (None, size)


def test_a_branch_that_moves_meanwhile_does_not_stop_a_protection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    protection = scene.protection()
    call_before_storing(monkeypatch, scene.stage)
    scene.protect(protection)
    assert (scene.contract_of(), "stage" in scene.table_state().metadata.refs) == (HASH, True)


def test_without_the_check_a_table_is_protected_with_unseen_rows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    protection = scene.protection()
    scene.stage(branch="main")
    monkeypatch.setattr(protections, "require_head", lambda *_: None)
    scene.protect(protection)
    assert scene.contract_of() == HASH


# From protection to audit


@pytest.fixture
def audited(scene: Scene) -> Audited:
    """The table `sales.sold`, not protected yet, with rows that have no proof."""
    scene.make(NAME)
    table = Audited(scene)
    table.show(table.data_file("old"))
    return table


def next_protection(audited: Audited, action: ProtectionAction = ProtectionAction.PROTECT) -> Protection:
    audited.tick()
    return audited.scene.protection(NAME, action=action, contract=SOLD)


def audit_sold(audited: Audited) -> AuditReport:
    notary = audited.scene.notary
    evidence = gather_evidence(notary, audited.scene.grant(Role.AUDITOR), NAME)
    return audit(evidence, Local(), AuditTrust(notary.trust.current(), LOG_ORIGIN, audited.scene.now))


def test_a_backdated_snapshot_after_the_protection_is_found(audited: Audited) -> None:
    early = audited.scene.now // 1_000
    audited.scene.protect(next_protection(audited))
    audited.show(audited.data_file("slipped"), now_ms=early)
    audited.publish("first")
    found = audit_sold(audited)
    assert found.snapshots[1].timestamp_ms == early
    assert (standings(found), codes(found)) == ([BEFORE, UNPROVED, OK], {"audit_receipt_missing"})


def test_an_audit_uses_the_head_of_each_protection(audited: Audited) -> None:
    scene = audited.scene
    scene.protect(next_protection(audited))
    audited.publish("first")
    scene.protect(next_protection(audited, UNPROTECT))
    audited.show(audited.data_file("free"))
    scene.protect(next_protection(audited))
    audited.publish("second")
    found = audit_sold(audited)
    assert (standings(found), codes(found)) == ([BEFORE, OK, Standing.IN_GAP, OK], {"audit_protection_gap"})
    shown = [each.snapshot_id for each in found.snapshots]
    assert [each.snapshot_id for each in found.approvals] == [shown[0], shown[1], shown[2]]


def test_an_unprotection_is_refused_after_a_publication_since_its_signature(audited: Audited) -> None:
    audited.scene.protect(next_protection(audited))
    protection = next_protection(audited, UNPROTECT)
    audited.publish("first")
    assert reason_of(lambda: audited.scene.protect(protection), ConflictError) == "approval_main_moved"
    assert audited.scene.contract_of(NAME) is not None
