"""After a restore whatever the log says is protected is protected, and no approval of before counts a second time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from pvdm.errors import NotAllowedError
from pvdm.lake.paths import parse_location
from pvdm.ledger.record import protections, statements
from pvdm.model.role import Role
from pvdm.model.statements.migration import ProtectionAction, contract_sha256
from pvdm.steward.restore.refill_statements import ProtectedAgain, RemadeMigration, UnprotectedTable
from pvdm.steward.restore.restore import Restored
from tests.support import fault
from tests.support.gate.approvals import (
    CONTRACT,
    HASH,
    OTHER_CONTRACT,
    OTHER_HASH,
    SALES,
    WORD,
    Scene,
    code_of,
    contract_for,
    scene_at,
    signed,
)
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore
from tools.proof_kit import SECOND


@dataclass(slots=True)
class Lost:
    """A scene, and the way to lose its database after a backup."""

    scene: Scene
    safe: restore.Scene

    def lose_and_restore(self) -> Restored:
        self.safe.lose_the_database()
        done = self.safe.restore()
        self.safe.start()
        self.safe.activate_new_epoch()
        return done


@pytest.fixture
def lost() -> Iterator[Lost]:
    with (
        memory_folder() as folder,
        scene_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as scene,
    ):
        yield Lost(scene, restore.Scene(scene.stand))


def test_a_table_whose_protection_was_lost_comes_back_protected(lost: Lost) -> None:
    lost.safe.back_up()
    view = lost.scene.protect()
    done = lost.lose_and_restore()
    named = ProtectedAgain("table", "sales.orders", str(view.table_uuid), HASH)
    assert (lost.scene.contract_of(), done.protected) == (HASH, (named,))
    assert lost.scene.notary.protections.get(view.protection_id, lost.scene.grant()) == view
    assert lost.scene.notary.protections.contract(HASH, lost.scene.grant()) == CONTRACT.encode()
    assert code_of(lambda: lost.scene.commit(WORD), NotAllowedError) == "main_gated"


def test_a_namespace_whose_protection_was_lost_comes_back_protected(lost: Lost) -> None:
    lost.safe.back_up()
    lost.scene.protect(lost.scene.namespace_protection())
    done = lost.lose_and_restore()
    assert [(each.kind, each.name, each.contract_sha256) for each in done.protected] == [("namespace", "sales", HASH)]
    assert lost.scene.make("born").row.contract_hash == HASH


def test_what_a_restore_brought_back_is_protected_since_the_time_that_the_log_has(lost: Lost) -> None:
    lost.safe.back_up()
    lost.scene.protect()
    lost.scene.protect(lost.scene.namespace_protection())

    def since() -> list[int]:
        desk, grant = lost.scene.notary.protections, lost.scene.grant()
        found = desk.list_protected(grant, "table", count=10) + desk.list_protected(grant, "namespace", count=10)
        return [each.since_micros for each in found]

    before = since()
    lost.scene.stand.time.pass_by(SECOND)
    lost.lose_and_restore()
    assert (len(before), since()) == (2, before)


def test_the_last_approval_of_the_log_counts(lost: Lost) -> None:
    lost.scene.protect()
    lost.safe.back_up()
    lost.scene.protect(lost.scene.protection(action=ProtectionAction.UNPROTECT))
    lost.scene.protect(lost.scene.protection(contract=OTHER_CONTRACT))
    lost.lose_and_restore()
    assert lost.scene.contract_of() == OTHER_HASH


def test_a_table_that_was_unprotected_in_the_lost_time_is_so_again(lost: Lost) -> None:
    lost.scene.protect()
    lost.safe.back_up()
    lost.scene.protect(lost.scene.protection(action=ProtectionAction.UNPROTECT))
    done = lost.lose_and_restore()
    assert lost.scene.contract_of() is None
    assert (done.protected, [each.table for each in done.unprotected]) == ((), ["sales.orders"])


def test_a_table_that_was_unprotected_and_dropped_in_the_lost_time_is_named(lost: Lost) -> None:
    """The log does not have the drop, so the table is there again."""
    lost.scene.protect()
    lost.safe.back_up()
    ended = lost.scene.protect(lost.scene.protection(action=ProtectionAction.UNPROTECT))
    with lost.scene.notary.ledger.read() as unit:
        ended_at = statements.get(unit, ended.protection_id).at_micros
    lost.scene.notary.catalog.tables.drop(lost.scene.grant(), SALES, "orders")
    lost.scene.stand.time.pass_by(SECOND)
    done = lost.lose_and_restore()
    assert lost.scene.contract_of() is None
    assert done.unprotected == (UnprotectedTable("sales.orders", ended.table_uuid, ended_at),)


def test_a_table_that_was_protected_again_after_its_protection_ended_is_not_named_as_unprotected(lost: Lost) -> None:
    lost.scene.protect()
    lost.safe.back_up()
    lost.scene.protect(lost.scene.protection(action=ProtectionAction.UNPROTECT))
    lost.scene.protect()
    assert lost.lose_and_restore().unprotected == ()


def test_what_the_backup_has_is_not_reported_as_restored(lost: Lost) -> None:
    lost.scene.protect()
    lost.safe.back_up()
    done = lost.lose_and_restore()
    assert (lost.scene.contract_of(), done.protected, done.migrated) == (HASH, (), ())


def test_a_migration_of_the_lost_time_is_in_force_again(lost: Lost) -> None:
    lost.scene.protect()
    lost.safe.back_up()
    view = lost.scene.migrate(lost.scene.migration(contract=OTHER_CONTRACT))
    done = lost.lose_and_restore()
    found = lost.scene.found()
    assert (lost.scene.contract_of(), done.migrated) == (OTHER_HASH, ())
    assert done.remade == (RemadeMigration("sales.orders", found.row.table_uuid, view.migration_id),)
    assert found.metadata.properties["word"] == "mine"
    assert lost.scene.notary.protections.contract(OTHER_HASH, lost.scene.grant()) == OTHER_CONTRACT.encode()
    shown = lost.scene.notary.migrations.get(view.migration_id, lost.scene.grant())
    assert shown == view.model_copy(update={"metadata_sha256": found.row.pointer.sha256})


def change_without_protection(lost: Lost) -> None:
    """The table is changed while it is not protected, which no statement of the log says."""
    lost.scene.protect(lost.scene.protection(action=ProtectionAction.UNPROTECT))
    lost.scene.commit([{"action": "set-properties", "updates": {"free": "yes"}}])
    lost.scene.protect()


def test_a_migration_of_a_lost_state_is_reported_and_its_contract_is_in_force(lost: Lost) -> None:
    lost.scene.protect()
    lost.safe.back_up()
    change_without_protection(lost)
    view = lost.scene.migrate(lost.scene.migration(contract=OTHER_CONTRACT))
    done = lost.lose_and_restore()
    assert (lost.scene.contract_of(), done.migrated) == (OTHER_HASH, ("sales.orders",))
    assert "word" not in lost.scene.found().metadata.properties
    shown = lost.scene.notary.migrations.get(view.migration_id, lost.scene.grant())
    assert shown == view.model_copy(update={"metadata_sha256": None})


def test_a_lost_migration_is_proposed_and_applied_again(lost: Lost) -> None:
    lost.scene.protect()
    lost.safe.back_up()
    change_without_protection(lost)
    lost.scene.migrate()
    assert lost.lose_and_restore().migrated == ("sales.orders",)
    lost.scene.stand.time.pass_by(SECOND)
    lost.scene.migrate()
    assert lost.scene.found().metadata.properties["word"] == "mine"


def test_an_approval_that_was_signed_before_the_restore_is_refused_after_it(lost: Lost) -> None:
    lost.safe.back_up()
    protection = signed(lost.scene.protection())
    lost.lose_and_restore()
    lost.scene.stand.time.pass_by(SECOND)
    code = code_of(lambda: lost.scene.notary.protections.submit(protection, lost.scene.grant()), NotAllowedError)
    assert code == "approval_before_restore"
    lost.scene.protect()
    assert lost.scene.contract_of() == HASH


def test_a_restore_that_is_interrupted_and_finished_protects_once(lost: Lost) -> None:
    lost.safe.back_up()
    lost.scene.protect()
    lost.safe.lose_the_database()
    with (
        fault.armed("steward.restore.after_refill", fault.Raise(RuntimeError("the power is gone"))),
        pytest.raises(RuntimeError),
    ):
        lost.safe.restore()
    done = lost.safe.restore()
    lost.safe.start()
    assert (lost.scene.contract_of(), len(done.protected)) == (HASH, 1)


def test_a_table_that_the_backup_lacks_comes_back_protected_and_by_an_operator_only(lost: Lost) -> None:
    lost.safe.back_up()
    lost.scene.make("later")
    lost.scene.protect(lost.scene.protection("later"))
    row = lost.scene.found("later").row
    later = contract_sha256(contract_for("later"))
    lost.lose_and_restore()
    with lost.scene.notary.ledger.read() as unit:
        assert protections.current_contract(unit, row.table_uuid.upper()) == later
    # What a producer could do then: write the document into the table's own place, and bring it in from there.
    place = parse_location(row.location).child("metadata", "v1.metadata.json")
    place.local.parent.mkdir(parents=True)
    place.local.write_bytes(parse_location(row.pointer.location).local.read_bytes())
    desk, producer = lost.scene.notary.catalog.tables, lost.scene.grant(Role.PRODUCER, "sales")
    assert code_of(lambda: desk.register(producer, SALES, "again", str(place))) == "table_uuid_protected"
    assert desk.register(lost.scene.grant(), SALES, "again", str(place)).row.contract_hash == later
