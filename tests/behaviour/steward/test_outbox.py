"""The outbox: places of each kind and domain, events that cannot be built, and receivers that answer slowly."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import Code, UnavailableError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import outbox
from pvdm.ledger.record.outbox import Channel, OutboxEvent, event_id_of
from pvdm.ledger.work import deadlines
from pvdm.model.contract import DataProductContract
from pvdm.model.role import Role
from pvdm.steward.config.alerts import WebhookAlerts
from pvdm.steward.delivery import delivery
from pvdm.steward.delivery.alerts import open_alert_sender
from pvdm.steward.delivery.delivery import Delivery, DeliveryError
from pvdm.steward.delivery.watch import Watch
from pvdm.steward.notary import Notary
from pvdm.steward.work.opened import contract_of
from pvdm.steward.work.queries import JobStatus
from tests.behaviour.steward.test_alerts import add_alert, alert_webhook, command, fail, write_secret
from tests.support import fault
from tests.support.for_each import for_each
from tests.support.servers.webhook import Webhook, webhook
from tests.support.steward.http import Served, served
from tests.support.steward.pipeline import Line, contract, line_at

SECOND = 1_000_000


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


@pytest.fixture
def line(tmp_path: Path, hook: Webhook) -> Iterator[Line]:
    """A Steward with alerts that delivers nothing."""
    with line_at(tmp_path, changed=alert_webhook(tmp_path, hook)) as made:
        made.protect(contract())
        made.notary.deliveries[Channel.ALERTS].stop(10)
        yield made


@pytest.fixture
def steward(tmp_path: Path, hook: Webhook) -> Iterator[Served]:
    with served(tmp_path, changed=alert_webhook(tmp_path, hook)) as made:
        made.stand.notary.deliveries[Channel.ALERTS].stop(10)
        yield made


def list_due(notary: Notary) -> list[tuple[str, str]]:
    """Kind and domain of each event that is due for delivery."""
    with notary.ledger.read() as unit:
        due = outbox.list_due(unit, Channel.ALERTS, notary.clock.now_micros())
        bodies = [json.loads(each.body) for each in due]
    return [(each["kind"], each.get("domain", "")) for each in bodies]


def let_deadlines_pass(line: Line, count: int) -> None:
    grant = line.scene.grant(Role.PRODUCER, "sales")
    for number in range(count):
        line.notary.workloads.open(grant, f"late-{number}", "sales.orders", {}, 60)
    line.served.stand.time.pass_by(61 * SECOND)


def count_writes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets one element for each later write transaction."""
    real, writes = Ledger.transact, list[int]()

    def transact(self: Ledger, work: Callable[[Unit], object], *, at_micros: int) -> object:
        writes.append(at_micros)
        return real(self, work, at_micros=at_micros)

    monkeypatch.setattr(Ledger, "transact", transact)
    return writes


def test_a_flood_of_passed_deadlines_leaves_places_for_a_fail(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_PENDING_MAX", 10)
    monkeypatch.setattr(deadlines, "PASSED_PAGE_MAX_ROWS", 4)
    let_deadlines_pass(line, 12)
    [watch] = line.notary.watches
    watch.look()
    assert list_due(line.notary) == [("deadline_passed", "sales")] * 5
    fail(line)
    assert list_due(line.notary).count(("verdict_fail", "sales")) == 1


def test_a_look_that_finds_nothing_new_writes_nothing_and_a_full_outbox_costs_one_transaction(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_deadlines_pass(line, 12)
    [watch] = line.notary.watches
    watch.look()
    writes = count_writes(line.notary.ledger, monkeypatch)
    watch.look()
    assert writes == []
    monkeypatch.setattr(outbox, "OUTBOX_PENDING_MAX", 10)
    monkeypatch.setattr("pvdm.steward.delivery.watch._ADDED_AT_ONCE", 2)
    grant = line.scene.grant(Role.PRODUCER, "sales")
    for number in range(9):
        line.notary.workloads.open(grant, f"later-{number}", "sales.orders", {}, 60)
    line.served.stand.time.pass_by(61 * SECOND)
    writes.clear()
    watch.look()
    assert len(writes) == 1


def test_many_alerts_are_added_in_several_transactions(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.steward.delivery.watch._ADDED_AT_ONCE", 5)
    let_deadlines_pass(line, 12)
    writes = count_writes(line.notary.ledger, monkeypatch)
    [watch] = line.notary.watches
    watch.look()
    assert len(writes) == 3
    assert list_due(line.notary) == [("deadline_passed", "sales")] * 12


def test_a_workload_whose_contract_is_missing_does_not_stop_the_other_alerts(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()

    def read_contract(unit: Unit, sha256: str) -> DataProductContract:
        calls.append(sha256)
        if len(calls) == 1:
            raise Code.RECORD_UNKNOWN(reason="contract_unknown", got="x")
        return contract_of(unit, sha256)

    let_deadlines_pass(line, 3)
    monkeypatch.setattr("pvdm.steward.work.notices.contract_of", read_contract)
    [watch] = line.notary.watches
    watch.look()
    assert list_due(line.notary) == [("deadline_passed", "sales")] * 3


def test_an_unexpected_error_of_one_kind_of_alert_does_not_stop_the_other_kinds(line: Line) -> None:
    def list_jobs() -> list[JobStatus]:
        raise KeyError("job")

    let_deadlines_pass(line, 1)
    [watch] = line.notary.watches
    assert isinstance(watch, Watch)
    replace(watch, list_jobs=list_jobs).look()
    assert list_due(line.notary) == [("deadline_passed", "sales")]


def test_each_domain_gets_half_of_the_places_that_other_domains_leave(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_PENDING_MAX", 64)

    def store(unit: Unit) -> dict[str, int]:
        """Each domain in turn stores events until it is refused."""
        stored = {}
        for domain in ("a", "b", "c", "d"):
            number = 0
            while outbox.add(
                unit, Channel.ALERTS, "late", event_id_of(Channel.ALERTS, domain, str(number)), {}, domain=domain
            ):
                number += 1
            stored[domain] = number
            # An event that is stored needs no place.
            assert outbox.add(unit, Channel.ALERTS, "late", event_id_of(Channel.ALERTS, domain, "0"), {}, domain=domain)
        assert outbox.add(unit, Channel.ALERTS, "fail", event_id_of(Channel.ALERTS, "fail", ""), {}, domain="a")
        return stored

    assert ledger.transact(store, at_micros=1) == {"a": 32, "b": 16, "c": 8, "d": 4}


def test_an_event_does_not_wait_for_earlier_events_of_other_kinds_and_domains(ledger: Ledger) -> None:
    def store(unit: Unit) -> list[str]:
        for at, (kind, domain) in enumerate([("late", "a")] * 3 + [("fail", "a"), ("late", "b"), ("late", "b")]):
            outbox.add(unit, Channel.ALERTS, kind, f"{at:032x}", {}, domain=domain, created_micros=at + 1)
        return [each.event_id for each in outbox.list_due(unit, Channel.ALERTS, 1)]

    order = [int(event_id, 16) for event_id in ledger.transact(store, at_micros=1)]
    assert order == [0, 3, 4, 1, 5, 2]


def test_tries_that_the_receiver_refused_do_not_count_for_an_event_that_cannot_be_built(
    tmp_path: Path, hook: Webhook
) -> None:
    """After a long outage of the receiver, one failure to build an event sets nothing aside."""
    errors: list[Exception] = [delivery.DeliveryError("no answer")] * (delivery.UNBUILT_TRIES_MAX - 1)
    errors.append(KeyError("step"))

    def send(_: OutboxEvent) -> None:
        if errors:
            raise errors.pop(0)

    with served(tmp_path, changed=alert_webhook(tmp_path, hook)) as steward:
        notary = steward.stand.notary
        notary.deliveries[Channel.ALERTS].stop(10)
        sender = Delivery(notary.ledger, notary.clock, Channel.ALERTS, send)
        add_alert(notary, "one")
        delivered = []
        while errors:
            delivered.append(sender.deliver_due())
            steward.stand.time.pass_by(delivery.DELIVERY_RETRY_MAX_SECONDS * SECOND)
        assert (set(delivered), sender.deliver_due()) == ({0}, 1)


def make_failing_send(event_key: str, sent: list[str], error: Exception) -> delivery.Send:
    """Return a `send` that records each event, but raises `error` for the audit finding with this key."""

    def send(event: OutboxEvent) -> None:
        if event.event_id == event_id_of(Channel.ALERTS, "audit_finding", event_key):
            raise error
        sent.append(event.event_id)

    return send


@for_each(
    ("error", "shown"),
    (
        (Code.RECORD_UNKNOWN(reason="contract_unknown", got="x"), "contract_unknown"),
        (KeyError("step"), "KeyError"),
    ),
)
def test_an_event_that_cannot_be_built_is_set_aside_and_the_others_are_sent(
    tmp_path: Path, hook: Webhook, error: Exception, shown: str
) -> None:
    folder = tmp_path / shown
    folder.mkdir()
    with served(folder, changed=alert_webhook(folder, hook)) as steward:
        notary, sent = steward.stand.notary, list[str]()
        notary.deliveries[Channel.ALERTS].stop(10)
        sender = Delivery(notary.ledger, notary.clock, Channel.ALERTS, make_failing_send("bad", sent, error))
        for key in ("bad", "one", "two"):
            add_alert(notary, key)
        assert sender.deliver_due() == 2
        headers = steward.headers(Role.AUDITOR)
        [view] = steward.http.get("/v1/steward", headers=headers).json()["outbox"]
        assert (view["pending"], view["set_aside"]) == (1, 0)
        assert view["problem"] == f"the event cannot be built: {shown}"
        for _ in range(delivery.UNBUILT_TRIES_MAX - 1):
            steward.stand.time.pass_by(delivery.DELIVERY_RETRY_MAX_SECONDS * SECOND)
            assert sender.deliver_due() == 0
        [view] = steward.http.get("/v1/steward", headers=steward.headers(Role.AUDITOR)).json()["outbox"]
        assert (view["pending"], view["problem"], view["set_aside"]) == (0, None, 1)
        assert view["set_aside_problem"] == f"the event cannot be built: {shown}"
        steward.stand.time.pass_by(8 * 86_400 * SECOND)
        assert steward.http.get("/v1/steward", headers=steward.headers(Role.AUDITOR)).json()["outbox"] == []


def test_if_the_ledger_is_unavailable_the_event_gets_no_problem(steward: Served) -> None:
    notary = steward.stand.notary
    add_alert(notary, "one")
    unavailable = Code.LEDGER_UNAVAILABLE()
    sender = Delivery(notary.ledger, notary.clock, Channel.ALERTS, make_failing_send("one", [], unavailable))
    with pytest.raises(type(unavailable)):
        sender.deliver_due()
    with notary.ledger.read() as unit:
        assert outbox.find_pending(unit, Channel.ALERTS) == outbox.Pending(1, notary.clock.now_micros(), None)


def test_an_event_is_sent_once_while_the_ledger_can_be_read_but_not_written(steward: Served) -> None:
    notary, error = steward.stand.notary, None
    sent = list[str]()

    def send(event: OutboxEvent) -> None:
        sent.append(event.event_id)
        if error is not None:
            raise error

    sender = Delivery(notary.ledger, notary.clock, Channel.ALERTS, send)
    for error in (None, DeliveryError("refused"), KeyError("step")):
        sent.clear()
        for number in range(2):
            add_alert(notary, f"{error!r} {number}")
        with fault.armed("ledger.before_commit", fault.Raise(Code.LEDGER_UNAVAILABLE())):
            for _ in range(3):
                with pytest.raises(UnavailableError):
                    sender.deliver_due()
                assert len(sent) == 1
        assert sender.deliver_due() == (2 if error is None else 0)
        assert len(sent) == len(set(sent)) == 2
        assert list_due(notary) == []  # delivered, or due later


def test_the_pauses_grow_while_the_ledger_fails(steward: Served) -> None:
    notary, pauses = steward.stand.notary, list[float]()

    class PauseRecorder(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            return len(pauses) == 9

    add_alert(notary, "one")
    sender = Delivery(notary.ledger, notary.clock, Channel.ALERTS, make_failing_send("two", [], KeyError()))
    sender._stopping = PauseRecorder()
    with fault.armed("ledger.before_commit", fault.Raise(Code.LEDGER_UNAVAILABLE())):
        sender._work()
    assert pauses == [2, 4, 8, 16, 32, 64, 64, 64, 64]


def test_a_webhook_that_sends_its_answer_slowly_holds_the_delivery_no_longer_than_the_timeout(tmp_path: Path) -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"a" * 100:
                    if ended.wait(0.2):
                        return
                    try:
                        connection.sendall(bytes([byte]))
                    except OSError:
                        return

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        send = open_alert_sender(WebhookAlerts(url, write_secret(tmp_path), 1, job_stuck_seconds=900))
        begun = time.monotonic()
        with pytest.raises(DeliveryError, match="the webhook did not answer within 1 second"):
            send(OutboxEvent("e", Channel.ALERTS, b"{}", 0, 0))
        assert time.monotonic() - begun < 5
        ended.set()
        thread.join(10)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_an_error_of_the_stewards_own_host_is_a_delivery_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = OutboxEvent("e", Channel.ALERTS, b"{}", 0, 0)
    ended = list[int]()

    def refuse(group: int, _: int) -> None:
        """Refuse the signal, as if the command ran as another user."""
        ended.append(group)
        raise PermissionError

    def lack_files(**_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("os.killpg", refuse)
        with pytest.raises(DeliveryError, match="did not end within 1 second"):
            open_alert_sender(command("-c", "import time; time.sleep(60)", timeout_seconds=1))(event)
    os.killpg(ended[0], signal.SIGKILL)
    send = open_alert_sender(WebhookAlerts("http://127.0.0.1:99999/", write_secret(tmp_path), 10, 900))
    with pytest.raises(DeliveryError, match="cannot be reached"):
        send(event)
    monkeypatch.setattr("httpx.AsyncClient", lack_files)
    with pytest.raises(DeliveryError, match="cannot be reached: OSError"):
        send(event)


def test_a_name_lookup_that_hangs_holds_the_delivery_no_longer_than_the_timeout(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = open_alert_sender(WebhookAlerts(hook.url.replace("127.0.0.1", "localhost"), write_secret(tmp_path), 1, 900))
    event = OutboxEvent("e", Channel.ALERTS, b"{}", 0, 0)
    send(event)
    ended, answered = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> None:
        ended.wait(10)
        answered.set()
        raise OSError("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    begun = time.monotonic()
    with pytest.raises(DeliveryError, match="the webhook did not answer within 1 second"):
        send(event)
    assert time.monotonic() - begun < 5
    ended.set()
    assert answered.wait(10)  # the late answer of the lookup has no receiver
    assert len(hook.received) == 1
