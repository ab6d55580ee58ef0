"""How `pvdm run` and `pvdm status` show a FAIL: wrong rows and files, who may see keys, and where the evidence is."""

from __future__ import annotations

import json
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pvdm.lake.paths import parse_location
from pvdm.model.role import Role
from tests.support.steward.shop import ROWS, Row, Shop, contract, shop_at, table_of

pytest.importorskip("pvdm_kernel")

STEERING = "\x1b[2J\u202e\nerror: all is well"
HOSTILE: tuple[Row, ...] = (
    *ROWS,
    (6, "2026-11-14", None),
    (6, "2026-11-14", "null"),
    (7, "2026-11-14", STEERING),
    (8, "2026-11-14", "a, 9), (8"),
    (9, "2026-11-14", "b\0c"),
)
MANY: tuple[Row, ...] = (*ROWS, *((number, "2026-11-14", "new") for number in range(100, 112)))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("wrong_jobs")
    module.hostile = lambda _spark, _chunk: table_of(HOSTILE)
    module.many = lambda _spark, _chunk: table_of(MANY)
    monkeypatch.setitem(sys.modules, "wrong_jobs", module)


def output_of_failing_run(shop: Shop, name: str, job: str, governance: str, *more: str) -> str:
    """The output of `pvdm run` for a workload `name` that fails."""
    table = f"sales.{name}"
    shop.make(table)
    text = contract(table, f"governance:\n  {governance}")
    shop.protect(text.replace("identity: [id]", "identity: [town, id, day]"))
    code, output = shop.command(["run", table, "--workload-id", name, "--small", "--job", f"wrong_jobs:{job}", *more])
    assert code == 3, output
    return output


def status_output(shop: Shop, name: str, role: Role, *more: str) -> str:
    code, output = shop.command(["status", "--workload-id", name, *more], role)
    assert code == 0, output
    return output


def test_values_of_rows_are_printed_escaped_and_quoted_where_they_are_ambiguous(shop: Shop) -> None:
    output = output_of_failing_run(shop, "hostile", "hostile", "sample-keys: [producer]")
    for each in (output, status_output(shop, "hostile", Role.PRODUCER)):
        assert not [char for char in each if not char.isprintable() and char != "\n"]
        assert not [line for line in each.splitlines() if line.startswith("error: all is well")]
        # Keys are in the order of the table's columns; null and 'null' differ; a key that looks like two is quoted.
        assert "first added (id, day, town): " in each
        keys = ["(6, 2026-11-14, null)", "(6, 2026-11-14, 'null')", "(8, 2026-11-14, 'a, 9), (8')"]
        assert not [key for key in keys if key not in each]
        assert "(7, 2026-11-14, '\\x1b[2J\\u202e\\nerror: all is well')" in each
    printed = status_output(shop, "hostile", Role.PRODUCER, "--json")
    assert not [char for char in printed if not char.isprintable() and char != "\n"]
    (added,) = json.loads(printed)["chunks"][0]["attempt"]["located"]["classes"]
    assert [each["key"]["town"] for each in added["samples"]] == [row[2] for row in HOSTILE[len(ROWS) :]]


def test_a_producer_sees_the_files_the_number_of_keys_and_how_to_see_all_of_them(shop: Shop) -> None:
    output = output_of_failing_run(shop, "many", "many", "sample-keys: [producer, operator]")
    assert "first added (id, day, town): (100, 2026-11-14, new), " in output
    assert "… (6 of 12 sample keys)" in output
    assert "  more: all sample keys: `pvdm status --workload-id many --json`" in output
    # The number after a file counts rows.
    (line,) = [line for line in output.splitlines() if line.startswith("  files with added rows: ")]
    assert line.endswith(".parquet (12)")
    shown = status_output(shop, "many", Role.OPERATOR)
    assert "all sample keys: `pvdm status --workload-id many --json`" in shown


@pytest.mark.parametrize(
    ("name", "governance", "words"),
    [
        ("others", "sample-keys: [auditor, operator]", "are for the auditor and operator, by the contract's"),
        ("nobody", "sample-keys: []", "no role may see keys: the contract's governance.sample-keys is empty"),
    ],
)
def test_a_role_that_may_not_see_keys_is_shown_which_roles_may(
    shop: Shop, name: str, governance: str, words: str
) -> None:
    as_run = json.loads(output_of_failing_run(shop, name, "many", governance, "--json"))
    withheld = as_run["error"]["details"]["withheld"]
    assert words in withheld
    # The text says where to see the keys only if some role may see them.
    assert withheld.endswith(f"; see `pvdm status --workload-id {name}`") is (name == "others")
    assert words in status_output(shop, name, Role.PRODUCER)
    as_status = json.loads(status_output(shop, name, Role.PRODUCER, "--json"))
    located = as_status["chunks"][0]["attempt"]["located"]
    assert (located["withheld"], located["classes"][0]["samples"]) == (True, [])
    # Both documents have the same form, and numbers of rows are text in both.
    assert as_run["chunks"][0]["located"] == located
    assert located["classes"][0]["rows"] == "12"
    if name == "others":
        located = json.loads(status_output(shop, name, Role.OPERATOR, "--json"))["chunks"][0]["attempt"]["located"]
        assert (located["withheld"], len(located["classes"][0]["samples"])) == (False, 12)


def test_the_status_says_where_the_quarantined_files_are(shop: Shop) -> None:
    output_of_failing_run(shop, "evidence", "many", "sample-keys: [operator]")
    deadline = time.monotonic() + 60
    with shop.client(Role.OPERATOR) as client:
        while (found := client.workload("evidence").attempts[0]).quarantine is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert found.quarantine is not None
    assert found.located is not None
    (quarantined,) = found.quarantine.files
    (staged,) = {place.name for each in found.located.classes for place in each.files}
    assert quarantined.file == staged
    assert not parse_location(staged).local.exists()
    where: Path = parse_location(quarantined.location).local
    assert where.read_bytes()[:4] == b"PAR1"
    assert where.parent == parse_location(found.quarantine.folder).local
    output = status_output(shop, "evidence", Role.OPERATOR)
    assert f"in quarantine, each under its SHA-256: {found.quarantine.folder}\n" in output
    assert f"      {where.name} is {staged}\n" in output
    # The verdict is stated once, not once a line.
    assert output.count("the verdict is FAIL") == 1
    assert ", 1 chunk, 1 shown" in output
