"""Staged files that the gate needs are synced before the proof: a proved attempt may wait for other chunks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pvdm.lake.paths import parse_location
from pvdm.model.states import AttemptState
from pvdm.verify.fetch import Files
from tests.support import fault
from tests.support.ledger.databases import memory_folder
from tests.support.steward.pipeline import ROWS, contract, line_at


@pytest.mark.parametrize(("storage", "with_data"), [("open", True), ("copied", False)])
def test_staged_files_are_synced_before_the_proof(
    monkeypatch: pytest.MonkeyPatch, storage: str, with_data: bool
) -> None:
    real, synced, at_proof = Files.make_durable, list[str](), list[str]()

    def make_durable(files: Files, locations: Sequence[str]) -> None:
        synced.extend(locations)
        real(files, locations)

    monkeypatch.setattr(Files, "make_durable", make_durable)
    with memory_folder() as folder, line_at(folder) as line, line.client() as client:
        line.protect(contract(f"storage: {storage}"))
        _, attempt = line.attempt(client)
        line.stage(client, attempt, ROWS)
        prefix = parse_location(attempt.prefix).local
        staged = {path.name for path in prefix.rglob("*") if path.is_file()}
        with fault.armed("verify.after_manifest", fault.Call(lambda: at_proof.extend(synced))):
            client.staged(attempt.attempt_id)
            ended = client.await_attempt(attempt.attempt_id, seconds=60)
    assert ended.state is AttemptState.COMMITTED
    wanted = {name for name in staged if with_data or not name.endswith(".parquet")}
    assert {Path(each).name for each in at_proof} == wanted
    assert any(name.startswith("snap-") for name in wanted)
