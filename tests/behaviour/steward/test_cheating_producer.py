"""What a producer would like to bring along or take: its own contract, projection, source or key; rows of others."""

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
    ("what", "value"),
    [
        ("contract", OWN_CONTRACT),
        ("contract_sha256", "00" * 32),
        ("projections", {"identity": ["day"]}),
        ("where", "id < 3"),
        ("source_snapshot_id", "1"),
        ("storage", "open"),
    ],
)
def test_nothing_but_the_contract_of_the_table_says_what_is_published(
    line: Line, producer: StewardClient, what: str, value: object
) -> None:
    token = line.token(Role.PRODUCER, name="curl").text
    body = {"workload_id": "run-1", "table": "sales.orders", "parameters": {}, what: value}
    found = httpx.post(f"{line.url}/v1/workloads", json=body, headers={"Authorization": f"Bearer {token}"})
    assert (found.status_code, what in found.text) == (400, True)
    with pytest.raises(InputError) as caught:
        producer.workload("run-1")
    assert caught.value.reason == "workload_unknown"


def test_no_route_gives_out_a_handle_or_the_keys_of_a_live_attempt(line: Line, producer: StewardClient) -> None:
    _, attempt = line.attempt(producer)
    told = httpx.get(f"{line.url}/v1/openapi.json").json()
    assert [path for path in told["paths"] if "handle" in path or "key" in path.rsplit("/", 1)[-1]] == []
    line.stage(producer, attempt, ())
    producer.staged(attempt.attempt_id)
    settled = producer.await_attempt(attempt.attempt_id, seconds=60.0)
    assert (settled.state, settled.proof_id is None) == (AttemptState.VERIFICATION_FAILED, False)
    with pytest.raises(NotAllowedError):
        producer.open_proof(str(settled.proof_id), "I would like to see the keys")


def test_rows_of_main_that_an_append_would_take_away_stay(tmp_path: Path) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        (shown,) = live(bench, "sums", "sales")
        attempt = bench.attempt()
        bench.stage(attempt, ROWS, removed=frozenset([f"file://{shown}"]))
        bench.hand_in(attempt)
        assert not bench.verify(attempt).verdict.passed
        assert shown.is_file()
        assert live(bench, "sums", "sales") == [shown]


def test_a_live_file_that_is_listed_as_staged_is_not_cleaned_away(tmp_path: Path) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        (source,) = live(bench, "orders", "raw")
        attempt = bench.attempt()
        bench.stage(attempt, ROWS, change=lambda file: replace(file, file_path=f"file://{source}"))
        bench.hand_in(attempt)
        assert not bench.verify(attempt).verdict.passed
        assert source.is_file()


def live(bench: Bench, name: str, level: str) -> list[Path]:
    metadata = bench.state(name, (level,)).metadata
    assert metadata.current_snapshot is not None
    found = live_entries(metadata, metadata.current_snapshot, Files())
    return [parse_location(each.data_file.file_path).local for each in found]
