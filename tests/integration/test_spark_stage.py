"""An unmodified Spark job stages on a branch of a protected table through the Steward's catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pvdm.model.role import Role
from tests.support.catalog.http import lake_at
from tests.support.spark.session import as_role, rows
from tests.support.steward.notary import RealTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_job_stages_and_main_stays_empty(spark: SparkSession, tmp_path: Path) -> None:
    with lake_at(tmp_path, clock=RealTime()) as lake:
        me = as_role(spark, lake, Role.PRODUCER)
        spark.sql(f"create table {me}.sales.t (id bigint, note string) using iceberg")
        lake.protect("t")
        spark.sql(f"alter table {me}.sales.t create branch stage")
        spark.sql(f"insert into {me}.sales.t.branch_stage values (1, 'a'), (2, 'b')")
        assert rows(spark.sql(f"select * from {me}.sales.t.branch_stage")) == [(1, "a"), (2, "b")]
        assert rows(spark.sql(f"select * from {me}.sales.t")) == []
        with pytest.raises(Exception, match="protected"):
            spark.sql(f"insert into {me}.sales.t values (3, 'c')")
