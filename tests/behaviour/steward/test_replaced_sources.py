"""A replaced source needs an operator's signature, and claims by publications from the old source stay valid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.client import StewardClient
from pvdm.errors import NotAllowedError, VerificationError
from pvdm.model.states import AttemptState
from tests.support.gate.approvals import reason_of
from tests.support.gate.claims import (
    FIRST,
    SECOND,
    approve,
    daily,
    publish,
    recreate_source,
    refused_opening,
    source_uuid,
    stage,
    visible_ids,
)
from tests.support.steward.leases import open_attempt
from tests.support.steward.pipeline import RAW, ROWS, Line, contract, line_at
from tests.support.waiting import wait_for_jobs

# The warnings are PyIceberg's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
WAYS = ["dropped", "renamed"]
"""What happens to the old table before a new one gets its name."""


@pytest.fixture
def line(sampled_ledger_url: str, tmp_path: Path) -> Iterator[Line]:
    with line_at(tmp_path, ledger_url=sampled_ledger_url) as made:
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        yield client


@pytest.mark.parametrize("how", WAYS)
def test_a_replaced_source_is_refused_until_an_operator_signs_and_its_published_day_afterwards_too(
    line: Line, producer: StewardClient, how: str
) -> None:
    line.protect(daily())
    old = source_uuid(line)
    assert publish(line, producer, "run-1", ROWS[:2], {"date": FIRST}).state is AttemptState.COMMITTED
    new = recreate_source(line, how)
    for number, date in enumerate((FIRST, SECOND)):
        error = refused_opening(producer, f"early-{number}", {"date": date})
        assert (type(error), error.reason) == (NotAllowedError, "source_replaced")
        assert old in str(error.expected)
        assert new in str(error.got)
        assert "pvdm migrate propose" in str(error.hint)
    size = line.notary.log.size()
    approve(line, daily(uuid=new))
    assert line.notary.log.size() == size + 1
    error = refused_opening(producer, "run-2", {"date": FIRST})
    assert (type(error), error.reason, error.details["workload_id"]) == (VerificationError, "claim_overlaps", "run-1")
    assert visible_ids(line) == [1, 2]
    assert publish(line, producer, "run-3", ROWS[2:], {"date": SECOND}).state is AttemptState.COMMITTED
    assert visible_ids(line) == [1, 2, 3, 4]


def test_a_signature_for_another_table_does_not_let_the_replaced_source_in(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    old = source_uuid(line)
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    recreate_source(line, "renamed")
    assert refused_opening(producer, "run-2", {"date": SECOND}).reason == "source_replaced"
    for text in (daily(uuid=old), daily("profile: A")):
        assert reason_of(lambda text=text: approve(line, text), NotAllowedError) == "source_replaced"  # type: ignore[misc]
    assert refused_opening(producer, "run-2", {"date": SECOND}).reason == "source_replaced"


def test_an_approved_source_needs_no_second_signature(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    new = recreate_source(line, "dropped")
    approve(line, daily(uuid=new))
    publish(line, producer, "run-2", ROWS[2:], {"date": SECOND})
    approve(line, daily())
    later = (5, "2026-11-15", "Trier")
    line.write([later])
    assert publish(line, producer, "run-3", [later], {"date": later[1]}).state is AttemptState.COMMITTED
    assert visible_ids(line) == [1, 2, 3, 4, 5]


def test_an_overwrite_from_a_replaced_source_waits_for_a_signature_too(line: Line, producer: StewardClient) -> None:
    line.protect(contract(operation="overwrite"))
    assert publish(line, producer, "run-1", ROWS, {}).state is AttemptState.COMMITTED
    recreate_source(line, "dropped", ROWS[:1])
    assert refused_opening(producer, "run-2", {}).reason == "source_replaced"
    assert visible_ids(line) == [1, 2, 3, 4]


def test_a_source_that_is_dropped_after_opening_publishes_nothing(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    producer.open_workload("run-1", "sales.orders", {"date": FIRST})
    tried = open_attempt(producer, "run-1", "all", "the nightly run")
    line.stage(producer, tried, ROWS[:2])
    recreate_source(line, "dropped")
    producer.staged(tried.attempt_id)
    assert wait_for_jobs(line.notary.jobs, 60)
    found = producer.attempt(tried.attempt_id)
    assert found.refusal is not None
    assert (found.state, found.refusal.reason) == (AttemptState.ROLLED_BACK, "source_unusable")
    assert "source is gone" in found.refusal.message
    assert visible_ids(line) == []


def test_a_replaced_source_that_was_opened_before_the_first_publication_is_refused_by_the_gate(
    line: Line, producer: StewardClient
) -> None:
    """The first workload reads the renamed table; the second reads another table that now has the old name."""
    line.protect(daily())
    producer.open_workload("run-1", "sales.orders", {"date": FIRST})
    recreate_source(line, "renamed")
    producer.open_workload("run-2", "sales.orders", {"date": SECOND})
    assert stage(line, producer, "run-1", ROWS[:2]).state is AttemptState.COMMITTED
    refused = stage(line, producer, "run-2", ROWS[2:])
    assert refused.state is AttemptState.VERIFICATION_FAILED
    assert refused.refusal is not None
    assert refused.refusal.reason == "source_replaced"
    assert visible_ids(line) == [1, 2]


def test_the_same_day_from_a_second_source_is_refused_by_its_claim(line: Line, producer: StewardClient) -> None:
    """The second contract names its own source, so no source counts as replaced: only the claim refuses."""
    line.protect(daily())
    line.scene.make("twin", levels=RAW)
    line.write(ROWS, "raw.twin")
    assert publish(line, producer, "run-1", ROWS[:2], {"date": FIRST}).state is AttemptState.COMMITTED
    approve(line, daily().replace("raw.orders", "raw.twin"))
    error = refused_opening(producer, "run-2", {"date": FIRST})
    assert (error.reason, error.details["workload_id"]) == ("claim_overlaps", "run-1")
    assert publish(line, producer, "run-3", ROWS[2:], {"date": SECOND}).state is AttemptState.COMMITTED
