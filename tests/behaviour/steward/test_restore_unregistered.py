"""A restore names tables that were made after the backup and never published to, and registers none of them."""

from __future__ import annotations

from pvdm.steward.restore.table_report import UnregisteredTable
from tests.behaviour.steward.test_restore_protections import RestorableSteward, steward
from tests.support.gate.approvals import SALES, WORD, reason_of

__all__ = ["steward"]


def test_a_table_that_the_backup_lacks_is_named_by_its_newest_metadata_file_and_not_registered(
    steward: RestorableSteward,
) -> None:
    steward.recovery.back_up()
    steward.scene.make("later")
    steward.scene.commit(WORD, "later")
    row = steward.scene.table_state("later").row
    assert steward.lose_and_restore().unregistered == (UnregisteredTable(row.table_uuid, row.pointer.location, None),)
    assert reason_of(lambda: steward.scene.table_state("later")) == "table_unknown"


def test_an_unregistered_table_that_a_protection_names_is_reported_with_that_name(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.scene.make("later")
    steward.scene.protect(steward.scene.protection("later"))
    row = steward.scene.table_state("later").row
    name_by_uuid = {each.table_uuid: each.table for each in steward.lose_and_restore().unregistered}
    assert name_by_uuid[row.table_uuid] == "sales.later"


def test_tables_that_the_backup_has_and_tables_that_were_dropped_before_it_are_not_named(
    steward: RestorableSteward,
) -> None:
    steward.scene.make("gone")
    steward.scene.notary.catalog.tables.drop(steward.scene.grant(), SALES, "gone")
    steward.scene.protect()
    steward.recovery.back_up()
    steward.scene.migrate()
    assert steward.lose_and_restore().unregistered == ()
