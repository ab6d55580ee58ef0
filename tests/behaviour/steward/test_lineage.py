"""OpenLineage events of workloads. The library's classes write them, and the library's transports send them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import requests
from openlineage.client import event_v2
from openlineage.client.facet_v2 import RunFacet
from openlineage.client.serde import Serde
from openlineage.client.transport import Transport

from pvdm.client import StewardClient
from pvdm.errors import Code, PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import outbox
from pvdm.ledger.record.outbox import Channel
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.config.lineage import LineageConfig, read_transport
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.delivery import delivery, openlineage
from pvdm.steward.delivery.delivery import DeliveryError
from pvdm.steward.delivery.openlineage import PublicationRunFacet
from tests.support import fault
from tests.support.for_each import for_each
from tests.support.servers.webhook import Webhook, webhook
from tests.support.steward.leases import open_attempt
from tests.support.steward.pipeline import REASON, ROWS, Line, Row, contract, line_at
from tests.support.waiting import eventually, wait_for_jobs

BY_DAY = "chunking:\n  by: partition\n  columns: [day]"


@pytest.fixture(autouse=True)
def shorten_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "POLL_SECONDS", 0.05)


def send_to(folder: Path, transport: dict[str, Any]) -> Callable[[StewardConfig], StewardConfig]:
    """Return a change of the configuration: events go to this transport of the library."""
    path = folder / "openlineage.yml"
    write_transport(path, transport)
    return lambda config: replace(config, lineage=LineageConfig(path, None))


def write_transport(path: Path, transport: dict[str, Any]) -> None:
    path.write_text(json.dumps({"transport": transport}))
    path.chmod(0o600)


@dataclass
class Lineage:
    """A Steward, and the file to which it appends its events."""

    line: Line
    file: Path

    def events(self) -> list[dict[str, Any]]:
        """Wait until all events are delivered. Returns them in the order of delivery."""
        [watch] = self.line.notary.watches
        watch.look()
        assert eventually(lambda: self._pending() is None)
        text = self.file.read_text() if self.file.exists() else ""
        return [json.loads(each) for each in text.splitlines()]

    def steps(self) -> list[str]:
        return [each["eventType"] for each in self.events()]

    def _pending(self) -> outbox.Pending | None:
        with self.line.notary.ledger.read() as unit:
            return outbox.find_pending(unit, Channel.LINEAGE)


@pytest.fixture
def lineage(tmp_path: Path) -> Iterator[Lineage]:
    file = tmp_path / "events"
    changed = send_to(tmp_path, {"type": "file", "log_file_path": str(file), "append": True})
    with line_at(tmp_path, changed=changed) as line:
        yield Lineage(line, file)


def run(line: Line, client: StewardClient, rows: list[Row], workload_id: str = "run-1", chunk_id: str = "all") -> str:
    """Stage rows as the next attempt at the chunk, wait for its end, and return the attempt's id."""
    client.open_workload(workload_id, "sales.orders", {})
    line.served.stand.time.pass_by(1_000_000)
    attempt = open_attempt(client, workload_id, chunk_id, REASON)
    line.stage(client, attempt, rows)
    client.staged(attempt.attempt_id)
    client.await_attempt(attempt.attempt_id, seconds=30)
    assert wait_for_jobs(line.notary.jobs, 30)
    line.served.stand.time.pass_by(1_000_000)
    return attempt.attempt_id


def get_facet(event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = event["run"]["facets"]["pvdm_publication"]
    return found


def test_a_workload_is_reported_with_its_row_counts_proofs_and_receipts(lineage: Lineage) -> None:
    line = lineage.line
    line.protect(contract(BY_DAY))
    with line.client() as client:
        client.open_workload("run-1", "sales.orders", {})
        assert lineage.steps() == ["START"]
        chunk_ids = [each.chunk_id for each in client.chunks("run-1")]
        ids = []
        for day, chunk_id in (("2026-11-13", chunk_ids[0]), ("2026-11-14", chunk_ids[1])):
            ids.append(run(line, client, [row for row in ROWS if row[1] == day], chunk_id=chunk_id))
        for other in chunk_ids[2:]:
            run(line, client, [], chunk_id=other)
        published = [client.attempt(each) for each in ids]
    start, complete = lineage.events()
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert UUID(start["run"]["runId"]) == UUID(complete["run"]["runId"])
    assert start["job"] == complete["job"] == {"namespace": "lake", "name": "sales.orders", "facets": {}}
    assert get_facet(start)["proofIds"] == get_facet(start)["receiptIds"] == []
    assert get_facet(complete)["verdict"] == "PASS"
    assert {each.proof_id for each in published} <= set(get_facet(complete)["proofIds"])
    assert {str(each.snapshot_id) for each in published} <= set(get_facet(complete)["snapshotIds"])
    assert len(get_facet(complete)["receiptIds"]) == len(get_facet(complete)["snapshotIds"])
    [target] = complete["outputs"]
    assert target["name"] == "sales.orders"
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == len(ROWS)
    [source] = complete["inputs"]
    head = line.scene.table_state("orders", ("raw",)).metadata.current_snapshot_id
    assert (source["name"], source["facets"]["version"]["datasetVersion"]) == ("raw.orders", str(head))
    assert "2026-11-1" not in json.dumps([get_facet(complete), complete["outputs"], complete["inputs"]])


def test_a_fail_and_its_repair_are_steps_of_the_same_run(lineage: Lineage) -> None:
    line = lineage.line
    line.protect()
    with line.client() as client:
        failed = client.attempt(run(line, client, list(ROWS[:-1])))
        run(line, client, list(ROWS))
    found = lineage.events()
    by_time = sorted(found, key=lambda each: each["eventTime"])
    assert [each["eventType"] for each in by_time] == ["START", "FAIL", "COMPLETE"]
    assert len({each["run"]["runId"] for each in found}) == 1
    fail = by_time[1]
    assert (get_facet(fail)["verdict"], get_facet(fail)["proofIds"]) == ("FAIL", [failed.proof_id])
    assert fail["run"]["facets"]["errorMessage"]["message"] == "verification_failed: missing"
    assert fail["outputs"][0]["outputFacets"] == {}


def test_an_abandoned_workload_has_an_abort_event(lineage: Lineage) -> None:
    lineage.line.protect()
    with lineage.line.client() as client, lineage.line.client(Role.OPERATOR) as operator:
        client.open_workload("run-1", "sales.orders", {})
        operator.abandon_workload("run-1", "given up")
    assert sorted(lineage.steps()) == ["ABORT", "START"]


def test_each_step_is_sent_once_also_after_a_restart(lineage: Lineage) -> None:
    lineage.line.protect()
    with lineage.line.client() as client:
        run(lineage.line, client, list(ROWS))
    assert sorted(lineage.steps()) == ["COMPLETE", "START"]
    [watch] = lineage.line.notary.watches
    fresh = type(watch)(lineage.line.notary.ledger, lineage.line.notary.clock)  # type: ignore[call-arg]
    fresh.look()
    assert sorted(lineage.steps()) == ["COMPLETE", "START"]


def test_the_run_of_a_workload_has_the_same_id_at_every_steward_of_this_name() -> None:
    assert openlineage.run_id_of("a", "run-1") == openlineage.run_id_of("a", "run-1")
    assert len({openlineage.run_id_of(*each) for each in (("a", "run-1"), ("a", "run-2"), ("b", "run-1"))}) == 3


def test_the_events_are_valid_for_the_library(lineage: Lineage) -> None:
    """An object of the library's classes checks ids, times and URIs, and writes the same event again."""
    lineage.line.protect()
    with lineage.line.client() as client:
        run(lineage.line, client, list(ROWS))
    for event in lineage.events():
        run_facets: dict[str, RunFacet] = {"pvdm_publication": rebuild(get_facet(event))}
        again = event_v2.RunEvent(
            eventType=event_v2.RunState[event["eventType"]],
            eventTime=event["eventTime"],
            run=event_v2.Run(event["run"]["runId"], facets=run_facets),
            job=event_v2.Job(**event["job"]),
            inputs=[event_v2.InputDataset(**each) for each in event["inputs"]],
            outputs=[event_v2.OutputDataset(**each) for each in event["outputs"]],
            producer=event["producer"],
        )
        assert json.loads(Serde.to_json(again)) == event


def rebuild(given: dict[str, Any]) -> PublicationRunFacet:
    fields = {name: value for name, value in given.items() if not name.startswith("_")}
    return PublicationRunFacet(**fields, producer=given["_producer"])


def test_an_event_waits_for_the_receipt(lineage: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    line = lineage.line
    line.protect()
    with line.client() as client:
        assert client.attempt(run(line, client, list(ROWS))).state is AttemptState.COMMITTED
    build = openlineage.EventBuilder("steward-one", "lake")
    step = {"step": "COMPLETE", "workload_id": "run-1", "at_micros": 0, "attempt_id": None}
    with line.notary.ledger.read() as unit:
        assert build(unit, step).run.runId
        monkeypatch.setattr("pvdm.ledger.record.receipts.find_without_receipt", lambda *_: {1})
        with pytest.raises(DeliveryError, match="receipt is not signed yet"):
            build(unit, step)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


def test_an_event_that_the_http_transport_cannot_deliver_is_sent_again(tmp_path: Path, hook: Webhook) -> None:
    url = hook.url.removesuffix("/alerts")
    transport = {"type": "http", "url": url, "endpoint": "lineage", "timeout": 5, "retry": {"total": 0}}
    hook.statuses += [404]
    with line_at(tmp_path, changed=send_to(tmp_path, transport)) as line:
        line.protect()
        with line.client() as client:
            client.open_workload("run-1", "sales.orders", {})
        [watch] = line.notary.watches
        watch.look()
        assert eventually(lambda: len(hook.received) == 1)
        assert eventually(lambda: find_problem(line) == "the OpenLineage transport failed: HTTPError")
        line.served.stand.time.pass_by(5_000_000)
        assert eventually(lambda: len(hook.received) == 2)
        assert eventually(lambda: find_problem(line) is None)
    assert [each.json()["eventType"] for each in hook.received] == ["START", "START"]


@for_each("status", (302, 304, 404))
def test_the_http_transport_uses_no_proxy_and_accepts_only_a_2xx_response(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    http: dict[str, Any] = {"type": "http", "url": hook.url, "endpoint": "/alerts", "retry": {"total": 0}}
    both = {"type": "composite", "continue_on_failure": False, "transports": {"one": http, "two": http}}
    event = event_v2.RunEvent(
        eventType=event_v2.RunState.START,
        eventTime="2026-11-14T00:00:00Z",
        run=event_v2.Run("5f0f6d5e-52c8-4b8a-9d0c-3c0f4a1f7f21"),
        job=event_v2.Job("lake", "sales.orders"),
        producer="urn:pvdm:test",
    )
    for settings, error in ((http, requests.HTTPError), (both, RuntimeError)):
        transport = open_transport(tmp_path, settings)
        hook.statuses += [status]
        with pytest.raises(error):
            transport.emit(event)
        transport.emit(event)


@for_each(
    ("settings", "got"),
    (
        ({"type": "kafka", "topic": "t", "config": {}}, "'kafka'"),
        ({"type": "async_http", "url": "http://127.0.0.1:9"}, "'async_http'"),
        ({"type": "datadog", "apiKey": "k"}, "'datadog'"),
        ({"type": "openlineage.client.transport.kafka.KafkaTransport"}, "'openlineage.client.transport.kafka"),
        ({"type": "composite", "transports": [{"type": "console"}]}, "'no value'"),
        ({"type": "composite", "transports": [], "continue_on_failure": True}, "True"),
        ({"type": "composite", "continue_on_failure": False, "transports": [{"type": "kafka"}]}, "'kafka'"),
        ({"type": "transform", "transport": {"type": "async_http"}}, "'async_http'"),
        ({"type": 5}, "5"),
    ),
)
def test_a_transport_that_may_lose_events_without_an_error_is_refused(
    tmp_path: Path, settings: dict[str, Any], got: str
) -> None:
    with pytest.raises(PvdmError) as caught:
        open_transport(tmp_path, settings)
    assert caught.value.code == Code.CONFIG_INVALID
    assert (caught.value.got or "").startswith(got)
    assert caught.value.expected
    assert caught.value.hint


def open_transport(folder: Path, settings: dict[str, Any]) -> Transport:
    write_transport(folder / "openlineage.yml", settings)
    return openlineage._open_transport(LineageConfig(folder / "openlineage.yml", None))


def find_problem(line: Line) -> str | None:
    with line.notary.ledger.read() as unit:
        found = outbox.find_pending(unit, Channel.LINEAGE)
        return None if found is None else found.problem


@for_each("text", ("transport: 5", "- a", "{", "type: http"))
def test_an_invalid_transport_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "openlineage.yml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(PvdmError) as caught:
        read_transport(path)
    assert caught.value.code == Code.CONFIG_INVALID


def test_a_transport_that_the_library_does_not_know_is_refused(tmp_path: Path) -> None:
    config = send_to(tmp_path, {"type": "pigeon"})
    with pytest.raises(PvdmError) as caught, line_at(tmp_path, changed=config):
        pass
    assert caught.value.code == Code.CONFIG_INVALID


def test_a_steward_without_the_library_does_not_start_with_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pvdm.steward.delivery.openlineage")
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(PvdmError) as caught, line_at(tmp_path, changed=send_to(tmp_path, {"type": "console"})):
        pass
    assert caught.value.reason == "lineage_not_installed"


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "openlineage.yml"
    path.write_text("transport: {type: console}")
    path.chmod(0o644)
    with pytest.raises(PvdmError) as caught:
        read_transport(path)
    assert caught.value.code == Code.KEY_FILE_REFUSED


def test_steps_without_a_place_in_the_outbox_cost_one_transaction_and_are_stored_later(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = lineage.line
    line.protect()
    line.notary.deliveries[Channel.LINEAGE].stop(10)
    monkeypatch.setattr("pvdm.steward.delivery.lineage._STORED_AT_ONCE", 2)
    monkeypatch.setattr(outbox, "OUTBOX_PENDING_MAX", 4)
    with line.client() as client:
        for number in range(8):
            client.open_workload(f"run-{number}", "sales.orders", {})
    [watch] = line.notary.watches
    watch.look()
    real, writes = Ledger.transact, list[int]()

    def transact(self: Ledger, work: Callable[[Unit], object], *, at_micros: int) -> object:
        writes.append(at_micros)
        return real(self, work, at_micros=at_micros)

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "transact", transact)
        watch.look()
    assert len(writes) == 1
    monkeypatch.setattr(outbox, "OUTBOX_PENDING_MAX", 100)
    line.notary.deliveries[Channel.LINEAGE].start()
    assert lineage.steps() == ["START"] * 8


def test_steps_whose_transaction_fails_are_stored_by_the_next_look(lineage: Lineage) -> None:
    lineage.line.protect()
    with lineage.line.client() as client, lineage.line.client(Role.OPERATOR) as operator:
        client.open_workload("run-1", "sales.orders", {})
        client.open_workload("run-2", "sales.orders", {})
        operator.abandon_workload("run-2", "given up")
    [watch] = lineage.line.notary.watches
    with fault.armed("ledger.before_commit", fault.Raise(Code.LEDGER_UNAVAILABLE())), pytest.raises(PvdmError):
        watch.look()
    assert sorted(lineage.steps()) == ["ABORT", "START", "START"]


def test_a_step_without_a_place_is_stored_later_although_newer_workloads_were_read(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = lineage.line
    line.protect()
    line.notary.deliveries[Channel.LINEAGE].stop(10)
    monkeypatch.setattr(outbox, "OUTBOX_PENDING_MAX", 2)  # one domain gets one of the places
    [watch] = line.notary.watches
    with line.client() as client:
        for number in range(4):
            client.open_workload(f"run-{number}", "sales.orders", {})
            watch.look()
            line.served.stand.time.pass_by(2 * 3_600_000_000)
    monkeypatch.setattr(outbox, "OUTBOX_PENDING_MAX", 100)
    line.notary.deliveries[Channel.LINEAGE].start()
    assert lineage.steps() == ["START"] * 4
