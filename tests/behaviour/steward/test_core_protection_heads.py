"""A protection binds what `main` shows: applied to exactly that, on a full table and on an empty one, or not at all."""

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
from tests.support.audit.published_history import NAME, Audited, gathered
from tests.support.gate.approvals import HASH, Scene, code_of, scene_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import LOG_ORIGIN

UNPROTECT = ProtectionAction.UNPROTECT
OK, BEFORE, UNPROVED = Standing.OK, Standing.BEFORE, Standing.UNPROVED


@pytest.fixture
def scene() -> Iterator[Scene]:
    with memory_folder() as folder, scene_at(folder) as made:
        yield made


@pytest.fixture
def either(ledger_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The scene on each database in turn."""
    with scene_at(tmp_path, ledger_url=ledger_url) as made:
        yield made


def head(scene: Scene, name: str = "orders") -> int | None:
    return scene.found(name).metadata.current_snapshot_id


# Applied to what was seen


def test_the_snapshot_that_main_shows_is_bound(scene: Scene) -> None:
    shown = head(scene)
    assert shown is not None
    assert scene.protect().snapshot_id == shown


def test_on_an_empty_table_nothing_is_bound_as_what_main_shows(scene: Scene) -> None:
    scene.make("empty")
    view = scene.protect(scene.protection("empty"))
    assert (view.snapshot_id, view.table_uuid) == (None, scene.found("empty").row.table_uuid)


def test_a_table_whose_main_moved_since_it_was_signed_is_not_protected(scene: Scene) -> None:
    said, size, before = scene.protection(), scene.notary.log.size(), head(scene)
    scene.stage(branch="main")
    with pytest.raises(ConflictError) as caught:
        scene.protect(said)
    error = caught.value
    assert (error.reason, error.expected, error.got) == (
        "approval_main_moved",
        f"snapshot {before}",
        f"snapshot {head(scene)}",
    )
    assert "sign again" in str(error.hint)
    assert (scene.contract_of(), scene.notary.log.size()) == (None, size)
    assert scene.protect().snapshot_id == head(scene)


def test_a_table_that_was_empty_when_it_was_signed_is_not_protected_with_rows(scene: Scene) -> None:
    scene.make("empty")
    said = scene.protection("empty")
    scene.stage("empty", "main")
    with pytest.raises(ConflictError) as caught:
        scene.protect(said)
    assert (caught.value.reason, caught.value.expected) == ("approval_main_moved", "no snapshot")


def before_storing(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Once: after everything was judged, and before the transaction."""
    original = Recorder.store
    done: list[object] = []

    def store(self: Recorder, *words: Any) -> None:
        if not done:
            done.append(happens())
        original(self, *words)

    monkeypatch.setattr(Recorder, "store", store)


def test_a_main_that_moves_between_judging_and_the_transaction_is_not_protected(
    either: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, size = either.protection(), either.notary.log.size()
    before_storing(monkeypatch, lambda: either.stage(branch="main"))
    assert code_of(lambda: either.protect(said), ConflictError) == "approval_main_moved"
    assert (either.contract_of(), either.notary.log.size()) == (None, size)


def test_a_branch_that_moves_meanwhile_is_not_in_the_way(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    said = scene.protection()
    before_storing(monkeypatch, scene.stage)
    scene.protect(said)
    assert (scene.contract_of(), "stage" in scene.found().metadata.refs) == (HASH, True)


def test_without_the_check_a_table_is_protected_with_unseen_rows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    said = scene.protection()
    scene.stage(branch="main")
    monkeypatch.setattr(protections, "require_head", lambda *_: None)
    scene.protect(said)
    assert scene.contract_of() == HASH


# From protection to audit


@pytest.fixture
def audited(scene: Scene) -> Audited:
    """The table `sales.sold` with rows that nobody proved; not protected yet."""
    scene.make(NAME)
    made = Audited(scene)
    made.show(made.data_file("old"))
    return made


def word(audited: Audited, action: ProtectionAction = ProtectionAction.PROTECT) -> Protection:
    audited.tick()
    return audited.scene.protection(NAME, action=action, contract=SOLD)


def report(audited: Audited) -> AuditReport:
    notary = audited.scene.notary
    evidence = gathered(notary, audited.scene.grant(Role.AUDITOR), NAME)
    return audit(evidence, Local(), AuditTrust(notary.trust.current(), LOG_ORIGIN, audited.scene.now))


def test_a_backdated_snapshot_after_the_protection_is_found(audited: Audited) -> None:
    early = audited.scene.now // 1_000
    audited.scene.protect(word(audited))
    audited.show(audited.data_file("slipped"), now_ms=early)
    audited.publish("first")
    found = report(audited)
    assert found.snapshots[1].timestamp_ms == early
    assert (standings(found), codes(found)) == ([BEFORE, UNPROVED, OK], {"audit_receipt_missing"})


def test_protection_after_protection_is_audited_by_heads_of_its_own(audited: Audited) -> None:
    scene = audited.scene
    scene.protect(word(audited))
    audited.publish("first")
    scene.protect(word(audited, UNPROTECT))
    audited.show(audited.data_file("free"))
    scene.protect(word(audited))
    audited.publish("second")
    found = report(audited)
    assert (standings(found), codes(found)) == ([BEFORE, OK, Standing.IN_GAP, OK], {"audit_protection_gap"})
    shown = [each.snapshot_id for each in found.snapshots]
    assert [each.snapshot_id for each in found.approvals] == [shown[0], shown[1], shown[2]]


def test_a_publication_between_signing_and_applying_the_end_of_a_protection_is_not_left_out(audited: Audited) -> None:
    audited.scene.protect(word(audited))
    said = word(audited, UNPROTECT)
    audited.publish("first")
    assert code_of(lambda: audited.scene.protect(said), ConflictError) == "approval_main_moved"
    assert audited.scene.contract_of(NAME) is not None
