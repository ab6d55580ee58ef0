"""What failed is kept until an operator removes it by age or id; never what may still be published."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pvdm import Committed, Coordinator, VerificationFailed
from pvdm.errors import UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.vault import Vault
from pvdm.model.role import Role
from pvdm.model.statements.verdict import Outcome
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of
from tests.support.waiting import wait_for_jobs

BY_AGE = ("quarantine", "remove", "--older-than", "1s", "--reason", "kept long enough")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with shop_at(tmp_path) as made:
        made.make("sales.orders")
        made.protect(contract("sales.orders"))
        yield made


def fail(shop: Shop, workload_id: str = "orders-1") -> str:
    """A workload that fails; the id of its attempt."""
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload(workload_id, lambda _s, _c: table_of(ROWS[:2]), table="sales.orders")
    assert isinstance(outcome, VerificationFailed)
    assert wait_for_jobs(shop.steward.notary.jobs, 30)
    with shop.client() as client:
        return client.workload(workload_id).attempts[-1].attempt_id


def give_up(shop: Shop, workload_id: str = "orders-1") -> None:
    with shop.client(Role.OPERATOR) as client:
        client.abandon_workload(workload_id, "it is not needed")


def pass_by(shop: Shop, monkeypatch: pytest.MonkeyPatch, seconds: int = 60) -> None:
    """The Steward's clock a little later, within the step that it takes as time that went by."""
    clock = shop.steward.notary.clock
    now = clock.trusted_micros
    monkeypatch.setattr(type(clock), "trusted_micros", lambda _: now() + seconds * 1_000_000)


def listed(shop: Shop, *words: str) -> list[dict[str, Any]]:
    code, told = shop.command(["quarantine", "list", *words, "--json"], Role.OPERATOR, "*")
    assert code == 0, told
    found: list[dict[str, Any]] = json.loads(told)["quarantine"]
    return found


def removed(shop: Shop, *words: str, role: Role = Role.OPERATOR, domain: str = "*") -> tuple[int, dict[str, Any]]:
    code, told = shop.command([*words, "--json"], role, domain)
    document: dict[str, Any] = json.loads(told)
    return code, document.get("error", document)


def kept_files(shop: Shop) -> list[Path]:
    catalog = shop.steward.notary.config.catalog
    root = parse_location(str(catalog.vault)).local
    return [path for path in root.glob("*/quarantine/**/*") if path.is_file()]


def test_the_list_names_table_workload_proof_and_size(shop: Shop) -> None:
    attempt_id = fail(shop)
    (found,) = listed(shop, "sales.orders")
    assert (found["attempt_id"], found["workload_id"], found["table"], found["verdict"]) == (
        attempt_id,
        "orders-1",
        "sales.orders",
        "FAIL",
    )
    (file,) = kept_files(shop)
    assert (found["files"], found["bytes"]) == ("1", str(file.stat().st_size))
    assert parse_location(found["folder"]).local == file.parent
    (same,) = listed(shop)
    assert {**same, "age_seconds": None} == {**found, "age_seconds": None}
    code, told = shop.command(["quarantine", "list"], Role.AUDITOR, "*")
    assert code == 0
    assert attempt_id in told
    assert "sales.orders" in told
    assert "workload orders-1 is open" in told


def test_what_may_still_be_published_is_kept_whatever_its_age(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_id = fail(shop)
    pass_by(shop, monkeypatch)
    code, told = removed(shop, *BY_AGE)
    assert (code, told["removed"], [each["attempt_id"] for each in told["kept"]]) == (0, [], [attempt_id])
    assert len(kept_files(shop)) == 1


def test_an_undecided_attempt_by_its_id_is_refused(shop: Shop) -> None:
    attempt_id = fail(shop)
    code, told = removed(shop, "quarantine", "remove", "--attempt", attempt_id, "--reason", "it is in the way")
    assert (code, told["reason"]) == (5, "quarantine_undecided")
    assert len(kept_files(shop)) == 1


def test_an_attempt_that_has_not_ended_is_refused(shop: Shop) -> None:
    with shop.client() as client:
        opened = client.open_workload("orders-1", "sales.orders", {})
        (chunk,) = client.chunks(opened.workload_id)
        attempt = client.next_attempt("orders-1", chunk.chunk_id, "a first try")
    words = ("quarantine", "remove", "--attempt", attempt.attempt_id, "--reason", "it is in the way")
    code, told = removed(shop, *words)
    assert (code, told["reason"]) == (5, "quarantine_attempt_live")


def test_one_undecided_among_others_keeps_all_of_them(shop: Shop) -> None:
    decided = fail(shop, "orders-1")
    give_up(shop, "orders-1")
    undecided = fail(shop, "orders-2")
    words = ("quarantine", "remove", "--attempt", decided, "--attempt", undecided, "--reason", "away with both")
    code, told = removed(shop, *words)
    assert (code, told["reason"]) == (5, "quarantine_undecided")
    assert len(kept_files(shop)) == 2


def test_a_dry_run_shows_what_would_go_and_removes_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_id = fail(shop)
    give_up(shop)
    pass_by(shop, monkeypatch)
    code, told = removed(shop, *BY_AGE, "--dry-run")
    assert (code, told["dry_run"], [each["attempt_id"] for each in told["removed"]]) == (0, True, [attempt_id])
    assert len(kept_files(shop)) == 1
    assert [each["attempt_id"] for each in listed(shop)] == [attempt_id]


def test_by_age_what_is_decided_goes_and_a_record_of_it_stays(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_id = fail(shop)
    give_up(shop)
    (file,) = kept_files(shop)
    size = file.stat().st_size
    pass_by(shop, monkeypatch)
    code, told = removed(shop, *BY_AGE)
    assert (code, told["kept"]) == (0, [])
    (gone,) = told["removed"]
    assert (gone["attempt_id"], gone["files"], gone["bytes"], gone["reason"]) == (
        attempt_id,
        "1",
        str(size),
        "kept long enough",
    )
    assert kept_files(shop) == []
    assert listed(shop) == []
    with shop.client(Role.AUDITOR, "*") as client:
        steps = [each for each in client.events(about=attempt_id) if each.subject == "quarantine_removals"]
        assert [each.kind for each in steps] == ["insert", "update"]
        assert steps[0].new is not None
        noted = dict(steps[0].new)
        assert (noted["name"], noted["reason"]) == (gone["name"], "kept long enough")
        (failed,) = client.workload("orders-1").attempts
        assert failed.verdict is Outcome.FAIL  # the signed proof stays
        assert failed.quarantine is None


def test_what_is_younger_is_kept(shop: Shop) -> None:
    fail(shop)
    give_up(shop)
    code, told = removed(shop, "quarantine", "remove", "--older-than", "1d", "--reason", "kept long enough")
    assert (code, told["removed"], told["kept"]) == (0, [], [])
    assert len(kept_files(shop)) == 1


def test_a_fail_goes_once_its_chunk_is_published(shop: Shop) -> None:
    attempt_id = fail(shop)
    with Coordinator(shop.steward) as coordinator:
        done = coordinator.repair("orders-1", lambda _s, _c: table_of(ROWS), reason="the job is mended")
    assert isinstance(done, Committed)
    words = ("quarantine", "remove", "--attempt", attempt_id, "--reason", "it was repaired")
    code, told = removed(shop, *words)
    assert (code, [each["attempt_id"] for each in told["removed"]]) == (0, [attempt_id])
    assert shop.seen("sales.orders") == sorted(ROWS, key=repr)
    code, told = removed(shop, *words)
    assert (code, told["reason"]) == (2, "quarantine_unknown")


def test_a_removal_that_was_interrupted_is_finished_by_the_next(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_id = fail(shop)
    give_up(shop)
    words = ("quarantine", "remove", "--attempt", attempt_id, "--reason", "kept long enough")
    with monkeypatch.context() as broken:

        def away(_: Vault, location: str) -> None:
            raise UnavailableError("vault_unavailable", f"the vault cannot be reached: {len(location)}")

        broken.setattr(Vault, "remove", away)
        code, told = removed(shop, *words)
        assert (code, told["reason"]) == (7, "vault_unavailable")
    assert [each["attempt_id"] for each in listed(shop)] == [attempt_id]
    code, _ = removed(shop, *words)
    assert code == 0
    assert (kept_files(shop), listed(shop)) == ([], [])


def test_only_operators_of_the_domain_remove(shop: Shop) -> None:
    attempt_id = fail(shop)
    give_up(shop)
    words = ("quarantine", "remove", "--attempt", attempt_id, "--reason", "kept long enough")
    for role, domain in ((Role.AUDITOR, "*"), (Role.PRODUCER, "sales"), (Role.OPERATOR, "payments")):
        code, told = removed(shop, *words, role=role, domain=domain)
        assert (code, told["reason"]) == (5, "domain_wrong" if role is Role.OPERATOR else "role_wrong")
    assert len(kept_files(shop)) == 1
    code, text = shop.command(["quarantine", "list", "--json"], Role.OPERATOR, "payments")
    assert (code, json.loads(text)["quarantine"]) == (0, [])


def test_neither_age_nor_id_is_a_usage_error(shop: Shop) -> None:
    code, told = shop.command(["quarantine", "remove", "--reason", "tidy"], Role.OPERATOR, "*")
    assert (code, "name what to remove" in told) == (2, True)


def test_what_a_dropped_table_left_is_listed_by_its_uuid(shop: Shop) -> None:
    attempt_id = fail(shop)
    give_up(shop)
    code, told = shop.command(
        ["unprotect", "sales.orders", "--key", str(shop.key), "--operator", "tom", "--reason", "it goes", "--yes"],
        Role.OPERATOR,
        "*",
    )
    assert code == 0, told
    shop.drop("sales.orders")
    (found,) = listed(shop)
    assert (found["attempt_id"], found["table"]) == (attempt_id, None)
    assert found["table_uuid"] in found["folder"]


def test_files_of_an_unknown_attempt_are_listed_as_unknown(shop: Shop) -> None:
    attempt_id = fail(shop)
    (file,) = kept_files(shop)
    lost = file.parent.parent / ("ab" * 16) / file.name
    lost.parent.mkdir()
    lost.write_bytes(file.read_bytes())
    found = listed(shop)
    assert [(each["attempt_id"], each["workload_id"]) for each in found] == [
        (attempt_id, "orders-1"),
        ("ab" * 16, None),
    ]
    code, told = shop.command(["quarantine", "list"], Role.OPERATOR, "*")
    assert (code, "the ledger has no record of this attempt" in told) == (0, True)
    words = ("quarantine", "remove", "--attempt", "ab" * 16, "--reason", "the backup was older")
    assert removed(shop, *words)[0] == 0
    assert kept_files(shop) == [file]
