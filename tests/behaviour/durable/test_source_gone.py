"""A source that was dropped or created again while a workload is open is reported as such, not as a failed job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pvdm.api.work import WorkloadView
from pvdm.durable import failure_text
from pvdm.durable.chunk import Source
from pvdm.errors import InputError
from pvdm.model.contract import parse_contract
from pvdm.model.role import Role
from tests.support.catalog.http import Caller
from tests.support.steward.http import bearer
from tests.support.steward.shop import ROWS, Shop, contract, shop_at

TABLE = "sales.orders"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with shop_at(tmp_path) as made:
        made.make(TABLE)
        made.protect(contract(TABLE))
        yield made


def drop_source(shop: Shop) -> None:
    with httpx.Client(base_url=shop.steward.url) as http:
        caller = Caller(http, bearer(shop.steward.token_for(Role.OPERATOR).text))
        caller.done("DELETE", "/namespaces/raw/tables/orders")


def read_refused(shop: Shop, workload: WorkloadView) -> InputError:
    """Read the source as a job does, which must be refused. Returns the error."""
    bound = parse_contract(contract(TABLE).encode()).bind({})

    def no_spark() -> None:
        raise AssertionError("Spark is needed only after the source was checked")

    with shop.client() as client:
        source = Source(client, no_spark, workload, bound)  # type: ignore[arg-type]
        with pytest.raises(InputError) as caught:
            assert source.schema.names
    return caught.value


@pytest.mark.parametrize(("recreated", "got"), [(False, "no table of that name"), (True, "the table ")])
def test_a_dropped_or_recreated_source_is_refused_with_a_hint(shop: Shop, recreated: bool, got: str) -> None:
    with shop.client() as client:
        workload = client.open_workload("run-1", TABLE, {})
    drop_source(shop)
    if recreated:
        shop.make("raw.orders")
        shop.write(ROWS)
    error = read_refused(shop, workload)
    assert (error.reason, str(error.got).startswith(got)) == ("source_gone", True)
    assert "pvdm abandon run-1 --reason TEXT" in str(error.hint)
    assert isinstance(error, failure_text._SELF_EXPLAINING)


def test_an_unchanged_source_is_read(shop: Shop) -> None:
    with shop.client() as client:
        workload = client.open_workload("run-1", TABLE, {})
        bound = parse_contract(contract(TABLE).encode()).bind({})
        source = Source(client, lambda: None, workload, bound)  # type: ignore[arg-type,return-value]
        assert source.schema.names == ("id", "day", "town")
