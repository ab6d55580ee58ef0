"""The Steward's door for minutes: two hundred clients on both databases, two Stewards on one, and the whole fuzzing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pvdm.model.role import Role
from tests.support.fuzz.steward import Effort, fuzz_operations, steward_to_fuzz
from tests.support.ledger.databases import running_postgresql
from tests.support.steward.load import (
    Plan,
    callers,
    find_errors,
    running,
    send_by_typed_clients,
    send_requests,
    write_config,
)
from tests.support.steward.notary import stand_at

pytestmark = pytest.mark.long

REQUESTS = 30
LIMITED = ((429, "rate_limited"), (429, "too_many_requests_at_once"))


def loaded(folder: Path, *, ledger_url: str | None, stewards: int) -> None:
    """Raw callers, then clients that try again, then all of them under one name; judged together."""
    with stand_at(folder, ledger_url=ledger_url) as stand:
        proof = stand.proved()
        identities = callers(stand, 20)
        with running(write_config(stand), count=stewards) as urls:
            told = send_requests(Plan(urls, identities, proof.statement_id, requests=REQUESTS, seed=5))
            patient = send_by_typed_clients(Plan(urls, identities, proof.statement_id, requests=REQUESTS // 10, seed=6))
            kinds = ("challenge", "identity", "identity", "identity", "identity")
            plan = Plan(urls, identities[:1], proof.statement_id, requests=REQUESTS // 3, seed=7, kinds=kinds)
            hasty = send_requests(plan)
        assert told.beside((200, ""), *LIMITED) == {}
        assert told.share(200) >= 0.95, told.statuses
        assert patient.statuses == {("both", 200, ""): 200 * (REQUESTS // 10)}
        assert hasty.beside((200, ""), *LIMITED) == {}
        assert find_errors(stand, [told, patient, hasty]) == []


def test_two_hundred_clients_lose_nothing_on_sqlite(tmp_path: Path) -> None:
    loaded(tmp_path, ledger_url=None, stewards=1)


def test_two_hundred_clients_of_two_stewards_lose_nothing_on_postgresql(tmp_path: Path) -> None:
    with running_postgresql() as made:
        loaded(tmp_path, ledger_url=made.create_database(), stewards=2)


@pytest.mark.parametrize("role", [*Role, None], ids=lambda role: str(role or "nobody"))
def test_the_service_keeps_to_its_openapi_document_in_all_its_corners(tmp_path: Path, role: Role | None) -> None:
    with steward_to_fuzz(tmp_path) as steward:
        seen = fuzz_operations(steward, role, Effort(valid=60, known=30, invalid=60, boundaries=10_000))
    assert {200, 400} <= set(seen), seen
