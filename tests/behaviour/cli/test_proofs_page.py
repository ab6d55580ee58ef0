"""docs/proofs.md shows what its commands really print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pvdm.cli import main

ROOT = Path(__file__).parents[3]
BLOCKS = re.findall(
    r"^```console\n\$ (pvdm [^\n]+)\n(.*?)^```$", (ROOT / "docs" / "proofs.md").read_text("utf-8"), re.M | re.S
)


def test_the_page_has_commands_to_run() -> None:
    assert len(BLOCKS) == 5


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=lambda text: text[:24].replace("/", "-"))
def test_a_command_of_the_page_prints_what_the_page_shows(
    command: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    main(shlex.split(command)[1:])
    printed = capsys.readouterr()
    assert printed.out + printed.err == shown
