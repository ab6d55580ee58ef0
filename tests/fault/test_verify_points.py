"""A verification that crashes at any of its points ends, when it is repeated, with one proof and one outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from pvdm.lake.stores.store import UNFINISHED_PREFIX
from pvdm.ledger.record import shared_settings
from pvdm.ledger.schema.work import DisposalOutcome
from pvdm.ledger.work import nonces
from pvdm.model.states import AttemptState, HandleState
from tests.support import fault
from tests.support.verify.attempts import ROWS, Bench, bench_at, write

pytest.importorskip("pvdm_kernel")


class CrashError(BaseException):
    """Stands for the end of the process: no handler of the source catches it."""


COMMITS_TRIED = 7
# The points of a verification, with passes without effect. By their passes, the points `ledger.*` are tried at each
# of the first commits; a verification may have fewer of them, and then does not crash.
VERDICT = (
    ("lake.vault.after_temp", 0),
    ("lake.vault.after_file", 0),
    ("verify.after_freeze", 0),
    ("keys.handle.before_record", 0),
    ("verify.after_digests", 0),
    ("verify.after_locate", 0),
    ("verify.after_manifest", 0),
    ("steward.before_outside", 0),
    ("steward.after_outside", 0),
    ("verify.after_proof", 0),
    ("verify.after_verdict", 0),
    *(("ledger.before_commit", at) for at in range(COMMITS_TRIED)),
    *(("ledger.after_commit", at) for at in range(COMMITS_TRIED)),
)
# The points of the clean-up after a FAIL.
CLEANING = (
    ("disposal.after_quarantine", 0),
    ("catalog.after_metadata_file", 0),
    ("catalog.after_swap", 0),
    ("disposal.after_branch", 0),
    ("disposal.after_files", 0),
)


def crash_during_verify(bench: Bench, attempt_id: str, point: str, passes: int) -> bool:
    """Verify with a crash at the point; returns whether the point was reached."""
    with fault.armed(point, fault.Raise(CrashError()), passes=passes):
        try:
            bench.verification.verify(attempt_id)
        except CrashError:
            return True
    return False


@pytest.mark.parametrize("storage", ["open", "copied"])
def test_after_a_crash_anywhere_a_pass_has_one_proof_and_waits_for_its_publication(
    tmp_path: Path, storage: str
) -> None:
    with bench_at(tmp_path, shown=ROWS[:3], storage=storage) as bench:
        for number, (point, passes) in enumerate(VERDICT):
            attempt, paths = bench.staged(ROWS[:50], ROWS[50:], workload_id=f"work-{number}")
            crashed = crash_during_verify(bench, attempt.attempt_id, point, passes)
            assert crashed or point.startswith("ledger"), point
            bench.restart()
            bench.verification.verify(attempt.attempt_id)
            (core,) = bench.cores(attempt)
            assert core.verdict.passed, (point, passes)
            assert bench.now(attempt).state is AttemptState.COMMITTING
            record = bench.record(attempt)
            assert record.nonce == core.attempt.nonce
            assert (len(bench.copies(attempt)) == 2) is (storage == "copied")
            assert set(paths) <= set(bench.left(attempt))


def test_after_a_crash_anywhere_a_fail_has_one_proof_and_is_cleaned_up(tmp_path: Path) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        for number, (point, passes) in enumerate((*VERDICT, *CLEANING)):
            attempt, _ = bench.staged(ROWS[:50], workload_id=f"work-{number}")
            crash_during_verify(bench, attempt.attempt_id, point, passes)
            bench.restart()
            bench.verification.verify(attempt.attempt_id)
            (core,) = bench.cores(attempt)
            assert [each.value for each in core.verdict.classes] == ["missing"], (point, passes)
            assert bench.now(attempt).state is AttemptState.VERIFICATION_FAILED
            assert bench.left(attempt) == [], (point, passes)
            assert len(bench.quarantined(attempt)) == 1
            disposed = bench.disposed(attempt)
            assert disposed is not None
            assert (disposed.outcome, disposed.note) == (DisposalOutcome.QUARANTINED, "")
            assert attempt.branch not in bench.state().metadata.refs


@pytest.mark.parametrize(
    "passes", [0, 1, 3, 4], ids=["first copy", "second copy", "first quarantined", "second quarantined"]
)
def test_unfinished_vault_files_of_a_crash_are_removed_when_the_attempt_fails(tmp_path: Path, passes: int) -> None:
    """The vault's files are written in this order: two copies, a manifest (pass 2), two files for quarantine."""
    with bench_at(tmp_path, storage="copied") as bench:
        attempt, _ = bench.staged(ROWS[:40], ROWS[40:50])
        assert crash_during_verify(bench, attempt.attempt_id, "lake.vault.after_temp", passes)
        assert unfinished(tmp_path, attempt.attempt_id)
        bench.restart()
        bench.verification.verify(attempt.attempt_id)
        assert bench.now(attempt).state is AttemptState.VERIFICATION_FAILED
        assert len(bench.quarantined(attempt)) == 2
        assert unfinished(tmp_path, attempt.attempt_id) == []


def test_unfinished_vault_files_of_a_crash_are_removed_when_the_attempt_is_published(tmp_path: Path) -> None:
    with bench_at(tmp_path, storage="copied") as bench:
        attempt, _ = bench.staged(ROWS)
        assert crash_during_verify(bench, attempt.attempt_id, "lake.vault.after_temp", 0)
        bench.restart()
        bench.verification.verify(attempt.attempt_id)
        bench.publish(attempt)
        bench.disposal.dispose(attempt.attempt_id)
        assert len(bench.copies(attempt)) == 1
        assert unfinished(tmp_path, attempt.attempt_id) == []


def unfinished(folder: Path, attempt_id: str) -> list[Path]:
    """The files under temporary names in the attempt's folders of the vault."""
    return [path for path in folder.rglob(f"{UNFINISHED_PREFIX}*") if path.parent.name == attempt_id]


def test_after_a_crash_before_the_proof_the_next_findings_replace_the_first_ones(tmp_path: Path) -> None:
    """Nothing was signed for the first bytes, so the verdict is about the bytes that are there now."""
    with bench_at(tmp_path) as bench:
        attempt, (path,) = bench.staged(ROWS)
        assert crash_during_verify(bench, attempt.attempt_id, "verify.after_manifest", 0)
        first = bench.record(attempt)
        write(path, ROWS[:90])
        bench.restart()
        bench.verification.verify(attempt.attempt_id)
        (core,) = bench.cores(attempt)
        assert not core.verdict.passed
        assert bench.record(attempt).core_sha256 != first.core_sha256


def test_an_attempt_that_was_proved_before_a_crash_is_not_verified_again(tmp_path: Path) -> None:
    """The proof is logged. If bytes have changed since, the gate finds it."""
    with bench_at(tmp_path) as bench:
        attempt, (path,) = bench.staged(ROWS)
        assert crash_during_verify(bench, attempt.attempt_id, "verify.after_proof", 0)
        write(path, ROWS[:90])
        bench.restart()
        bench.verification.verify(attempt.attempt_id)
        (core,) = bench.cores(attempt)
        assert core.verdict.passed
        assert bench.now(attempt).state is AttemptState.COMMITTING


def test_the_handle_of_a_crashed_run_is_ended_by_the_next_run(tmp_path: Path) -> None:
    with bench_at(tmp_path) as bench:
        attempt, _ = bench.staged(ROWS)
        # The handle that a run leaves if SIGKILL ends it before its keys are recorded: no `finally` ends it.
        notary = bench.scene.notary
        with notary.ledger.read() as unit:
            held = nonces.find_current(unit, attempt.attempt_id)
        assert held is not None
        notary.handles.issue(f"verify:{held.nonce}:0", redemptions=1)
        bench.verification.verify(attempt.attempt_id)
        with notary.ledger.read() as unit:
            first, second = (shared_settings.find_handle_of_job(unit, f"verify:{held.nonce}:{run}") for run in range(2))
        assert first is not None
        assert second is not None
        assert {first.state, second.state} == {HandleState.ENDED}
        assert first.context is None, "the first run had no keys yet"
        assert second.context is not None


def test_disposals_that_crashes_interrupted_are_done_by_settle(tmp_path: Path) -> None:
    with bench_at(tmp_path) as bench:
        left = []
        for number, (point, passes) in enumerate(CLEANING):
            attempt, _ = bench.staged(ROWS[:50], workload_id=f"work-{number}")
            assert crash_during_verify(bench, attempt.attempt_id, point, passes), point
            left.append(attempt)
        bench.restart()
        assert {each.attempt_id for each in bench.disposal.settle()} == {each.attempt_id for each in left}
        assert [bench.left(each) for each in left] == [[]] * len(left)
        assert bench.disposal.settle() == []
