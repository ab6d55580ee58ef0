"""Runs the contract and the command of the section "Backfills" in docs/client.md on a small table. Without a JVM."""

from __future__ import annotations

import re
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from pvdm import Chunk
from tests.support.steward.shop import ROWS, shop_at, table_of

PAGE = (Path(__file__).parents[3] / "docs" / "client.md").read_text("utf-8")


def build(_spark: object, chunk: Chunk) -> Any:
    return table_of([row for row in ROWS if chunk.chunk_id == f"day={row[1]}"])


def test_the_recipe_publishes_one_chunk_for_each_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = PAGE.partition("### Backfills\n")[2].partition("\n### ")[0]
    contract, command = (re.search(rf"```{kind}\n(.*?)```", recipe, re.DOTALL) for kind in ("yaml", "sh"))
    assert contract is not None
    assert command is not None
    module: Any = types.ModuleType("jobs.orders")
    module.build = build
    monkeypatch.setitem(sys.modules, "jobs", types.ModuleType("jobs"))
    monkeypatch.setitem(sys.modules, "jobs.orders", module)
    words = shlex.split(command[1].replace("\\\n", " "))[1:]
    at = words.index("--segment-timeout")
    del words[at : at + 2]  # without segments the command runs in this process, which has the job
    words = [each.replace("2026-11-01", "2026-12-01") for each in words]
    with shop_at(tmp_path) as shop:
        shop.make("sales.orders")
        shop.protect(contract[1].replace("order_id", "id"))
        code, output = shop.command([*words, "--small"])
        assert code == 0, output
        assert f"{len({row[1] for row in ROWS})} chunks of sales.orders" in output
        assert shop.visible_rows("sales.orders") == sorted(ROWS, key=repr)
