"""A restore names unprotected tables as `behind` if they have newer metadata files, which no statement binds."""

from __future__ import annotations

from pvdm.lake.paths import parse_location
from pvdm.model.statements.migration import ProtectionAction
from pvdm.steward.restore.restore import RestoreResult
from tests.behaviour.steward.test_restore_pointers import RestorableSteward, steward
from tests.support.gate.approvals import SALES
from tests.support.gate.attacks import BEFORE, publish
from tests.support.gate.protected_tables import contract
from tests.support.steward import restore
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND

__all__ = ["steward"]


def write_unproved(steward: RestorableSteward, name: str, row: int = 30) -> None:
    """Write a row without a proof, one second later."""
    steward.house.stand.time.pass_by(SECOND)
    place = f"{steward.house.table_state(name).metadata.location}/data/free-{row}"
    steward.house.commit(steward.house.write_files(place, [(row, 9, "Kiel")]), "main", name=name)


def unprotect(steward: RestorableSteward, name: str = "orders") -> None:
    scene = steward.house.scene
    text = steward.house.contracts[name]
    scene.protect(scene.protection(name, contract=text, action=ProtectionAction.UNPROTECT))


def behind_tables(done: RestoreResult) -> list[str]:
    return [each.table for each in done.behind]


def test_an_unprotected_table_that_was_changed_after_the_backup_is_named(steward: RestorableSteward) -> None:
    steward.house.scene.make("free")
    steward.recovery.back_up()
    steward.publish("one", 5)
    write_unproved(steward, "free")
    done = steward.lose_and_restore()
    assert [(each.table, each.was_protected) for each in done.behind] == [("sales.free", False)]
    assert steward.house.rows("free") == []


def test_a_table_that_was_unprotected_and_written_to_after_the_backup_is_named(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    unprotect(steward)
    write_unproved(steward, "orders")
    assert behind_tables(steward.lose_and_restore()) == ["sales.orders"]


def test_a_behind_table_that_was_ever_protected_is_marked_and_cannot_be_registered_again(
    steward: RestorableSteward,
) -> None:
    """Its protection began and ended after the backup."""
    steward.house.scene.make("free")
    steward.recovery.back_up()
    steward.house.scene.protect(steward.house.scene.protection("free", contract=contract("free")))
    steward.house.contracts["free"] = contract("free")
    unprotect(steward, "free")
    write_unproved(steward, "free")
    done = steward.lose_and_restore()
    assert [(each.table, each.was_protected) for each in done.behind] == [("sales.free", True)]
    restore.refused(lambda: register_again(steward, "free"), "table_uuid_taken")


def test_a_table_that_was_published_to_before_its_protection_ended_is_named(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.publish("one", 5)
    unprotect(steward)
    write_unproved(steward, "orders")
    done = steward.lose_and_restore()
    assert ([each.table for each in done.advanced], behind_tables(done)) == (["sales.orders"], ["sales.orders"])
    assert steward.house.rows() == [1, 2, 15]


def test_a_behind_table_that_the_backup_lacks_is_named(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.house.table("later", rows=BEFORE)
    publish(steward.house, steward.house.proved("one", [(15, 5, "Ulm")], name="later"), name="later")
    unprotect(steward, "later")
    write_unproved(steward, "later")
    assert behind_tables(steward.lose_and_restore()) == ["sales.later"]


def test_a_table_that_was_not_written_to_after_its_protection_ended_is_not_named(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.publish("one", 5)
    steward.house.scene.migrate(steward.house.scene.migration())
    unprotect(steward)
    assert steward.lose_and_restore().behind == ()


def test_a_table_that_is_protected_again_is_not_named(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    unprotect(steward)
    write_unproved(steward, "orders")
    steward.house.protect(steward.house.contracts["orders"])
    assert steward.lose_and_restore().behind == ()


def register_again(steward: RestorableSteward, name: str) -> None:
    """Drop the table without a purge, and register it from a copy of its newest metadata file."""
    tables, grant = steward.house.notary.catalog.tables, steward.house.scene.grant()
    row = steward.house.table_state(name).row
    copy = parse_location(row.location).child("metadata", "copy.metadata.json")
    copy.local.parent.mkdir(parents=True, exist_ok=True)
    copy.local.write_bytes(file_at(row.pointer.location).read_bytes())
    tables.drop(grant, SALES, name)
    tables.register(grant, SALES, name, str(copy))


def test_a_table_that_was_registered_from_a_copy_of_its_newest_metadata_file_is_not_named(
    steward: RestorableSteward,
) -> None:
    steward.house.scene.make("free")
    write_unproved(steward, "free", 30)
    write_unproved(steward, "free", 31)
    register_again(steward, "free")
    steward.recovery.back_up()
    steward.publish("one", 5)
    assert steward.lose_and_restore().behind == ()
    assert steward.house.rows("free") == [30, 31]


def test_a_table_that_was_registered_and_written_to_before_the_backup_is_not_named(steward: RestorableSteward) -> None:
    steward.house.scene.make("free")
    for row in (30, 31, 32):
        write_unproved(steward, "free", row)
    register_again(steward, "free")
    write_unproved(steward, "free", 33)
    steward.recovery.back_up()
    steward.publish("one", 5)
    assert steward.lose_and_restore().behind == ()
