"""Iceberg's own reader on tables that lie about themselves: it shows other rows than the files and deletes have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.test_scan_spark import folder_catalog, rows_by_pvdm, scan_of, show_in_spark
from tests.support.lake.source_lies import LIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("kernel")


@contextlib.contextmanager
def without_cache(spark: SparkSession) -> Iterator[None]:
    """With its cache Spark reads small delete files whole, and asks none of them for the rows of one path."""
    name = "spark.sql.iceberg.executor-cache.enabled"
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.unset(name)


def test_spark_shows_other_rows_of_each_source_that_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    name = folder_catalog(spark, tmp_path)
    with without_cache(spark):
        for number, lie in enumerate(LIES):
            folder = tmp_path / "warehouse" / "db"
            honest, lying = lie.make(folder / f"honest{number}", False), lie.make(folder / f"lying{number}", True)
            rows = show_in_spark(spark, name, honest)
            assert rows == rows_by_pvdm(scan_of(honest.metadata())), lie
            assert show_in_spark(spark, name, lying) != rows, lie
