"""A producer replaces its data folder by a link to another domain's, between the check of links and the freeze."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pyarrow as pa
import pytest

from pvdm import Coordinator
from pvdm.durable.outcome import VerificationFailed
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.paths import parse_location
from pvdm.model.role import Role
from pvdm.physical import small
from pvdm.verify.staged import read_staged
from tests.support.catalog.http import Caller
from tests.support.steward.http import bearer
from tests.support.steward.shop import ROWS, Row, Shop, contract, shop_at, table_of

SECRET: tuple[Row, ...] = ((71, "2026-01-01", "secret"),)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        with httpx.Client(base_url=made.steward.url) as http:
            operator = Caller(http, bearer(made.steward.token_for(Role.OPERATOR).text))
            risk = {"namespace": ["risk"], "properties": {"pvdm.domain": "risk"}}
            operator.done("POST", "/namespaces", json=risk)
        made.make("risk.raw")
        made.write(list(SECRET), "risk.raw")
        yield made


@pytest.mark.parametrize("storage", ["copied", "open"])
def test_files_behind_a_link_that_appears_after_the_check_are_not_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    table = f"sales.{storage}"
    shop.make(table)
    shop.protect(contract(table, f"storage: {storage}", "governance: {sample-keys: [producer, operator, auditor]}"))
    (secret,) = (shop.folder / "steward").rglob("risk/raw-*/**/*.parquet")
    write_data_file = small._Staging._write_data_file

    def write_under_the_secret_name(staging: Any, *arguments: Any) -> DataFile:
        file = write_data_file(staging, *arguments)
        path = parse_location(file.file_path).local
        return replace(file, file_path=f"file://{path.rename(path.with_name(secret.name))}")

    def exchange_the_folder(*arguments: Any) -> Any:
        found = read_staged(*arguments)
        for folder in {parse_location(each.data_file.file_path).local.parent for each in found.added}:
            folder.rename(folder.with_name("aside"))
            folder.symlink_to(secret.parent)
        return found

    monkeypatch.setattr(small._Staging, "_write_data_file", write_under_the_secret_name)
    monkeypatch.setattr("pvdm.verify.job.read_staged", exchange_the_folder)
    outcome = run(shop, table, ROWS)
    assert isinstance(outcome, VerificationFailed)
    assert [each.code for each in outcome.chunks[0].attempt.findings] == ["file_not_plain"]
    assert outcome.chunks[0].attempt.located is None, "no row of another domain was looked for"
    assert shop.visible_rows(table) == []


def run(shop: Shop, table: str, rows: Sequence[Row]) -> Any:
    def job_of_the_producer(_spark: object, _chunk: object) -> pa.Table:
        return table_of(rows)

    with Coordinator(shop.steward) as coordinator:
        return coordinator.execute_workload(f"{table}-1", job_of_the_producer, table=table)
