"""Claims of append workloads, on both databases: of two workloads whose claims overlap, the second is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from pvdm.errors import InputError, NotAllowedError, VerificationError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.schema import metadata
from pvdm.ledger.work import claims
from pvdm.model.filter.claim import CLAIM_VALUE_MAX_BYTES, Claim, ClaimValue
from tests.support.for_each import for_each
from tests.support.ledger.databases import NOW
from tests.support.ledger.rows import open_workload

DAY = Claim.value("day", "date", 20_000)
WEEK = Claim.between("day", "date", 19_998, 20_005)
LATER = Claim.between("day", "date", 20_005, 20_012)


@pytest.fixture
def unit(scratch: Unit) -> Unit:
    for name in ("one", "two", "three"):
        open_workload(scratch, name)
    return scratch


def take(unit: Unit, workload_id: str, claim: Claim, *, target: str = "t") -> None:
    claims.take(unit, workload_id, target=target, claim=claim)


OVERLAPPING = [
    (DAY, DAY),
    (DAY, WEEK),
    (WEEK, DAY),
    (Claim.everything(), DAY),
    (DAY, Claim.everything()),
    (Claim.everything(), Claim.everything()),
    (Claim.between("day", "date", None, 20_001), DAY),
    (Claim.between("day", "date", 20_000, None), DAY),
    (Claim.value("id", "int", 7), Claim.value("id", "long", 7)),
    (Claim.value("day", "date", None), Claim.value("day", "date", None)),
    (DAY, Claim.value("other", "date", 1)),
    (DAY, Claim.value("day", "string", "2024-10-04")),
    (Claim.value("name", "string", "a"), Claim.between("name", "string", "", "b")),
]
APART = [
    (WEEK, LATER),
    (LATER, WEEK),
    (DAY, Claim.value("day", "date", 20_001)),
    (DAY, Claim.between("day", "date", 20_001, None)),
    (DAY, Claim.between("day", "date", None, 20_000)),
    (Claim.value("day", "date", None), Claim.between("day", "date", None, None)),
    (
        Claim.value("name", "string", "a"),
        Claim.value("name", "string", "a\x00"),
    ),
    (Claim.value("id", "long", -1), Claim.between("id", "long", 0, None)),
]


@pytest.mark.parametrize(("first", "second"), OVERLAPPING)
def test_an_overlapping_claim_of_another_workload_is_refused(unit: Unit, first: Claim, second: Claim) -> None:
    take(unit, "one", first)
    with pytest.raises(VerificationError) as caught:
        take(unit, "two", second)
    assert (caught.value.reason, caught.value.details["workload_id"]) == ("claim_overlaps", "one")


@pytest.mark.parametrize(("first", "second"), APART)
def test_claims_that_do_not_overlap_are_both_taken(unit: Unit, first: Claim, second: Claim) -> None:
    take(unit, "one", first)
    take(unit, "two", second)
    assert claims.find(unit, "two", target="t") == second


@pytest.mark.parametrize(("first", "second"), OVERLAPPING)
def test_the_database_itself_refuses_an_overlapping_claim(unit: Unit, first: Claim, second: Claim) -> None:
    take(unit, "one", first)
    row = {"column_kind": second.kind, "lower_bound": second.lower, "extent": second.text}
    with pytest.raises(NotAllowedError, match="claims overlap"):
        unit.insert(
            metadata.tables["claims"],
            workload_id="two",
            target="t",
            claim_column=second.column,
            upper_bound=second.upper,
            **row,
        )


def test_claims_on_different_targets_do_not_overlap(unit: Unit) -> None:
    take(unit, "one", Claim.everything())
    take(unit, "two", Claim.everything(), target="t2")
    assert claims.find(unit, "two", target="t2") == Claim.everything()


def test_a_claim_on_a_column_with_the_same_identity_is_compared_whatever_its_name(unit: Unit) -> None:
    take(unit, "one", DAY.of_column("target field 2"))
    take(unit, "two", Claim.value("on_day", "date", 20_001).of_column("target field 2"))
    with pytest.raises(VerificationError, match="overlapping part"):
        take(unit, "three", Claim.value("on_day", "date", 20_000).of_column("target field 2"))


def test_a_claim_on_a_column_of_the_same_name_and_another_identity_is_refused(unit: Unit) -> None:
    take(unit, "one", DAY.of_column("target field 2"))
    with pytest.raises(VerificationError) as caught:
        take(unit, "two", Claim.value("day", "date", 20_001).of_column("target field 4"))
    assert "another column" in str(caught.value.hint)


def test_a_workload_can_take_its_own_claim_again(unit: Unit) -> None:
    take(unit, "one", WEEK)
    take(unit, "one", WEEK)
    assert claims.find_overlapping(unit, "two", target="t", claim=DAY) == ("one", WEEK)


def test_a_different_second_claim_of_a_workload_is_refused(unit: Unit) -> None:
    take(unit, "one", WEEK)
    with pytest.raises(VerificationError) as caught:
        take(unit, "one", LATER)
    assert caught.value.reason == "claim_differs"


def test_the_refusal_says_which_workload_to_resume(unit: Unit) -> None:
    take(unit, "one", WEEK)
    with pytest.raises(VerificationError) as caught:
        take(unit, "two", DAY)
    assert caught.value.hint == (
        "nothing was published; workload one is not complete: run it again under that id to publish the rest of it; "
        "to correct what one has published, an operator migrates the table to a contract that overwrites"
    )


@for_each(
    ("column_type", "value"),
    [
        ("double", 1),
        ("struct<1: int>", 1),
        ("int", "1"),
        ("int", True),
        ("date", b"x"),
        ("long", 2**63),
        ("string", "\ud800"),
        ("string", "x" * (CLAIM_VALUE_MAX_BYTES + 1)),
    ],
)
def test_a_claim_of_a_value_that_cannot_be_a_bound_is_refused(column_type: str, value: ClaimValue) -> None:
    with pytest.raises(InputError) as caught:
        Claim.value("c", column_type, value)
    assert caught.value.reason == "claim_invalid"


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        Claim.between("day", "date", 5, 5)
    assert caught.value.reason == "claim_invalid"


@for_each(
    ("column_type", "values"),
    [
        ("boolean", [False, True]),
        ("uuid", [UUID(int=1), UUID(int=2**127)]),
        ("fixed[2]", [b"\x00\xff", b"\x01\x00"]),
        ("decimal(9, 2)", [-(10**20), -1, 0, 1, 10**20]),
    ],
)
def test_bounds_compare_as_their_values_do(column_type: str, values: list[ClaimValue]) -> None:
    keys = [Claim.value("c", column_type, value).lower for value in values]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(values)


def test_of_many_concurrent_workloads_one_takes_the_claim(ledger: Ledger) -> None:
    names = [f"w{number}" for number in range(8)]
    with ledger.write(at_micros=NOW) as unit:
        for name in names:
            open_workload(unit, name)
        unit.commit()

    def try_to_claim(name: str) -> bool:
        try:
            ledger.transact(lambda unit: take(unit, name, WEEK), at_micros=NOW)
        except VerificationError:
            return False
        return True

    with ThreadPoolExecutor(len(names)) as pool:
        assert sum(pool.map(try_to_claim, names)) == 1


def test_of_many_concurrent_inserts_of_one_claim_the_database_accepts_one(ledger: Ledger) -> None:
    """The inserts bypass `claims.take`: the database's own rule must hold under concurrency too."""
    names = [f"w{number}" for number in range(8)]
    with ledger.write(at_micros=NOW) as unit:
        for name in names:
            open_workload(unit, name)
        unit.commit()

    def try_to_claim(name: str) -> bool:
        row = {"claim_column": "day", "column_kind": "date", "lower_bound": WEEK.lower, "upper_bound": WEEK.upper}
        try:
            with ledger.write(at_micros=NOW) as unit:
                unit.insert(metadata.tables["claims"], workload_id=name, target="t", extent="", **row)
                unit.commit()
        except NotAllowedError:
            return False
        return True

    with ThreadPoolExecutor(len(names)) as pool:
        assert sum(pool.map(try_to_claim, names)) == 1
