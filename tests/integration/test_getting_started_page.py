"""docs/getting-started.md: its commands and its Python run as they stand, in their order, and print what it shows."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pvdm.cli import main
from pvdm.client import StewardClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "getting-started.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Reader:
    """Runs the blocks of the page in the current folder, as a reader of the page does."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.names: dict[str, object] = {"__name__": "page"}
        self.ran: list[str] = []
        self._capfd = capfd

    def do(self, language: str, text: str) -> None:
        if language == "yaml":
            Path("orders.yaml").write_text(text, "utf-8")
        elif language == "console":
            for command, shown in commands(text):
                self._command(command, shown)
        elif text.startswith("# jobs.py\n"):
            Path("jobs.py").write_text(text, "utf-8")
        elif text.startswith("# quickstart\n"):
            Path("quickstart").mkdir()
            with contextlib.chdir("quickstart"):
                self._quickstart(text)
        else:
            exec(compile(text, str(PAGE), "exec"), self.names)
            self._connect()

    def _quickstart(self, text: str) -> None:
        """In a folder and with names of its own; the Steward is closed, since the next one is another."""
        names: dict[str, object] = {"__name__": "quickstart"}
        exec(compile(text, str(PAGE), "exec"), names)
        assert self._capfd.readouterr().out == "3\n"
        steward = names["steward"]
        assert isinstance(steward, StewardClient)
        steward.close()

    def _connect(self) -> None:
        steward = self.names.get("steward")
        if isinstance(steward, StewardClient):
            os.environ["PVDM_URL"] = steward.url

    def _command(self, line: str, shown: list[str]) -> None:
        self._capfd.readouterr()
        code = main(shlex.split(line)[1:])
        printed = self._capfd.readouterr()
        self.ran.append(line)
        # The page shows an exit code other than 0 as the output of `echo $?`.
        wanted = int(shown.pop()) if shown and shown[-1].isdigit() else 0
        assert code == wanted, f"{line}\n{printed.out}{printed.err}"
        for each in shown:
            pattern = ".*".join(map(re.escape, each.split("…")))
            assert re.search(f"^{pattern}$", printed.out + printed.err, re.MULTILINE), (
                f"{each}\n{printed.out}{printed.err}"
            )


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Each command with the lines that are shown below it; `echo $?` belongs to the one before."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ pvdm "):
            found.append((line.removeprefix("$ "), []))
        elif line != "$ echo $?":
            found[-1][1].append(line)
    return found


@contextlib.contextmanager
def own_session(spark: SparkSession) -> Iterator[None]:
    """A session in which the page's names of catalogs are free; the one that makes a frame is the active one."""
    try:
        spark.newSession().createDataFrame([], "id int")
        yield
    finally:
        spark.createDataFrame([], "id int")


def test_the_page_runs_from_its_beginning_to_its_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PVDM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PVDM_URL", "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    reader = Reader(capfd)
    try:
        with own_session(spark):
            for language, text in BLOCK.findall(PAGE.read_text("utf-8")):
                reader.do(language, text)
    finally:
        sys.modules.pop("jobs", None)
        for opened in [value for value in reader.names.values() if isinstance(value, StewardClient)]:
            opened.close()
    assert [line.split()[1] for line in reader.ran] == [
        "keys",
        "init",
        "validate",
        "protect",
        "run",
        "run",
        "status",
        "repair",
        "audit",
    ]
