"""Views through unmodified Spark SQL: made, read, replaced, altered, renamed and dropped, each by those who may."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pvdm.model.role import Role
from tests.support.catalog.http import lake_at
from tests.support.catalog.views import query, request
from tests.support.spark.session import as_role, rows
from tests.support.steward.notary import RealTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_view_lives_its_life_through_spark_sql(spark: SparkSession, tmp_path: Path) -> None:
    with lake_at(tmp_path, clock=RealTime()) as lake:
        me = as_role(spark, lake, Role.PRODUCER)
        reader = as_role(spark, lake, Role.CONSUMER)
        spark.sql(f"create table {me}.sales.t (id bigint, note string) using iceberg")
        spark.sql(f"insert into {me}.sales.t values (1, 'a'), (2, 'b')")
        spark.sql(f"create view {me}.sales.v (key comment 'the id') comment 'all' as select id from {me}.sales.t")
        assert rows(spark.sql(f"select * from {me}.sales.v")) == [(1,), (2,)]
        assert [row["viewName"] for row in spark.sql(f"show views in {reader}.sales").collect()] == ["v"]
        assert spark.table(f"{me}.sales.v").columns == ["key"]

        spark.sql(f"create or replace view {me}.sales.v as select note from {me}.sales.t where id > 1")
        assert rows(spark.sql(f"select * from {me}.sales.v")) == [("b",)]
        with pytest.raises(Exception, match="already exists"):
            spark.sql(f"create view {me}.sales.v as select 1")
        with pytest.raises(Exception, match="already exists"):
            spark.sql(f"create table {me}.sales.v (id bigint) using iceberg")
        with pytest.raises(Exception, match=r"already exists|EXPECT_VIEW"):
            spark.sql(f"create view {me}.sales.t as select 1")

        spark.sql(f"alter view {me}.sales.v set tblproperties ('desk' = 'ruth', 'x' = 'y')")
        spark.sql(f"alter view {me}.sales.v unset tblproperties ('x')")
        found = lake.caller().done("GET", "/namespaces/sales/views/v")["metadata"]
        assert (found["properties"].get("desk"), "x" in found["properties"]) == ("ruth", False)
        assert [each["version-id"] for each in found["versions"]] == [1, 2]

        spark.sql(f"alter view {me}.sales.v rename to {me}.sales.w")
        assert rows(spark.sql(f"select * from {me}.sales.w")) == [("b",)]
        for change in (f"drop view {reader}.sales.w", f"create view {reader}.sales.mine as select 1"):
            with pytest.raises(Exception, match="does not allow this"):
                spark.sql(change)
        spark.sql(f"drop view {me}.sales.w")
        assert rows(spark.sql(f"show views in {me}.sales")) == []


def test_a_view_shows_each_reader_what_the_reader_may_see(spark: SparkSession, tmp_path: Path) -> None:
    """A view that names no catalog is read in the reader's own, with the reader's token."""
    with lake_at(tmp_path, clock=RealTime()) as lake:
        me = as_role(spark, lake, Role.PRODUCER)
        reader = as_role(spark, lake, Role.CONSUMER)
        spark.sql(f"create table {me}.sales.t (id bigint) using iceberg")
        spark.sql(f"insert into {me}.sales.t values (1)")
        lake.protect("t")
        spark.sql(f"alter table {me}.sales.t create branch stage")
        spark.sql(f"insert into {me}.sales.t.branch_stage values (2)")
        for name, sql in (("v", "select id from sales.t"), ("staged", "select id from sales.t.branch_stage")):
            lake.caller().done("POST", "/namespaces/sales/views", json=request(name, query(sql)))
        assert rows(spark.sql(f"select * from {reader}.sales.v")) == [(1,)]
        assert rows(spark.sql(f"select * from {me}.sales.staged")) == [(1,), (2,)]
        with pytest.raises(Exception, match=r"branch \(does not exist\): stage"):
            spark.sql(f"select * from {reader}.sales.staged").collect()


def test_in_a_protected_namespace_spark_shows_the_refusal(spark: SparkSession, tmp_path: Path) -> None:
    with lake_at(tmp_path, clock=RealTime()) as lake:
        me = as_role(spark, lake, Role.PRODUCER)
        operator = as_role(spark, lake, Role.OPERATOR, "*")
        spark.sql(f"create view {me}.sales.v as select 1 as one")
        lake.protect_namespace("sales")
        for change in (
            f"create view {me}.sales.w as select 1 as one",
            f"create or replace view {me}.sales.v as select 2 as one",
            f"alter view {me}.sales.v set tblproperties ('a' = 'b')",
            f"alter view {me}.sales.v rename to {me}.sales.w",
            f"drop view {me}.sales.v",
        ):
            with pytest.raises(Exception, match="protects its tables, and a view in it could pass for one"):
                spark.sql(change)
        assert rows(spark.sql(f"select * from {me}.sales.v")) == [(1,)]
        spark.sql(f"create or replace view {operator}.sales.v as select 2 as one")
        assert rows(spark.sql(f"select * from {me}.sales.v")) == [(2,)]
