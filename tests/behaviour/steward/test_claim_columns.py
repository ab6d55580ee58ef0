"""Claims follow the field id of their column in the target: a renamed column keeps them, a recreated one overlaps all.

A claim is the part of the target that a workload reserves, here one day or one town.
"""

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
    publish,
    recreate_source,
    refused_opening,
    schema_of,
    stage,
    visible_ids,
    with_source_uuid,
)
from tests.support.steward.pipeline import BY_DAY, RAW, ROWS, Line, contract, line_at

# PyIceberg's own code causes these warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
LATER = (5, "2026-11-15", "Trier")
NAMES = ("id", "on_day", "town")
COLUMNS = [(1, "id", "long"), (2, "day", "date"), (3, "town", "string")]
RENAMED = [(1, "id", "long"), (2, "on_day", "date"), (3, "town", "string")]


@pytest.fixture
def line(sampled_ledger_url: str, tmp_path: Path) -> Iterator[Line]:
    with line_at(tmp_path, ledger_url=sampled_ledger_url) as made:
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        yield client


def rename_day_in_source(line: Line) -> None:
    """Rename the column `day` of the source, and add a snapshot, which then has the new schema."""
    line.scene.commit(schema_of(RENAMED), levels=RAW)
    line.write([LATER], names=NAMES)


def assert_claim_overlaps(client: StewardClient, parameters: dict[str, str]) -> None:
    error = refused_opening(client, "again", parameters)
    assert (error.reason, error.details["workload_id"]) == ("claim_overlaps", "run-1")


def test_a_claim_column_with_another_name_in_the_source_keeps_its_claims(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    rename_day_in_source(line)
    approve(line, daily(column="on_day", columns="[id, {from: on_day, to: day}, town]"))
    assert_claim_overlaps(producer, {"date": FIRST})
    assert publish(line, producer, "run-2", ROWS[2:], {"date": SECOND}).state is AttemptState.COMMITTED
    assert visible_ids(line) == [1, 2, 3, 4]


def test_a_claim_column_with_another_name_in_the_target_keeps_its_claims(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    approve(line, daily(columns="[id, {from: day, to: on_day}, town]"), schema_of(RENAMED))
    assert_claim_overlaps(producer, {"date": FIRST})
    found = publish(line, producer, "run-2", ROWS[2:], {"date": SECOND}, NAMES)
    assert (found.state, visible_ids(line)) == (AttemptState.COMMITTED, [1, 2, 3, 4])


def test_a_claim_column_with_another_name_on_both_sides_keeps_its_claims(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    rename_day_in_source(line)
    approve(line, daily(column="on_day"), schema_of(RENAMED))
    assert_claim_overlaps(producer, {"date": FIRST})
    found = publish(line, producer, "run-2", ROWS[2:], {"date": SECOND}, NAMES)
    assert (found.state, visible_ids(line)) == (AttemptState.COMMITTED, [1, 2, 3, 4])


TOWNS = contract(BY_TOWN, where="town = ${town}", claim="{column: town}")


def test_a_claim_column_that_was_dropped_and_added_again_frees_no_claim(line: Line, producer: StewardClient) -> None:
    """The old rows have no values of the new column, so every claim on it may overlap theirs."""
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
    assert visible_ids(line) == [2]


def test_a_claim_column_recreated_between_two_chunks_fails_the_second(line: Line, producer: StewardClient) -> None:
    line.protect(contract(BY_TOWN, BY_DAY, where="town = ${town}", claim="{column: town}"))
    producer.open_workload("run-1", TARGET, {"town": "Ulm"})
    assert stage(line, producer, "run-1", [ROWS[0]], chunk_id=f"day={FIRST}").state is AttemptState.COMMITTED
    line.scene.migrate(line.scene.migration(schema_of([*COLUMNS[:2], (4, "town", "string")])))
    found = stage(line, producer, "run-1", [ROWS[3]], chunk_id=f"day={SECOND}")
    assert found.refusal is not None
    assert (found.state, found.refusal.reason) == (AttemptState.VERIFICATION_FAILED, "claim_differs")
    assert "target field 3" in str(found.refusal.expected)
    assert "target field 4" in str(found.refusal.got)
    assert visible_ids(line) == [1]


def test_a_contract_that_claims_another_column_overlaps_every_old_claim(line: Line, producer: StewardClient) -> None:
    line.protect(daily())
    publish(line, producer, "run-1", ROWS[:2], {"date": FIRST})
    approve(line, TOWNS)
    error = refused_opening(producer, "run-2", {"town": "Kiel"})
    assert (error.reason, error.details["workload_id"]) == ("claim_overlaps", "run-1")


# A claim column that no proof covers: claims follow its field id in the source, and only in that source.

WITHOUT_TOWN = "  identity: [id]\n  content: {exclude: [{column: town, reason: nobody reads it}]}\n"
RENAMED_TOWN = [*COLUMNS[:2], (3, "city", "string")]


def contract_without_town(column: str = "town", **boundary: str) -> str:
    """Each workload claims one town, but no projection covers the target's column `town`."""
    text = contract(BY_TOWN, where=f"{column} = ${{town}}", claim=f"{{column: {column}}}", **boundary)
    return text.replace("  identity: [id]\n", WITHOUT_TOWN)


@pytest.fixture
def line_without_town(line: Line, producer: StewardClient) -> Line:
    line.protect(contract_without_town())
    assert publish(line, producer, "run-1", [ROWS[1]], {"town": "Bonn"}).state is AttemptState.COMMITTED
    return line


def test_an_unproved_claim_column_with_another_name_keeps_its_claims(
    line_without_town: Line, producer: StewardClient
) -> None:
    line_without_town.scene.commit(schema_of(RENAMED_TOWN), levels=RAW)
    line_without_town.write([LATER], names=("id", "day", "city"))
    approve(line_without_town, contract_without_town("city", columns="[id, day, {from: city, to: town}]"))
    assert_claim_overlaps(producer, {"town": "Bonn"})
    found = publish(line_without_town, producer, "run-2", [ROWS[2]], {"town": "Kiel"})
    assert (found.state, visible_ids(line_without_town)) == (AttemptState.COMMITTED, [2, 3])


def test_an_unproved_claim_column_that_the_source_recreated_frees_no_claim(
    line_without_town: Line, producer: StewardClient
) -> None:
    line_without_town.scene.commit(schema_of(COLUMNS[:2]), levels=RAW)
    line_without_town.scene.commit(schema_of([*COLUMNS[:2], (4, "town", "string")], schema_id=2), levels=RAW)
    line_without_town.write([LATER])
    assert_claim_overlaps(producer, {"town": "Trier"})


def test_an_unproved_claim_column_of_a_replaced_source_frees_no_claim(
    line_without_town: Line, producer: StewardClient
) -> None:
    new = recreate_source(line_without_town, "dropped")
    approve(line_without_town, with_source_uuid(contract_without_town(), new))
    assert_claim_overlaps(producer, {"town": "Kiel"})
