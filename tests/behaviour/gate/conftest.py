"""A Steward for each test of the gate; `orders` has a table of that name that shows two rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gate.attacks import BEFORE
from tests.support.gate.protected_tables import House, house_at
from tests.support.ledger.databases import memory_folder


@pytest.fixture
def house() -> Iterator[House]:
    with memory_folder() as folder, house_at(folder) as made:
        yield made


@pytest.fixture
def orders(house: House) -> House:
    house.table(rows=BEFORE)
    return house
