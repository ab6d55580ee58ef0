"""`[spark]` of steward.toml: its defaults, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from pvdm.errors import InputError
from pvdm.steward.config.steward import load_config
from pvdm.verify.spark.settings import SparkSettings

PAGE = (Path(__file__).parents[3] / "docs" / "spark-verification.md").read_text("utf-8")
HEAD = """\
notary = "n"
origin = "o"
ledger = "sqlite:///l"
outside = "c"
[keys]
home = "file"
path = "keys"
"""


def load_spark_settings(folder: Path, *lines: str) -> SparkSettings | None:
    path = folder / "steward.toml"
    path.write_text(HEAD + "".join(f"{line}\n" for line in lines))
    return load_config(path).spark


def test_without_the_table_there_are_no_spark_settings(tmp_path: Path) -> None:
    assert load_spark_settings(tmp_path) is None


def test_a_local_master_needs_nothing_else(tmp_path: Path) -> None:
    found = load_spark_settings(tmp_path, "[spark]", 'master = "local[*]"')
    assert found == SparkSettings("local[*]", tmp_path / "spark")
    assert found.is_local


def test_a_connect_server_is_accepted_with_its_cores(tmp_path: Path) -> None:
    found = load_spark_settings(tmp_path, "[spark]", 'master = "sc://h:15002"', "cores = 2", 'worker_token = "w"')
    assert found is not None
    assert (found.cores, found.is_local) == (2, False)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    lines = ('master = "spark://h:7077"', 'worker_token = "w"', 'authorities = "ca.pem"', "files_least = 5")
    found = load_spark_settings(tmp_path, "[spark]", *lines)
    assert found is not None
    assert (found.worker_token, found.authorities) == (tmp_path / "w", tmp_path / "ca.pem")
    assert (found.files_least, found.is_local) == (5, False)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (['master = "sc://h:15002"', 'worker_token = "w"'], "config_invalid"),
        (['master = "sc://h:15002"', "cores = 2"], "config_invalid"),
        (['master = "spark://h:7077"'], "config_invalid"),
        (['master = "local[2]"', "files_least = 0"], "config_invalid"),
        (['master = "local[2]"', "unknown = 1"], "config_invalid"),
        (["cores = 2"], "config_invalid"),
        (['master = "local[2]"', 'memory = "lots"'], "config_invalid"),
        (['master = "local[2]"', 'memory = "2048"'], "config_invalid"),
        (['master = "local[2]"', 'memory = "1gb"'], "config_invalid"),
        (['master = "local[2]"', "[spark.settings]", '"spark.archives" = "x"'], "config_invalid"),
        (['master = "local[2]"', "[spark.settings]", '"spark.remote" = "sc://h"'], "config_invalid"),
        (['master = "local[2]"', "[spark.settings]", '"java.home" = "x"'], "config_invalid"),
        (['master = "local[2]"', "[spark.settings]", '"spark.hadoop.fs.s3a.secret.key" = "x"'], "config_invalid"),
        (['master = "local[2]"', "[spark.settings]", '"spark.ssl.keyPassword" = "x"'], "config_invalid"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, lines: list[str], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spark_settings(tmp_path, "[spark]", *lines)
    assert caught.value.reason == reason


def test_the_page_lists_every_key_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    assert {each.name for each in fields(SparkSettings)} <= rows.keys()
    default = SparkSettings("local[*]", Path())
    for name in ("bytes_least", "files_least", "job_seconds", "idle_seconds"):
        assert rows[name] == str(getattr(default, name))
    assert rows["memory"] == f"`{default.memory}`"


def test_the_example_of_the_page_is_accepted(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```\n(\[spark\].*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    found = load_spark_settings(tmp_path, example)
    assert found is not None
    assert found.address == "https://steward.example:8181"
