"""A Steward for each test of the gate; `orders` has a table of that name that shows two rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import memory_folder
from tests.gate_attacks import BEFORE
from tests.gate_examples import House, house_at


@pytest.fixture
def house() -> Iterator[House]:
    with memory_folder() as folder, house_at(folder) as made:
        yield made


@pytest.fixture
def orders(house: House) -> House:
    house.table(rows=BEFORE)
    return house
