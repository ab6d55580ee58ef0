"""Random commits against a model: Iceberg's Java parser reads every document, and Spark the tables at the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tests.support.catalog.spark_scan import play_and_scan
from tests.support.lake.metadata import document
from tests.support.ledger.databases import memory_folder
from tests.support.oracles.java_parser import JavaParser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_java_and_spark_read_every_document_of_random_commits(spark: SparkSession) -> None:
    with memory_folder() as folder:
        play_and_scan(spark, folder, examples=10, steps=15)


@pytest.mark.parametrize(
    "change",
    [
        {"current-schema-id": 9},
        {"last-sequence-number": 1},
        {"snapshot-log": [{"snapshot-id": 12, "timestamp-ms": 2**60}]},
        {"refs": {"main": {"snapshot-id": 11, "type": "branch"}}},
        {"made-up": 1},
    ],
)
def test_javas_parser_notices_a_change_of_a_good_document(spark: SparkSession, change: dict[str, Any]) -> None:
    java, good = JavaParser(spark), document()
    java.require_unchanged(json.dumps(good).encode())
    with pytest.raises((AssertionError, PySparkException, Py4JError)):
        java.require_unchanged(json.dumps(good | change).encode())
