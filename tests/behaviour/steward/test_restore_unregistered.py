"""Tables that were made after the backup and never published to: a restore names them and registers none of them."""

from __future__ import annotations

from pvdm.steward.restore.table_report import UnregisteredTable
from tests.behaviour.steward.test_restore_protections import Lost, lost
from tests.support.gate.approvals import SALES, WORD, code_of

__all__ = ["lost"]


def test_a_table_that_the_backup_lacks_is_named_by_its_newest_document_and_not_registered(lost: Lost) -> None:
    lost.safe.back_up()
    lost.scene.make("later")
    lost.scene.commit(WORD, "later")
    row = lost.scene.found("later").row
    assert lost.lose_and_restore().unregistered == (UnregisteredTable(row.table_uuid, row.pointer.location, None),)
    assert code_of(lambda: lost.scene.found("later")) == "table_unknown"


def test_a_table_that_a_protection_names_is_named_by_that_name(lost: Lost) -> None:
    lost.safe.back_up()
    lost.scene.make("later")
    lost.scene.protect(lost.scene.protection("later"))
    row = lost.scene.found("later").row
    named = {each.table_uuid: each.table for each in lost.lose_and_restore().unregistered}
    assert named[row.table_uuid] == "sales.later"


def test_tables_that_the_backup_has_and_tables_that_were_dropped_before_it_are_not_named(lost: Lost) -> None:
    lost.scene.make("gone")
    lost.scene.notary.catalog.tables.drop(lost.scene.grant(), SALES, "gone")
    lost.scene.protect()
    lost.safe.back_up()
    lost.scene.migrate()
    assert lost.lose_and_restore().unregistered == ()
