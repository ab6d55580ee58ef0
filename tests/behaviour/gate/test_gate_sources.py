"""Check 12 on the source: its name must mean the same table, unless the contract approves another; on each database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import NotAllowedError, PvdmError
from pvdm.ledger.record import events
from pvdm.ledger.work import claims
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.model.filter.claim import Claim
from tests.support.gate.attacks import BEFORE, NEW, code_and_check, publish, refusal
from tests.support.gate.claims import with_source_uuid
from tests.support.gate.protected_tables import SOURCE, House, contract, day, house_at

ANOTHER = "7f0d3f0e-93c5-4d26-b8be-6d9c1f2f1c11"


@pytest.fixture
def house(ledger_url: str, tmp_path: Path) -> Iterator[House]:
    with house_at(tmp_path, ledger_url=ledger_url) as made:
        yield made


def prove_day(house: House, workload_id: str, number: int, source: str) -> Attempt:
    """Prove an attempt at one day, from this source."""
    house.open(workload_id, source=source)
    return house.proved(workload_id, [(10 + number, number, "Ulm")], opened=False)


def publish_day(house: House, attempt: Attempt, number: int) -> None:
    """Publish the attempt under a claim on that day alone."""
    proposal = house.proposal(attempt)
    claim = Claim.value("day", "date", day(number)).of_column("target field 2")
    validate_then_commit(replace(proposal, claim=claim), house.gate())


def test_another_table_under_the_name_of_the_source_is_refused(house: House) -> None:
    house.table(rows=BEFORE)
    publish_day(house, prove_day(house, "one", 5, SOURCE.uuid), 5)
    other = prove_day(house, "two", 6, ANOTHER)
    error = refusal(house, lambda: publish_day(house, other, 6), NotAllowedError)
    assert code_and_check(error) == ("source_replaced", 12)
    assert (SOURCE.uuid in str(error.expected), ANOTHER in str(error.got)) == (True, True)
    assert house.rows() == [1, 2, 15]


def test_the_same_table_publishes_day_after_day(house: House) -> None:
    house.table(rows=BEFORE)
    for number, name in ((5, "one"), (6, "two")):
        publish_day(house, prove_day(house, name, number, SOURCE.uuid), number)
    assert house.rows() == [1, 2, 15, 16]


def test_a_source_that_the_contract_does_not_name_is_refused_even_as_the_first(house: House) -> None:
    named = house.source()
    house.table(rows=BEFORE, text=with_source_uuid(contract(), named))
    other = prove_day(house, "one", 5, ANOTHER)
    error = refusal(house, lambda: publish_day(house, other, 5), NotAllowedError)
    assert code_and_check(error) == ("source_replaced", 12)
    publish_day(house, prove_day(house, "two", 5, named), 5)
    assert house.rows() == [1, 2, 15]


def test_an_approved_source_replaces_the_old_one_and_the_step_log_says_so(house: House) -> None:
    house.table(rows=BEFORE)
    publish_day(house, prove_day(house, "one", 5, SOURCE.uuid), 5)
    approved = house.source()
    house.contracts["orders"] = with_source_uuid(contract(), approved)
    house.scene.migrate(house.scene.migration([], contract=house.contracts["orders"]))
    publish_day(house, prove_day(house, "two", 6, approved), 6)
    target = house.table_state().row.table_uuid
    with house.notary.ledger.read() as unit:
        assert claims.find_source(unit, target, "raw.orders") == approved
        (before, after) = events.history(unit, "target_sources", f"{target}/raw.orders", count=2)
    assert [dict(each.new or {})["source"] for each in (before, after)] == [SOURCE.uuid, approved]


def test_the_same_rows_from_an_approved_table_are_refused_by_their_claim(house: House) -> None:
    house.table(rows=BEFORE)
    publish(house, house.proved("one", NEW))
    approved = house.source()
    house.contracts["orders"] = with_source_uuid(contract(), approved)
    house.scene.migrate(house.scene.migration([], contract=house.contracts["orders"]))
    house.open("two", source=approved)
    again = house.proved("two", NEW, opened=False)
    error = refusal(house, lambda: publish(house, again))
    assert (code_and_check(error), error.details["workload_id"]) == (("claim_overlaps", 12), "one")
    assert house.rows() == [1, 2, 3, 4]


@pytest.mark.parametrize("days", [(5, 5), (5, 6)], ids=["the same day", "two days"])
def test_of_two_sources_that_race_one_publishes(house: House, days: tuple[int, int]) -> None:
    house.table(rows=BEFORE)
    first = prove_day(house, "one", days[0], SOURCE.uuid)
    second = prove_day(house, "two", days[1], ANOTHER)

    def try_to_publish(found: tuple[Attempt, int]) -> str:
        try:
            publish_day(house, *found)
        except PvdmError as error:
            return error.reason
        return "published"

    with ThreadPoolExecutor(2) as pool:
        outcomes = sorted(pool.map(try_to_publish, ((first, days[0]), (second, days[1]))))
    assert outcomes == ["published", "source_replaced"]
    assert len(house.rows()) == len(BEFORE) + 1
