"""After a restore the ledger has the source of each target again, and lost claims apply to every source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from pvdm.errors import NotAllowedError
from pvdm.ledger.work import claims
from pvdm.steward.restore import restore
from tests.behaviour.gate.test_gate_sources import prove_day, publish_day
from tests.support.gate.attacks import BEFORE, refusal
from tests.support.gate.claims import with_source_uuid
from tests.support.gate.protected_tables import SOURCE, House, contract, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore as restore_examples
from tools.proof_kit import SECOND


@dataclass(slots=True)
class RestorableSteward:
    """A Steward with a protected table; `recovery` backs up, loses and restores its database."""

    house: House
    recovery: restore_examples.Scene

    def lose_and_restore(self) -> None:
        self.recovery.lose_the_database()
        self.recovery.restore()
        self.recovery.start()
        self.recovery.activate_new_epoch()

    @property
    def other_source(self) -> str:
        """The UUID of the catalog's table with the source's name. The tests first publish from another, `SOURCE`."""
        return self.house.scene.table_state("orders", ("raw",)).row.table_uuid

    def last_source(self) -> str | None:
        target = self.house.table_state().row.table_uuid
        with self.house.notary.ledger.read() as unit:
            return claims.find_source(unit, target, "raw.orders")

    def approve(self, uuid: str) -> None:
        """Sign a contract that names this source as an operator, one second later: not at the time of a restore."""
        self.house.stand.time.pass_by(SECOND)
        self.house.contracts["orders"] = with_source_uuid(contract(), uuid)
        self.house.scene.migrate(self.house.scene.migration([], contract=self.house.contracts["orders"]))

    def release_claims(self) -> None:
        """Release the lost claim, as an operator does after comparing the table with its source."""
        self.house.scene.release()


@pytest.fixture
def steward() -> Iterator[RestorableSteward]:
    with (
        memory_folder() as folder,
        house_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as house,
    ):
        house.table(rows=BEFORE)
        yield RestorableSteward(house, restore_examples.Scene(house.stand))


@pytest.fixture
def unknown_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore cannot derive which rows were claimed, as if the source were gone."""
    monkeypatch.setattr(restore, "derive_claims", lambda *_: {})


def test_a_claim_from_after_the_backup_applies_to_an_approved_new_source_too(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    publish_day(steward.house, prove_day(steward.house, "one", 5, SOURCE.uuid), 5)
    steward.lose_and_restore()
    steward.approve(steward.other_source)
    again = prove_day(steward.house, "two", 6, steward.other_source)
    assert refusal(steward.house, lambda: publish_day(steward.house, again, 6)).reason == "claim_overlaps"


@pytest.mark.usefixtures("unknown_claims")
def test_a_lost_claim_applies_to_an_approved_new_source_too(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    publish_day(steward.house, prove_day(steward.house, "one", 5, SOURCE.uuid), 5)
    steward.lose_and_restore()
    steward.approve(steward.other_source)
    again = prove_day(steward.house, "two", 6, steward.other_source)
    assert refusal(steward.house, lambda: publish_day(steward.house, again, 6)).reason == "claim_lost"


@pytest.mark.usefixtures("unknown_claims")
def test_a_source_that_was_first_used_after_the_backup_is_still_the_targets_source(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    publish_day(steward.house, prove_day(steward.house, "one", 5, SOURCE.uuid), 5)
    steward.lose_and_restore()
    assert steward.last_source() == SOURCE.uuid
    steward.release_claims()
    other = prove_day(steward.house, "two", 6, steward.other_source)
    error = refusal(steward.house, lambda: publish_day(steward.house, other, 6), NotAllowedError)
    assert error.reason == "source_replaced"
    publish_day(steward.house, prove_day(steward.house, "three", 6, SOURCE.uuid), 6)


@pytest.mark.usefixtures("unknown_claims")
def test_a_source_that_was_approved_after_the_backup_stays_approved(steward: RestorableSteward) -> None:
    publish_day(steward.house, prove_day(steward.house, "one", 5, SOURCE.uuid), 5)
    steward.recovery.back_up()
    steward.approve(steward.other_source)
    publish_day(steward.house, prove_day(steward.house, "two", 6, steward.other_source), 6)
    steward.lose_and_restore()
    assert steward.last_source() == steward.other_source
    steward.release_claims()
    old = prove_day(steward.house, "three", 7, SOURCE.uuid)
    error = refusal(steward.house, lambda: publish_day(steward.house, old, 7), NotAllowedError)
    assert error.reason == "source_replaced"
    publish_day(steward.house, prove_day(steward.house, "four", 7, steward.other_source), 7)
