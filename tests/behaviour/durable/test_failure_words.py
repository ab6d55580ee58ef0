"""The next step in an error for a producer: fix the job after a FAIL, or the gate's own hint if the gate refused."""

from __future__ import annotations

import pytest

from pvdm.api.errors import RefusalView
from pvdm.api.work import AttemptView, FindingView, JobState, JobView
from pvdm.durable.failure_text import failure_error, no_verdict_error, stuck_error
from pvdm.model.statements.verdict import FailureClass
from pvdm.model.states import AttemptState
from tests.support.for_each import for_each

REPAIR = "pvdm repair orders-1 --reason TEXT"


def failed_attempt(refusal: RefusalView | None) -> AttemptView:
    return AttemptView(
        attempt_id="0" * 32,
        workload_id="orders-1",
        chunk_id="all",
        number=1,
        state=AttemptState.VERIFICATION_FAILED,
        table="sales.orders",
        target_branch="main",
        branch="pvdm_0",
        prefix="file:///lake/orders/pvdm/0",
        staged_snapshot_id=1,
        reason="it failed",
        changed_at=1,
        waiting=False,
        verdict=None,
        classes=(),
        findings=(),
        findings_more=0,
        proof_id=None,
        override_id=None,
        snapshot_id=None,
        extent=None,
        refusal=refusal,
        job=None,
        located=None,
        quarantine=None,
    )


def with_changes(attempt: AttemptView, **changes: object) -> AttemptView:
    return attempt.model_copy(update=changes)


def refusal_view(code: str, message: str, expected: str | None, got: str | None, hint: str | None) -> RefusalView:
    return RefusalView(code=code, reason=code, message=message, expected=expected, got=got, hint=hint)


@for_each(
    ("refusal", "hint"),
    [
        (None, f"fix the job, then: {REPAIR}"),
        (refusal_view("verification_failed", "FAIL", None, None, "proof 1"), f"fix the job, then: {REPAIR}"),
        (refusal_view("branch_moved", "it moved", None, None, None), f"fix the job, then: {REPAIR}"),
        (
            refusal_view("published_bytes_changed", "changed", None, None, "look who writes there"),
            f"look who writes there; to try again: {REPAIR}",
        ),
    ],
)
def test_the_hint_names_the_next_step(refusal: RefusalView | None, hint: str) -> None:
    assert failure_error(failed_attempt(refusal), "all").hint == hint


def finding(code: str) -> FindingView:
    return FindingView(
        failure=FailureClass.METADATA, code=code, message="m", expected=None, got=None, file=None, withheld=False
    )


@for_each(
    ("codes", "start"),
    [
        (("boundary_moved",), "main has changed in the part that is overwritten, so no row was compared; the job can"),
        (("deletes_newer",), "main has changed in the part that is overwritten, so no row was compared; the job can"),
        (
            ("boundary_unclear",),
            "the table's partition specs do not tell which files the contract's partition replaces",
        ),
        (
            ("partition_unknown",),
            "the table's partition specs do not tell which files the contract's partition replaces",
        ),
        (("boundary_moved", "staged_snapshot_gone"), "fix the job"),
    ],
)
def test_the_job_is_not_blamed_if_only_the_table_has_changed(codes: tuple[str, ...], start: str) -> None:
    refusal = refusal_view("verification_failed", "FAIL", None, None, "proof 1")
    failed = with_changes(failed_attempt(refusal), findings=tuple(map(finding, codes)))
    hint = str(failure_error(failed, "all").hint)
    assert (hint.startswith(start), hint.endswith(f": {REPAIR}")) == (True, True), hint


@pytest.mark.parametrize("hint", [None, "wait for the log"])
def test_the_hint_names_no_repair_if_no_attempt_is_left(hint: str | None) -> None:
    refusal = None if hint is None else refusal_view("proof_expired", "too late", None, None, hint)
    text = failure_error(failed_attempt(refusal), "all", "an operator gives it up").hint
    assert text == ("an operator gives it up" if hint is None else "wait for the log; an operator gives it up")


def test_the_hint_for_an_adopted_branch_names_publish_and_the_branch() -> None:
    hint = str(failure_error(with_changes(failed_attempt(None), branch="etl"), "all").hint)
    assert "pvdm publish sales.orders BRANCH --workload-id orders-1 --reason TEXT" in hint
    assert "sales.orders.branch_etl" in hint
    assert "DROP BRANCH `etl`" in hint
    assert "repair" not in hint


def test_an_attempt_without_a_verdict_is_reported_with_its_reason() -> None:
    refusal = refusal_view("source_unusable", "a column is another one", "long", "text", "abandon the workload")
    error = no_verdict_error(with_changes(failed_attempt(refusal), state=AttemptState.ROLLED_BACK))
    assert (error.reason, error.exit_code, error.expected, error.got) == ("source_unusable", 4, "long", "text")
    assert (
        error.hint == f"abandon the workload; if the cause was removed meanwhile, for example by a migration: {REPAIR}"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(17, "bring it back; the Steward tries again by itself in 17 s; the same"), (None, "bring it back; the same")],
)
def test_a_stuck_attempt_is_reported_with_the_time_of_the_next_try(seconds: int | None, words: str) -> None:
    problem = refusal_view("source_unreadable", "gone", None, None, "bring it back")
    job = JobView(state=JobState.WAITING, tries=5, problem=problem, again_seconds=seconds)
    error = stuck_error(with_changes(failed_attempt(None), state=AttemptState.VERIFYING, job=job))
    assert (error.reason, error.exit_code) == ("source_unreadable", 7)
    assert str(error.hint).startswith(words)
    assert str(error.hint).endswith("call makes the Steward try at once, and waits for the result")
