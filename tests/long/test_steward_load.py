"""The Steward's HTTP service under load from two hundred clients, on both databases, and the whole fuzzing."""

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


def require_nothing_lost(folder: Path, *, ledger_url: str | None, stewards: int) -> None:
    """Send requests without retries, with retries, and under one identity; compare the answers with the ledger."""
    with stand_at(folder, ledger_url=ledger_url) as stand:
        proof = stand.proved()
        identities = callers(stand, 20)
        with running(write_config(stand), count=stewards) as urls:
            answers = send_requests(Plan(urls, identities, proof.statement_id, requests=REQUESTS, seed=5))
            patient_plan = Plan(urls, identities, proof.statement_id, requests=REQUESTS // 10, seed=6)
            patient = send_by_typed_clients(patient_plan)
            kinds = ("challenge", "identity", "identity", "identity", "identity")
            plan = Plan(urls, identities[:1], proof.statement_id, requests=REQUESTS // 3, seed=7, kinds=kinds)
            hasty = send_requests(plan)
        assert answers.others_than((200, ""), *LIMITED) == {}
        assert answers.share(200) >= 0.95, answers.statuses
        assert patient.statuses == {("both", 200, ""): patient_plan.clients * patient_plan.requests}
        assert hasty.others_than((200, ""), *LIMITED) == {}
        assert find_errors(stand, [answers, patient, hasty]) == []


def test_two_hundred_clients_lose_nothing_on_sqlite(tmp_path: Path) -> None:
    require_nothing_lost(tmp_path, ledger_url=None, stewards=1)


def test_two_hundred_clients_of_two_stewards_lose_nothing_on_postgresql(tmp_path: Path) -> None:
    with running_postgresql() as server:
        require_nothing_lost(tmp_path, ledger_url=server.create_database(), stewards=2)


@pytest.mark.parametrize("role", [*Role, None], ids=lambda role: str(role or "nobody"))
def test_the_service_keeps_to_its_openapi_document_under_fuzzing(tmp_path: Path, role: Role | None) -> None:
    with steward_to_fuzz(tmp_path) as steward:
        statuses = fuzz_operations(steward, role, Effort(valid=60, known=30, invalid=60, boundaries=10_000))
    assert {200, 400} <= set(statuses), statuses
