"""A receipt that was made late is logged after younger publications and migrations: a restore goes by their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pvdm.errors import StateUnknownError
from pvdm.ledger.record import restores
from pvdm.ledger.work import claims
from tests.behaviour.gate.test_gate_sources import publish_day, ready
from tests.behaviour.gate.test_publishing import CrashError
from tests.behaviour.steward.test_restore_pointers import Lost, lost, set_property
from tests.support import fault
from tests.support.gate.claims import naming
from tests.support.gate.protected_tables import SOURCE, contract
from tests.support.steward import restore
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND

__all__ = ["lost"]


def publish_without_receipt(lost: Lost, workload_id: str, day: int, source: str = SOURCE.uuid) -> int:
    """What a crash after the commit leaves: the snapshot is shown, and its receipt is still to be made."""
    attempt = ready(lost.house, workload_id, day, source)
    with fault.armed("gate.before_receipt", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish_day(lost.house, attempt, day)
    lost.house.stand.time.pass_by(SECOND)
    return lost.head()


def settle(lost: Lost) -> None:
    assert len(lost.house.publishing().settle()) == 1


def test_what_was_published_before_a_late_receipt_was_logged_is_shown_again(lost: Lost) -> None:
    lost.safe.back_up()
    publish_without_receipt(lost, "one", 5)
    lost.publish("two", 6)
    head = lost.publish("three", 7)
    settle(lost)
    done = lost.lose_and_restore()
    assert lost.house.rows() == [1, 2, 15, 16, 17]
    assert (lost.head(), done.lost_publications) == (head, ())
    assert set(done.spent) == {"one", "two", "three"}
    assert lost.audit().holds


def test_so_it_is_where_the_outside_checkpoint_was_away_and_nothing_crashed(lost: Lost) -> None:
    lost.safe.back_up()
    attempt = ready(lost.house, "one", 5, SOURCE.uuid)
    outside = lost.house.stand.config.outside_path.parent
    outside.rename(outside.with_name("away"))
    with pytest.raises(StateUnknownError):
        publish_day(lost.house, attempt, 5)
    outside.with_name("away").rename(outside)
    lost.house.stand.time.pass_by(SECOND)
    lost.publish("two", 6)
    settle(lost)
    assert lost.lose_and_restore().lost_publications == ()
    assert lost.house.rows() == [1, 2, 15, 16]


def test_a_migration_that_was_logged_before_a_late_receipt_is_made_again(lost: Lost) -> None:
    lost.safe.back_up()
    publish_without_receipt(lost, "one", 5)
    lost.house.scene.migrate(lost.house.scene.migration([set_property("word", "signed")]))
    settle(lost)
    done = lost.lose_and_restore()
    assert (lost.house.found().metadata.properties["word"], done.migrated) == ("signed", ())
    assert lost.house.rows() == [1, 2, 15]
    assert lost.audit().holds


def test_migrations_on_both_sides_of_a_late_publication_are_there_once(lost: Lost) -> None:
    scene = lost.house.scene
    lost.safe.back_up()
    attempt = ready(lost.house, "one", 5, SOURCE.uuid)
    scene.migrate(scene.migration([set_property("first", "1")]))
    with fault.armed("gate.before_receipt", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish_day(lost.house, attempt, 5)
    lost.house.stand.time.pass_by(SECOND)
    scene.migrate(scene.migration([set_property("second", "2")]))
    settle(lost)
    done = lost.lose_and_restore()
    found = lost.house.found().metadata.properties
    assert (found["first"], found["second"], done.migrated) == ("1", "2", ())
    assert lost.audit().holds


def test_a_late_receipt_does_not_bring_an_older_source_back(lost: Lost) -> None:
    source = lost.house.scene.found("orders", ("raw",)).row.table_uuid
    lost.safe.back_up()
    publish_without_receipt(lost, "one", 5)
    lost.house.contracts["orders"] = naming(contract(), source)
    lost.house.scene.migrate(lost.house.scene.migration([], contract=lost.house.contracts["orders"]))
    lost.publish("two", 6, source)
    settle(lost)
    lost.lose_and_restore()
    target = lost.house.found().row.table_uuid
    with lost.house.notary.ledger.read() as unit:
        assert claims.find_source(unit, target, "raw.orders") == source


def test_a_publication_that_a_restore_gave_up_is_named_by_the_next_one_and_stays_free(lost: Lost) -> None:
    """Its document is back by then, and yet the history went on without it."""
    lost.publish("one", 5)
    lost.safe.back_up()
    given_up = lost.publish("two", 6)
    place = file_at(lost.document())
    data = place.read_bytes()
    place.unlink()
    lost.lose_and_restore(accept_lost=True)
    lost.house.stand.time.pass_by(SECOND)
    head = lost.publish("three", 7)
    place.write_bytes(data)
    lost.safe.lose_the_database()
    error = restore.refused(lost.safe.restore, "restore_publications_lost")
    assert error.got == f"sales.orders snapshot {given_up} of two (restore_publication_passed_over)"
    done = lost.safe.restore(replace(lost.safe.order, accept_lost=True))
    assert ([each.workload_id for each in done.lost_publications], done.spent) == (["two"], ("three",))
    lost.safe.start()
    assert (lost.head(), lost.house.rows()) == (head, [1, 2, 15, 17])
    with lost.house.notary.ledger.read() as unit:
        restores.require_unused(unit, "two")
