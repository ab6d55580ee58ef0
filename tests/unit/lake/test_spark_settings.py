"""The settings of a Spark session for a catalog, and sessions that are refused before Spark is started."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pvdm.errors import InputError, UnavailableError
from pvdm.lake.spark import EXTENSIONS, ICEBERG_RUNTIME, SparkCatalog, _new_session_settings, add_catalog, spark_session
from pvdm.model.secret import Secret
from tests.support.for_each import for_each

TOKEN = Secret(b"pvdm_secret")


@for_each("name", ["", "1lake", "my lake", "a.b", "lake;drop", "x" * 65, "spark_catalog", "System"])
def test_an_invalid_or_reserved_catalog_name_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        SparkCatalog(name, "http://127.0.0.1:1/catalog", TOKEN)
    assert caught.value.reason == "spark_catalog_name"


def test_a_token_with_its_id_is_a_credential_for_short_lived_tokens() -> None:
    settings = SparkCatalog("lake", "http://127.0.0.1:1/catalog", TOKEN, "ab12").settings()
    assert settings["spark.sql.catalog.lake.credential"] == "ab12:pvdm_secret"
    assert settings["spark.sql.catalog.lake.oauth2-server-uri"] == "http://127.0.0.1:1/catalog/v1/oauth/tokens"
    assert not {key for key in settings if key.endswith((".token", ".token-refresh-enabled"))}


def test_a_token_without_its_id_is_set_directly_and_not_renewed() -> None:
    settings = SparkCatalog("lake", "http://127.0.0.1:1/catalog", TOKEN).settings()
    assert settings["spark.sql.catalog.lake.token"] == "pvdm_secret"
    assert settings["spark.sql.catalog.lake.token-refresh-enabled"] == "false"


def test_the_repr_of_a_catalog_does_not_show_its_token() -> None:
    assert "pvdm_secret" not in repr(SparkCatalog("lake", "http://127.0.0.1:1/catalog", TOKEN, "ab12"))


def test_a_new_session_gets_icebergs_runtime_and_extensions_after_the_callers() -> None:
    found = _new_session_settings(
        {"spark.jars.packages": "org.example:udf:1", "spark.sql.extensions": "org.example.Own"}
    )
    assert found["spark.jars.packages"] == f"org.example:udf:1,{ICEBERG_RUNTIME}"
    assert found["spark.sql.extensions"] == f"org.example.Own,{EXTENSIONS}"


@pytest.mark.parametrize("key", ["spark.jars", "spark.jars.packages"])
def test_a_caller_with_its_own_iceberg_runtime_gets_no_second_one(key: str) -> None:
    runtime = "/jars/iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
    assert _new_session_settings({key: runtime}) == {key: runtime, "spark.sql.extensions": EXTENSIONS}


@pytest.mark.parametrize("config", [{"spark.remote": "sc://far"}, {"spark.api.mode": "connect"}])
def test_a_setting_for_spark_connect_is_refused(config: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        spark_session([], config=config)
    assert caught.value.reason == "spark_connect_unsupported"


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_an_environment_variable_for_spark_connect_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "sc://far")
    with pytest.raises(InputError) as caught:
        spark_session([])
    assert caught.value.reason == "spark_connect_unsupported"


def test_adding_a_catalog_to_a_spark_connect_session_is_refused() -> None:
    # A Spark Connect session is recognised by the module of its class; a real one would need a server.
    session: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InputError) as caught:
        add_catalog(session, SparkCatalog("lake", "http://127.0.0.1:1/catalog", TOKEN))
    assert caught.value.reason == "spark_connect_unsupported"


def test_the_error_without_pyspark_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(UnavailableError) as caught:
        spark_session([])
    assert (caught.value.reason, caught.value.hint) == ("spark_missing", "pip install 'pvdm[spark]'")
