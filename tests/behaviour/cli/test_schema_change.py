"""docs/schema-changes.md: the order in which source, target and contract change, followed command by command."""

from __future__ import annotations

import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog

from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.model.role import Role
from tests.support.catalog.http import Caller
from tests.support.steward.http import bearer
from tests.support.steward.shop import ROWS, Disk, Row, Shop, contract, shop_at, table_of

PAGE = (Path(__file__).parents[3] / "docs" / "schema-changes.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ pvdm (.*)$", PAGE, re.MULTILINE)
SOURCE_STEP = "ALTER TABLE lake.raw.orders ADD COLUMN channel string"
PYICEBERG_STEP = re.findall(r"^```python\n(from pyiceberg.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TABLE = "sales.orders"
PARAMETERS = "parameters:\n  date:\n    type: date"
DAILY = contract(TABLE, PARAMETERS, where="day = ${date}", claim="{column: day}")
LISTED = DAILY.replace("  target:", "  columns: [id, day, town]\n  target:")
FIRST, SECOND = "2026-11-13", "2026-11-14"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    with shop_at(tmp_path) as made:
        made.make(TABLE)
        yield made


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = types.ModuleType("channel_job")
    monkeypatch.setitem(sys.modules, "channel_job", module)
    return module


def alter_source(shop: Shop, *names: str) -> None:
    """Add optional columns to the source, by the request that Spark sends for ADD COLUMN."""
    fields = shop.metadata("raw.orders", Role.PRODUCER).raw["schemas"]
    assert isinstance(fields, list)
    present: Any = list(fields[-1]["fields"])
    added = [{"id": 90 + at, "name": name, "required": False, "type": "string"} for at, name in enumerate(names)]
    schema = {"type": "struct", "fields": [*present, *added]}
    updates = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    with httpx.Client(base_url=shop.steward.url) as http:
        caller = Caller(http, bearer(shop.steward.token_for(Role.OPERATOR).text))
        caller.done("POST", "/namespaces/raw/tables/orders", json={"requirements": [], "updates": updates})


def with_channel(rows: tuple[Row, ...], channel: str | None) -> pa.Table:
    return table_of(rows).append_column("channel", pa.array([channel] * len(rows), pa.string()))


def run(shop: Shop, job: Any, workload_id: str, day: str, rows: pa.Table) -> tuple[int, str]:
    job.job = lambda _spark, _chunk: rows
    words = ["run", TABLE, "--workload-id", workload_id, "--param", f"date={day}"]
    code, output = shop.command([*words, "--small", "--job", "channel_job:job"])
    return code, " ".join(output.split())


def migrate(shop: Shop) -> None:
    """Run the commands of the page's step 2."""
    steps = [shlex.split(line) for line in COMMANDS if line.startswith("migrate")]
    assert [words[1] for words in steps] == ["propose", "sign", "submit"]
    for words in steps:
        code, output = shop.command(words, Role.OPERATOR, "*")
        assert code == 0, output


def channels(shop: Shop) -> dict[int, str | None]:
    metadata = shop.metadata(TABLE)
    assert metadata.current_snapshot is not None
    found = {}
    for entry in live_entries(metadata, metadata.current_snapshot, Disk()):
        for row in pq.ParquetFile(parse_location(entry.data_file.file_path).local).read().to_pylist():
            found[row["id"]] = row.get("channel")
    return found


def test_in_the_documented_order_a_column_is_added_while_publications_go_on(shop: Shop, job: Any) -> None:
    assert SOURCE_STEP in PAGE
    shop.protect(DAILY)
    alter_source(shop, "channel")
    # The source has the column, the target has not: publications go on.
    code, output = run(shop, job, "before", FIRST, table_of(ROWS[:2]))
    assert code == 0, output
    migrate(shop)
    # No snapshot of the source was written since: its rows have null in the column.
    (line,) = [line for line in COMMANDS if line.startswith("run")]
    assert shlex.split(line)[1:] == [TABLE, "--workload-id", "orders-2026-11-14", "--param", f"date={SECOND}"]
    code, output = run(shop, job, "orders-2026-11-14", SECOND, with_channel(ROWS[2:], None))
    assert code == 0, output
    shop.write_table(with_channel(((6, "2026-11-15", "Ulm"),), "web"), "raw.orders")
    code, output = run(shop, job, "after", "2026-11-15", with_channel(((6, "2026-11-15", "Ulm"),), "web"))
    assert code == 0, output
    assert channels(shop) == {1: None, 2: None, 3: None, 4: None, 5: None, 6: "web"}


def test_a_value_in_a_column_that_the_pinned_snapshot_lacks_fails(shop: Shop, job: Any) -> None:
    shop.protect(DAILY)
    alter_source(shop, "channel")
    migrate(shop)
    code, output = run(shop, job, "made-up", FIRST, with_channel(ROWS[:2], "web"))
    assert (code, "2 rows modified" in output) == (3, True)


def test_one_migration_adds_a_column_to_the_table_and_to_a_contract_that_lists_columns(
    shop: Shop, job: Any, tmp_path: Path
) -> None:
    shop.protect(LISTED)
    alter_source(shop, "channel", "other")
    (tmp_path / "orders.yaml").write_text(LISTED.replace("town]", "town, channel]"))
    propose = ["migrate", "propose", TABLE, "--add-column", "channel:string", "--contract", "orders.yaml"]
    signing = ["--key", "tom.pem", "--operator", "tom", "--reason", "orders by channel", "--yes"]
    for words in (
        [*propose, "--out", "proposal.json"],
        ["migrate", "sign", "proposal.json", *signing, "--out", "migration.json"],
        ["migrate", "submit", "migration.json"],
    ):
        code, output = shop.command(words, Role.OPERATOR, "*")
        assert code == 0, output
    code, output = run(shop, job, "listed", FIRST, with_channel(ROWS[:2], None))
    assert code == 0, output


def test_adding_the_column_to_the_target_first_is_refused_with_the_right_order(shop: Shop, tmp_path: Path) -> None:
    shop.protect(DAILY)
    signing = ["--key", "tom.pem", "--operator", "tom", "--reason", "orders by channel", "--yes"]
    for words in (
        ["migrate", "propose", TABLE, "--add-column", "channel:string", "--out", "proposal.json"],
        ["migrate", "sign", "proposal.json", *signing, "--out", "migration.json"],
    ):
        assert shop.command(words, Role.OPERATOR, "*")[0] == 0
    code, output = shop.command(["migrate", "submit", "migration.json"], Role.OPERATOR, "*")
    printed = " ".join(output.split())
    assert code == 2
    assert "mapping_target_differs" in printed
    assert "add the column to raw.orders first, then to sales.orders (docs/schema-changes.md)" in printed


def test_the_error_for_a_source_with_a_column_that_the_target_lacks_says_what_to_do(shop: Shop, job: Any) -> None:
    shop.protect(DAILY)
    alter_source(shop, "channel")
    shop.write_table(with_channel(((6, "2026-11-15", "Ulm"),), "web"), "raw.orders")
    code, output = run(shop, job, "early", FIRST, table_of(ROWS[:2]))
    assert (code, "source_unusable" in output) == (2, True)
    assert f"pvdm migrate propose {TABLE} --add-column channel:string" in output
    assert "fix the job" not in output
    migrate(shop)
    code, output = run(shop, job, "early", FIRST, with_channel(ROWS[:2], None))
    assert code == 0, output


def test_pyiceberg_adds_the_column_to_the_source_as_the_page_shows(shop: Shop) -> None:
    token = shop.steward.token_for(Role.PRODUCER).text
    catalog = RestCatalog("lake", uri=f"{shop.steward.url}/catalog", token=token)
    (step,) = PYICEBERG_STEP
    exec(step, {"catalog": catalog})
    table = catalog.load_table("raw.orders")
    assert table.scan().to_arrow()["channel"].null_count == len(ROWS)
