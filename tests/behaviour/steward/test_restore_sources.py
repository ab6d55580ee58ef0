"""After a restore a target still knows which source it published from, and its lost claims hold for every source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from pvdm.errors import NotAllowedError
from pvdm.ledger import Unit
from pvdm.ledger.record import restores
from pvdm.ledger.work import claims
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.restore import restore
from tests.behaviour.gate.test_gate_sources import publish_day, ready
from tests.support.gate.attacks import BEFORE, refusal
from tests.support.gate.claims import naming
from tests.support.gate.protected_tables import SOURCE, House, contract, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore as restore_examples
from tools.proof_kit import SECOND


@dataclass(slots=True)
class Lost:
    """A Steward with a protected table, and the way to lose its database after a backup."""

    house: House
    safe: restore_examples.Scene

    def lose_and_restore(self) -> None:
        self.safe.lose_the_database()
        self.safe.restore()
        self.safe.start()
        self.safe.activate_new_epoch()

    @property
    def another(self) -> str:
        """The table that has the name of the source in the catalog; what was published so far came from another one."""
        return self.house.scene.found("orders", ("raw",)).row.table_uuid

    def last_source(self) -> str | None:
        target = self.house.found().row.table_uuid
        with self.house.notary.ledger.read() as unit:
            return claims.find_source(unit, target, "raw.orders")

    def approve(self, uuid: str) -> None:
        """An operator signs the contract that names this table; not in the very moment of a restore."""
        self.house.stand.time.pass_by(SECOND)
        self.house.contracts["orders"] = naming(contract(), uuid)
        self.house.scene.migrate(self.house.scene.migration([], contract=self.house.contracts["orders"]))

    def release_claims(self) -> None:
        """An operator has compared the table with its source, and lets claims be taken again."""

        *_, receipt = self.safe.statements(StatementKind.RECEIPT)

        def work(unit: Unit) -> None:
            restores.release_lost_claim(unit, receipt.statement_id, operator="operator-tom", reason="compared by hand")

        self.house.transact(work)


@pytest.fixture
def lost() -> Iterator[Lost]:
    with (
        memory_folder() as folder,
        house_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as house,
    ):
        house.table(rows=BEFORE)
        yield Lost(house, restore_examples.Scene(house.stand))


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unknown which rows were claimed, as where the source is gone."""
    monkeypatch.setattr(restore, "derive_claims", lambda *_: {})


def test_a_claim_of_the_lost_time_holds_for_an_approved_new_source_too(lost: Lost) -> None:
    lost.safe.back_up()
    publish_day(lost.house, ready(lost.house, "one", 5, SOURCE.uuid), 5)
    lost.lose_and_restore()
    lost.approve(lost.another)
    again = ready(lost.house, "two", 6, lost.another)
    assert refusal(lost.house, lambda: publish_day(lost.house, again, 6)).reason == "claim_overlaps"


@pytest.mark.usefixtures("untold")
def test_a_lost_claim_holds_for_an_approved_new_source_too(lost: Lost) -> None:
    lost.safe.back_up()
    publish_day(lost.house, ready(lost.house, "one", 5, SOURCE.uuid), 5)
    lost.lose_and_restore()
    lost.approve(lost.another)
    again = ready(lost.house, "two", 6, lost.another)
    assert refusal(lost.house, lambda: publish_day(lost.house, again, 6)).reason == "claim_lost"


@pytest.mark.usefixtures("untold")
def test_a_source_that_first_published_in_the_lost_time_is_still_the_targets_source(lost: Lost) -> None:
    lost.safe.back_up()
    publish_day(lost.house, ready(lost.house, "one", 5, SOURCE.uuid), 5)
    lost.lose_and_restore()
    assert lost.last_source() == SOURCE.uuid
    lost.release_claims()
    other = ready(lost.house, "two", 6, lost.another)
    error = refusal(lost.house, lambda: publish_day(lost.house, other, 6), NotAllowedError)
    assert error.reason == "source_replaced"
    publish_day(lost.house, ready(lost.house, "three", 6, SOURCE.uuid), 6)


@pytest.mark.usefixtures("untold")
def test_a_source_that_was_approved_in_the_lost_time_stays_approved(lost: Lost) -> None:
    publish_day(lost.house, ready(lost.house, "one", 5, SOURCE.uuid), 5)
    lost.safe.back_up()
    lost.approve(lost.another)
    publish_day(lost.house, ready(lost.house, "two", 6, lost.another), 6)
    lost.lose_and_restore()
    assert lost.last_source() == lost.another
    lost.release_claims()
    old = ready(lost.house, "three", 7, SOURCE.uuid)
    error = refusal(lost.house, lambda: publish_day(lost.house, old, 7), NotAllowedError)
    assert error.reason == "source_replaced"
    publish_day(lost.house, ready(lost.house, "four", 7, lost.another), 7)
