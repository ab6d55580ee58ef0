"""A restore applies publications in the order of their commits, even if a receipt was logged after later ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pvdm.errors import StateUnknownError
from pvdm.ledger.record import restores
from pvdm.ledger.work import claims
from tests.behaviour.gate.test_gate_sources import prove_day, publish_day
from tests.behaviour.gate.test_publishing import CrashError
from tests.behaviour.steward.test_restore_pointers import RestorableSteward, set_property, steward
from tests.support import fault
from tests.support.gate.claims import with_source_uuid
from tests.support.gate.protected_tables import SOURCE, contract
from tests.support.steward import restore
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND

__all__ = ["steward"]


def publish_without_receipt(steward: RestorableSteward, workload_id: str, day: int, source: str = SOURCE.uuid) -> int:
    """Publish, and crash after the commit: the snapshot is visible, and its receipt is not signed yet."""
    attempt = prove_day(steward.house, workload_id, day, source)
    with fault.armed("gate.before_receipt", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish_day(steward.house, attempt, day)
    steward.house.stand.time.pass_by(SECOND)
    return steward.head()


def sign_late_receipt(steward: RestorableSteward) -> None:
    assert len(steward.house.publishing().settle()) == 1


def test_publications_before_a_late_receipt_are_visible_again(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    publish_without_receipt(steward, "one", 5)
    steward.publish("two", 6)
    head = steward.publish("three", 7)
    sign_late_receipt(steward)
    done = steward.lose_and_restore()
    assert steward.house.rows() == [1, 2, 15, 16, 17]
    assert (steward.head(), done.lost_publications) == (head, ())
    assert set(done.spent) == {"one", "two", "three"}
    assert steward.audit().holds


def test_a_publication_whose_receipt_waited_for_the_outside_checkpoint_is_visible_again(
    steward: RestorableSteward,
) -> None:
    steward.recovery.back_up()
    attempt = prove_day(steward.house, "one", 5, SOURCE.uuid)
    outside = steward.house.stand.config.outside_path.parent
    outside.rename(outside.with_name("away"))
    with pytest.raises(StateUnknownError):
        publish_day(steward.house, attempt, 5)
    outside.with_name("away").rename(outside)
    steward.house.stand.time.pass_by(SECOND)
    steward.publish("two", 6)
    sign_late_receipt(steward)
    assert steward.lose_and_restore().lost_publications == ()
    assert steward.house.rows() == [1, 2, 15, 16]


def test_a_migration_that_was_logged_before_a_late_receipt_is_made_again(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    publish_without_receipt(steward, "one", 5)
    steward.house.scene.migrate(steward.house.scene.migration([set_property("word", "signed")]))
    sign_late_receipt(steward)
    done = steward.lose_and_restore()
    assert (steward.house.table_state().metadata.properties["word"], done.unmigrated) == ("signed", ())
    assert steward.house.rows() == [1, 2, 15]
    assert steward.audit().holds


def test_migrations_before_and_after_a_publication_with_a_late_receipt_are_made_again(
    steward: RestorableSteward,
) -> None:
    scene = steward.house.scene
    steward.recovery.back_up()
    attempt = prove_day(steward.house, "one", 5, SOURCE.uuid)
    scene.migrate(scene.migration([set_property("first", "1")]))
    with fault.armed("gate.before_receipt", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish_day(steward.house, attempt, 5)
    steward.house.stand.time.pass_by(SECOND)
    scene.migrate(scene.migration([set_property("second", "2")]))
    sign_late_receipt(steward)
    done = steward.lose_and_restore()
    found = steward.house.table_state().metadata.properties
    assert (found["first"], found["second"], done.unmigrated) == ("1", "2", ())
    assert steward.audit().holds


def test_a_late_receipt_does_not_bring_an_older_source_back(steward: RestorableSteward) -> None:
    source = steward.house.scene.table_state("orders", ("raw",)).row.table_uuid
    steward.recovery.back_up()
    publish_without_receipt(steward, "one", 5)
    steward.house.contracts["orders"] = with_source_uuid(contract(), source)
    steward.house.scene.migrate(steward.house.scene.migration([], contract=steward.house.contracts["orders"]))
    steward.publish("two", 6, source)
    sign_late_receipt(steward)
    steward.lose_and_restore()
    target = steward.house.table_state().row.table_uuid
    with steward.house.notary.ledger.read() as unit:
        assert claims.find_source(unit, target, "raw.orders") == source


def test_a_publication_that_a_restore_gave_up_is_named_by_the_next_restore_and_can_be_repeated(
    steward: RestorableSteward,
) -> None:
    """Its metadata file is there again, but later publications are not based on it."""
    steward.publish("one", 5)
    steward.recovery.back_up()
    given_up = steward.publish("two", 6)
    place = file_at(steward.metadata_file())
    data = place.read_bytes()
    place.unlink()
    steward.lose_and_restore(accept_lost=True)
    steward.house.stand.time.pass_by(SECOND)
    head = steward.publish("three", 7)
    place.write_bytes(data)
    steward.recovery.lose_the_database()
    error = restore.refused(steward.recovery.restore, "restore_publications_lost")
    assert error.got == f"sales.orders snapshot {given_up} of two (restore_publication_passed_over)"
    done = steward.recovery.restore(replace(steward.recovery.order, accept_lost=True))
    assert ([each.workload_id for each in done.lost_publications], done.spent) == (["two"], ("three",))
    steward.recovery.start()
    assert (steward.head(), steward.house.rows()) == (head, [1, 2, 15, 17])
    with steward.house.notary.ledger.read() as unit:
        restores.require_not_published_in_lost_time(unit, "two")
