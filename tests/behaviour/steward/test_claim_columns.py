"""Claim columns are compared by the id of the target's column: a new name changes nothing, a new column everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.client import StewardClient
from pvdm.model.states import AttemptState
from tests.support.gate.claims import (
    BY_TOWN,
    FIRST,
    SECOND,
    TARGET,
    approve,
    daily,
    load_anew,
    naming,
    publish,
    refused_opening,
    schema_of,
    seen,
    stage,
)
from tests.support.steward.pipeline import BY_DAY, RAW, ROWS, Line, contract, line_at

# PyIceberg's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
LATER = (5, "2026-11-15", "Trier")
NAMES = ("id", "on_day", "town")
COLUMNS = [(1, "id", "long"), (2, "day", "date"), (3, "town", "string")]
RENAMED = [(1, "id", "long"), (2, "on_day", "date"), (3, "town", "string")]


@pytest.fixture
def line(ledger_url: str, tmp_path: Path) -> Iterator[Line]:
    with line_at(tmp_path, ledger_url=ledger_url) as made:
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        yield client


def rename_in_source(line: Line) -> None:
    """The source's day has another name, in its newest snapshot too."""
    line.scene.commit(schema_of(RENAMED), levels=RAW)
    line.write([LATER], names=NAMES)


def the_same_day_is_refused(client: StewardClient, parameters: dict[str, str]) -> None:
    error = refused_opening(client, "again", parameters)
    assert (error.reason, error.details["workload_id"]) == ("claim_overlaps", "run-1")


def test_a_claim_column_with_another_name_in_the_source_keeps_its_claims(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    rename_in_source(line)
    approve(line, daily(column="on_day", columns="[id, {from: on_day, to: day}, town]"))
    the_same_day_is_refused(producer, {"date": FIRST})
    assert publish(line, producer, "run-2", ROWS[2:], {"date": SECOND}).state is AttemptState.COMMITTED
    assert seen(line) == [1, 2, 3, 4]


def test_a_claim_column_with_another_name_in_the_target_keeps_its_claims(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    approve(line, daily(columns="[id, {from: day, to: on_day}, town]"), schema_of(RENAMED))
    the_same_day_is_refused(producer, {"date": FIRST})
    found = publish(line, producer, "run-2", ROWS[2:], {"date": SECOND}, NAMES)
    assert (found.state, seen(line)) == (AttemptState.COMMITTED, [1, 2, 3, 4])


def test_a_claim_column_with_another_name_on_both_sides_keeps_its_claims(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    rename_in_source(line)
    approve(line, daily(column="on_day"), schema_of(RENAMED))
    the_same_day_is_refused(producer, {"date": FIRST})
    found = publish(line, producer, "run-2", ROWS[2:], {"date": SECOND}, NAMES)
    assert (found.state, seen(line)) == (AttemptState.COMMITTED, [1, 2, 3, 4])


TOWNS = contract(BY_TOWN, where="town = ${town}", claim="{column: town}")


def test_a_claim_column_that_was_dropped_and_added_again_frees_no_claim(line: Line, producer: StewardClient) -> None:
    """Nobody knows which of its values the old rows would have, so that every part may meet them."""
    line.protect(TOWNS)
    publish(line, producer, "run-1", [ROWS[1]], {"town": "Bonn"})
    line.scene.migrate(line.scene.migration(schema_of([*COLUMNS[:2], (4, "town", "string")])))
    for number, town in enumerate(("Bonn", "Kiel")):
        error = refused_opening(producer, f"again-{number}", {"town": town})
        assert (error.reason, error.details["workload_id"]) == ("claim_overlaps", "run-1")
        assert "another column" in str(error.hint)


def test_a_claim_column_recreated_while_a_workload_is_open_is_refused_by_the_gate(
    line: Line, producer: StewardClient
) -> None:
    line.protect(TOWNS)
    publish(line, producer, "run-1", [ROWS[1]], {"town": "Bonn"})
    producer.open_workload("run-2", TARGET, {"town": "Kiel"})
    line.scene.migrate(line.scene.migration(schema_of([*COLUMNS[:2], (4, "town", "string")])))
    found = stage(line, producer, "run-2", [ROWS[2]])
    assert found.refusal is not None
    assert (found.state, found.refusal.reason) == (AttemptState.VERIFICATION_FAILED, "claim_overlaps")
    assert seen(line) == [2]


def test_a_claim_column_recreated_between_two_chunks_ends_the_second(line: Line, producer: StewardClient) -> None:
    line.protect(contract(BY_TOWN, BY_DAY, where="town = ${town}", claim="{column: town}"))
    producer.open_workload("run-1", TARGET, {"town": "Ulm"})
    assert stage(line, producer, "run-1", [ROWS[0]], chunk_id=f"day={FIRST}").state is AttemptState.COMMITTED
    line.scene.migrate(line.scene.migration(schema_of([*COLUMNS[:2], (4, "town", "string")])))
    found = stage(line, producer, "run-1", [ROWS[3]], chunk_id=f"day={SECOND}")
    assert found.refusal is not None
    assert (found.state, found.refusal.reason) == (AttemptState.VERIFICATION_FAILED, "claim_differs")
    assert "target field 3" in str(found.refusal.expected)
    assert "target field 4" in str(found.refusal.got)
    assert seen(line) == [1]


def test_a_contract_that_claims_another_column_meets_every_old_claim(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    approve(line, TOWNS)
    error = refused_opening(producer, "run-2", {"town": "Kiel"})
    assert (error.reason, error.details["workload_id"]) == ("claim_overlaps", "run-1")


# A claim column that no proof covers: the id of the source's column, in that source alone.

UNREAD = "  identity: [id]\n  content: {exclude: [{column: town, reason: nobody reads it}]}\n"
RENAMED_TOWN = [*COLUMNS[:2], (3, "city", "string")]


def unread(column: str = "town", **boundary: str) -> str:
    text = contract(BY_TOWN, where=f"{column} = ${{town}}", claim=f"{{column: {column}}}", **boundary)
    return text.replace("  identity: [id]\n", UNREAD)


@pytest.fixture
def unread_line(line: Line, producer: StewardClient) -> Line:
    line.protect(unread())
    assert publish(line, producer, "run-1", [ROWS[1]], {"town": "Bonn"}).state is AttemptState.COMMITTED
    return line


def test_an_unproved_claim_column_with_another_name_keeps_its_claims(
    unread_line: Line, producer: StewardClient
) -> None:
    unread_line.scene.commit(schema_of(RENAMED_TOWN), levels=RAW)
    unread_line.write([LATER], names=("id", "day", "city"))
    approve(unread_line, unread("city", columns="[id, day, {from: city, to: town}]"))
    the_same_day_is_refused(producer, {"town": "Bonn"})
    found = publish(unread_line, producer, "run-2", [ROWS[2]], {"town": "Kiel"})
    assert (found.state, seen(unread_line)) == (AttemptState.COMMITTED, [2, 3])


def test_an_unproved_claim_column_that_the_source_recreated_frees_no_claim(
    unread_line: Line, producer: StewardClient
) -> None:
    unread_line.scene.commit(schema_of(COLUMNS[:2]), levels=RAW)
    unread_line.scene.commit(schema_of([*COLUMNS[:2], (4, "town", "string")], schema_id=2), levels=RAW)
    unread_line.write([LATER])
    the_same_day_is_refused(producer, {"town": "Trier"})


def test_an_unproved_claim_column_of_a_replaced_source_frees_no_claim(
    unread_line: Line, producer: StewardClient
) -> None:
    new = load_anew(unread_line, "dropped")
    approve(unread_line, naming(unread(), new))
    the_same_day_is_refused(producer, {"town": "Kiel"})
