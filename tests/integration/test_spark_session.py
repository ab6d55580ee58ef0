"""A Spark session that `pvdm.spark_session` connects to a Steward: roles, expiring tokens, and clear errors."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pvdm
from pvdm.errors import PvdmError
from pvdm.lake.spark import ICEBERG_RUNTIME, running_session
from pvdm.model.role import Role
from pvdm.steward import access
from pvdm.steward.embedded.embedded import EmbeddedSteward
from tests.support.spark.session import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A catalog's name that no other test has: Spark never forgets one."""
    return f"embedded{next(_NUMBERS)}"


@pytest.fixture
def steward(tmp_path: Path) -> Iterator[EmbeddedSteward]:
    with pvdm.Steward.embedded(tmp_path / "steward") as made:
        yield made


def error_code(work: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        work()
    return caught.value.reason


def create_table(spark: SparkSession, steward: EmbeddedSteward, name: str) -> None:
    """A table with one row, made by a producer."""
    pvdm.spark_session(steward, "producer", "sales", name=name)
    spark.sql(f"create namespace {name}.sales")
    spark.sql(f"create table {name}.sales.t using iceberg as select 1L as id")


def test_one_session_holds_a_catalog_for_each_role(spark: SparkSession, steward: EmbeddedSteward, name: str) -> None:
    create_table(spark, steward, name)
    shop = f"{name}_shop"
    assert pvdm.spark_session(steward, Role.CONSUMER, "sales", name=shop) is spark
    assert rows(spark.table(f"{shop}.sales.t")) == [(1,)]
    with pytest.raises(Exception, match="the token's role does not allow this"):
        spark.sql(f"insert into {shop}.sales.t values (2)")
    # Everything lies in the folder, the Steward's own files beside the warehouse and not in it.
    assert {"warehouse", "catalog"} <= {path.name for path in steward.folder.iterdir()}


def test_the_same_catalog_again_changes_nothing_and_another_under_its_name_is_refused(
    spark: SparkSession, steward: EmbeddedSteward, name: str
) -> None:
    create_table(spark, steward, name)
    pvdm.spark_session(steward, "producer", "sales", name=name)
    assert rows(spark.table(f"{name}.sales.t")) == [(1,)]
    assert error_code(lambda: pvdm.spark_session(steward, "consumer", "sales", name=name)) == "spark_catalog_taken"


def test_settings_that_a_running_session_does_not_have_are_refused(
    spark: SparkSession, steward: EmbeddedSteward, name: str
) -> None:
    same = {"spark.jars.packages": ICEBERG_RUNTIME, "spark.driver.host": "127.0.0.1"}
    assert pvdm.spark_session(steward, name=name, master="local[2]", config=same) is spark
    assert error_code(lambda: pvdm.spark_session(steward, name=name, master="local[7]")) == "spark_settings_differ"
    other = {"spark.driver.memory": "77g"}
    assert error_code(lambda: pvdm.spark_session(steward, name=name, config=other)) == "spark_settings_differ"


def test_a_session_outlives_the_short_lived_tokens_that_it_is_given(
    spark: SparkSession, steward: EmbeddedSteward, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(spark, steward, f"{name}_first")
    monkeypatch.setattr(access, "ACCESS_TOKEN_SECONDS", 5)
    pvdm.spark_session(steward, "producer", "sales", name=name)
    lent = steward.lend(Role.PRODUCER, "sales")
    assert lent.token_id is not None
    short = steward.exchange(lent.token_id, lent.token).access_token
    with pvdm.Steward.connect(steward.url, short) as client:
        pvdm.spark_session(client, name=f"{name}_short")
    ends = time.monotonic() + 6
    assert rows(spark.table(f"{name}.sales.t")) == rows(spark.table(f"{name}_short.sales.t")) == [(1,)]
    time.sleep(max(0, ends - time.monotonic()))
    spark.sql(f"insert into {name}.sales.t values (2)")
    assert rows(spark.table(f"{name}.sales.t")) == [(1,), (2,)]
    with pytest.raises(Exception, match="the token has expired"):
        spark.table(f"{name}_short.sales.t").collect()


def test_a_client_at_an_address_gives_the_role_of_its_own_token(
    spark: SparkSession, steward: EmbeddedSteward, name: str
) -> None:
    create_table(spark, steward, f"{name}_first")
    with pvdm.Steward.connect(steward.url, steward.token_for(Role.CONSUMER, "sales")) as client:
        pvdm.spark_session(client, "consumer", "sales", name=name)
        assert error_code(lambda: pvdm.spark_session(client, "producer", name=name)) == "lent_role_wrong"
        assert error_code(lambda: pvdm.spark_session(client, domain="risk", name=name)) == "lent_role_wrong"
    assert rows(spark.table(f"{name}.sales.t")) == [(1,)]


def test_a_closed_steward_is_a_clear_failure_and_no_hang(
    spark: SparkSession, steward: EmbeddedSteward, name: str
) -> None:
    create_table(spark, steward, name)
    began = time.monotonic()
    steward.close()
    for statement in (f"select * from {name}.sales.t", f"insert into {name}.sales.t values (2)"):
        with pytest.raises(Exception, match=r"Connection refused|Connect to"):
            spark.sql(statement).collect()
    assert time.monotonic() - began < 20


def test_tables_are_there_when_the_folder_is_opened_again(spark: SparkSession, tmp_path: Path, name: str) -> None:
    with pvdm.Steward.embedded(tmp_path / "steward") as steward:
        create_table(spark, steward, name)
    with pvdm.Steward.embedded(tmp_path / "steward") as steward:
        assert error_code(lambda: pvdm.spark_session(steward, "producer", "sales", name=name)) == "spark_catalog_taken"
        pvdm.spark_session(steward, "producer", "sales", name=f"{name}_again")
        assert rows(spark.table(f"{name}_again.sales.t")) == [(1,)]


def test_no_configuration_that_spark_shows_has_the_token(
    spark: SparkSession, steward: EmbeddedSteward, name: str
) -> None:
    pvdm.spark_session(steward, "producer", "sales", name=name)
    token = steward.lend(Role.PRODUCER, "sales").token.text
    shown = [tuple(row) for row in spark.sql("set").collect()]
    assert any(key.startswith(f"spark.sql.catalog.{name}.") for key, _ in shown)
    assert [key for key, value in [*shown, *spark.sparkContext.getConf().getAll()] if token in value] == []


@pytest.mark.long  # it starts two further sessions
def test_a_session_that_was_started_without_iceberg_is_refused(tmp_path: Path) -> None:
    script = """
        import sys, pvdm
        from pvdm.errors import PvdmError
        from pyspark.sql import SparkSession
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        with pvdm.Steward.embedded(sys.argv[1]) as steward:
            try:
                pvdm.spark_session(steward)
            except PvdmError as error:
                print(error.reason)
    """
    done = run(["-c", textwrap.dedent(script), str(tmp_path / "steward")], tmp_path)
    assert done.stdout == "spark_without_iceberg\n"


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A Python process of its own, with this folder's spark-defaults.conf."""
    environment = {**os.environ, "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_DIRS": str(folder / "local")}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done


def test_a_thread_that_has_not_used_spark_sees_the_running_session(spark: SparkSession) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(running_session).result() is not None
