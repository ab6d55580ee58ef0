"""A publication without rows claims nothing, so late rows can be published once under another id; on each database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import VerificationError
from pvdm.ledger import Unit
from pvdm.ledger.work import claims, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.checks_table import check_12_claim
from pvdm.metadata.gate.ledger_changes import select_claim
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.core import RowCounts
from pvdm.model.statements.proof import Proof
from pvdm.trust.statement import read_unchecked
from tests.support.gate.attacks import BEFORE, NEW, code_and_check, publish, refusal
from tests.support.gate.protected_tables import House, Row, contract, house_at

WHOLE = "atomicity: workload\n"


@pytest.fixture
def house(sampled_ledger_url: str, tmp_path: Path) -> Iterator[House]:
    with house_at(tmp_path, ledger_url=sampled_ledger_url) as made:
        yield made


@pytest.fixture
def orders(house: House) -> House:
    house.table(rows=BEFORE)
    return house


def prove_chunk(house: House, workload_id: str, chunk_id: str, rows: Sequence[Row] = ()) -> Attempt:
    return house.proved(workload_id, rows, chunk_id=chunk_id, opened=False)


def claim_of(house: House, workload_id: str) -> Claim | None:
    with house.notary.ledger.read() as unit:
        opening = workloads.get(unit, workload_id).opening
        return claims.find(unit, workload_id, target=opening.table_uuid)


def test_late_rows_are_published_under_another_id_after_an_empty_publication(orders: House) -> None:
    publish(orders, orders.proved("early", []))
    assert claim_of(orders, "early") is None
    publish(orders, orders.proved("late", NEW))
    assert orders.rows() == [1, 2, 3, 4]
    again = orders.proved("again", NEW)
    error = refusal(orders, lambda: publish(orders, again))
    assert (code_and_check(error), error.details["workload_id"]) == (("claim_overlaps", 12), "late")


def test_the_first_chunk_with_a_row_takes_the_claim(orders: House) -> None:
    orders.open("slow", ["a", "b"])
    publish(orders, prove_chunk(orders, "slow", "a"))
    assert claim_of(orders, "slow") is None
    publish(orders, prove_chunk(orders, "slow", "b", NEW))
    assert claim_of(orders, "slow") == Claim.everything()


def test_after_an_empty_chunk_the_next_cannot_publish_rows_that_another_workload_published(orders: House) -> None:
    orders.open("slow", ["a", "b"])
    publish(orders, prove_chunk(orders, "slow", "a"))
    publish(orders, orders.proved("fast", NEW))
    late = prove_chunk(orders, "slow", "b", NEW)
    error = refusal(orders, lambda: publish(orders, late))
    assert (code_and_check(error), error.details["workload_id"]) == (("claim_overlaps", 12), "fast")
    assert orders.rows() == [1, 2, 3, 4]


def test_an_atomic_workload_with_rows_in_its_last_chunk_only_takes_the_claim(house: House) -> None:
    house.table(rows=BEFORE, text=contract(more=WHOLE))
    house.open("whole", ["a", "b"])
    publish(house, prove_chunk(house, "whole", "a"), prove_chunk(house, "whole", "b", NEW))
    assert claim_of(house, "whole") == Claim.everything()


def test_of_two_workloads_that_began_with_an_empty_chunk_one_publishes_its_rows(orders: House) -> None:
    names = ("one", "two")
    for name in names:
        orders.open(name, ["a", "b"])
        publish(orders, prove_chunk(orders, name, "a"))
    ready = [prove_chunk(orders, name, "b", NEW) for name in names]

    def try_to_publish(found: Attempt) -> str:
        try:
            publish(orders, found)
        except VerificationError as error:
            return error.reason
        return "published"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(try_to_publish, ready)) == ["claim_overlaps", "published"]
    assert orders.rows() == [1, 2, 3, 4]


def test_a_chunk_whose_rows_were_not_counted_takes_the_claim(orders: House) -> None:
    proposal = orders.proposal(orders.proved("waived", NEW))
    core = read_unchecked(proposal.parts[0].proofs[0].envelope, Proof).core
    unknown = replace(core, rows=RowCounts(None, None))

    def work(unit: Unit) -> None:
        check_12_claim(unit, proposal.workload.opening.workload_id, select_claim([unknown], proposal.claim))

    orders.transact(work)
    assert claim_of(orders, "waived") == Claim.everything()
