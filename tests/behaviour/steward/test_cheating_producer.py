"""A producer that cheats: it sends a contract of its own, asks for keys, and stages files that are not its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pvdm.client import StewardClient
from pvdm.errors import InputError, NotAllowedError
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.verify.fetch import Files
from tests.support.ledger.databases import memory_folder
from tests.support.steward.pipeline import Line, contract, line_at
from tests.support.verify.attempts import ROWS, Bench, bench_at

OWN_CONTRACT = contract().replace("identity: [id]", "identity: [day]")


@pytest.fixture
def line() -> Iterator[Line]:
    with memory_folder() as folder, line_at(folder) as made:
        made.protect()
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        yield client


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("contract", OWN_CONTRACT),
        ("contract_sha256", "00" * 32),
        ("projections", {"identity": ["day"]}),
        ("where", "id < 3"),
        ("source_snapshot_id", "1"),
        ("storage", "open"),
    ],
)
def test_a_request_that_says_itself_what_to_publish_is_refused(
    line: Line, producer: StewardClient, field: str, value: object
) -> None:
    token = line.token(Role.PRODUCER, name="curl").text
    body = {"workload_id": "run-1", "table": "sales.orders", "parameters": {}, field: value}
    response = httpx.post(f"{line.url}/v1/workloads", json=body, headers={"Authorization": f"Bearer {token}"})
    assert (response.status_code, field in response.text) == (400, True)
    with pytest.raises(InputError) as caught:
        producer.workload("run-1")
    assert caught.value.reason == "workload_unknown"


def test_no_route_gives_a_producer_a_handle_or_the_keys_of_its_attempt(line: Line, producer: StewardClient) -> None:
    _, attempt = line.attempt(producer)
    openapi = httpx.get(f"{line.url}/v1/openapi.json").json()
    assert [path for path in openapi["paths"] if "handle" in path or "key" in path.rsplit("/", 1)[-1]] == []
    line.stage(producer, attempt, ())
    producer.staged(attempt.attempt_id)
    failed = producer.await_attempt(attempt.attempt_id, seconds=60.0)
    assert (failed.state, failed.proof_id is None) == (AttemptState.VERIFICATION_FAILED, False)
    with pytest.raises(NotAllowedError):
        producer.open_proof(str(failed.proof_id), "I would like to see the keys")


def test_an_append_that_removes_a_file_of_main_fails_and_the_file_stays(tmp_path: Path) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        (in_main,) = live_files(bench, "sums", "sales")
        attempt = bench.attempt()
        bench.stage(attempt, ROWS, removed=frozenset([f"file://{in_main}"]))
        bench.hand_in(attempt)
        assert not bench.verify(attempt).verdict.passed
        assert in_main.is_file()
        assert live_files(bench, "sums", "sales") == [in_main]


def test_a_file_of_the_source_that_is_listed_as_staged_is_not_deleted(tmp_path: Path) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        (source,) = live_files(bench, "orders", "raw")
        attempt = bench.attempt()
        bench.stage(attempt, ROWS, change=lambda file: replace(file, file_path=f"file://{source}"))
        bench.hand_in(attempt)
        assert not bench.verify(attempt).verdict.passed
        assert source.is_file()


def live_files(bench: Bench, name: str, namespace: str) -> list[Path]:
    metadata = bench.state(name, (namespace,)).metadata
    assert metadata.current_snapshot is not None
    entries = live_entries(metadata, metadata.current_snapshot, Files())
    return [parse_location(each.data_file.file_path).local for each in entries]
