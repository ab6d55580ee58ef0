"""Two hundred clients at once: nearly all are served, the others may retry, and no write is lost or doubled."""

from __future__ import annotations

import time
from pathlib import Path

from pvdm.client import Retries
from tests.support.steward.http import served
from tests.support.steward.load import (
    Plan,
    callers,
    find_errors,
    logged,
    running,
    send_by_typed_clients,
    send_requests,
    write_config,
)
from tests.support.steward.notary import stand_at

LIMITED = ((429, "rate_limited"), (429, "too_many_requests_at_once"))


def test_two_hundred_clients_are_served_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    with stand_at(tmp_path) as stand:
        proof = stand.proved()
        identities = callers(stand, 20)
        with running(write_config(stand)) as urls:
            plan = Plan(urls, identities, proof.statement_id, requests=3)
            told = send_requests(plan)
        assert told.total == plan.clients * plan.requests
        assert told.others_than((200, ""), *LIMITED) == {}
        assert told.share(200) >= 0.95, told.statuses
        assert min(len(told.drawn), len(told.attested)) > 50
        assert find_errors(stand, [told]) == []


def test_a_client_above_its_rate_is_served_after_the_retry_time(tmp_path: Path) -> None:
    with stand_at(tmp_path) as stand:
        proof = stand.proved()
        identities = callers(stand, 5)
        config = write_config(stand, rate_per_second=10, burst=10)
        with running(config) as urls:
            kinds = ("identity", "challenge", "challenge")
            plan = Plan(urls, identities[:1], proof.statement_id, clients=60, requests=2, seed=2, kinds=kinds)
            hasty = send_requests(plan)
            refused = logged(config, 429)
            plan = Plan(urls, identities[1:], proof.statement_id, clients=60, requests=1, seed=3)
            patient = send_by_typed_clients(plan, Retries(tries=30))
            refused_meanwhile = logged(config, 429) - refused
        assert hasty.others_than((200, ""), *LIMITED) == {}
        assert hasty.share(429) > 0, hasty.statuses
        assert refused_meanwhile > 0
        assert patient.statuses == {("both", 200, ""): 60}
        assert find_errors(stand, [hasty, patient]) == []


def test_a_small_answer_is_sent_without_delay(tmp_path: Path) -> None:
    """Without TCP_NODELAY the system would wait up to 40 ms for the caller's acknowledgement of the headers."""
    with served(tmp_path) as steward:
        taken = []
        for _ in range(20):
            began = time.monotonic()
            steward.http.get("/healthz")
            taken.append(time.monotonic() - began)
    assert min(taken[1:]) < 0.03
