"""The audit finds proved what the gate publishes: appends, overwrites and copies, also when old history has expired."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pvdm.catalog.commit import Change
from pvdm.metadata.audit.report import Standing
from pvdm.model.role import Role
from tests.support.audit.crafted_history import codes, local, standings
from tests.support.audit.expiring_history import audit_orders, keep, publish_attempt
from tests.support.catalog.core import set_ref
from tests.support.gate.protected_tables import House, Row, contract
from tools.proof_kit import SECOND

OK, BEFORE = Standing.OK, Standing.BEFORE
OLD: Sequence[Row] = [(1, 1, "Ulm"), (2, 2, "Bonn")]


def protect_with_rows(house: House, text: str | None = None, *, version: int = 2) -> None:
    """Make the table with two rows, and protect it."""
    house.scene.make("orders", version=version)
    place = f"{house.table_state().metadata.location}/data/before"
    house.commit(house.write_files(place, OLD), "main")
    house.stand.time.pass_by(SECOND)
    house.contracts["orders"] = text or contract()
    house.scene.protect(house.scene.protection("orders", contract=house.contracts["orders"]))


@pytest.mark.parametrize("version", [2, 3])
def test_the_audit_of_open_and_copied_appends_holds(house: House, version: int) -> None:
    protect_with_rows(house, version=version)
    house.open("one", ["a", "b", "c"])
    publish_attempt(house, house.proved("one", [(3, 3, "Ulm"), (4, 4, "Ulm")], chunk_id="a", opened=False))
    publish_attempt(house, house.proved("one", [(5, 5, "Ulm")], chunk_id="b", opened=False, copied=True))
    publish_attempt(house, house.proved("one", [], chunk_id="c", opened=False))
    report = audit_orders(house)
    assert codes(report) == set()
    assert standings(report) == [BEFORE, OK, OK, OK]
    assert report.holds


def test_the_audit_of_an_overwrite_holds(house: House) -> None:
    protect_with_rows(house, contract(operation="overwrite-partitions", partition={"day": "2026-11-02"}))
    publish_attempt(house, house.proved("one", [(9, 2, "Ulm")], removed=house.paths(of_day=2)))
    report = audit_orders(house)
    assert codes(report) == set()
    assert standings(report) == [BEFORE, OK]
    assert (report.snapshots[-1].rows_added, report.snapshots[-1].rows_removed) == (1, 1)


def test_bytes_that_are_swapped_after_the_gate_are_found(house: House) -> None:
    protect_with_rows(house)
    publish_attempt(house, house.proved("one", [(3, 3, "Ulm")]))
    added = sorted(set(house.paths()) - {path for path in house.paths() if "/before/" in path})
    path = local(added[0])
    path.write_bytes(path.read_bytes()[::-1])
    report = audit_orders(house)
    assert (codes(report), standings(report)) == ({"audit_bytes_changed"}, [BEFORE, Standing.CHANGED])


def test_a_publication_stays_proved_when_another_attempt_is_staged(house: House) -> None:
    protect_with_rows(house)
    publish_attempt(house, house.proved("one", [(3, 3, "Ulm")]))
    house.proved("left", [(7, 7, "Ulm")])
    report = audit_orders(house)
    assert (codes(report), standings(report)) == (set(), [BEFORE, OK])


def test_a_publication_before_a_migration_of_the_contract_alone_stays_proved(house: House) -> None:
    """The migration's document names the publication's document in its log."""
    protect_with_rows(house)
    house.open("one", source=house.source())
    publish_attempt(house, house.proved("one", [(3, 3, "Ulm")], opened=False))
    shown = house.table_state().row.pointer.location
    house.contracts["orders"] = contract() + "limits:\n  chunks: 7\n"
    house.scene.migrate(house.scene.migration([], contract=house.contracts["orders"]))
    assert house.table_state().metadata.metadata_log[-1].metadata_file == shown
    report = audit_orders(house)
    assert (codes(report), standings(report)) == (set(), [BEFORE, OK])


def test_publications_expire_old_history_and_the_audit_holds(house: House) -> None:
    keep(house, 2)
    house.open("one", list("abcde"))
    for number, chunk in enumerate("abcde"):
        publish_attempt(house, house.proved("one", [(number, 3, "Ulm")], chunk_id=chunk, opened=False))
    metadata = house.table_state().metadata
    assert [each.sequence_number for each in metadata.ancestry(metadata.current_snapshot_id or 0)] == [10, 8, 6]
    assert house.rows() == [0, 1, 2, 3, 4]
    report = audit_orders(house)
    assert codes(report) == set()
    assert report.holds


def test_history_stays_as_far_back_as_a_tag(house: House) -> None:
    keep(house, 1)
    house.open("one", list("abcd"))
    for number, chunk in enumerate("abcd"):
        publish_attempt(house, house.proved("one", [(number, 3, "Ulm")], chunk_id=chunk, opened=False))
        if chunk == "b":
            head = house.table_state().metadata.current_snapshot_id or 0
            change = Change(("sales",), "orders", (), [set_ref("v1", head, "tag")])
            house.notary.catalog.commits.commit(house.scene.grant(Role.OPERATOR), [change])
    metadata = house.table_state().metadata
    shown = [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]
    assert shown[-1] == metadata.refs["v1"].snapshot_id
    assert len(shown) == 3
