"""A workload that waited does not replace rows that were published from a newer snapshot of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, RolledBack, VerificationFailed
from pvdm.durable.outcome import Outcome
from tests.support.steward.shop import Row, Shop, contract, shop_at, table_of

DAY = "2026-11-15"
FIRST: Row = (20, DAY, "Kiel")
LATE: Row = (21, DAY, "Ulm")
OTHER: Row = (22, "2026-11-16", "Bonn")


@pytest.fixture
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        made.make("sales.days", [(2, "day", "identity")])
        where = {"where": "day = ${date}", "partition": "{day: '${date}'}"}
        parameters = "parameters:\n  date:\n    type: date"
        made.protect(contract("sales.days", parameters, operation="overwrite-partitions", **where))
        yield made


def fail(_spark: object, _chunk: Chunk) -> pa.Table:
    raise ValueError("the job has a bug")


def run(shop: Shop, workload_id: str, day: str, rows: Sequence[Row] | None) -> Outcome:
    """Run the workload with a job that gives these rows; without rows the job ends with an error."""

    def build(_spark: object, _chunk: Chunk) -> pa.Table:
        return table_of(rows or ())

    with Coordinator(shop.steward) as coordinator:
        return coordinator.execute_workload(workload_id, build if rows else fail, table="sales.days", date=day)


def test_an_overwrite_that_waited_does_not_replace_newer_rows(shop: Shop) -> None:
    shop.write([FIRST])
    assert isinstance(run(shop, "one", DAY, None), RolledBack)
    shop.write([LATE])
    assert isinstance(run(shop, "two", DAY, [FIRST, LATE]), Committed)
    outcome = run(shop, "one", DAY, [FIRST])
    assert isinstance(outcome, RolledBack), outcome
    assert outcome.error.reason == "source_unusable"
    assert "workload two has published these rows from a newer snapshot" in outcome.error.message
    assert "the source cannot be read as the contract says: workload two" in outcome.error.message
    assert "an operator abandons this workload" in str(outcome.error.hint)
    assert "; if the cause was removed meanwhile, for example by a migration: pvdm repair one " in str(
        outcome.error.hint
    )
    assert shop.visible_rows("sales.days") == [FIRST, LATE]


def test_an_overwrite_that_waited_replaces_older_rows_even_if_another_day_is_newer(shop: Shop) -> None:
    """Only another day was published from a newer snapshot meanwhile."""
    shop.write([FIRST, LATE, OTHER])
    assert isinstance(run(shop, "older", DAY, [FIRST, LATE]), Committed)
    assert isinstance(run(shop, "three", DAY, None), RolledBack)
    shop.write([(23, OTHER[1], "Jena")])
    assert isinstance(run(shop, "four", OTHER[1], [OTHER, (23, OTHER[1], "Jena")]), Committed)
    assert isinstance(run(shop, "three", DAY, [FIRST, LATE]), Committed)


def test_of_two_overwrites_of_a_day_at_once_the_loser_can_be_repeated_with_the_same_job(shop: Shop) -> None:
    shop.write([FIRST])

    def publish_meanwhile(_spark: object, _chunk: Chunk) -> pa.Table:
        assert isinstance(run(shop, "winner", DAY, [FIRST]), Committed)
        return table_of([FIRST])

    with Coordinator(shop.steward) as coordinator:
        lost = coordinator.execute_workload("loser", publish_meanwhile, table="sales.days", date=DAY)
        assert isinstance(lost, VerificationFailed), lost
        assert lost.error.hint == (
            "main has changed in the part that is overwritten, so no row was compared; the job can stay as it is, and "
            "must stage its rows again; to try again: pvdm repair loser --reason TEXT"
        )
        repeated = coordinator.repair("loser", lambda _spark, _chunk: table_of([FIRST]), reason="another run was first")
    assert isinstance(repeated, Committed), repeated
    assert shop.visible_rows("sales.days") == [FIRST]
