"""Tables whose namespace was made after the backup. The log has no namespaces, so an operator makes it again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

from pvdm.lake.paths import parse_location
from pvdm.ledger.record import restores
from pvdm.steward.restore.lineage import LostPublication
from tests.behaviour.steward.test_restore_given_up import publish_to_later
from tests.behaviour.steward.test_restore_pointers import RestorableSteward, steward
from tests.support.gate.approvals import SALES
from tests.support.steward.restore import refused
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND

__all__ = ["steward"]


def lose_database_and_namespace(steward: RestorableSteward) -> None:
    """Replace the ledger by its backup, and rename its namespace `sales`: so the backup is older than `sales`."""
    steward.recovery.lose_the_database()
    with closing(sqlite3.connect(steward.recovery.ledger)) as connection, connection:
        connection.execute("DROP TRIGGER namespaces_fixed")
        connection.execute("UPDATE namespaces SET levels = replace(levels, 'sales', 'sold')")


def test_the_refusal_says_that_the_namespace_was_made_after_the_backup(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    publish_to_later(steward)
    lose_database_and_namespace(steward)
    error = refused(steward.recovery.restore, "restore_publications_lost")
    assert "sales.later" in str(error.got)
    assert "(namespace_unknown)" in str(error.got)
    assert "the namespace was made after the backup" in str(error.hint)
    assert "bring metadata, vault and warehouse back" not in str(error.hint)


def test_the_hint_asks_for_files_only_if_a_lost_publication_lacks_them(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    publish_to_later(steward)
    steward.publish("two", 6)
    file_at(steward.metadata_file()).unlink()
    lose_database_and_namespace(steward)
    error = refused(steward.recovery.restore, "restore_publications_lost")
    assert "bring metadata, vault and warehouse back" in str(error.hint)
    assert "make the namespace" in str(error.hint)


def lose_and_restore(steward: RestorableSteward) -> LostPublication:
    """Lose the database, and restore it without the namespace `sales`. Returns the publication that is lost."""
    lose_database_and_namespace(steward)
    (named,) = steward.recovery.restore(replace(steward.recovery.order, accept_lost=True)).lost_publications
    steward.recovery.start()
    steward.recovery.activate_new_epoch()
    return named


def register(steward: RestorableSteward, named: LostPublication, location: str) -> None:
    """Create the namespace again, and register the table in it from a copy of its metadata file."""
    grant, catalog = steward.house.scene.grant(), steward.house.notary.catalog
    catalog.namespaces.create(grant, SALES, {})
    copy = parse_location(location).child("metadata", "copy.metadata.json")
    copy.local.parent.mkdir(parents=True, exist_ok=True)
    copy.local.write_bytes(file_at(named.metadata_path).read_bytes())
    catalog.tables.register(grant, SALES, "later", str(copy))


def test_an_operator_registers_the_table_after_making_its_namespace_again(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    publish_to_later(steward)
    row = steward.house.table_state("later").row
    named = lose_and_restore(steward)
    assert "the namespace sales was made after the backup" in named.why
    register(steward, named, row.location)
    assert steward.house.rows("later") == [1, 2, 15]
    assert steward.house.table_state("later").row.contract_hash == row.contract_hash


def test_the_claim_on_a_registered_table_is_released_once_and_stays_released(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    table_uuid, scene = publish_to_later(steward), steward.house.scene
    location = steward.house.table_state("later").row.location
    named = lose_and_restore(steward)
    refused(scene.release, "approval_wrong_table")
    register(steward, named, location)
    with steward.house.notary.ledger.read() as unit:
        refused(lambda: restores.require_no_lost_claim(unit, target=table_uuid), "claim_lost")
    scene.release()
    steward.house.stand.time.pass_by(SECOND)
    register(steward, lose_and_restore(steward), location)
    with steward.house.notary.ledger.read() as unit:
        restores.require_no_lost_claim(unit, target=table_uuid)
