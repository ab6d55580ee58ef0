"""A restore leaves no table that nobody can read without saying so: retention may have removed its old document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import PvdmError
from pvdm.model.role import Role
from pvdm.steward.restore.restore import RestoreRequest
from tests.behaviour.steward.test_restore_pointers import Lost
from tests.support.gate.approvals import SALES, Doc
from tests.support.gate.protected_tables import contract, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore
from tests.support.steward.notary import LOG_ORIGIN
from tests.support.steward.restore import NEW_ORIGIN, ORDER
from tests.support.stores.places import file_at
from tools.proof_kit import SECOND


@pytest.fixture
def lost() -> Iterator[Lost]:
    """A table that keeps three old documents: those of one publication."""
    with (
        memory_folder() as folder,
        house_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as house,
    ):
        house.scene.make("orders")
        update: Doc = {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "3"}}
        house.notary.catalog.commits.commit(house.scene.grant(Role.OPERATOR), [Change(SALES, "orders", (), [update])])
        house.contracts["orders"] = contract()
        house.scene.protect(house.scene.protection("orders", contract=contract()))
        yield Lost(house, restore.Scene(house.stand))


def publish(lost: Lost, workload_id: str, day: int) -> None:
    lost.house.stand.time.pass_by(SECOND)
    lost.publish(workload_id, day)
    lost.house.stand.time.pass_by(SECOND)


def give_up(lost: Lost) -> RestoreRequest:
    """No archive is left, so the log goes on under a new name."""
    config = lost.house.stand.config
    assert config.archive is not None
    lost.house.stand.config = replace(config, origin=NEW_ORIGIN, archive=config.archive.with_name("archive-2"))
    return replace(ORDER, archive=None, lost_origin=LOG_ORIGIN)


def test_a_table_whose_document_retention_removed_stops_the_restore_and_is_named(lost: Lost) -> None:
    publish(lost, "one", 1)
    lost.safe.back_up()
    old = lost.document()
    for number, workload_id in ((2, "two"), (3, "three"), (4, "four")):
        publish(lost, workload_id, number)
    assert not file_at(old).exists()
    lost.safe.lose_the_database()
    before = lost.safe.ledger.read_bytes()
    order = give_up(lost)
    error = restore.refused(lambda: lost.safe.restore(order), "restore_tables_unreadable")
    assert error.got == f"sales.orders (metadata_file_missing, {old})"
    assert lost.safe.ledger.read_bytes() == before
    (named,) = lost.safe.restore(replace(order, accept_unreadable=True)).unreadable
    assert (named.table, named.metadata_path, named.code) == ("sales.orders", old, "metadata_file_missing")
    lost.safe.start()
    with pytest.raises(PvdmError) as caught:
        lost.house.rows()
    assert caught.value.reason == "metadata_file_missing"


def test_that_lost_publications_are_accepted_does_not_accept_an_unreadable_table(lost: Lost) -> None:
    publish(lost, "one", 1)
    lost.safe.back_up()
    publish(lost, "two", 2)
    damaged = file_at(lost.files()["data"])
    for number, workload_id in ((3, "three"), (4, "four")):
        publish(lost, workload_id, number)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"X")
    lost.safe.lose_the_database()
    restore.refused(lost.safe.restore, "restore_publications_lost")
    order = replace(lost.safe.order, accept_lost=True)
    restore.refused(lambda: lost.safe.restore(order), "restore_tables_unreadable")
    done = lost.safe.restore(replace(order, accept_unreadable=True))
    assert [each.table for each in done.unreadable] == ["sales.orders"]
    assert [each.workload_id for each in done.lost_publications] == ["two", "three", "four"]


def test_a_table_without_receipts_is_read_too(lost: Lost) -> None:
    lost.house.scene.make("free")
    lost.safe.back_up()
    file_at(lost.house.found("free").row.pointer.location).write_bytes(b"{}")
    publish(lost, "one", 1)
    lost.safe.lose_the_database()
    error = restore.refused(lost.safe.restore, "restore_tables_unreadable")
    assert str(error.got).startswith("sales.free (metadata_file_changed, ")


def test_a_table_whose_newest_receipt_binds_a_document_is_readable_without_the_old_one(lost: Lost) -> None:
    publish(lost, "one", 1)
    lost.safe.back_up()
    for number, workload_id in ((2, "two"), (3, "three"), (4, "four")):
        publish(lost, workload_id, number)
    assert lost.lose_and_restore().unreadable == ()
    assert lost.house.rows() == [11, 12, 13, 14]
