"""After a restore every protection of the log is in force, and approvals that were signed before it are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from pvdm.errors import NotAllowedError
from pvdm.lake.paths import parse_location
from pvdm.ledger.record import protections, statements
from pvdm.model.role import Role
from pvdm.model.statements.migration import ProtectionAction, contract_sha256
from pvdm.steward.restore.refill_statements import RemadeMigration, ReprotectedObject, UnprotectedTable
from pvdm.steward.restore.restore import RestoreResult
from tests.support import fault
from tests.support.gate.approvals import (
    CONTRACT,
    HASH,
    OTHER_CONTRACT,
    OTHER_HASH,
    SALES,
    WORD,
    Scene,
    contract_for,
    reason_of,
    scene_at,
    signed,
)
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore
from tools.proof_kit import SECOND


@dataclass(slots=True)
class RestorableSteward:
    """A Steward with a table; `recovery` backs up, loses and restores its database."""

    scene: Scene
    recovery: restore.Scene

    def lose_and_restore(self) -> RestoreResult:
        self.recovery.lose_the_database()
        done = self.recovery.restore()
        self.recovery.start()
        self.recovery.activate_new_epoch()
        return done


@pytest.fixture
def steward() -> Iterator[RestorableSteward]:
    with (
        memory_folder() as folder,
        scene_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as scene,
    ):
        yield RestorableSteward(scene, restore.Scene(scene.stand))


def test_a_table_whose_protection_was_lost_comes_back_protected(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    view = steward.scene.protect()
    done = steward.lose_and_restore()
    protected = ReprotectedObject("table", "sales.orders", str(view.table_uuid), HASH)
    assert (steward.scene.contract_of(), done.protected) == (HASH, (protected,))
    assert steward.scene.notary.protections.get(view.protection_id, steward.scene.grant()) == view
    assert steward.scene.notary.protections.get_contract(HASH, steward.scene.grant()) == CONTRACT.encode()
    assert reason_of(lambda: steward.scene.commit(WORD), NotAllowedError) == "main_gated"


def test_a_namespace_whose_protection_was_lost_comes_back_protected(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.scene.protect(steward.scene.namespace_protection())
    done = steward.lose_and_restore()
    assert [(each.kind, each.name, each.contract_sha256) for each in done.protected] == [("namespace", "sales", HASH)]
    assert steward.scene.make("born").row.contract_hash == HASH


def test_a_restored_protection_has_the_time_of_the_log(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.scene.protect()
    steward.scene.protect(steward.scene.namespace_protection())

    def since() -> list[int]:
        service, grant = steward.scene.notary.protections, steward.scene.grant()
        found = service.list_protected(grant, "table", count=10) + service.list_protected(grant, "namespace", count=10)
        return [each.since_micros for each in found]

    before = since()
    steward.scene.stand.time.pass_by(SECOND)
    steward.lose_and_restore()
    assert (len(before), since()) == (2, before)


def test_the_last_approval_of_the_log_counts(steward: RestorableSteward) -> None:
    steward.scene.protect()
    steward.recovery.back_up()
    steward.scene.protect(steward.scene.protection(action=ProtectionAction.UNPROTECT))
    steward.scene.protect(steward.scene.protection(contract=OTHER_CONTRACT))
    steward.lose_and_restore()
    assert steward.scene.contract_of() == OTHER_HASH


def test_a_table_that_was_unprotected_after_the_backup_is_unprotected_again(steward: RestorableSteward) -> None:
    steward.scene.protect()
    steward.recovery.back_up()
    steward.scene.protect(steward.scene.protection(action=ProtectionAction.UNPROTECT))
    done = steward.lose_and_restore()
    assert steward.scene.contract_of() is None
    assert (done.protected, [each.table for each in done.unprotected]) == ((), ["sales.orders"])


def test_a_table_that_was_unprotected_and_dropped_after_the_backup_is_named(steward: RestorableSteward) -> None:
    """The log does not have the drop, so the restored catalog has the table."""
    steward.scene.protect()
    steward.recovery.back_up()
    ended = steward.scene.protect(steward.scene.protection(action=ProtectionAction.UNPROTECT))
    with steward.scene.notary.ledger.read() as unit:
        ended_at = statements.get(unit, ended.protection_id).at_micros
    steward.scene.notary.catalog.tables.drop(steward.scene.grant(), SALES, "orders")
    steward.scene.stand.time.pass_by(SECOND)
    done = steward.lose_and_restore()
    assert steward.scene.contract_of() is None
    assert done.unprotected == (UnprotectedTable("sales.orders", ended.table_uuid, ended_at),)


def test_a_table_that_was_protected_again_after_its_protection_ended_is_not_named_as_unprotected(
    steward: RestorableSteward,
) -> None:
    steward.scene.protect()
    steward.recovery.back_up()
    steward.scene.protect(steward.scene.protection(action=ProtectionAction.UNPROTECT))
    steward.scene.protect()
    assert steward.lose_and_restore().unprotected == ()


def test_a_protection_of_the_backup_is_not_reported_as_restored(steward: RestorableSteward) -> None:
    steward.scene.protect()
    steward.recovery.back_up()
    done = steward.lose_and_restore()
    assert (steward.scene.contract_of(), done.protected, done.unmigrated) == (HASH, (), ())


def test_a_migration_from_after_the_backup_is_in_force_again(steward: RestorableSteward) -> None:
    steward.scene.protect()
    steward.recovery.back_up()
    view = steward.scene.migrate(steward.scene.migration(contract=OTHER_CONTRACT))
    done = steward.lose_and_restore()
    found = steward.scene.table_state()
    assert (steward.scene.contract_of(), done.unmigrated) == (OTHER_HASH, ())
    assert done.remade == (RemadeMigration("sales.orders", found.row.table_uuid, view.migration_id),)
    assert found.metadata.properties["word"] == "mine"
    assert steward.scene.notary.protections.get_contract(OTHER_HASH, steward.scene.grant()) == OTHER_CONTRACT.encode()
    shown = steward.scene.notary.migrations.get(view.migration_id, steward.scene.grant())
    assert shown == view.model_copy(update={"metadata_sha256": found.row.pointer.sha256})


def change_without_protection(steward: RestorableSteward) -> None:
    """Change the table while it is not protected: the log has no statement of such a change."""
    steward.scene.protect(steward.scene.protection(action=ProtectionAction.UNPROTECT))
    steward.scene.commit([{"action": "set-properties", "updates": {"free": "yes"}}])
    steward.scene.protect()


def test_a_migration_of_a_state_that_is_lost_is_reported_and_its_contract_is_in_force(
    steward: RestorableSteward,
) -> None:
    steward.scene.protect()
    steward.recovery.back_up()
    change_without_protection(steward)
    view = steward.scene.migrate(steward.scene.migration(contract=OTHER_CONTRACT))
    done = steward.lose_and_restore()
    assert (steward.scene.contract_of(), done.unmigrated) == (OTHER_HASH, ("sales.orders",))
    assert "word" not in steward.scene.table_state().metadata.properties
    shown = steward.scene.notary.migrations.get(view.migration_id, steward.scene.grant())
    assert shown == view.model_copy(update={"metadata_sha256": None})


def test_a_lost_migration_can_be_signed_and_applied_again(steward: RestorableSteward) -> None:
    steward.scene.protect()
    steward.recovery.back_up()
    change_without_protection(steward)
    steward.scene.migrate()
    assert steward.lose_and_restore().unmigrated == ("sales.orders",)
    steward.scene.stand.time.pass_by(SECOND)
    steward.scene.migrate()
    assert steward.scene.table_state().metadata.properties["word"] == "mine"


def test_an_approval_that_was_signed_before_the_restore_is_refused_after_it(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    protection = signed(steward.scene.protection())
    steward.lose_and_restore()
    steward.scene.stand.time.pass_by(SECOND)
    scene = steward.scene
    reason = reason_of(lambda: scene.notary.protections.submit(protection, scene.grant()), NotAllowedError)
    assert reason == "approval_before_restore"
    steward.scene.protect()
    assert steward.scene.contract_of() == HASH


def test_a_restore_that_is_interrupted_and_finished_protects_once(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.scene.protect()
    steward.recovery.lose_the_database()
    with (
        fault.armed("steward.restore.after_refill", fault.Raise(RuntimeError("the power is gone"))),
        pytest.raises(RuntimeError),
    ):
        steward.recovery.restore()
    done = steward.recovery.restore()
    steward.recovery.start()
    assert (steward.scene.contract_of(), len(done.protected)) == (HASH, 1)


def test_a_protected_table_that_the_backup_lacks_is_registered_by_an_operator_only(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.scene.make("later")
    steward.scene.protect(steward.scene.protection("later"))
    row = steward.scene.table_state("later").row
    later = contract_sha256(contract_for("later"))
    steward.lose_and_restore()
    with steward.scene.notary.ledger.read() as unit:
        assert protections.find_current_contract(unit, row.table_uuid.upper()) == later
    # A producer could put the metadata file into the table's own folder and register it from there.
    place = parse_location(row.location).child("metadata", "v1.metadata.json")
    place.local.parent.mkdir(parents=True)
    place.local.write_bytes(parse_location(row.pointer.location).local.read_bytes())
    tables, producer = steward.scene.notary.catalog.tables, steward.scene.grant(Role.PRODUCER, "sales")
    assert reason_of(lambda: tables.register(producer, SALES, "again", str(place))) == "table_uuid_protected"
    assert tables.register(steward.scene.grant(), SALES, "again", str(place)).row.contract_hash == later
