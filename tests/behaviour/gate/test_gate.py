"""The gate publishes what was proved, all of it and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pvdm.metadata.gate.gate import validate_then_commit
from tests.support.gate.protected_tables import House, house_at
from tests.support.ledger.databases import memory_folder


@pytest.fixture
def house() -> Iterator[House]:
    with memory_folder() as folder, house_at(folder) as made:
        yield made


@pytest.mark.parametrize("version", [2, 3])
def test_an_append_shows_its_rows_beside_the_earlier_ones(house: House, version: int) -> None:
    house.table(rows=[(1, 1, "Ulm")], version=version)
    attempt = house.proved("w", [(2, 1, "Ulm"), (3, 2, "Bonn")])
    done = validate_then_commit(house.proposal(attempt), house.gate())
    assert house.rows() == [1, 2, 3]
    assert house.state_of(attempt) == "COMMITTED"
    assert done.shown.new_snapshot_id == house.table_state().metadata.current_snapshot_id
