"""Quarantined files stay until an operator removes them by age or id. Files that may still be published always stay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Committed, Coordinator, VerificationFailed
from pvdm.client import StewardClient
from pvdm.errors import UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.vault import Vault
from pvdm.model.role import Role
from pvdm.model.statements.verdict import Outcome
from tests.support.steward.leases import open_attempt
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of
from tests.support.waiting import wait_for_jobs

BY_AGE = ("quarantine", "remove", "--older-than", "1s", "--reason", "kept long enough")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with shop_at(tmp_path) as made:
        made.make("sales.orders")
        made.protect(contract("sales.orders"))
        yield made


def run_failed(shop: Shop, workload_id: str = "orders-1") -> str:
    """Run a workload that fails. Returns the id of its attempt."""
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload(workload_id, lambda _s, _c: table_of(ROWS[:2]), table="sales.orders")
    assert isinstance(outcome, VerificationFailed)
    assert wait_for_jobs(shop.steward.notary.jobs, 30)
    with shop.client() as client:
        return client.workload(workload_id).attempts[-1].attempt_id


def abandon(shop: Shop, workload_id: str = "orders-1") -> None:
    with shop.client(Role.OPERATOR) as client:
        client.abandon_workload(workload_id, "it is not needed")


def pass_by(shop: Shop, monkeypatch: pytest.MonkeyPatch, seconds: int = 60) -> None:
    """Set the Steward's clock forward, by less than it would refuse as a jump."""
    clock = shop.steward.notary.clock
    now = clock.trusted_micros
    monkeypatch.setattr(type(clock), "trusted_micros", lambda _: now() + seconds * 1_000_000)


def list_quarantine(shop: Shop, *words: str) -> list[dict[str, Any]]:
    code, output = shop.command(["quarantine", "list", *words, "--json"], Role.OPERATOR, "*")
    assert code == 0, output
    found: list[dict[str, Any]] = json.loads(output)["quarantine"]
    return found


def run_command(shop: Shop, *words: str, role: Role = Role.OPERATOR, domain: str = "*") -> tuple[int, dict[str, Any]]:
    """Run a command; returns its exit code, and its error or its result."""
    code, output = shop.command([*words, "--json"], role, domain)
    document: dict[str, Any] = json.loads(output)
    return code, document.get("error", document)


def quarantined_files(shop: Shop) -> list[Path]:
    catalog = shop.steward.notary.config.catalog
    root = parse_location(str(catalog.vault)).local
    return [path for path in root.glob("*/quarantine/**/*") if path.is_file()]


def test_the_list_names_table_workload_proof_and_size(shop: Shop) -> None:
    attempt_id = run_failed(shop)
    (found,) = list_quarantine(shop, "sales.orders")
    assert (found["attempt_id"], found["workload_id"], found["table"], found["verdict"]) == (
        attempt_id,
        "orders-1",
        "sales.orders",
        "FAIL",
    )
    (file,) = quarantined_files(shop)
    assert (found["files"], found["bytes"]) == ("1", str(file.stat().st_size))
    assert parse_location(found["folder"]).local == file.parent
    (same,) = list_quarantine(shop)
    assert {**same, "age_seconds": None} == {**found, "age_seconds": None}
    code, output = shop.command(["quarantine", "list"], Role.AUDITOR, "*")
    assert code == 0
    assert attempt_id in output
    assert "sales.orders" in output
    assert "workload orders-1 is open" in output


def test_files_that_may_still_be_published_are_kept_whatever_their_age(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt_id = run_failed(shop)
    pass_by(shop, monkeypatch)
    code, answer = run_command(shop, *BY_AGE)
    assert (code, answer["removed"], [each["attempt_id"] for each in answer["kept"]]) == (0, [], [attempt_id])
    assert len(quarantined_files(shop)) == 1


def test_the_removal_of_an_undecided_attempt_is_refused(shop: Shop) -> None:
    attempt_id = run_failed(shop)
    code, answer = run_command(shop, "quarantine", "remove", "--attempt", attempt_id, "--reason", "it is in the way")
    assert (code, answer["reason"]) == (5, "quarantine_undecided")
    assert len(quarantined_files(shop)) == 1


def test_files_of_a_proved_attempt_whose_claim_was_taken_can_be_removed(shop: Shop) -> None:
    """Break-glass waives a FAIL only, so nothing can publish them."""
    with Coordinator(shop.steward) as first, Coordinator(shop.steward) as second:

        def publish_another_first(_spark: object, _chunk: object) -> pa.Table:
            outcome = first.execute_workload("winner", lambda _s, _c: table_of(ROWS), table="sales.orders")
            assert isinstance(outcome, Committed)
            return table_of(ROWS)

        outcome = second.execute_workload("loser", publish_another_first, table="sales.orders")
    assert isinstance(outcome, VerificationFailed)
    assert outcome.error.reason == "claim_overlaps"
    assert "pvdm abandon loser --reason TEXT" in str(outcome)
    assert "pvdm repair" not in str(outcome)
    assert wait_for_jobs(shop.steward.notary.jobs, 30)
    (found,) = list_quarantine(shop)
    assert (found["workload_id"], found["verdict"]) == ("loser", "PASS")
    code, answer = run_command(
        shop, "quarantine", "remove", "--attempt", found["attempt_id"], "--reason", "the winner has the rows"
    )
    assert (code, quarantined_files(shop)) == (0, []), answer


def test_the_removal_of_a_live_attempt_is_refused(shop: Shop) -> None:
    with shop.client() as client:
        opened = client.open_workload("orders-1", "sales.orders", {})
        (chunk,) = client.chunks(opened.workload_id)
        attempt = open_attempt(client, "orders-1", chunk.chunk_id, "a first try")
    words = ("quarantine", "remove", "--attempt", attempt.attempt_id, "--reason", "it is in the way")
    code, answer = run_command(shop, *words)
    assert (code, answer["reason"]) == (5, "quarantine_attempt_live")


def test_one_undecided_attempt_among_others_stops_the_whole_removal(shop: Shop) -> None:
    decided = run_failed(shop, "orders-1")
    abandon(shop, "orders-1")
    undecided = run_failed(shop, "orders-2")
    words = ("quarantine", "remove", "--attempt", decided, "--attempt", undecided, "--reason", "away with both")
    code, answer = run_command(shop, *words)
    assert (code, answer["reason"]) == (5, "quarantine_undecided")
    assert len(quarantined_files(shop)) == 2


@pytest.mark.parametrize("refused", ["undecided", "unknown"])
def test_more_attempts_than_one_request_takes_are_removed_only_if_all_may_be(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    monkeypatch.setattr("pvdm.api.work.QUARANTINE_REMOVED_MAX", 1)
    decided = run_failed(shop, "decided")
    abandon(shop, "decided")
    last = run_failed(shop, "undecided") if refused == "undecided" else "ab" * 16
    words = ("quarantine", "remove", "--attempt", decided, "--attempt", last, "--reason", "away with both")
    code, answer = run_command(shop, *words)
    assert (code, answer["reason"]) == {
        "undecided": (5, "quarantine_undecided"),
        "unknown": (2, "attempt_unknown"),
    }[refused]
    assert decided in [each["attempt_id"] for each in list_quarantine(shop)]


def test_an_error_after_some_attempts_were_removed_says_how_many(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.api.work.QUARANTINE_REMOVED_MAX", 1)
    failed = []
    for workload_id in ("one", "two", "three"):
        failed.append(run_failed(shop, workload_id))
        abandon(shop, workload_id)
    whole, requests = StewardClient.remove_quarantined, []

    def lose_third(client: StewardClient, ids: Sequence[str], reason: str) -> Any:
        requests.append(ids)
        if len(requests) == 3:
            raise UnavailableError("steward_unreachable", "it is away")
        return whole(client, ids, reason)

    monkeypatch.setattr(StewardClient, "remove_quarantined", lose_third)
    words = ("quarantine", "remove", *(word for each in failed for word in ("--attempt", each)), "--reason", "away")
    code, answer = run_command(shop, *words)
    assert (code, answer["reason"], answer["details"]["removed"]) == (7, "steward_unreachable", 2)
    assert answer["message"] == "it is away; the files of 2 attempts were removed before"
    assert [each["attempt_id"] for each in list_quarantine(shop)] == [requests[2][0]]


def test_a_dry_run_shows_what_would_go_and_removes_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_id = run_failed(shop)
    abandon(shop)
    pass_by(shop, monkeypatch)
    code, answer = run_command(shop, *BY_AGE, "--dry-run")
    assert (code, answer["dry_run"], [each["attempt_id"] for each in answer["removed"]]) == (0, True, [attempt_id])
    assert len(quarantined_files(shop)) == 1
    assert [each["attempt_id"] for each in list_quarantine(shop)] == [attempt_id]


def test_files_of_an_abandoned_workload_are_removed_by_age_and_the_removal_is_recorded(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt_id = run_failed(shop)
    abandon(shop)
    (file,) = quarantined_files(shop)
    size = file.stat().st_size
    pass_by(shop, monkeypatch)
    code, answer = run_command(shop, *BY_AGE)
    assert (code, answer["kept"]) == (0, [])
    (gone,) = answer["removed"]
    assert (gone["attempt_id"], gone["files"], gone["bytes"], gone["reason"]) == (
        attempt_id,
        "1",
        str(size),
        "kept long enough",
    )
    assert quarantined_files(shop) == []
    assert list_quarantine(shop) == []
    with shop.client(Role.AUDITOR, "*") as client:
        steps = [each for each in client.events(about=attempt_id) if each.subject == "quarantine_removals"]
        assert [each.kind for each in steps] == ["insert", "update"]
        assert steps[0].new is not None
        recorded = dict(steps[0].new)
        assert (recorded["name"], recorded["reason"]) == (gone["name"], "kept long enough")
        (failed,) = client.workload("orders-1").attempts
        assert failed.verdict is Outcome.FAIL  # the signed proof stays
        assert failed.quarantine is None


def test_younger_files_are_kept(shop: Shop) -> None:
    run_failed(shop)
    abandon(shop)
    code, answer = run_command(shop, "quarantine", "remove", "--older-than", "1d", "--reason", "kept long enough")
    assert (code, answer["removed"], answer["kept"]) == (0, [], [])
    assert len(quarantined_files(shop)) == 1


def test_failed_files_can_be_removed_after_their_chunk_is_published(shop: Shop) -> None:
    attempt_id = run_failed(shop)
    with Coordinator(shop.steward) as coordinator:
        done = coordinator.repair("orders-1", lambda _s, _c: table_of(ROWS), reason="the job is mended")
    assert isinstance(done, Committed)
    words = ("quarantine", "remove", "--attempt", attempt_id, "--reason", "it was repaired")
    code, answer = run_command(shop, *words)
    assert (code, [each["attempt_id"] for each in answer["removed"]]) == (0, [attempt_id])
    assert shop.visible_rows("sales.orders") == sorted(ROWS, key=repr)
    code, answer = run_command(shop, *words)
    assert (code, answer["reason"]) == (2, "quarantine_unknown")


def test_an_interrupted_removal_is_finished_by_the_next_one(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_id = run_failed(shop)
    abandon(shop)
    words = ("quarantine", "remove", "--attempt", attempt_id, "--reason", "kept long enough")
    with monkeypatch.context() as broken:

        def fail_to_remove(_: Vault, location: str) -> None:
            raise UnavailableError("vault_unavailable", f"the vault cannot be reached: {len(location)}")

        broken.setattr(Vault, "remove", fail_to_remove)
        code, answer = run_command(shop, *words)
        assert (code, answer["reason"]) == (7, "vault_unavailable")
    assert [each["attempt_id"] for each in list_quarantine(shop)] == [attempt_id]
    code, _ = run_command(shop, *words)
    assert code == 0
    assert (quarantined_files(shop), list_quarantine(shop)) == ([], [])


def test_only_operators_of_the_domain_can_remove_files(shop: Shop) -> None:
    attempt_id = run_failed(shop)
    abandon(shop)
    words = ("quarantine", "remove", "--attempt", attempt_id, "--reason", "kept long enough")
    for role, domain in ((Role.AUDITOR, "*"), (Role.PRODUCER, "sales"), (Role.OPERATOR, "payments")):
        code, answer = run_command(shop, *words, role=role, domain=domain)
        assert (code, answer["reason"]) == (5, "domain_wrong" if role is Role.OPERATOR else "role_wrong")
    assert len(quarantined_files(shop)) == 1
    code, text = shop.command(["quarantine", "list", "--json"], Role.OPERATOR, "payments")
    assert (code, json.loads(text)["quarantine"]) == (0, [])


def test_a_removal_without_age_and_id_is_a_usage_error(shop: Shop) -> None:
    code, output = shop.command(["quarantine", "remove", "--reason", "tidy"], Role.OPERATOR, "*")
    assert (code, "name what to remove" in output) == (2, True)


def test_an_attempt_of_another_table_is_not_removed(shop: Shop) -> None:
    attempt_id = run_failed(shop)
    abandon(shop)
    shop.make("sales.other")
    words = ("quarantine", "remove", "sales.other", "--attempt", attempt_id, "--reason", "tidy")
    code, output = shop.command(list(words), Role.OPERATOR, "*")
    assert (code, f"no quarantined attempt of sales.other: {attempt_id}" in output) == (2, True)
    assert len(quarantined_files(shop)) == 1


def test_files_of_a_dropped_table_are_listed_by_its_uuid(shop: Shop) -> None:
    attempt_id = run_failed(shop)
    abandon(shop)
    code, output = shop.command(
        ["unprotect", "sales.orders", "--key", str(shop.key), "--operator", "tom", "--reason", "it goes", "--yes"],
        Role.OPERATOR,
        "*",
    )
    assert code == 0, output
    shop.drop("sales.orders")
    (found,) = list_quarantine(shop)
    assert (found["attempt_id"], found["table"]) == (attempt_id, None)
    assert found["table_uuid"] in found["folder"]


def test_files_of_an_unknown_attempt_are_listed_as_unknown(shop: Shop) -> None:
    attempt_id = run_failed(shop)
    (file,) = quarantined_files(shop)
    lost = file.parent.parent / ("ab" * 16) / file.name
    lost.parent.mkdir()
    lost.write_bytes(file.read_bytes())
    found = list_quarantine(shop)
    assert [(each["attempt_id"], each["workload_id"]) for each in found] == [
        (attempt_id, "orders-1"),
        ("ab" * 16, None),
    ]
    code, output = shop.command(["quarantine", "list"], Role.OPERATOR, "*")
    assert (code, "the ledger has no record of this attempt" in output) == (0, True)
    words = ("quarantine", "remove", "--attempt", "ab" * 16, "--reason", "the backup was older")
    assert run_command(shop, *words)[0] == 0
    assert quarantined_files(shop) == [file]
