"""Break-glass end to end without a JVM: an override waives a FAIL, publishes exactly its bytes, and audits flag it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.durable.outcome import VerificationFailed
from pvdm.durable.override import publish_override
from pvdm.errors import ConflictError, NotAllowedError, PvdmError, VerificationError
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.ledger.record import proofs, statements
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.report import AuditReport, Standing
from pvdm.model.role import Role
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import AttemptState, NonceState
from pvdm.steward.record.proofs import RecordedProof
from pvdm.trust.statement import read_unchecked
from pvdm.verify.fetch import Files
from tests.support.audit.crafted_history import Local, codes
from tests.support.audit.published_history import gather_evidence
from tests.support.gate.approvals import reason_of
from tests.support.ledger.databases import memory_folder
from tests.support.ledger.rows import receipts_of
from tests.support.steward.http import bearer, refusal
from tests.support.steward.leases import open_attempt
from tests.support.steward.notary import LOG_ORIGIN, override_of, signed_override
from tests.support.steward.pipeline import BY_DAY, REASON, ROWS, Line, Row, contract, line_at
from tests.support.waiting import wait_for_jobs
from tools.proof_kit import SECOND

TARGET = "sales.orders"
SECONDS = 60.0
OLD: tuple[Row, ...] = ((9, "2026-11-12", "Jena"),)
WRONG: tuple[Row, ...] = (*ROWS[:3], (4, "2026-11-14", "Neu-Ulm"))
DAY_13, DAY_14 = "day=2026-11-13", "day=2026-11-14"
DELETE_FAILED_FILES = "governance:\n  on-fail: delete"


@pytest.fixture
def line() -> Iterator[Line]:
    with memory_folder() as folder, line_at(folder) as made:
        made.write(OLD, TARGET)
        made.served.stand.time.pass_by(SECOND)
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        yield client


@pytest.fixture
def operator(line: Line) -> Iterator[StewardClient]:
    with line.client(Role.OPERATOR) as client:
        yield client


def run_attempt(line: Line, client: StewardClient, rows: Sequence[Row], chunk_id: str = "all") -> AttemptView:
    """Stage these rows as the next attempt at the chunk, and wait until the Steward has no job left."""
    client.open_workload("run-1", TARGET, {})
    attempt = open_attempt(client, "run-1", chunk_id, REASON)
    line.stage(client, attempt, rows)
    client.staged(attempt.attempt_id)
    found = client.await_attempt(attempt.attempt_id, seconds=SECONDS)
    assert wait_for_jobs(line.notary.jobs, SECONDS)
    line.served.stand.time.pass_by(SECOND)
    return found


def submit_override_of(line: Line, operator: StewardClient, failed: AttemptView) -> str:
    """Submit an override of this FAIL, signed by operator Ruth; returns its id."""
    assert (failed.verdict, failed.proof_id) == (Outcome.FAIL, failed.proof_id)
    with line.notary.ledger.read() as unit:
        stored = statements.get(unit, str(failed.proof_id))
    core = read_unchecked(stored.envelope, Proof).core
    recorded = RecordedProof(str(failed.proof_id), stored.envelope, stored.log_index)
    override = override_of(recorded, core, line.served.stand.time.wall, nonce=failed.attempt_id)
    return operator.submit_override(signed_override(override)).override_id


def publish_and_wait(line: Line, operator: StewardClient, override_id: str) -> AttemptView:
    """Publish the override's files as a new attempt, and wait until the Steward has no job left."""
    line.served.stand.time.pass_by(SECOND)
    found = operator.await_attempt(operator.publish_override(override_id).attempt_id, seconds=SECONDS)
    assert wait_for_jobs(line.notary.jobs, SECONDS)
    line.served.stand.time.pass_by(SECOND)
    return found


def hashes_in_main(line: Line) -> list[str]:
    """The SHA-256 of every data file in `main`."""
    metadata = line.scene.table_state().metadata
    assert metadata.current_snapshot is not None
    paths = [each.data_file.file_path for each in live_entries(metadata, metadata.current_snapshot, Files())]
    return sorted(hashlib.sha256(parse_location(path).local.read_bytes()).hexdigest() for path in paths)


def proved_hashes(line: Line, proof_id: str | None) -> set[str]:
    with line.notary.ledger.read() as unit:
        return set(read_unchecked(proofs.get_envelope(unit, str(proof_id)), Proof).core.files.published_hashes)


def audit_orders(line: Line) -> AuditReport:
    evidence = gather_evidence(line.notary, line.scene.grant(Role.AUDITOR, "sales"), "orders")
    judge = AuditTrust(line.notary.trust.current(), LOG_ORIGIN, line.served.stand.time.wall)
    return audit(evidence, Local(), judge, data_files=Files())


def test_an_override_publishes_even_if_the_producers_attempts_are_used_up(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect(contract("governance: {attempts: 1}"))
    failed = run_attempt(line, producer, WRONG)
    with pytest.raises(VerificationError) as caught:
        open_attempt(producer, "run-1", "all", REASON)
    assert caught.value.reason == "attempts_used_up"
    done = publish_and_wait(line, operator, submit_override_of(line, operator, failed))
    assert (done.state, done.number) == (AttemptState.COMMITTED, 2)


def test_a_waived_fail_is_published_byte_for_byte_and_audits_flag_it(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect()
    before = hashes_in_main(line)
    failed = run_attempt(line, producer, WRONG)
    assert (failed.state, hashes_in_main(line)) == (AttemptState.VERIFICATION_FAILED, before)
    override_id = submit_override_of(line, operator, failed)
    assert hashes_in_main(line) == before
    done = publish_and_wait(line, operator, override_id)
    assert (done.state, done.verdict, done.number) == (AttemptState.COMMITTED, Outcome.FAIL, 2)
    assert set(hashes_in_main(line)) == set(before) | proved_hashes(line, failed.proof_id)
    assert line.scene.table_state().metadata.current_snapshot_id == done.snapshot_id
    assert [each.state for each in operator.overrides()] == [NonceState.COMMITTED]
    with line.notary.ledger.read() as unit:
        assert len(receipts_of(unit, "run-1")) == 1
    report = audit_orders(line)
    assert (report.holds, codes(report)) == (True, set())
    assert [each.standing for each in report.snapshots] == [Standing.BEFORE, Standing.BREAK_GLASS]
    assert done.branch not in line.scene.table_state().metadata.refs


def test_publishing_an_override_again_returns_its_attempt_and_publishes_nothing(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect()
    override_id = submit_override_of(line, operator, run_attempt(line, producer, WRONG))
    done = publish_and_wait(line, operator, override_id)
    files = hashes_in_main(line)
    assert operator.publish_override(override_id).attempt_id == done.attempt_id
    assert wait_for_jobs(line.notary.jobs, SECONDS)
    assert hashes_in_main(line) == files


def test_an_override_does_not_publish_other_failed_bytes_of_the_same_chunk(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect()
    before = hashes_in_main(line)
    submit_override_of(line, operator, run_attempt(line, producer, WRONG))
    other = run_attempt(line, producer, (*ROWS[:3], (4, "2026-11-14", "Alt-Ulm")))
    assert (other.state, hashes_in_main(line)) == (AttemptState.VERIFICATION_FAILED, before)
    assert [each.state for each in operator.overrides()] == [NonceState.RESERVED]


def test_bytes_that_are_swapped_after_they_were_staged_again_are_not_published(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect()
    before = hashes_in_main(line)
    override_id = submit_override_of(line, operator, run_attempt(line, producer, WRONG))
    line.notary.jobs.stop()
    attempt = operator.publish_override(override_id)
    path = min(Path(attempt.prefix.removeprefix("file://"), "data").iterdir())
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    line.notary.jobs.start()
    found = operator.await_attempt(attempt.attempt_id, seconds=SECONDS)
    assert (found.state, hashes_in_main(line)) == (AttemptState.VERIFICATION_FAILED, before)


def test_an_override_is_refused_if_the_contract_deletes_failed_files(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect(contract(DELETE_FAILED_FILES))
    before = hashes_in_main(line)
    override_id = submit_override_of(line, operator, run_attempt(line, producer, WRONG))
    assert reason_of(lambda: operator.publish_override(override_id), VerificationError) == "override_files_gone"
    assert hashes_in_main(line) == before
    assert run_attempt(line, producer, ROWS).state is AttemptState.COMMITTED


def test_an_override_is_refused_while_another_attempt_is_live(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect()
    override_id = submit_override_of(line, operator, run_attempt(line, producer, WRONG))
    tried = open_attempt(producer, "run-1", "all", REASON)
    with pytest.raises(ConflictError) as caught:
        operator.publish_override(override_id)
    assert (caught.value.reason, caught.value.details["attempt_id"]) == ("attempt_live", tried.attempt_id)


def test_an_override_is_refused_after_a_repair(line: Line, producer: StewardClient, operator: StewardClient) -> None:
    line.protect()
    override_id = submit_override_of(line, operator, run_attempt(line, producer, WRONG))
    assert run_attempt(line, producer, ROWS).state is AttemptState.COMMITTED
    files = hashes_in_main(line)
    with pytest.raises(PvdmError) as caught:
        operator.publish_override(override_id)
    assert caught.value.reason == "override_base_moved"
    assert hashes_in_main(line) == files


def test_with_atomicity_workload_a_waived_chunk_waits_for_the_others(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect(contract(BY_DAY, "atomicity: workload"))
    before = hashes_in_main(line)
    override_id = submit_override_of(line, operator, run_attempt(line, producer, ROWS[:1], "day=2026-11-13"))
    found = publish_and_wait(line, operator, override_id)
    assert (found.state, found.waiting, hashes_in_main(line)) == (AttemptState.COMMITTING, True, before)


def publish_other_day(line: Line, producer: StewardClient) -> None:
    """Publish the chunk of the 14th: `main` is then no longer the base of the proof for the 13th."""
    assert run_attempt(line, producer, ROWS[2:], DAY_14).state is AttemptState.COMMITTED


def test_an_override_on_an_older_base_does_not_block_a_later_one(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect(contract(BY_DAY))
    first = submit_override_of(line, operator, run_attempt(line, producer, ROWS[:1], DAY_13))
    publish_other_day(line, producer)
    again = run_attempt(line, producer, ROWS[:1], DAY_13)
    assert (again.state, again.refusal and again.refusal.reason) == (
        AttemptState.VERIFICATION_FAILED,
        "verification_failed",
    )
    second = submit_override_of(line, operator, again)
    done = publish_and_wait(line, operator, second)
    assert (done.state, done.override_id) == (AttemptState.COMMITTED, second)
    states = {each.override_id: each.state for each in operator.overrides()}
    assert states == {first: NonceState.RESERVED, second: NonceState.COMMITTED}
    assert audit_orders(line).holds


def test_an_override_on_an_older_base_is_refused_before_an_attempt_is_opened(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect(contract(BY_DAY))
    failed = run_attempt(line, producer, ROWS[:1], DAY_13)
    override_id = submit_override_of(line, operator, failed)
    publish_other_day(line, producer)
    with pytest.raises(NotAllowedError) as caught:
        operator.publish_override(override_id)
    assert caught.value.reason == "override_base_moved"
    assert "main has moved: override a FAIL proof on the new base" in str(caught.value.hint)
    assert [each.number for each in producer.workload("run-1").attempts if each.chunk_id == DAY_13] == [1]


def test_an_override_is_not_accepted_once_main_has_moved(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect(contract(BY_DAY))
    failed = run_attempt(line, producer, ROWS[:1], DAY_13)
    publish_other_day(line, producer)
    with pytest.raises(NotAllowedError) as caught:
        submit_override_of(line, operator, failed)
    assert caught.value.reason == "override_base_moved"
    assert operator.overrides() == ()


def test_an_override_is_refused_with_a_hint_if_main_moves_before_its_branch_is_made(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect(contract(BY_DAY))
    override_id = submit_override_of(line, operator, run_attempt(line, producer, ROWS[:1], DAY_13))
    with pytest.MonkeyPatch.context() as patched:
        # The attempt's branch is made from `main`; here `main` moves just before.
        patched.setattr(
            "pvdm.steward.pipeline.break_glass.require_base_is_main", lambda *_: publish_other_day(line, producer)
        )
        outcome = publish_override(operator, override_id)
    assert isinstance(outcome, VerificationFailed)
    assert outcome.error.reason == "override_wrong_base"
    assert "main has moved: override a FAIL proof on the new base" in str(outcome.error.hint)
    assert "to try again" not in str(outcome.error.hint)


def test_only_an_operator_of_the_domain_publishes_an_override(
    line: Line, producer: StewardClient, operator: StewardClient
) -> None:
    line.protect()
    override_id = submit_override_of(line, operator, run_attempt(line, producer, WRONG))
    http = line.served.http
    for role in sorted(set(Role) - {Role.OPERATOR}):
        answer = http.post(f"/v1/overrides/{override_id}/publish", headers=bearer(line.token(role).text))
        assert refusal(answer) == (403, "role_wrong"), role
    with line.client(Role.OPERATOR, "risk") as other:
        assert reason_of(lambda: other.publish_override(override_id), NotAllowedError) == "domain_wrong"
    assert reason_of(lambda: operator.publish_override("ab" * 32), PvdmError) == "override_unknown"
    with_body = http.post(
        f"/v1/overrides/{override_id}/publish", headers=bearer(line.token(Role.OPERATOR).text), json={"force": True}
    )
    assert with_body.status_code == 400
    assert [each.number for each in producer.workload("run-1").attempts] == [1]
