"""Every Python block of docs/spark.md runs as it stands, and its spark-defaults are the settings of a session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pvdm.client import StewardClient
from pvdm.lake.spark import EXTENSIONS, ICEBERG_RUNTIME, SparkCatalog
from pvdm.model.secret import Secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_python_blocks_run_one_after_the_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    try:
        for number, block in enumerate(blocks("python"), start=1):
            exec(compile(block, f"docs/spark.md, block {number}", "exec"), names)
    finally:
        spark.conf.unset("spark.wap.branch")
        for opened in [value for value in names.values() if isinstance(value, StewardClient)]:
            opened.close()


def test_the_spark_defaults_of_the_page_are_the_settings_of_a_session() -> None:
    (listed,) = blocks("properties")
    found = dict(line.split(maxsplit=1) for line in listed.splitlines())
    settings = SparkCatalog("lake", "https://steward.example:8181/catalog", Secret(b"TEXT"), "ID").settings()
    assert found == {"spark.jars.packages": ICEBERG_RUNTIME, "spark.sql.extensions": EXTENSIONS, **settings}
