"""A FAIL in the words of `pvdm run` and `pvdm status`: which rows and files, for whom, where they are, and as data."""

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


def failed(shop: Shop, name: str, job: str, governance: str, *more: str) -> str:
    """What `pvdm run` tells of a workload `name` that fails."""
    table = f"sales.{name}"
    shop.make(table)
    text = contract(table, f"governance:\n  {governance}")
    shop.protect(text.replace("identity: [id]", "identity: [town, id, day]"))
    code, told = shop.command(["run", table, "--workload-id", name, "--small", "--job", f"wrong_jobs:{job}", *more])
    assert code == 3, told
    return told


def status(shop: Shop, name: str, role: Role, *more: str) -> str:
    code, told = shop.command(["status", "--workload-id", name, *more], role)
    assert code == 0, told
    return told


def test_values_of_rows_are_printed_as_data_and_never_as_they_are(shop: Shop) -> None:
    told = failed(shop, "hostile", "hostile", "sample-keys: [producer]")
    for each in (told, status(shop, "hostile", Role.PRODUCER)):
        assert not [char for char in each if not char.isprintable() and char != "\n"]
        assert not [line for line in each.splitlines() if line.startswith("error: all is well")]
        # In the table's order; null and 'null' differ; a key that looks like two is one.
        assert "first added (id, day, town): " in each
        keys = ["(6, 2026-11-14, null)", "(6, 2026-11-14, 'null')", "(8, 2026-11-14, 'a, 9), (8')"]
        assert not [key for key in keys if key not in each]
        assert "(7, 2026-11-14, '\\x1b[2J\\u202e\\nerror: all is well')" in each
    printed = status(shop, "hostile", Role.PRODUCER, "--json")
    assert not [char for char in printed if not char.isprintable() and char != "\n"]
    (added,) = json.loads(printed)["chunks"][0]["attempt"]["located"]["classes"]
    assert [each["key"]["town"] for each in added["samples"]] == [row[2] for row in HOSTILE[len(ROWS) :]]


def test_a_producer_is_told_the_files_how_many_keys_there_are_and_how_to_see_them(shop: Shop) -> None:
    told = failed(shop, "many", "many", "sample-keys: [producer, operator]")
    assert "first added (id, day, town): (100, 2026-11-14, new), " in told
    assert "… (6 of the 12 keys that are kept)" in told
    assert "  more: all keys that are kept: `pvdm status --workload-id many --json`" in told
    # Of rows, not of files: a file is not what was added.
    (line,) = [line for line in told.splitlines() if line.startswith("  files with added rows: ")]
    assert line.endswith(".parquet (12)")
    assert "all keys that are kept: `pvdm status --workload-id many --json`" in status(shop, "many", Role.OPERATOR)


@pytest.mark.parametrize(
    ("name", "governance", "words"),
    [
        ("others", "sample-keys: [auditor, operator]", "are for the auditor and operator, by the contract's"),
        ("nobody", "sample-keys: []", "no role may see keys: the contract's governance.sample-keys is empty"),
    ],
)
def test_who_may_see_keys_is_told_and_flagged_where_the_role_may_not(
    shop: Shop, name: str, governance: str, words: str
) -> None:
    told = json.loads(failed(shop, name, "many", governance, "--json"))
    withheld = told["error"]["details"]["withheld"]
    assert words in withheld
    # Where those who may see them find them; nobody is sent to look for what nobody is shown.
    assert withheld.endswith(f"; see `pvdm status --workload-id {name}`") is (name == "others")
    assert words in status(shop, name, Role.PRODUCER)
    told_again = json.loads(status(shop, name, Role.PRODUCER, "--json"))
    located = told_again["chunks"][0]["attempt"]["located"]
    assert (located["withheld"], located["classes"][0]["samples"]) == (True, [])
    # One form of it, and of its numbers, in both documents.
    assert told["chunks"][0]["located"] == located
    assert located["classes"][0]["rows"] == "12"
    if name == "others":
        located = json.loads(status(shop, name, Role.OPERATOR, "--json"))["chunks"][0]["attempt"]["located"]
        assert (located["withheld"], len(located["classes"][0]["samples"])) == (False, 12)


def test_the_evidence_is_found_by_what_status_says(shop: Shop) -> None:
    failed(shop, "evidence", "many", "sample-keys: [operator]")
    deadline = time.monotonic() + 60
    with shop.client(Role.OPERATOR) as client:
        while (found := client.workload("evidence").attempts[0]).quarantine is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert found.quarantine is not None
    assert found.located is not None
    (kept,) = found.quarantine.files
    (staged,) = {place.name for each in found.located.classes for place in each.files}
    assert kept.file == staged
    assert not parse_location(staged).local.exists()
    where: Path = parse_location(kept.location).local
    assert where.read_bytes()[:4] == b"PAR1"
    assert where.parent == parse_location(found.quarantine.folder).local
    told = status(shop, "evidence", Role.OPERATOR)
    assert f"in quarantine, each under its SHA-256: {found.quarantine.folder}\n" in told
    assert f"      {where.name} is {staged}\n" in told
    # What is said of the verdict in one line is not said again in the next.
    assert told.count("the verdict is FAIL") == 1
    assert ", 1 chunk, 1 shown" in told
