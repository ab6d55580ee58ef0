"""Tables that are not protected after a restore, and whose newer documents nothing vouches for, are named `behind`."""

from __future__ import annotations

from pvdm.lake.paths import parse_location
from pvdm.model.statements.migration import ProtectionAction
from pvdm.steward.restore.restore import Restored
from tests.behaviour.steward.test_restore_pointers import Lost, lost
from tests.support.gate.approvals import SALES
from tests.support.gate.attacks import BEFORE, publish
from tests.support.gate.protected_tables import contract
from tests.support.steward import restore
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND

__all__ = ["lost"]


def write(lost: Lost, name: str, row: int = 30) -> None:
    """A row that is written without a proof, some time later."""
    lost.house.stand.time.pass_by(SECOND)
    place = f"{lost.house.found(name).metadata.location}/data/free-{row}"
    lost.house.commit(lost.house.written(place, [(row, 9, "Kiel")]), "main", name=name)


def unprotect(lost: Lost, name: str = "orders") -> None:
    scene = lost.house.scene
    text = lost.house.contracts[name]
    scene.protect(scene.protection(name, contract=text, action=ProtectionAction.UNPROTECT))


def named(done: Restored) -> list[str]:
    return [each.table for each in done.behind]


def test_a_table_without_protection_that_was_changed_since_is_named(lost: Lost) -> None:
    lost.house.scene.make("free")
    lost.safe.back_up()
    lost.publish("one", 5)
    write(lost, "free")
    done = lost.lose_and_restore()
    assert [(each.table, each.was_protected) for each in done.behind] == [("sales.free", False)]
    assert lost.house.rows("free") == []


def test_a_table_that_was_unprotected_and_written_to_in_the_lost_time_is_named(lost: Lost) -> None:
    lost.safe.back_up()
    unprotect(lost)
    write(lost, "orders")
    assert named(lost.lose_and_restore()) == ["sales.orders"]


def test_a_behind_table_that_was_ever_protected_is_marked_and_cannot_be_registered_again(lost: Lost) -> None:
    """It was protected, and its protection ended, in the lost time alone."""
    lost.house.scene.make("free")
    lost.safe.back_up()
    lost.house.scene.protect(lost.house.scene.protection("free", contract=contract("free")))
    lost.house.contracts["free"] = contract("free")
    unprotect(lost, "free")
    write(lost, "free")
    done = lost.lose_and_restore()
    assert [(each.table, each.was_protected) for each in done.behind] == [("sales.free", True)]
    restore.refused(lambda: register_again(lost, "free"), "table_uuid_taken")


def test_so_is_one_that_was_published_to_before_its_protection_ended(lost: Lost) -> None:
    lost.safe.back_up()
    lost.publish("one", 5)
    unprotect(lost)
    write(lost, "orders")
    done = lost.lose_and_restore()
    assert ([each.table for each in done.advanced], named(done)) == (["sales.orders"], ["sales.orders"])
    assert lost.house.rows() == [1, 2, 15]


def test_so_is_one_that_the_backup_lacks(lost: Lost) -> None:
    lost.safe.back_up()
    lost.house.table("later", rows=BEFORE)
    publish(lost.house, lost.house.proved("one", [(15, 5, "Ulm")], name="later"), name="later")
    unprotect(lost, "later")
    write(lost, "later")
    assert named(lost.lose_and_restore()) == ["sales.later"]


def test_a_table_that_was_published_to_unprotected_and_not_written_to_is_not_named(lost: Lost) -> None:
    lost.safe.back_up()
    lost.publish("one", 5)
    lost.house.scene.migrate(lost.house.scene.migration())
    unprotect(lost)
    assert lost.lose_and_restore().behind == ()


def test_nor_is_one_that_is_protected_again(lost: Lost) -> None:
    lost.safe.back_up()
    unprotect(lost)
    write(lost, "orders")
    lost.house.protect(lost.house.contracts["orders"])
    assert lost.lose_and_restore().behind == ()


def register_again(lost: Lost, name: str) -> None:
    """Drop the table without a purge, and register it from a copy of its newest document."""
    desk, grant = lost.house.notary.catalog.tables, lost.house.scene.grant()
    row = lost.house.found(name).row
    copy = parse_location(row.location).child("metadata", "copy.metadata.json")
    copy.local.parent.mkdir(parents=True, exist_ok=True)
    copy.local.write_bytes(file_at(row.pointer.location).read_bytes())
    desk.drop(grant, SALES, name)
    desk.register(grant, SALES, name, str(copy))


def test_a_table_that_was_registered_from_a_copy_of_its_newest_document_is_not_named(lost: Lost) -> None:
    lost.house.scene.make("free")
    write(lost, "free", 30)
    write(lost, "free", 31)
    register_again(lost, "free")
    lost.safe.back_up()
    lost.publish("one", 5)
    assert lost.lose_and_restore().behind == ()
    assert lost.house.rows("free") == [30, 31]


def test_nor_is_one_that_was_written_to_after_that_and_before_the_backup(lost: Lost) -> None:
    lost.house.scene.make("free")
    for row in (30, 31, 32):
        write(lost, "free", row)
    register_again(lost, "free")
    write(lost, "free", 33)
    lost.safe.back_up()
    lost.publish("one", 5)
    assert lost.lose_and_restore().behind == ()
