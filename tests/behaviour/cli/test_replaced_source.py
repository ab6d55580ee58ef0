"""A source table that was dropped and created again: `pvdm run` refuses it until an operator approves its UUID."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import httpx
import pytest

from pvdm.model.role import Role
from tests.support.catalog.http import Caller
from tests.support.steward.http import bearer
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of

TABLE = "sales.orders"
PARAMETERS = "parameters:\n  date:\n    type: date"
DAILY = contract(TABLE, PARAMETERS, where="day = ${date}", claim="{column: day}")
FIRST, SECOND = "2026-11-13", "2026-11-14"


def run(shop: Shop, workload_id: str, date: str) -> tuple[int, str]:
    words = ["run", TABLE, "--workload-id", workload_id, "--param", f"date={date}", "--small", "--job", "daily_job:job"]
    return shop.command(words)


def replace_source(shop: Shop) -> str:
    """Drop `raw.orders` and create it again with the same rows; returns its new UUID."""
    with httpx.Client(base_url=shop.steward.url) as http:
        caller = Caller(http, bearer(shop.steward.token_for(Role.OPERATOR).text))
        caller.done("DELETE", "/namespaces/raw/tables/orders")
    shop.make("raw.orders")
    shop.write(ROWS)
    return str(shop.metadata("raw.orders", Role.PRODUCER).table_uuid)


def approve(shop: Shop, text: str) -> None:
    """Migrate the table to this contract, by the commands that the message names."""
    path, proposal, signed = (shop.folder / name for name in ("approved.yaml", "proposal.json", "migration.json"))
    path.write_text(text, "utf-8")
    signing = ["--key", str(shop.key), "--operator", "tom", "--reason", "raw.orders was loaded again"]
    for words in (
        ["migrate", "propose", TABLE, "--contract", str(path), "--out", str(proposal)],
        ["migrate", "sign", str(proposal), *signing, "--out", str(signed), "--yes"],
        ["migrate", "submit", str(signed)],
    ):
        code, output = shop.command(words, Role.OPERATOR, "*")
        assert code == 0, output


def test_a_replaced_source_is_refused_until_an_operator_approves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("daily_job")
    monkeypatch.setitem(sys.modules, "daily_job", module)
    with shop_at(tmp_path) as shop:
        shop.make(TABLE)
        shop.protect(DAILY)
        module.job = lambda _spark, _chunk: table_of(ROWS[:2])
        assert run(shop, "run-1", FIRST)[0] == 0
        old, new = str(shop.metadata("raw.orders", Role.PRODUCER).table_uuid), replace_source(shop)
        code, output = run(shop, "run-2", SECOND)
        words = " ".join(output.split())
        assert code == 5
        assert "raw.orders is another table than the one that was last published from" in words
        assert f"the table with UUID {old}" in words
        assert f"uuid: {new}" in words
        assert "pvdm migrate propose" in words
        approve(shop, DAILY.replace("    table: raw.orders\n", f"    table: raw.orders\n    uuid: {new}\n"))
        code, output = run(shop, "run-3", FIRST)
        words = " ".join(output.split())
        assert (code, "to correct what run-1 has published" in words, "run it again" in words) == (3, True, False)
        module.job = lambda _spark, _chunk: table_of(ROWS[2:])
        assert run(shop, "run-4", SECOND)[0] == 0
        assert [row[0] for row in shop.visible_rows(TABLE)] == [1, 2, 3, 4, 5]
