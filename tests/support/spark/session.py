"""One real Spark session for a test run, and catalogs that are added to it with tokens of several roles."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pvdm.client import AccessToken
from pvdm.lake.spark import SparkCatalog, add_catalog, spark_session
from pvdm.model.role import Role
from tests.support.catalog.http import Lake
from tests.support.services import require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBERS = itertools.count(1)
# Compiling a query over a few rows takes longer than interpreting it.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session. Tests that use it are in `tests/integration`, which one test worker runs."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    from pyspark.errors import PySparkException

    require(java, "Java 17 is not installed (Debian: openjdk-17-jre-headless), so Spark cannot start")
    scratch = tmp_path_factory.mktemp("spark")
    try:
        session = spark_session(
            [],
            app_name="pvdm tests",
            master="local[2]",
            config={
                "spark.ui.enabled": "false",
                "spark.driver.memory": "1g",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.sql.shuffle.partitions": "2",
                **_INTERPRETED,
                "spark.sql.warehouse.dir": str(scratch / "warehouse"),
                "spark.local.dir": str(scratch / "local"),
                "spark.log.level": "ERROR",
            },
            object_store=True,
        )
    except PySparkException as error:
        # Spark gets Iceberg's runtime from Maven Central, or from a local cache of it.
        require(condition=False, reason=f"Spark with Iceberg's runtime cannot start: {error}")
        raise
    yield session
    session.stop()
    # Py4J leaves sockets of its threads to the garbage collector, which warns. Here the warnings are ignored.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del session
        gc.collect()


@pytest.fixture(scope="module")
def compiled_queries(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile queries, as it does for consumers; for tests about what Spark reads."""
    for name, value in _COMPILED.items():
        spark.conf.set(name, value)
    yield
    for name, value in _INTERPRETED.items():
        spark.conf.set(name, value)


def add_catalog_with_token(spark: SparkSession, uri: str, token: str) -> str:
    """Add a catalog with this token to the session; returns its name in SQL."""
    name = f"lake{next(_NUMBERS)}"
    add_catalog(spark, SparkCatalog(name, uri, AccessToken(token)))
    return name


def as_role(spark: SparkSession, lake: Lake, role: Role, domain: str = "sales") -> str:
    """Add the lake's catalog with a token of this role to the session; returns its name in SQL."""
    token, _ = lake.steward.stand.token(role, domain, f"spark-{role}")
    return add_catalog_with_token(spark, f"{lake.steward.server.url}/catalog", token)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    """All rows, sorted."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)
