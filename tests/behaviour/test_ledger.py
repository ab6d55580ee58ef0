"""Workloads, attempts and nonces in the ledger: which steps are idempotent or refused, and what recovery settles."""

from __future__ import annotations

import dataclasses

import pytest

from pvdm.errors import ConflictError, InputError, StateUnknownError, VerificationError
from pvdm.ledger import Unit
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import attempts, chunks, nonces, workloads
from pvdm.ledger.work.attempts import ATTEMPTS_MAX
from pvdm.model.contract import Atomicity
from pvdm.model.states import ROLLED_BACK_MAX, AttemptState, NonceState, WorkloadState
from tests.support.ledger.rows import (
    attempt_in_state,
    attempt_opening,
    hex32,
    hex64,
    nonce_of,
    open_attempt,
    open_workload,
    pinned_workload,
    workload_opening,
)


@pytest.fixture
def unit(scratch: Unit) -> Unit:
    """A writing unit with one workload of chunks a and b; nothing of it is committed."""
    open_workload(scratch)
    return scratch


def reserve_for_break_glass(unit: Unit, name: object = 1) -> None:
    nonces.reserve(unit, hex32(name), purpose=NoncePurpose.BREAK_GLASS, holder=f"override {name}")


def test_a_workload_is_opened_with_its_chunks_in_order(unit: Unit) -> None:
    assert [chunk.chunk_id for chunk in chunks.list_by_workload(unit, "orders-1")] == ["a", "b"]


def test_the_same_opening_again_returns_the_same_workload(unit: Unit) -> None:
    assert open_workload(unit) == workloads.get(unit, "orders-1")


def test_a_second_opening_does_not_pin_anything_else(unit: Unit) -> None:
    later = dataclasses.replace(pinned_workload("z"), source_snapshot_id="99", epoch=4, plan_hash=hex64("other plan"))
    again = workloads.open_once(unit, workload_opening(), later)
    assert (again.source_snapshot_id, again.epoch, again.plan_hash) == ("77", 3, hex64("plan"))


def test_a_workload_is_found_by_its_id_before_anything_is_pinned(unit: Unit) -> None:
    found = workloads.find(unit, "orders-1")
    assert found is not None
    workloads.require_same_opening(workload_opening(), found.opening)
    assert found == workloads.get(unit, "orders-1")


def test_an_id_that_was_never_opened_is_not_found(unit: Unit) -> None:
    assert workloads.find(unit, "orders-2") is None


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": b'{"day":2}'},
        {"contract_hash": hex64("other contract")},
        {"table_uuid": "t-2"},
        {"source": "raw.other"},
        {"atomicity": Atomicity.WORKLOAD},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_same_id_opened_otherwise_is_an_error(unit: Unit, change: dict[str, object]) -> None:
    changed = dataclasses.replace(workload_opening(), **change)  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        workloads.open_once(unit, changed, pinned_workload())
    assert caught.value.reason == "workload_parameters_differ"
    # The error shows the parameters only if nothing else differs: the caller is then of the same domain.
    shown = (caught.value.expected, caught.value.got)
    (name,) = change
    assert shown == (('{"day":1}', '{"day":2}') if name == "parameters" else (f"the same {name}", "others"))


@pytest.mark.parametrize("workload_id", ["", "a/b", "a b", "ä", "x" * 129, "a\n"])
def test_a_workload_id_of_another_form_is_refused(unit: Unit, workload_id: str) -> None:
    with pytest.raises(InputError) as caught:
        workloads.open_once(unit, workload_opening(workload_id), pinned_workload())
    assert caught.value.reason == "identifier_invalid"


def test_a_plan_that_names_a_chunk_twice_is_refused(unit: Unit) -> None:
    with pytest.raises(InputError) as caught:
        workloads.open_once(unit, workload_opening("orders-2"), pinned_workload("a", "a"))
    assert caught.value.reason == "chunk_repeated"


def test_a_plan_without_chunks_is_refused(unit: Unit) -> None:
    with pytest.raises(InputError) as caught:
        workloads.open_once(unit, workload_opening("orders-2"), dataclasses.replace(pinned_workload(), chunks=[]))
    assert caught.value.reason == "chunks_too_many"


def test_an_abandoned_workload_does_not_complete(unit: Unit) -> None:
    workloads.move(unit, "orders-1", WorkloadState.ABANDONED, reason="not needed")
    with pytest.raises(ConflictError) as caught:
        workloads.move(unit, "orders-1", WorkloadState.COMPLETE, reason="done")
    assert caught.value.reason == "workload_moved"


def test_an_abandoned_workload_opens_no_attempt(unit: Unit) -> None:
    workloads.move(unit, "orders-1", WorkloadState.ABANDONED, reason="not needed")
    with pytest.raises(ConflictError) as caught:
        open_attempt(unit)
    assert caught.value.reason == "workload_moved"


def test_a_new_attempt_is_staging_with_one_reserved_nonce(unit: Unit) -> None:
    attempt = open_attempt(unit)
    held = nonces.find_current(unit, attempt.attempt_id)
    assert held is not None
    assert (attempt.number, attempt.state, held.state) == (1, AttemptState.STAGING, NonceState.RESERVED)


def test_opening_the_same_attempt_again_returns_it(unit: Unit) -> None:
    assert open_attempt(unit) == open_attempt(unit)


def test_the_same_attempt_id_for_another_chunk_is_an_error(unit: Unit) -> None:
    open_attempt(unit)
    with pytest.raises(InputError) as caught:
        open_attempt(unit, chunk_id="b")
    assert caught.value.reason == "attempt_parameters_differ"


def test_a_second_live_attempt_is_refused(unit: Unit) -> None:
    open_attempt(unit, 1)
    with pytest.raises(ConflictError) as caught:
        open_attempt(unit, 2)
    assert caught.value.reason == "attempt_live"


@pytest.mark.parametrize("end", [AttemptState.ROLLED_BACK, AttemptState.VERIFICATION_FAILED])
def test_after_an_ended_attempt_the_next_is_opened(unit: Unit, end: AttemptState) -> None:
    attempt_in_state(unit, end, 1)
    assert open_attempt(unit, 2).number == 2


def test_a_published_chunk_opens_no_attempt(unit: Unit) -> None:
    attempt_in_state(unit, AttemptState.COMMITTED, 1)
    with pytest.raises(VerificationError) as caught:
        open_attempt(unit, 2)
    assert caught.value.reason == "chunk_published"


@pytest.mark.parametrize(
    ("end", "most"),
    [(AttemptState.ROLLED_BACK, ROLLED_BACK_MAX), (AttemptState.VERIFICATION_FAILED, ATTEMPTS_MAX)],
)
def test_attempts_at_a_chunk_are_limited(unit: Unit, end: AttemptState, most: int) -> None:
    for number in range(most):
        attempt_in_state(unit, end, number)
    with pytest.raises(VerificationError) as caught:
        open_attempt(unit, "last")
    assert caught.value.reason == "attempts_used_up"


def test_an_attempt_at_an_unknown_chunk_is_refused(unit: Unit) -> None:
    with pytest.raises(ConflictError) as caught:
        open_attempt(unit, chunk_id="z")
    assert caught.value.reason == "ledger_constraint"


def test_an_attempt_that_enters_verifying_gets_a_new_nonce_and_the_old_one_is_aborted(unit: Unit) -> None:
    attempt = attempt_in_state(unit, AttemptState.VERIFYING)
    first, second = nonces.find(unit, nonce_of(1, 0)), nonces.find_current(unit, attempt.attempt_id)
    assert first is not None
    assert second is not None
    assert (first.state, second.nonce, second.state) == (NonceState.ABORTED, nonce_of(1, 1), NonceState.RESERVED)


def test_an_attempt_that_goes_back_to_verifying_gets_another_nonce(unit: Unit) -> None:
    attempt = attempt_in_state(unit, AttemptState.COMMITTING)
    attempts.begin_verifying(
        unit, attempt.attempt_id, nonce=nonce_of(1, 2), staged_snapshot_id="5", reason="proof expired"
    )
    old = nonces.find(unit, nonce_of(1, 1))
    held = nonces.find_current(unit, attempt.attempt_id)
    assert (old and old.state, held and held.nonce) == (NonceState.ABORTED, nonce_of(1, 2))


def test_verifying_needs_an_unused_nonce(unit: Unit) -> None:
    reserve_for_break_glass(unit, "used")
    attempt = open_attempt(unit)
    with pytest.raises(ConflictError) as caught:
        attempts.begin_verifying(unit, attempt.attempt_id, nonce=hex32("used"), staged_snapshot_id="5", reason="")
    assert caught.value.reason == "nonce_taken"


@pytest.mark.parametrize("state", list(AttemptState))
def test_publishing_needs_an_attempt_that_is_committing(unit: Unit, state: AttemptState) -> None:
    attempt = attempt_in_state(unit, state)
    held = nonces.find_current(unit, attempt.attempt_id)
    nonce = held.nonce if held else nonce_of(1, 0)
    if state is AttemptState.COMMITTING:
        moved = attempts.publish(unit, attempt.attempt_id, nonce=nonce, snapshot_id="900")
        assert moved.state is AttemptState.COMMITTED
    else:
        with pytest.raises(ConflictError) as caught:
            attempts.publish(unit, attempt.attempt_id, nonce=nonce, snapshot_id="900")
        assert caught.value.reason == "attempt_moved"


def test_publishing_records_what_made_the_chunk_visible(unit: Unit) -> None:
    attempt = attempt_in_state(unit, AttemptState.COMMITTED)
    found = chunks.find_publication(unit, "orders-1", "a")
    assert found is not None
    assert (found.attempt_id, found.nonce, found.snapshot_id) == (attempt.attempt_id, nonce_of(1, 1), "900")


def test_publishing_with_the_old_nonce_is_refused(unit: Unit) -> None:
    attempt = attempt_in_state(unit, AttemptState.COMMITTING)
    with pytest.raises(ConflictError) as caught:
        attempts.publish(unit, attempt.attempt_id, nonce=nonce_of(1, 0), snapshot_id="900")
    assert caught.value.reason == "nonce_not_reserved"


def test_publishing_with_the_nonce_of_another_attempt_is_refused(unit: Unit) -> None:
    open_attempt(unit, 2, chunk_id="b")
    attempt = attempt_in_state(unit, AttemptState.COMMITTING)
    with pytest.raises(VerificationError) as caught:
        attempts.publish(unit, attempt.attempt_id, nonce=nonce_of(2, 0), snapshot_id="900")
    assert caught.value.reason == "nonce_of_other_attempt"


@pytest.mark.parametrize("state", [AttemptState.STAGING, AttemptState.VERIFYING, AttemptState.COMMITTING])
def test_an_ended_attempt_holds_no_nonce(unit: Unit, state: AttemptState) -> None:
    attempt = attempt_in_state(unit, state)
    attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="workload abandoned")
    assert nonces.find_current(unit, attempt.attempt_id) is None


def test_ending_an_attempt_twice_in_the_same_way_is_no_change(unit: Unit) -> None:
    attempt = attempt_in_state(unit, AttemptState.ROLLED_BACK)
    assert attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="again") == attempt


def test_an_attempt_cannot_be_ended_as_committed(unit: Unit) -> None:
    attempt = attempt_in_state(unit, AttemptState.COMMITTING)
    with pytest.raises(InputError) as caught:
        attempts.end(unit, attempt.attempt_id, AttemptState.COMMITTED, reason="no")
    assert caught.value.reason == "attempt_end_invalid"


def test_an_ended_attempt_is_not_among_the_live_ones(unit: Unit) -> None:
    attempt_in_state(unit, AttemptState.ROLLED_BACK, 1)
    second = open_attempt(unit, 2)
    assert [attempt.attempt_id for attempt in attempts.list_live(unit)] == [second.attempt_id]


def test_a_nonce_is_reserved_once(unit: Unit) -> None:
    reserve_for_break_glass(unit)
    with pytest.raises(ConflictError) as caught:
        reserve_for_break_glass(unit)
    assert caught.value.reason == "nonce_taken"


@pytest.mark.parametrize("nonce", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32, "0" * 31 + "\n"])
def test_a_nonce_of_another_form_is_refused(unit: Unit, nonce: str) -> None:
    with pytest.raises(InputError) as caught:
        nonces.reserve(unit, nonce, purpose=NoncePurpose.BREAK_GLASS, holder="x")
    assert caught.value.reason == "identifier_invalid"


def test_a_committed_nonce_is_not_committed_again(unit: Unit) -> None:
    reserve_for_break_glass(unit)
    nonces.commit(unit, hex32(1), snapshot_id=None)
    with pytest.raises(ConflictError) as caught:
        nonces.commit(unit, hex32(1), snapshot_id=None)
    assert caught.value.reason == "nonce_not_reserved"


@pytest.mark.parametrize("times", [1, 3])
def test_settling_once_or_repeatedly_commits_the_nonce(unit: Unit, times: int) -> None:
    attempt = attempt_in_state(unit, AttemptState.COMMITTING)
    for _ in range(times):
        attempts.settle(unit, attempt.attempt_id, nonce_of(1, 1), "900")
    found = nonces.find(unit, nonce_of(1, 1))
    assert found is not None
    assert found.state is NonceState.COMMITTED


def test_settling_a_published_snapshot_publishes_the_attempt(unit: Unit) -> None:
    attempt = attempt_in_state(unit, AttemptState.COMMITTING)
    attempts.settle(unit, attempt.attempt_id, nonce_of(1, 1), "900")
    found = chunks.find_publication(unit, "orders-1", "a")
    assert (attempts.get(unit, attempt.attempt_id).state, found and found.snapshot_id) == ("COMMITTED", "900")


def test_an_attempt_whose_commit_did_not_happen_can_be_verified_again(unit: Unit) -> None:
    attempt = attempt_in_state(unit, AttemptState.COMMITTING)
    nonces.abort(unit, nonce_of(1, 1), reason="not published")
    moved = attempts.begin_verifying(
        unit, attempt.attempt_id, nonce=nonce_of(1, 2), staged_snapshot_id="5", reason="not published"
    )
    assert moved.state is AttemptState.VERIFYING


@pytest.mark.parametrize("aborted", [False, True], ids=["another snapshot", "appeared"])
def test_a_snapshot_that_contradicts_the_ledger_is_an_unknown_state(unit: Unit, aborted: bool) -> None:
    attempt = attempt_in_state(unit, AttemptState.COMMITTING)
    if aborted:
        nonces.abort(unit, nonce_of(1, 1), reason="not published")
    else:
        attempts.settle(unit, attempt.attempt_id, nonce_of(1, 1), "900")
    before = nonces.find(unit, nonce_of(1, 1))
    with pytest.raises(StateUnknownError) as caught:
        attempts.settle(unit, attempt.attempt_id, nonce_of(1, 1), "901")
    assert (caught.value.reason, nonces.find(unit, nonce_of(1, 1))) == ("nonce_settlement_contradicts", before)


def test_settling_an_unknown_nonce_is_an_error(unit: Unit) -> None:
    with pytest.raises(InputError) as caught:
        nonces.settle(unit, hex32("never"), "900")
    assert caught.value.reason == "nonce_unknown"


def test_reserved_nonces_are_listed_for_a_starting_steward(unit: Unit) -> None:
    attempt_in_state(unit, AttemptState.VERIFYING)
    assert [nonce.nonce for nonce in nonces.list_reserved(unit)] == [nonce_of(1, 1)]


def test_the_attempts_of_a_chunk_come_in_order(unit: Unit) -> None:
    attempt_in_state(unit, AttemptState.VERIFICATION_FAILED, 1)
    open_attempt(unit, 2)
    assert [attempt.number for attempt in attempts.list_by_chunk(unit, "orders-1", "a")] == [1, 2]


def test_the_prefix_of_an_attempt_contains_its_id() -> None:
    assert attempt_opening(1).attempt_id in attempt_opening(1).prefix
