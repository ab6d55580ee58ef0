"""One upstream catalog for each module. Each test has its own namespace there, and its own Steward in front of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.catalog.upstream import BEFORE, Upstream, house_over, there_at, upstream_at
from tests.support.gate.protected_tables import House
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import Served

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def upstream_server() -> Iterator[Served]:
    with memory_folder() as folder, upstream_at(folder) as found:
        yield found


@pytest.fixture
def upstream(upstream_server: Served) -> Iterator[Upstream]:
    with there_at(upstream_server, f"sales_{next(_NUMBERS)}") as found:
        yield found


@pytest.fixture
def house(upstream: Upstream) -> Iterator[House]:
    with memory_folder() as folder, house_over(folder, upstream) as made:
        made.table(rows=BEFORE)
        yield made
