"""Alerts: stored with the change that causes them, if any; delivered at least once, signed, without row values."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from pvdm.api.leases import LeaseRequest
from pvdm.api.work import JobState
from pvdm.errors import Code, PvdmError
from pvdm.ledger import Unit
from pvdm.ledger.record import outbox
from pvdm.ledger.record.outbox import Channel
from pvdm.ledger.work.plannings import Planning
from pvdm.model.role import Role
from pvdm.model.states import CRASH_LOOP_LEASES, AttemptState
from pvdm.steward.config.alerts import AlertsConfig, CommandAlerts, WebhookAlerts
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.delivery import delivery
from pvdm.steward.delivery.alerts import open_alert_sender
from pvdm.steward.delivery.watch import Watch
from pvdm.steward.notary import Notary
from pvdm.steward.work.notices import AlertKind
from pvdm.steward.work.queries import JobKind, JobStatus
from tests.behaviour.steward.test_break_glass_path import publish_and_wait, submit_override_of
from tests.support.catalog.processes import Starter, starter
from tests.support.for_each import for_each
from tests.support.ledger.databases import Postgresql
from tests.support.servers.webhook import Webhook, webhook
from tests.support.steward.http import Served, served
from tests.support.steward.pipeline import BY_DAY, ROWS, Line, contract, line_at
from tests.support.waiting import eventually

SECRET = b"0123456789abcdef0123456789abcdef"
SECOND = 1_000_000
DAY = 86_400 * SECOND
ConfigChange = Callable[[StewardConfig], StewardConfig]


@pytest.fixture(autouse=True)
def shorten_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "POLL_SECONDS", 0.05)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


@pytest.fixture(scope="module")
def stewards() -> Iterator[Starter]:
    with starter() as made:
        yield made


def write_secret(folder: Path) -> Path:
    path = folder / "alerts.secret"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    return path


def alert_webhook(folder: Path, hook: Webhook, *, timeout_seconds: int = 10) -> ConfigChange:
    """Return a change of the configuration: alerts go to the webhook."""
    alerts = WebhookAlerts(hook.url, write_secret(folder), timeout_seconds, job_stuck_seconds=900)
    return lambda config: replace(config, alerts=alerts)


@pytest.fixture
def line(tmp_path: Path, hook: Webhook) -> Iterator[Line]:
    with line_at(tmp_path, changed=alert_webhook(tmp_path, hook)) as made:
        yield made


@pytest.fixture
def steward(tmp_path: Path, hook: Webhook) -> Iterator[Served]:
    with served(tmp_path, changed=alert_webhook(tmp_path, hook)) as made:
        yield made


def fail(line: Line, workload_id: str = "run-1") -> str:
    """Stage all rows but one. Returns the id of the failed attempt."""
    with line.client() as client:
        _, attempt = line.attempt(client, workload_id)
        line.stage(client, attempt, ROWS[:-1])
        client.staged(attempt.attempt_id)
        assert client.await_attempt(attempt.attempt_id, seconds=30).state is AttemptState.VERIFICATION_FAILED
        return attempt.attempt_id


def add_alert(notary: Notary, key: str = "one", **facts: str) -> None:
    """Store an alert."""
    notary.ledger.transact(
        lambda unit: notary.notices.add_alert(unit, AlertKind.AUDIT_FINDING, key, facts),
        at_micros=notary.clock.now_micros(),
    )


def find_pending(notary: Notary) -> outbox.Pending | None:
    with notary.ledger.read() as unit:
        return outbox.find_pending(unit, Channel.ALERTS)


def is_delivered(notary: Notary) -> bool:
    return eventually(lambda: find_pending(notary) is None)


def test_a_fail_is_reported_with_a_signature_and_without_values_or_names_of_chunks(line: Line, hook: Webhook) -> None:
    line.protect(contract("chunking:\n  by: partition\n  columns: [town]", "governance:\n  attempts: 5"))
    attempt_id = fail_first_chunk(line)
    assert is_delivered(line.notary)
    [alert] = hook.list_received("verdict_fail")
    assert (alert["attempt_id"], alert["workload_id"], alert["table"]) == (attempt_id, "run-1", "sales.orders")
    assert (alert["domain"], alert["product"]) == ("sales", "orders")
    assert "missing" in alert["classes"]
    [request] = hook.received
    for value in ("Ulm", "Bonn", "Kiel", "2026-11-1"):
        assert value not in request.body.decode().replace(alert["at"], "")
    timestamp = request.headers["pvdm-timestamp"]
    expected = hmac.new(SECRET, f"{timestamp}.".encode() + request.body, hashlib.sha256).hexdigest()
    assert request.headers["pvdm-signature"] == f"v1={expected}"
    assert abs(int(timestamp) - time.time()) < 60
    # The signature covers only timestamp and body, so an attacker could change a further header.
    assert {name for name in request.headers if name.startswith("pvdm-")} == {"pvdm-timestamp", "pvdm-signature"}


def fail_first_chunk(line: Line) -> str:
    with line.client() as client:
        chunk, attempt = line.attempt(client)
        town = next(name for name in ("Ulm", "Bonn", "Kiel") if name in chunk.chunk_id)
        rows = [row for row in ROWS if row[2] == town]
        line.stage(client, attempt, rows[1:] or [(99, "2026-11-13", town)])
        client.staged(attempt.attempt_id)
        assert client.await_attempt(attempt.attempt_id, seconds=30).state is AttemptState.VERIFICATION_FAILED
        return attempt.attempt_id


def test_a_chunk_that_has_used_up_its_attempts_is_reported(line: Line, hook: Webhook) -> None:
    line.protect(contract("governance:\n  attempts: 1"))
    attempt_id = fail(line)
    assert is_delivered(line.notary)
    [alert] = hook.list_received("attempts_used_up")
    assert (alert["attempt_id"], alert["failed"], alert["rolled_back"]) == (attempt_id, 1, 0)


def test_a_refusal_by_the_gate_is_reported_with_its_reason(
    line: Line, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.protect()

    def refuse(*_: object) -> None:
        raise Code.PROOF_MISMATCH(reason="nonce_of_other_attempt")

    monkeypatch.setattr("pvdm.steward.pipeline.publishing.validate_then_commit", refuse)
    with line.client() as client:
        _, attempt = line.attempt(client)
        line.stage(client, attempt, ROWS)
        client.staged(attempt.attempt_id)
        client.await_attempt(attempt.attempt_id, seconds=30)
    assert is_delivered(line.notary)
    [alert] = hook.list_received("gate_refused")
    assert (alert["attempt_id"], alert["reason"]) == (attempt.attempt_id, "nonce_of_other_attempt")


def test_runs_that_hand_nothing_in_are_reported_once(line: Line, hook: Webhook) -> None:
    line.protect()
    with line.client() as client:
        client.open_workload("run-1", "sales.orders", {})
        for number in range(CRASH_LOOP_LEASES + 2):
            assert bool(find_pending(line.notary) or hook.received) == (number >= CRASH_LOOP_LEASES)
            request = LeaseRequest(
                run_id=f"{number:032x}", runner="process 1", seconds=60, take_over_from=number or None
            )
            client.acquire_lease("run-1", request)
    assert is_delivered(line.notary)
    [alert] = hook.list_received("crash_loop")
    assert (alert["workload_id"], alert["runs"], alert["producer"]) == ("run-1", CRASH_LOOP_LEASES, "job")


def test_a_passed_deadline_is_reported_once(line: Line, hook: Webhook) -> None:
    line.protect()
    with line.client() as client:
        client.open_workload("run-1", "sales.orders", {}, timeout_seconds=600)
    [watch] = line.notary.watches
    watch.look()
    assert is_delivered(line.notary)
    assert hook.list_received("deadline_passed") == []
    line.served.stand.time.pass_by(601 * SECOND)
    watch.look()
    watch.look()
    assert is_delivered(line.notary)
    assert [alert["workload_id"] for alert in hook.list_received("deadline_passed")] == ["run-1"]


def test_an_expiry_is_reported_once_at_each_mark(steward: Served, hook: Webhook) -> None:
    notary, clock = steward.stand.notary, steward.stand.time
    [watch] = notary.watches
    ends = notary.trust.current().expires_at
    for left, count in ((31, 0), (29, 1), (28, 1), (6, 2), (-1, 3)):
        while clock.wall < ends - left * DAY:
            clock.pass_by(DAY)
        watch.look()
        assert is_delivered(notary)
        assert len([alert for alert in hook.list_received("expiring") if alert["what"] == "trust_root"]) == count
    assert hook.list_received("expiring")[-1]["expired"]


def test_a_stuck_job_is_reported(steward: Served, hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    notary = steward.stand.notary
    notary.jobs.dispose("00" * 16)  # the ledger has no such attempt, so the job fails
    assert eventually(lambda: [each.state for each in notary.jobs.list_jobs()] == [JobState.FAILED])
    [watch] = notary.watches
    watch.look()
    watch.look()
    assert is_delivered(notary)
    [alert] = hook.list_received("job_stuck")
    assert (alert["job"], alert["job_state"], alert["reason"]) == ("dispose", "failed", "attempt_unknown")


def test_a_stuck_plan_is_reported_with_its_workload_and_without_an_attempt(line: Line, hook: Webhook) -> None:
    notary, bug = line.notary, Mock(side_effect=RuntimeError("a bug"))
    notary.jobs._tasks = replace(notary.jobs._tasks, plan=bug, settle=bug)
    line.protect(contract(BY_DAY))
    opened = notary.workloads.open(line.scene.grant(Role.PRODUCER, "sales"), "run-1", "sales.orders", {})
    assert isinstance(opened, Planning)
    notary.jobs._queue(JobKind.SETTLE, "")
    assert eventually(lambda: [each.state for each in notary.jobs.list_jobs()] == [JobState.FAILED] * 2)
    [watch] = notary.watches
    watch.look()
    assert is_delivered(notary)
    plan, settle = sorted(hook.list_received("job_stuck"), key=lambda each: str(each["job"]))
    assert (plan["job"], plan["workload_id"], plan["attempt_id"], plan["state"]) == ("plan", "run-1", None, None)
    assert (plan["table"], plan["domain"], plan["product"]) == ("sales.orders", "sales", "orders")
    assert (settle["job"], settle["workload_id"], settle["attempt_id"]) == ("settle", None, None)


def test_a_stuck_job_that_is_tried_again_is_reported_once_and_again_if_it_fails(steward: Served, hook: Webhook) -> None:
    notary = steward.stand.notary
    job = JobStatus(JobKind.DISPOSE, "00" * 16, JobState.WAITING, 1, None, age_seconds=901)
    [watch] = notary.watches
    assert isinstance(watch, Watch)
    jobs = list[JobStatus]()
    for state in (*JobState, JobState.WAITING):
        jobs[:] = [replace(job, state=state)]
        replace(watch, list_jobs=lambda: jobs).look()
    assert is_delivered(notary)
    assert sorted(alert["job_state"] for alert in hook.list_received("job_stuck")) == ["failed", "queued"]


def test_an_override_is_reported_after_its_use_and_not_before(line: Line, hook: Webhook) -> None:
    line.protect()
    [watch] = line.notary.watches
    with line.client() as client, line.client(Role.OPERATOR) as operator:
        failed = client.attempt(fail(line))
        override_id = submit_override_of(line, operator, failed)
        watch.look()
        assert is_delivered(line.notary)
        assert hook.list_received("break_glass_used") == []
        publish_and_wait(line, operator, override_id)
    watch.look()
    assert is_delivered(line.notary)
    [alert] = hook.list_received("break_glass_used")
    assert (alert["override_id"], alert["workload_id"]) == (override_id, "run-1")
    assert (alert["operator"], alert["proof_id"]) == ("operator-ruth", failed.proof_id)


def test_violations_that_an_auditor_reports_are_reported_once_a_day(line: Line, hook: Webhook) -> None:
    with line.client(Role.AUDITOR) as auditor:
        for _ in range(2):
            assert auditor.report_audit("sales.orders", ["audit_receipt_missing"], 3)
    assert is_delivered(line.notary)
    [alert] = hook.list_received("audit_finding")
    assert (alert["table"], alert["codes"], alert["violations"]) == ("sales.orders", ["audit_receipt_missing"], 3)
    assert (alert["domain"], alert["auditor"]) == ("sales", "job")


def test_an_auditor_of_another_domain_cannot_report_violations(line: Line) -> None:
    with line.client(Role.AUDITOR, "risk") as auditor, pytest.raises(PvdmError) as caught:
        auditor.report_audit("sales.orders", ["audit_receipt_missing"], 3)
    assert caught.value.reason in ("domain_wrong", "table_unknown")
    assert find_pending(line.notary) is None


def test_an_event_is_sent_again_until_the_receiver_accepts_it(steward: Served, hook: Webhook) -> None:
    notary, time_of_test = steward.stand.notary, steward.stand.time
    notary.stop_work()
    assert notary.config.alerts is not None
    sender = delivery.Delivery(notary.ledger, notary.clock, Channel.ALERTS, open_alert_sender(notary.config.alerts))
    hook.statuses += [500, 302, 429]
    add_alert(notary)
    for tries, wait in ((1, 5), (2, 10), (3, 20)):
        assert sender.deliver_due() == 0
        assert len(hook.received) == tries
        time_of_test.pass_by((wait - 1) * SECOND)
        assert sender.deliver_due() == 0
        assert len(hook.received) == tries
        time_of_test.pass_by(SECOND)
    assert sender.deliver_due() == 1
    assert find_pending(notary) is None
    assert len({each.json()["event_id"] for each in hook.received}) == 1
    assert len(hook.received) == 4


def test_the_same_occurrence_is_sent_once(steward: Served, hook: Webhook) -> None:
    for _ in range(3):
        add_alert(steward.stand.notary)
        assert is_delivered(steward.stand.notary)
    assert len(hook.received) == 1


def test_an_occurrence_is_sent_again_only_after_90_days(steward: Served, hook: Webhook) -> None:
    notary = steward.stand.notary
    add_alert(notary)
    assert is_delivered(notary)
    for days, count in ((89, 1), (2, 2)):
        for _ in range(days):
            steward.stand.time.pass_by(DAY)
        notary.tidy()
        add_alert(notary)
        assert is_delivered(notary)
        assert len(hook.received) == count


def test_an_event_of_a_transaction_that_is_rolled_back_is_not_sent(steward: Served, hook: Webhook) -> None:
    notary = steward.stand.notary

    def work(unit: Unit) -> None:
        notary.notices.add_alert(unit, AlertKind.AUDIT_FINDING, "lost", {})
        raise Code.BUG("rolled back")

    with pytest.raises(PvdmError):
        notary.ledger.transact(work, at_micros=notary.clock.now_micros())
    add_alert(notary, "kept")
    assert is_delivered(notary)
    assert [each.json()["event_id"] for each in hook.received] == [
        outbox.event_id_of(Channel.ALERTS, AlertKind.AUDIT_FINDING, "kept")
    ]


def test_events_beyond_the_limit_are_not_stored(steward: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    notary = steward.stand.notary
    notary.stop_work()
    monkeypatch.setattr(outbox, "OUTBOX_PENDING_MAX", 4)  # one domain gets half of the places
    for number in range(4):
        add_alert(notary, str(number))
    found = find_pending(notary)
    assert found is not None
    assert found.count == 2


def test_a_steward_that_is_killed_before_the_delivery_delivers_after_its_restart(
    line: Line, hook: Webhook, stewards: Starter
) -> None:
    line.protect()
    line.served.server.stop()  # the Steward of this process only prepares the tables
    hook.statuses += [503] * 100
    config = line.served.stand.config
    with stewards.serving(config) as serving:
        line.served.server.url = serving.url
        fail(line)
        assert eventually(lambda: len(hook.received) > 0)
        serving.kill()
    hook.received.clear()
    hook.statuses.clear()
    with stewards.serving(config):
        assert eventually(lambda: len(hook.list_received("verdict_fail")) == 1)


def test_two_stewards_of_one_ledger_send_each_event_once(
    tmp_path: Path, hook: Webhook, stewards: Starter, postgresql: Postgresql
) -> None:
    url = postgresql.create_database()
    with served(tmp_path, changed=alert_webhook(tmp_path, hook), ledger_url=url) as steward:
        steward.server.stop()
        config, notary = steward.stand.config, steward.stand.notary
        with stewards.serving(config), stewards.serving(config):
            for number in range(20):
                add_alert(notary, str(number))
            assert is_delivered(notary)
    assert len(hook.received) == len({each.json()["event_id"] for each in hook.received}) == 20


def test_a_hanging_receiver_delays_neither_verification_nor_publication(line: Line, hook: Webhook) -> None:
    line.protect()
    hook.hanging.set()
    add_alert(line.notary)
    assert eventually(lambda: len(hook.received) == 1)  # the delivery hangs from now on
    with line.client() as client:
        _, attempt = line.attempt(client)
        line.stage(client, attempt, ROWS)
        client.staged(attempt.attempt_id)
        assert client.await_attempt(attempt.attempt_id, seconds=30).state is AttemptState.COMMITTED
    assert len(hook.received) == 1
    assert find_pending(line.notary) is not None


def test_metrics_and_status_show_what_is_not_delivered(steward: Served, hook: Webhook) -> None:
    hook.statuses += [500] * 10
    add_alert(steward.stand.notary)
    assert eventually(lambda: (find_pending(steward.stand.notary) or outbox.Pending(0, 0, None)).problem is not None)
    steward.stand.time.pass_by(2 * SECOND)
    text = steward.http.get("/metrics", headers=steward.headers(Role.AUDITOR)).text
    assert 'pvdm_steward_outbox_pending{channel="alerts"} 1.0' in text
    assert 'pvdm_steward_outbox_oldest_seconds{channel="alerts"} 2.0' in text
    [shown] = steward.http.get("/v1/steward", headers=steward.headers(Role.AUDITOR)).json()["outbox"]
    assert (shown["channel"], shown["pending"]) == ("alerts", 1)
    assert shown["problem"] == "the webhook answered with status 500"


COMMAND = """
import json, os, sys
alert = json.load(sys.stdin)
with open(sys.argv[1], "a") as file:
    file.write(json.dumps([alert["kind"], sorted(os.environ)]) + "\\n")
"""


def command(*argv: str, timeout_seconds: int = 10) -> AlertsConfig:
    return CommandAlerts((sys.executable, *argv), timeout_seconds, job_stuck_seconds=900)


def test_a_command_gets_the_alert_and_none_of_the_stewards_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    out = tmp_path / "out"
    alerts = command("-c", COMMAND, str(out))
    with served(tmp_path, changed=lambda config: replace(config, alerts=alerts)) as steward:
        add_alert(steward.stand.notary)
        assert is_delivered(steward.stand.notary)
    kind, names = json.loads(out.read_text())
    assert kind == "audit_finding"
    assert "PATH" in names
    assert [name for name in names if "AWS" in name or "PVDM" in name] == []


@for_each(
    ("script", "problem"),
    (
        ("import sys; sys.exit(3)", "the command ended with 3"),
        ("import os, time; os.fork(); time.sleep(60)", "the command did not end within 1 second"),
    ),
)
def test_a_command_that_fails_or_hangs_is_run_again_later(tmp_path: Path, script: str, problem: str) -> None:
    alerts, folder = command("-c", script, timeout_seconds=1), tmp_path / hashlib.sha256(script.encode()).hexdigest()
    with served(folder, changed=lambda config: replace(config, alerts=alerts)) as steward:
        notary = steward.stand.notary
        add_alert(notary)
        assert eventually(lambda: (find_pending(notary) or outbox.Pending(0, 0, None)).problem == problem)
