"""docs/procedures.md: each procedure, followed line by line with the real commands on a served Steward."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pvdm import VerificationFailed
from tests.behaviour.cli.support import Run
from tests.behaviour.cli.team import PAGE, Team, commands_below, require_committed, team_at
from tests.support.servers.starter import Starter
from tests.support.services import require
from tests.support.steward.shop import COLUMNS, ROWS, Row, contract, table_of


@pytest.fixture
def team(pvdm: Run, tmp_path: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    with team_at(tmp_path, pvdm, starter, monkeypatch) as made:
        yield made


@pytest.fixture
def may_mount(tmp_path: Path) -> None:
    """Skips the test unless this user may mount a folder at another one, as an administrator may."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    tried = subprocess.run(["mount", "--bind", str(there), str(here)], capture_output=True, text=True, check=False)
    require(tried.returncode == 0, f"this user may not mount folders: {tried.stderr.strip()}")
    subprocess.run(["umount", str(here)], check=True)


def test_a_steward_moves_to_another_host_under_the_same_paths(team: Team) -> None:
    require_committed(team.publish("orders-1"))
    pack, unpack, *look = commands_below("Move to another host")
    team.stop()
    team.follow(pack)
    team.srv.rename(team.folder / "old-host")
    team.srv.mkdir()
    team.follow(unpack)
    team.start()
    shown = [team.follow(line) for line in look]
    assert "5 rows" in shown[-1].out or "no violations" in shown[-1].out
    require_committed(team.publish("orders-1"))  # the new host knows that it is published


def test_a_steward_moved_to_another_path_is_refused_with_both_paths(team: Team, pvdm: Run) -> None:
    require_committed(team.publish("orders-1"))
    team.stop()
    elsewhere = team.folder / "elsewhere"
    team.srv.rename(elsewhere)
    config = elsewhere / "pvdm" / "steward.toml"
    config.write_text(config.read_text("utf-8").replace(f'"{team.srv}/', f'"{elsewhere}/'), "utf-8")
    ran = pvdm("steward", "serve", "--config", config, "--json")
    assert (ran.code, ran.error) == (7, "steward_folders_moved")
    error = ran.json["error"]
    assert (error["expected"], error["got"]) == (f"file://{team.srv}/lake/catalog", f"file://{elsewhere}/lake/catalog")


def test_the_lake_moves_to_another_disk_that_is_mounted_at_the_same_path(team: Team, may_mount: None) -> None:
    require_committed(team.publish("orders-1"))
    copy, aside, folder, mount, *look, remove = commands_below("Move to another disk")
    team.stop()
    for line in (copy, aside, folder, mount):
        team.follow(line)
    try:
        team.start()
        for line in (*look, remove):
            team.follow(line)
        assert not (team.srv / "lake.old").exists()
        assert team.audit_code() == 0
    finally:
        team.stop()
        subprocess.run(["umount", str(team.srv / "lake")], check=True)


def test_a_steward_starts_again_after_its_own_folder_was_moved(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    require_committed(team.publish("orders-1"))
    move, *look = commands_below("Move the Steward's own folder")
    team.stop()
    team.follow(move)
    monkeypatch.setattr(Team, "config", team.srv / "steward" / "steward.toml")
    team.start()
    shown = [team.follow(line) for line in look]
    assert "no violations" in shown[-1].out
    assert not (team.srv / "pvdm").exists()


def test_a_lake_behind_a_link_is_refused(team: Team, pvdm: Run) -> None:
    require_committed(team.publish("orders-1"))
    team.stop()
    lake = team.srv / "lake"
    lake.rename(team.folder / "disk2" / "lake")
    lake.symlink_to(team.folder / "disk2" / "lake")
    ran = pvdm("steward", "serve", "--config", team.config, "--json")
    assert (ran.code, ran.error) == (7, "steward_folders_moved")


def test_a_renamed_source_is_published_from_under_a_signed_contract(team: Team) -> None:
    team.rename("raw.orders", "raw.orders_v2")
    team.write_contract(contract("sales.orders").replace("table: raw.orders", "table: raw.orders_v2"))
    for line in commands_below("Rename a source"):
        team.follow(line)
    require_committed(team.publish("orders-1"))
    assert team.audit_code() == 0


def test_a_renamed_target_is_protected_again_and_published_to(team: Team) -> None:
    unprotect, protect = commands_below("Rename a target")
    names = ("sales.orders", "sales.orders_v2")
    parts = [{"namespace": ["sales"], "name": name.partition(".")[2]} for name in names]
    refused = httpx.post(
        f"{team.url}/catalog/v1/tables/rename",
        headers={"authorization": f"Bearer {team.token('ruth')}"},
        json={"source": parts[0], "destination": parts[1]},
        trust_env=False,
    )
    assert (refused.status_code, refused.json()["error"]["pvdm-code"]) == (403, "main_gated")
    team.follow(unprotect)
    team.rename(*names)
    team.write_contract(contract("sales.orders_v2"))
    team.follow(protect)
    require_committed(team.publish("orders-1", table="sales.orders_v2"))


def test_late_rows_of_a_published_day_replace_it_and_the_append_contract_comes_back(team: Team) -> None:
    *to, run, back_proposed, back_signed, back = commands_below("Publish late data or a correction")
    names = {"sales.orders": "sales.by_day"}
    fields = [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}]
    columns = [{"id": at, "name": name, "required": False, "type": kind} for at, (name, kind) in enumerate(COLUMNS, 1)]
    with team.caller() as caller:
        made = {"schema": {"type": "struct", "schema-id": 0, "fields": columns}}
        caller.make("by_day", namespace="sales", **made, **{"partition-spec": {"spec-id": 0, "fields": fields}})
    dated, where = "parameters:\n  date:\n    type: date", "day = ${date}"
    team.write_contract(contract("sales.by_day", dated, where=where, claim="{column: day}"))
    over = contract("sales.by_day", dated, "atomicity: workload", operation="overwrite-partitions", where=where)
    (team.folder / "orders-overwrite.yaml").write_text(over, "utf-8")
    by = ("--key", "ruth.pem", "--operator", "ruth", "--reason", "it goes live")
    token_option = ("--token-file", team.srv / "pvdm" / "ruth.token")
    team.run_ok("protect", "sales.by_day", "--contract", "orders.yaml", *by, *token_option)
    rows = list(ROWS)
    jobs: Any = types.ModuleType("jobs")
    jobs.build = lambda _spark, chunk: table_of([row for row in rows if row[1] == chunk.parameters["date"]])
    team.monkeypatch.setitem(sys.modules, "jobs", jobs)
    for day in ("2026-11-13", "2026-11-14"):
        team.follow(run.replace("2026-11-14-v2", day).replace("2026-11-14", day), names)
    late: Row = (6, "2026-11-14", "Jena")
    rows.append(late)
    team.write_source((late,))
    for line in to:
        team.follow(line, names)
    output = team.follow(run, names).out
    assert "+4 rows in 1 file, replacing 3 rows in 1 file" in output
    warned = [team.follow(line, names).err for line in (back_proposed, back_signed, back)]
    assert ["workloads that overwrote rows have claimed nothing" in each for each in warned] == [True, True, False]
    token = ("--token-file", team.srv / "pvdm" / "nightly.token")
    words = ("--param", "date=2026-11-14", "--job", "jobs:build", "--small", "--json", *token)
    again = team.run("run", "sales.by_day", "--workload-id", "orders-v3", *words)
    assert (again.code, again.error) == (3, "claim_overlaps")
    assert team.audit_code("sales.by_day") == 0


def test_a_quarantined_attempt_is_kept_while_its_workload_is_open_and_then_removed(team: Team) -> None:
    look, abandon, rehearse, remove, one = commands_below("Clean up the quarantine")
    assert isinstance(team.publish("orders-2", ROWS[:2]), VerificationFailed)
    ends = time.monotonic() + 20
    while "kept: workload orders-2 is open" not in team.follow(look).out:  # a job of the Steward puts the files there
        assert time.monotonic() < ends
        time.sleep(0.1)
    team.follow(abandon)
    assert "kept:" not in team.follow(look).out
    assert "0 attempts" in team.follow(rehearse).out  # nothing is old enough yet
    assert "0 attempts" in team.follow(remove).out
    (found,) = json.loads(team.follow(f"{look} --json").out)["quarantine"]
    assert "1 attempt, 1 file" in team.follow(one, {"ATTEMPT_ID": found["attempt_id"]}).out
    assert "0 attempts" in team.follow(look).out
    line = next(each for each in (team.folder / "steward.log").read_text().splitlines() if "quarantine_removed" in each)
    assert (json.loads(line)["table"], json.loads(line)["level"]) == ("sales.orders", "INFO")


def test_every_procedure_of_the_page_is_listed_as_tested() -> None:
    tested = {
        "Move to another host",
        "Move to another disk",
        "Move the Steward's own folder",
        "Rename a source",
        "Rename a target",
        "Publish late data or a correction",
        "An operator leaves",
        "Clean up the quarantine",
    }
    assert {line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")} == tested


def test_if_an_operators_key_is_removed_and_not_revoked_the_audit_fails(
    pvdm: Run, tmp_path: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, fetch, key_id, successor, *signs, submit, _ = commands_below("An operator leaves")
    with team_at(tmp_path, pvdm, starter, monkeypatch, operator="tom") as team:
        require_committed(team.publish("orders-1"))
        team.follow(fetch)
        found = team.follow(f"{key_id} --json").json["key_id"]
        for line in (successor.replace("--revoke", "--remove"), *signs, submit):
            team.follow(line, {"KEY_ID": found})
        assert team.audit_code() == 3


def test_after_an_operator_left_what_they_signed_stays_valid_and_they_sign_nothing_new(
    pvdm: Run, tmp_path: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, revoke, fetch, key_id, successor, *signs, submit, audit = commands_below("An operator leaves")
    with team_at(tmp_path, pvdm, starter, monkeypatch, operator="tom") as team:
        require_committed(team.publish("orders-1"))
        listed = json.loads(team.follow(f"{tokens} --json").out)["tokens"]
        (toms,) = [each["token_id"] for each in listed if each["name"] == "tom"]
        team.follow(revoke, {"TOKEN_ID": toms})
        gone = team.run("protections", "--token-file", team.srv / "pvdm" / "tom.token", "--json")
        assert (gone.code, gone.error) == (5, "token_revoked")
        team.follow(fetch)
        found = team.follow(f"{key_id} --json").json["key_id"]
        for line in (successor, *signs, submit):
            team.follow(line, {"KEY_ID": found})
        team.follow(audit)  # the protection that tom signed, and what was published under it
        by = ("--key", "tom.pem", "--operator", "tom", "--reason", "one more", "--json")
        team.create_table("sales.more")
        team.write_contract(contract("sales.more"))
        token_option = ("--token-file", team.srv / "pvdm" / "ruth.token")
        more = team.run("protect", "sales.more", "--contract", "orders.yaml", *by, *token_option)
        assert (more.code, more.error) == (5, "key_revoked")
        by_ruth = ("--key", "ruth.pem", "--operator", "ruth", "--reason", "one more")
        team.run_ok("protect", "sales.more", "--contract", "orders.yaml", *by_ruth, *token_option)
