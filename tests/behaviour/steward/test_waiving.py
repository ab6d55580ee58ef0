"""Break-glass after a FAIL: the Steward stages exactly the files that an override names again, and waives no others."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.catalog.cleanup import UNNAMED_AGE_MIN_SECONDS
from pvdm.errors import ConflictError, InputError, NotAllowedError, UnavailableError, VerificationError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.next_snapshot import next_snapshot
from pvdm.lake.paths import parse_location
from pvdm.ledger import Unit
from pvdm.ledger.record import proofs, statements
from pvdm.ledger.work import nonces
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.model.statements.core import ProofCore
from pvdm.model.states import AttemptState
from pvdm.steward.cleanup.vault import VaultSweep
from pvdm.steward.pipeline.break_glass import OverrideStaging
from pvdm.steward.record.proofs import RecordedProof
from tests.support.steward.notary import override_of, signed_override
from tests.support.verify.attempts import ROWS, Bench, Row, bench_at, with_changed_row, write
from tools.proof_kit import SECOND

pytest.importorskip("pvdm_kernel")

WRONG = with_changed_row(ROWS, 5, amount=17.0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path, shown=ROWS[:3]) as made:
        yield made


def stage_failed(bench: Bench, rows: Sequence[Row] = WRONG, **more: object) -> tuple[Attempt, ProofCore]:
    """Stage wrong rows and verify them: a FAIL."""
    attempt, _ = bench.staged(rows, **more)  # type: ignore[arg-type]
    return attempt, bench.verify(attempt)


def submit_override(bench: Bench, attempt: Attempt, core: ProofCore) -> str:
    """Sign an override of the attempt's FAIL as the operator Ruth, and submit it. Returns its id."""
    with bench.scene.notary.ledger.read() as unit:
        (proof,) = proofs.list_by_attempt(unit, attempt.attempt_id)
        stored = statements.get(unit, proof.proof_id)
    override = override_of(RecordedProof(proof.proof_id, stored.envelope, stored.log_index), core, bench.scene.now)
    return bench.scene.notary.overrides.submit(signed_override(override), bench.scene.grant()).override_id


def test_the_files_of_a_waived_fail_are_staged_again_and_wait_for_the_gate(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    restaged = bench.stage_override(override_id)
    assert restaged.attempt_id != attempt.attempt_id
    again = bench.verify(restaged)
    assert not again.verdict.passed
    assert again.files.staged_hashes == core.files.staged_hashes
    assert bench.now(restaged).state is AttemptState.COMMITTING
    assert override_id in bench.now(restaged).reason


def test_without_an_override_the_same_bytes_fail_again(bench: Bench) -> None:
    stage_failed(bench)
    second = bench.attempt(reason="once more")
    bench.stage(second, WRONG)
    bench.verify(bench.hand_in(second))
    assert bench.now(second).state is AttemptState.VERIFICATION_FAILED


def test_an_override_waives_no_other_bytes(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    submit_override(bench, attempt, core)
    second = bench.attempt(reason="other bytes")
    bench.stage(second, with_changed_row(ROWS, 6, amount=17.0))
    bench.verify(bench.hand_in(second))
    assert bench.now(second).state is AttemptState.VERIFICATION_FAILED


def test_bytes_that_are_swapped_after_they_were_staged_again_are_not_waived(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    restaged = bench.stage_override(submit_override(bench, attempt, core))
    (path,) = (parse_location(restaged.prefix).local / "data").iterdir()
    write(path, with_changed_row(ROWS, 6, amount=17.0))
    bench.verify(restaged)
    assert bench.now(restaged).state is AttemptState.VERIFICATION_FAILED


def test_staging_an_override_twice_makes_one_attempt(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    first, second = bench.stage_override(override_id), bench.stage_override(override_id)
    assert first.attempt_id == second.attempt_id
    assert second.state is AttemptState.VERIFYING


def test_an_override_is_refused_while_another_attempt_is_live(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    bench.attempt(reason="repair")
    with pytest.raises(ConflictError) as caught:
        bench.stage_override(override_id)
    assert caught.value.reason == "attempt_live"


def make_unreadable(file: DataFile) -> DataFile:
    return replace(file, file_format="ORC")


def test_files_that_could_not_be_read_are_not_staged_again(bench: Bench) -> None:
    attempt, core = stage_failed(bench, change=make_unreadable)
    override_id = submit_override(bench, attempt, core)
    with pytest.raises(VerificationError) as caught:
        bench.stage_override(override_id)
    assert caught.value.reason == "override_without_files"


def test_files_that_could_not_be_read_are_not_waived_if_a_producer_stages_them_again(bench: Bench) -> None:
    attempt, core = stage_failed(bench, change=make_unreadable)
    submit_override(bench, attempt, core)
    second = bench.attempt(reason="once more")
    bench.stage(second, WRONG, change=make_unreadable)
    again = bench.verify(bench.hand_in(second))
    assert again.files.staged_hashes == core.files.staged_hashes
    assert bench.now(second).state is AttemptState.VERIFICATION_FAILED


def test_a_used_override_waives_nothing(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    notary = bench.scene.notary

    def use(unit: Unit) -> None:
        found = proofs.find_override(unit, override_id)
        assert found is not None
        nonces.commit(unit, found.record.nonce, snapshot_id=None)

    notary.ledger.transact(use, at_micros=notary.clock.now_micros())
    second = bench.attempt(reason="once more")
    bench.stage(second, WRONG)
    bench.verify(bench.hand_in(second))
    assert bench.now(second).state is AttemptState.VERIFICATION_FAILED
    with pytest.raises(NotAllowedError) as caught:
        bench.stage_override(override_id)
    assert caught.value.reason == "override_replayed"


def test_an_override_of_deleted_files_is_refused_and_blocks_nothing(tmp_path: Path) -> None:
    with bench_at(tmp_path, on_fail="delete") as bench:
        attempt, core = stage_failed(bench)
        override_id = submit_override(bench, attempt, core)
        with pytest.raises(VerificationError) as caught:
            bench.stage_override(override_id)
        assert caught.value.reason == "override_files_gone"
        assert bench.attempt(reason="the chunk is not blocked").number == 2


def test_an_unknown_override_is_refused(bench: Bench) -> None:
    with pytest.raises(InputError) as caught:
        bench.stage_override("ab" * 32)
    assert caught.value.reason == "override_unknown"


def test_an_override_of_files_that_were_changed_in_quarantine_is_refused_and_blocks_nothing(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    (file,) = bench.quarantined(attempt)
    file.write_bytes(file.read_bytes()[::-1])
    with pytest.raises(VerificationError) as caught:
        bench.stage_override(override_id)
    assert caught.value.reason == "vault_file_changed"
    assert bench.attempt(reason="the chunk is not blocked").number == 3


def test_an_expired_override_opens_no_attempt(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    bench.scene.stand.time.pass_by(3_601 * SECOND)
    with pytest.raises(NotAllowedError) as caught:
        bench.stage_override(override_id)
    assert caught.value.reason == "override_expired"
    assert bench.attempt(reason="none was opened").number == 2


def test_an_expired_override_does_not_waive_an_attempt_of_the_producer(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    submit_override(bench, attempt, core)
    bench.scene.stand.time.pass_by(3_601 * SECOND)
    second = bench.attempt(reason="once more")
    bench.stage(second, WRONG)
    bench.verify(bench.hand_in(second))
    assert bench.now(second).state is AttemptState.VERIFICATION_FAILED


def test_the_same_rows_that_a_producer_stages_again_on_the_same_main_are_waived(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    second = bench.attempt(reason="once more")
    bench.stage(second, WRONG)
    bench.verify(bench.hand_in(second))
    assert bench.now(second).state is AttemptState.COMMITTING
    assert override_id in bench.now(second).reason


def test_an_override_is_refused_to_an_operator_of_another_domain(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    with pytest.raises(NotAllowedError) as caught:
        bench.waiving.stage_override(bench.scene.grant(Role.OPERATOR, "risk"), override_id)
    assert caught.value.reason == "domain_wrong"


def test_restaged_bytes_are_based_on_the_head_of_main(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    restaged = bench.stage_override(submit_override(bench, attempt, core))
    again = bench.verify(restaged)
    assert again.target.base_snapshot_id == bench.state().metadata.current_snapshot_id is not None


def test_a_call_that_failed_before_its_commit_is_finished_by_the_next_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)

    def fail(*_: object, **__: object) -> None:
        raise UnavailableError("ledger_unavailable", "just now")

    with monkeypatch.context() as patched:
        patched.setattr("pvdm.steward.pipeline.break_glass.next_snapshot", fail)
        with pytest.raises(UnavailableError):
            bench.stage_override(override_id)
    restaged = bench.stage_override(override_id)
    assert (restaged.number, restaged.state) == (2, AttemptState.VERIFYING)
    assert bench.verify(restaged).files.staged_hashes == core.files.staged_hashes


def test_concurrent_calls_make_one_attempt(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: bench.stage_override(override_id).attempt_id, range(4)))
    assert len(set(found)) == 1


def other_steward(bench: Bench) -> OverrideStaging:
    """The same service as in another Steward process: it does not wait for the locks of this one."""
    notary = bench.scene.notary
    return OverrideStaging(
        notary.ledger,
        notary.clock,
        notary.catalog,
        bench.workloads,
        bench.vault,
        bench.files,
        bench.given_up,
    )


@pytest.mark.parametrize(
    "at", ["next_snapshot", "OverrideStaging._read_entries"], ids=["while it stages", "before it opens"]
)
def test_two_stewards_that_stage_an_override_at_the_same_time_make_one_snapshot_of_one_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    place = f"pvdm.steward.pipeline.break_glass.{at}"
    real = next_snapshot if at == "next_snapshot" else OverrideStaging._read_entries
    other: list[Attempt] = []

    def meanwhile(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(place, real)
        other.append(other_steward(bench).stage_override(bench.scene.grant(), override_id))
        return real(*given, **more)

    monkeypatch.setattr(place, meanwhile)
    found = bench.stage_override(override_id)
    assert [found.attempt_id] == [each.attempt_id for each in other]
    metadata = bench.state().metadata
    head = metadata.snapshot(metadata.refs[found.branch].snapshot_id)
    assert head is not None
    assert head.parent_id == metadata.current_snapshot_id
    assert bench.verify(found).files.staged_hashes == core.files.staged_hashes


def test_a_second_call_waits_for_one_that_is_staging(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    found: list[Attempt] = []
    second = threading.Thread(target=lambda: found.append(bench.stage_override(override_id)))

    def meanwhile(*given: Any, **more: Any) -> Any:
        second.start()
        second.join(0.5)
        assert second.is_alive()
        return next_snapshot(*given, **more)

    monkeypatch.setattr("pvdm.steward.pipeline.break_glass.next_snapshot", meanwhile)
    first = bench.stage_override(override_id)
    second.join(30)
    assert [each.attempt_id for each in found] == [first.attempt_id]


def test_files_that_a_failed_call_left_on_the_branch_are_not_staged_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)

    def fail(*_: object) -> None:
        raise UnavailableError("ledger_unavailable", "just now")

    with monkeypatch.context() as patched:
        patched.setattr(bench.workloads, "end_staging", fail)
        with pytest.raises(UnavailableError):
            bench.stage_override(override_id)
    restaged = bench.stage_override(override_id)
    metadata = bench.state().metadata
    head = metadata.snapshot(metadata.refs[restaged.branch].snapshot_id)
    assert head is not None
    assert head.parent_id == metadata.current_snapshot_id


def test_a_sweep_of_the_vault_keeps_quarantined_files_for_an_override(bench: Bench) -> None:
    attempt, core = stage_failed(bench)
    override_id = submit_override(bench, attempt, core)
    notary = bench.scene.notary
    for path in parse_location(str(bench.vault.root)).local.rglob("*"):
        os.utime(path, (time.time() - UNNAMED_AGE_MIN_SECONDS - 60,) * 2)
    sweep = VaultSweep(notary.ledger, notary.clock, notary.catalog, bench.vault, bench.files)
    assert sweep.sweep() == 0
    assert bench.stage_override(override_id).state is AttemptState.VERIFYING
