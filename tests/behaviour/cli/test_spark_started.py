"""When `pvdm run` starts Spark: after the workload is open, and only where a chunk is to be staged."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from pvdm.errors import UnavailableError
from pvdm.lake import spark as session
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def spark_starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the applications that start Spark; each start fails, so that no JVM is needed."""
    starts: list[str] = []

    def start(*_: object, app_name: str, **__: object) -> None:
        starts.append(app_name)
        raise UnavailableError("spark_missing", "no Spark here")

    monkeypatch.setattr(session, "spark_session", start)
    module: Any = types.ModuleType("started_jobs")
    module.honest = lambda _spark, _chunk: table_of(ROWS)
    monkeypatch.setitem(sys.modules, "started_jobs", module)
    return starts


def protected_table(shop: Shop, name: str) -> str:
    shop.make(f"sales.{name}")
    shop.protect(contract(f"sales.{name}"))
    return f"sales.{name}"


def run(shop: Shop, table: str, *more: str) -> tuple[int, dict[str, Any]]:
    code, output = shop.command(["run", table, "--workload-id", f"{table}-1", "--json", *more])
    found: dict[str, Any] = json.loads(output)
    return code, found


def test_a_workload_that_cannot_be_opened_starts_no_spark(shop: Shop, spark_starts: list[str]) -> None:
    table = protected_table(shop, "wrong")
    code, document = run(shop, table, "--param", "town=Ulm")
    assert (code, document["error"]["reason"], spark_starts) == (2, "parameters_differ", [])
    assert run(shop, "sales.none")[1]["error"]["reason"] == "table_unknown"
    assert spark_starts == []


def test_a_workload_with_nothing_left_to_stage_starts_no_spark(shop: Shop, spark_starts: list[str]) -> None:
    table = protected_table(shop, "done")
    assert run(shop, table, "--small", "--job", "started_jobs:honest")[0] == 0
    code, document = run(shop, table)
    assert (code, document["published"], spark_starts) == (0, "before", [])


def test_if_spark_cannot_be_started_no_attempt_is_opened(shop: Shop, spark_starts: list[str]) -> None:
    table = protected_table(shop, "stopped")
    code, document = run(shop, table)
    assert (code, document["error"]["reason"], spark_starts) == (7, "spark_missing", ["pvdm run"])
    with shop.client() as client:
        assert client.workload(f"{table}-1").attempts == ()
