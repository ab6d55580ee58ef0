"""`pvdm demo` on real Spark: docs/demo.md shows its output, Spark's log has no token, and a wrong scene fails it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pvdm.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- demo:begin -->\n```console\n(.*?)```\n<!-- demo:end -->", re.DOTALL)
TOKEN = re.compile(rb"pvdm_[A-Za-z0-9_-]{43}")


@pytest.mark.usefixtures("spark")  # where Spark cannot start, this test cannot either
def test_the_page_shows_what_the_demo_prints_and_no_token_gets_into_sparks_event_log(tmp_path: Path) -> None:
    """In a process of its own, with a Spark of its own, as users run it."""
    block = BLOCK.search((ROOT / "docs" / "demo.md").read_text("utf-8"))
    assert block is not None
    command, _, shown = block[1].partition("\n")
    prompt, program, *words = shlex.split(command)
    assert (prompt, program) == ("$", "pvdm")
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events}\nspark.eventLog.rolling.enabled false\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pvdm.cli", *words],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout == shown
    assert done.stderr.splitlines() == ["notice: Spark and a Steward are started; this takes about a minute"]
    (log,) = events.iterdir()
    with pa.input_stream(str(log), compression="zstd") as stream:
        text = stream.read()
    assert b"spark.sql.catalog.lake.credential" in text
    assert TOKEN.findall(text) == []


def test_a_scene_that_does_not_end_as_scripted_fails_the_demo(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job that should drop rows drops none, so it is published. The shared session keeps no catalog of the demo."""
    monkeypatch.setattr("pvdm.evaluation.scenes.DROPPED_ROWS", 0)
    assert main(["demo", "--rows", "100", "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["reason"], error["expected"], error["got"]) == ("demo_failed", "VERIFICATION_FAILED", "COMMITTED")
    assert spark.conf.get("spark.sql.catalog.lake", None) is None
