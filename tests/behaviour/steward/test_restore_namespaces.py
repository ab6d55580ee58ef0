"""Tables whose namespace was made after the backup: no log has namespaces, so somebody has to make it again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

from pvdm.lake.paths import parse_location
from tests.behaviour.steward.test_restore_given_up import publish_to_later
from tests.behaviour.steward.test_restore_pointers import Lost, lost
from tests.support.gate.approvals import SALES
from tests.support.steward.restore import refused
from tests.support.stores.places import file_at

__all__ = ["lost"]


def lose_with_namespace(lost: Lost) -> None:
    """Put a backup in the ledger's place that has no namespace `sales`."""
    lost.safe.lose_the_database()
    with closing(sqlite3.connect(lost.safe.ledger)) as connection, connection:
        connection.execute("DROP TRIGGER namespaces_fixed")
        connection.execute("UPDATE namespaces SET levels = replace(levels, 'sales', 'sold')")


def test_the_refusal_says_that_the_namespace_is_younger_and_how_to_go_on(lost: Lost) -> None:
    lost.safe.back_up()
    publish_to_later(lost)
    lose_with_namespace(lost)
    error = refused(lost.safe.restore, "restore_publications_lost")
    assert "sales.later" in str(error.got)
    assert "(namespace_unknown)" in str(error.got)
    assert "the namespace was made after the backup" in str(error.hint)
    assert "bring metadata, vault and warehouse back" not in str(error.hint)


def test_files_are_asked_for_where_one_of_the_lost_lacks_them(lost: Lost) -> None:
    lost.safe.back_up()
    publish_to_later(lost)
    lost.publish("two", 6)
    file_at(lost.document()).unlink()
    lose_with_namespace(lost)
    error = refused(lost.safe.restore, "restore_publications_lost")
    assert "bring metadata, vault and warehouse back" in str(error.hint)
    assert "make the namespace" in str(error.hint)


def test_its_document_is_registered_by_an_operator_when_the_namespace_is_made_again(lost: Lost) -> None:
    lost.safe.back_up()
    publish_to_later(lost)
    row = lost.house.found("later").row
    lose_with_namespace(lost)
    (named,) = lost.safe.restore(replace(lost.safe.order, accept_lost=True)).lost_publications
    assert "the namespace sales was made after the backup" in named.why
    lost.safe.start()
    lost.safe.activate_new_epoch()
    grant, catalog = lost.house.scene.grant(), lost.house.notary.catalog
    catalog.namespaces.create(grant, SALES, {})
    copy = parse_location(row.location).child("metadata", "copy.metadata.json")
    copy.local.parent.mkdir(parents=True, exist_ok=True)
    copy.local.write_bytes(file_at(named.metadata_path).read_bytes())
    catalog.tables.register(grant, SALES, "later", str(copy))
    assert lost.house.rows("later") == [1, 2, 15]
    assert lost.house.found("later").row.contract_hash == row.contract_hash
