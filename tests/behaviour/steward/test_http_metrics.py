"""The metrics for Prometheus: counts of requests by route template, and facts that are read from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pvdm.errors import UnavailableError
from pvdm.model.role import Role
from pvdm.steward.record.log import LogQueries
from tests.support.steward.http import Served, limited, served
from tests.support.steward.notary import failed, override_of, signed_override
from tools.proof_kit import DAY


@pytest.fixture
def steward(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, changed=limited(rate_per_second=1, burst=50, body_max_bytes=1_024)) as made:
        yield made


def read_metric(steward: Served, name: str, **labels: str) -> float | None:
    """The value of the first sample with these labels, or None."""
    response = steward.http.get("/metrics", headers=steward.headers(Role.AUDITOR))
    assert response.status_code == 200
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            if sample.name == f"pvdm_steward_{name}" and labels.items() <= sample.labels.items():
                return sample.value
    return None


def test_requests_are_counted_by_route_template_and_status(steward: Served) -> None:
    for name in ("a", "b", "c"):
        steward.http.get(f"/v1/workloads/{name}", headers=steward.headers())
    route = "/v1/workloads/{workload_id}"
    assert read_metric(steward, "requests_total", method="GET", route=route, status="404") == 3
    assert read_metric(steward, "request_seconds_count", route=route) == 3


def test_callers_cannot_create_new_series(steward: Served) -> None:
    for number in range(5):
        steward.http.request(f"METHOD{number}", f"/path-{number}")
        steward.http.request(f"METHOD{number}", "/v1/epochs")
    text = steward.http.get("/metrics", headers=steward.headers(Role.AUDITOR)).text
    assert "METHOD" not in text
    assert "/path-" not in text
    assert read_metric(steward, "requests_total", method="(other)", route="(none)", status="404") == 5


def test_the_number_of_requests_in_progress_is_shown(steward: Served) -> None:
    assert read_metric(steward, "in_flight") == 1


def test_refusals_by_a_limit_are_counted_by_reason(steward: Served) -> None:
    steward.http.post("/v1/epochs", json={"reason": "x" * 2_000}, headers=steward.headers())
    assert read_metric(steward, "refused_total", code="body_too_large") == 1
    headers = steward.headers()
    while steward.http.get("/v1/identity", headers=headers).status_code == 200:
        pass
    assert read_metric(steward, "refused_total", code="rate_limited") == 1


def test_proofs_are_counted_by_verdict_from_the_ledger(steward: Served) -> None:
    steward.stand.proved("one")
    steward.stand.proved("two", passed=False)
    steward.stand.proved("three", passed=False)
    assert read_metric(steward, "proofs_total", verdict="PASS") == 1
    assert read_metric(steward, "proofs_total", verdict="FAIL") == 2


def test_break_glass_overrides_are_counted_from_the_ledger(steward: Served) -> None:
    assert read_metric(steward, "break_glass_overrides_total") == 0
    core = failed(steward.stand.verifying())
    override = override_of(steward.stand.record(core), core, steward.stand.time.wall)
    steward.stand.notary.overrides.submit(signed_override(override), steward.stand.grant())
    assert read_metric(steward, "break_glass_overrides_total") == 1


def test_the_sizes_of_log_and_outside_checkpoint_are_shown(steward: Served) -> None:
    steward.stand.proved()
    size = steward.stand.notary.log.size()
    assert (read_metric(steward, "log_size"), read_metric(steward, "outside_checkpoint_size")) == (size, size)


def test_clock_and_epoch_are_shown(steward: Served) -> None:
    assert (read_metric(steward, "clock_ready"), read_metric(steward, "active_epoch")) == (1, 1)
    auditor = steward.headers(Role.AUDITOR)
    steward.stand.time.jump(400 * DAY)
    text = steward.http.get("/metrics", headers=auditor).text
    assert "pvdm_steward_clock_ready 0.0" in text


def test_a_metric_that_cannot_be_read_is_left_out_and_facts_readable_is_0(
    steward: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: LogQueries) -> int:
        raise UnavailableError("ledger_unreachable", "the ledger cannot be read or written")

    assert read_metric(steward, "facts_readable") == 1
    monkeypatch.setattr(LogQueries, "size", fail)
    assert (read_metric(steward, "log_size"), read_metric(steward, "facts_readable")) == (None, 0)
    assert read_metric(steward, "active_epoch") == 1


def test_two_services_in_one_process_have_separate_counts(tmp_path: Path) -> None:
    with served(tmp_path / "one") as one, served(tmp_path / "two") as two:
        one.http.get("/v1/identity")
        assert read_metric(one, "requests_total", route="/v1/identity", status="401") == 1
        assert read_metric(two, "requests_total", route="/v1/identity", status="401") is None
