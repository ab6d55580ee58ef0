"""Five hundred random examples of commits that Iceberg's Java parser, PyIceberg and Spark follow, in ten batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.catalog.spark_scan import play_and_scan
from tests.support.ledger.databases import memory_folder
from tests.support.spark.session import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = [
    # PySpark leaves the socket of every collected result to the collector, which warns of it.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.mark.parametrize("batch", range(10))
def test_java_and_spark_read_every_document_of_fifty_examples(spark: SparkSession, batch: int) -> None:
    with memory_folder() as folder:
        play_and_scan(spark, folder, examples=50, steps=30)
