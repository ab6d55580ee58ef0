"""`pvdm break-glass` from the FAIL proof to the publication, and `pvdm status` of overrides and failed jobs."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pvdm.api.work import AttemptView, JobState
from pvdm.errors import PvdmError
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.pipeline.jobs import Jobs
from pvdm.steward.work.queries import JobKind, JobStatus
from tests.behaviour.cli.served import ServedSteward
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.ledger.databases import memory_folder
from tests.support.steward.leases import open_attempt
from tests.support.steward.pipeline import BY_DAY, REASON, ROWS, Line, Row, contract, line_at
from tests.support.waiting import wait_for_jobs
from tools.proof_kit import SECOND

TARGET = "sales.orders"
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Desk:
    """An operator's commands at a Steward, and a producer whose attempts fail there."""

    line: Line
    steward: ServedSteward
    run: Run

    def fail_attempt(self, rows: Sequence[Row] = ROWS[1:], chunk_id: str = "all") -> AttemptView:
        with self.line.client() as producer:
            producer.open_workload("run-1", TARGET, {})
            tried = open_attempt(producer, "run-1", chunk_id, REASON)
            self.line.stage(producer, tried, rows)
            producer.staged(tried.attempt_id)
            found = producer.await_attempt(tried.attempt_id, seconds=TIMEOUT_SECONDS)
        assert wait_for_jobs(self.line.notary.jobs, TIMEOUT_SECONDS)
        assert found.state is AttemptState.VERIFICATION_FAILED
        self.line.served.stand.time.pass_by(SECOND)
        return found

    def sign_override(self, found: AttemptView) -> None:
        with self.line.client(Role.OPERATOR) as operator:
            (self.steward.folder / "fail.json").write_bytes(operator.proof_envelope(str(found.proof_id)))
        words = ("--key", "operator-ruth.pem", "--operator", "operator-ruth", "--reason", "known", "--yes")
        ran = self.run("break-glass", "sign", "--proof", "fail.json", *words, "--out", "override.json")
        assert ran.code == 0, ran.err

    def submit_override(self) -> str:
        ran = self.run("break-glass", "submit", "override.json", "--json")
        assert ran.code == 0, ran.err
        return str(ran.json["override"]["override_id"])

    def publish(self, override_id: str, *words: str) -> CommandResult:
        return self.run("break-glass", "publish", override_id, *words)

    @property
    def snapshot_id(self) -> int | None:
        return self.line.scene.table_state().metadata.current_snapshot_id


@pytest.fixture
def desk(
    pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example_key: Callable[[str], Path]
) -> Iterator[Desk]:
    example_key("operator-ruth")
    with memory_folder() as folder, line_at(folder) as line:
        stand = line.served.stand
        monkeypatch.setattr("pvdm.cli.common.times._nanos", lambda: stand.time.wall * 1_000)
        steward = ServedSteward(stand, line.url, tmp_path, monkeypatch)
        steward.use_token(Role.OPERATOR, "operator-ruth", "sales")
        yield Desk(line, steward, pvdm)


def test_a_fail_is_waived_and_published_by_three_commands(desk: Desk) -> None:
    desk.line.protect()
    desk.sign_override(desk.fail_attempt())
    result = desk.run("break-glass", "submit", "override.json")
    assert "submitted; nothing is published yet" in result.out
    (hint,) = [line for line in result.out.splitlines() if line.startswith("hint: `pvdm break-glass publish ")]
    override_id = hint.split()[4].rstrip("`")
    assert desk.snapshot_id is None
    done = desk.publish(override_id)
    assert done.code == 0, done.err
    assert "*** BREAK-GLASS: rows that failed are published in sales.orders ***" in done.out
    assert f"snapshot {desk.snapshot_id}" in done.out
    assert "COMMITTED  run-1: 1 chunk of sales.orders, +3 rows in " in done.out
    assert done.err.count("[1/1] chunk all: published (attempt 2)\n") == 1
    again = desk.publish(override_id, "--json")
    assert (again.code, again.json["outcome"]) == (0, "COMMITTED")
    (chunk,) = again.json["chunks"]
    assert (chunk["verdict"], chunk["snapshot_id"]) == ("FAIL", str(desk.snapshot_id))
    assert (chunk["override_id"], again.json["override_ids"]) == (override_id, [override_id])
    assert "[1/1] chunk all: published before" in desk.publish(override_id).err
    assert "USED: the rows that failed were published" in desk.run("break-glass", "list").out


def test_status_and_a_rerun_say_that_an_override_published_the_chunk(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.line.protect()
    desk.sign_override(desk.fail_attempt())
    override_id = desk.submit_override()
    assert desk.publish(override_id).code == 0
    words = f"published by override {override_id}, not by proof"
    assert words in desk.run("status", TARGET).out
    assert words in desk.run("status", "--workload-id", "run-1").out
    assert desk.run("status", TARGET, "--json").json["workloads"][0]["override_ids"] == [override_id]
    chunk = desk.run("status", "--workload-id", "run-1", "--json").json["chunks"][0]
    assert chunk["attempt"]["override_id"] == override_id
    # The producer runs its job again under the same id: nothing is staged, and the output says the same.
    monkeypatch.setitem(sys.modules, "no_jobs", types.SimpleNamespace(build=lambda *_: None))
    desk.steward.use_token(Role.PRODUCER, domain="sales")
    again = ("run", TARGET, "--workload-id", "run-1", "--small", "--job", "no_jobs:build")
    result = desk.run(*again)
    assert (result.code, words in result.out, "(missing)" in result.out) == (0, True, True)
    assert desk.run(*again, "--json").json["override_ids"] == [override_id]


def test_a_proved_chunk_beside_an_overridden_one_is_not_shown_as_overridden(desk: Desk) -> None:
    """The chunks are published together, in one snapshot; the override is for one of them."""
    desk.line.protect(contract(BY_DAY, "atomicity: workload"))
    found = desk.fail_attempt(ROWS[:1], "day=2026-11-13")
    with desk.line.client() as producer:
        for chunk in producer.chunks("run-1"):
            if chunk.attempt is None:
                tried = open_attempt(producer, "run-1", chunk.chunk_id, REASON)
                if chunk.chunk_id == "day=2026-11-14":
                    desk.line.stage(producer, tried, ROWS[2:])
                producer.staged(tried.attempt_id)
                assert producer.await_attempt(tried.attempt_id, seconds=TIMEOUT_SECONDS).waiting
    desk.sign_override(found)
    override_id = desk.submit_override()
    ran = desk.publish(override_id, "--json")
    assert ran.code == 0, ran.out
    chunks = desk.run("status", "--workload-id", "run-1", "--json").json["chunks"]
    waived = {each["chunk_id"]: each["attempt"]["override_id"] for each in chunks}
    assert len(waived) == 2
    assert {key: value for key, value in waived.items() if value} == {"day=2026-11-13": override_id}


def test_an_override_of_files_that_were_deleted_ends_with_3(desk: Desk) -> None:
    desk.line.protect(contract("governance:\n  on-fail: delete"))
    desk.sign_override(desk.fail_attempt())
    refused = desk.publish(desk.submit_override(), "--json")
    assert (refused.code, refused.error, desk.snapshot_id) == (3, "override_files_gone", None)


def test_publishing_by_an_expired_override_ends_with_5(desk: Desk) -> None:
    desk.line.protect()
    desk.sign_override(desk.fail_attempt())
    override_id = desk.submit_override()
    desk.line.served.stand.time.pass_by(5 * 3_600 * SECOND)
    refused = desk.publish(override_id, "--json")
    assert (refused.code, refused.error, desk.snapshot_id) == (5, "override_expired", None)


def test_publishing_a_chunk_that_waits_for_others_ends_with_4(desk: Desk) -> None:
    desk.line.protect(contract(BY_DAY, "atomicity: workload"))
    desk.sign_override(desk.fail_attempt(ROWS[:1], "day=2026-11-13"))
    waits = desk.publish(desk.submit_override(), "--json")
    assert (waits.code, waits.error, desk.snapshot_id) == (4, "attempt_waiting", None)


def test_an_invalid_or_unknown_override_id_is_bad_input(desk: Desk) -> None:
    assert desk.publish("override.json", "--json").code == 2
    assert desk.publish("ab" * 32, "--json").error == "override_unknown"


def test_the_status_shows_failed_jobs_to_operators_only(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.steward.use_token(Role.OPERATOR)
    assert "jobs        none waiting" in desk.run("status").out
    bug = PvdmError("bug", "the Steward met a bug")
    failed = JobStatus(JobKind.PUBLISH, "ab" * 16, JobState.FAILED, 3, bug)
    monkeypatch.setattr(Jobs, "list_jobs", lambda _: [failed])
    result = desk.run("status")
    assert f"FAILED JOB: publish {'ab' * 16}, 3 tries: bug: " in result.out
    assert [each["state"] for each in desk.run("status", "--json").json["jobs"]] == ["failed"]
    desk.steward.use_token(Role.PRODUCER, domain="sales")
    assert desk.run("status", "--json").json["jobs"] is None
