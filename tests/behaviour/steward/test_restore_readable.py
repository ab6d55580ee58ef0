"""A restore names tables that it leaves unreadable: retention may have removed the backup's metadata file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import PvdmError
from pvdm.model.role import Role
from pvdm.steward.config.steward import RetentionConfig
from pvdm.steward.restore.restore import RestoreRequest
from tests.behaviour.steward.test_restore_pointers import RestorableSteward
from tests.support.gate.approvals import SALES, Doc
from tests.support.gate.protected_tables import contract, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore
from tests.support.steward.notary import LOG_ORIGIN
from tests.support.steward.restore import NEW_ORIGIN, ORDER
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND


@pytest.fixture
def steward() -> Iterator[RestorableSteward]:
    """A Steward whose table keeps three old metadata files (one publication writes three).

    Age does not keep more: metadata_days is 0.
    """
    retention = RetentionConfig(metadata_days=0)
    with (
        memory_folder() as folder,
        house_at(
            folder, changed=lambda config: replace(config, archive=folder / "archive", retention=retention)
        ) as house,
    ):
        house.scene.make("orders")
        update: Doc = {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "3"}}
        house.notary.catalog.commits.commit(house.scene.grant(Role.OPERATOR), [Change(SALES, "orders", (), [update])])
        house.contracts["orders"] = contract()
        house.scene.protect(house.scene.protection("orders", contract=contract()))
        yield RestorableSteward(house, restore.Scene(house.stand))


def publish(steward: RestorableSteward, workload_id: str, day: int) -> None:
    steward.house.stand.time.pass_by(SECOND)
    steward.publish(workload_id, day)
    steward.house.stand.time.pass_by(SECOND)


def give_up_entries(steward: RestorableSteward) -> RestoreRequest:
    """Give the Steward a new log origin and an empty archive. Returns a request that gives up the missing entries."""
    config = steward.house.stand.config
    assert config.archive is not None
    steward.house.stand.config = replace(config, origin=NEW_ORIGIN, archive=config.archive.with_name("archive-2"))
    return replace(ORDER, archive=None, lost_origin=LOG_ORIGIN)


def test_a_restore_is_refused_and_names_the_table_if_retention_removed_its_metadata_file(
    steward: RestorableSteward,
) -> None:
    publish(steward, "one", 1)
    steward.recovery.back_up()
    old = steward.metadata_file()
    for number, workload_id in ((2, "two"), (3, "three"), (4, "four")):
        publish(steward, workload_id, number)
    assert not file_at(old).exists()
    steward.recovery.lose_the_database()
    before = steward.recovery.ledger.read_bytes()
    request = give_up_entries(steward)
    error = restore.refused(lambda: steward.recovery.restore(request), "restore_tables_unreadable")
    assert error.got == f"sales.orders (metadata_file_missing, {old})"
    assert steward.recovery.ledger.read_bytes() == before
    (named,) = steward.recovery.restore(replace(request, accept_unreadable=True)).unreadable
    assert (named.table, named.metadata_path, named.code) == ("sales.orders", old, "metadata_file_missing")
    steward.recovery.start()
    with pytest.raises(PvdmError) as caught:
        steward.house.rows()
    assert caught.value.reason == "metadata_file_missing"


def test_accepting_lost_publications_does_not_accept_an_unreadable_table(steward: RestorableSteward) -> None:
    publish(steward, "one", 1)
    steward.recovery.back_up()
    publish(steward, "two", 2)
    damaged = file_at(steward.files()["data"])
    for number, workload_id in ((3, "three"), (4, "four")):
        publish(steward, workload_id, number)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"X")
    steward.recovery.lose_the_database()
    restore.refused(steward.recovery.restore, "restore_publications_lost")
    request = replace(steward.recovery.order, accept_lost=True)
    restore.refused(lambda: steward.recovery.restore(request), "restore_tables_unreadable")
    done = steward.recovery.restore(replace(request, accept_unreadable=True))
    assert [each.table for each in done.unreadable] == ["sales.orders"]
    assert [each.workload_id for each in done.lost_publications] == ["two", "three", "four"]


def test_an_unreadable_table_without_receipts_stops_the_restore_too(steward: RestorableSteward) -> None:
    steward.house.scene.make("free")
    steward.recovery.back_up()
    file_at(steward.house.table_state("free").row.pointer.location).write_bytes(b"{}")
    publish(steward, "one", 1)
    steward.recovery.lose_the_database()
    error = restore.refused(steward.recovery.restore, "restore_tables_unreadable")
    assert str(error.got).startswith("sales.free (metadata_file_changed, ")


def test_a_table_with_a_newer_receipt_is_readable_without_the_metadata_file_of_the_backup(
    steward: RestorableSteward,
) -> None:
    publish(steward, "one", 1)
    steward.recovery.back_up()
    for number, workload_id in ((2, "two"), (3, "three"), (4, "four")):
        publish(steward, workload_id, number)
    assert steward.lose_and_restore().unreadable == ()
    assert steward.house.rows() == [11, 12, 13, 14]
