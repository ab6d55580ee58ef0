"""Spark stages through the Steward's catalog onto tables of Iceberg's Java reference server.

After the proof, Spark reads the rows from that server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

import pvdm
from bench.catalog import fetch_jar
from bench.catalog_systems import java
from pvdm import Committed, Coordinator
from pvdm.model.role import Role
from tests.support.servers.fault_proxy import FaultProxy, ProxiedRequest, fault_proxy, hold_request, lose_answer
from tests.support.services import require
from tests.support.spark.session import rows
from tests.support.steward.shop import COLUMNS, ROWS, Shop, contract, shop_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SORTED = sorted(ROWS, key=repr)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jar = fetch_jar(ROOT / "build" / "bench-jars", fetch=True)
    require(jar, "Iceberg's reference server cannot be fetched (java, mvn), so it is not tested as an upstream")
    assert jar is not None
    with java("upstream", tmp_path_factory.mktemp("java") / "server", jar, None) as system:
        yield system.url


@pytest.fixture(scope="module")
def proxy(server: str) -> Iterator[FaultProxy]:
    with fault_proxy(server) as found:
        yield found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, proxy: FaultProxy) -> Iterator[Shop]:
    upstream = f'name = "java"\nuri = {json.dumps(proxy.url)}'
    with shop_over(tmp_path_factory.mktemp("shop"), upstream, "bench") as made:
        yield made


def create_at_server(server: str, name: str, version: int) -> None:
    """Create an empty table at the server directly."""
    fields = [
        {"id": at, "name": column, "required": False, "type": kind} for at, (column, kind) in enumerate(COLUMNS, 1)
    ]
    body = {
        "name": name,
        "schema": {"type": "struct", "schema-id": 0, "fields": fields},
        "partition-spec": {
            "spec-id": 0,
            "fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}],
        },
        "properties": {"format-version": str(version)},
    }
    answer = httpx.post(f"{server}/v1/namespaces/bench/tables", json=body)
    assert answer.status_code == 200, answer.text


def run(shop: Shop, spark: SparkSession, table: str) -> Any:
    with Coordinator(shop.steward, spark) as coordinator:
        return coordinator.execute_workload(f"{table}-1", None, table=table)


def rows_at_server(spark: SparkSession, server: str, table: str) -> list[Any]:
    """All rows as Spark reads them from the server directly, without the Steward."""
    for key, value in (
        ("", "org.apache.iceberg.spark.SparkCatalog"),
        (".type", "rest"),
        (".uri", server),
        (".cache-enabled", "false"),
    ):
        spark.conf.set(f"spark.sql.catalog.there{key}", value)
    return rows(spark.sql(f"select id, cast(day as string), town from there.bench.{table}"))


def publishes(request: ProxiedRequest) -> bool:
    return request.body_contains('"ref-name":"main"')


@pytest.mark.parametrize("version", [2, 3])
def test_what_spark_stages_is_published_to_the_reference_server(
    shop: Shop, spark: SparkSession, server: str, proxy: FaultProxy, version: int
) -> None:
    name = f"orders_v{version}"
    create_at_server(server, name, version)
    shop.protect(contract(f"up.bench.{name}"))
    # For format 2 the answer is lost. For format 3 the commit arrives late, after the Steward has given it up.
    proxy.applies_to = publishes
    proxy.plan.append(lose_answer if version == 2 else hold_request)
    outcome = run(shop, spark, f"up.bench.{name}")
    assert isinstance(outcome, Committed), outcome
    assert proxy.deliver() == ([] if version == 2 else [409])
    assert rows_at_server(spark, server, name) == SORTED
    assert sorted(shop.visible_rows(f"up.bench.{name}"), key=repr) == SORTED
    if version == 2:
        table = RestCatalog("there", uri=server).load_table(("bench", name))
        assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [row[0] for row in ROWS]


def test_a_producer_cannot_reach_main_of_the_reference_server_through_the_steward(
    shop: Shop, spark: SparkSession
) -> None:
    name = f"shop_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.PRODUCER, "sales", name=name)
    with pytest.raises(Exception, match="is protected"):
        spark.sql(f"insert into {name}.up.bench.orders_v2 values (9, date'2026-11-15', 'Ulm')")
    with pytest.raises(Exception, match="belongs to the upstream catalog"):
        spark.sql(f"drop table {name}.up.bench.orders_v2")
