"""Workloads: opened under the table's contract, with a pinned source and a fixed plan; each attempt has a branch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.ledger import Unit
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, nonces, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.plannings import Planning
from pvdm.ledger.work.workloads import Workload
from pvdm.model.contract import BoundContract
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.work.opened import bound_contract
from pvdm.steward.work.opening import Workloads
from tests.support import fault
from tests.support.gate.approvals import reason_of
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import attempt_token
from tests.support.steward.pipeline import (
    BY_DAY_AND_NONE,
    DAY_CHUNKS,
    RAW,
    REASON,
    ROWS,
    Line,
    contract,
    line_at,
    without_jobs,
)

BY_PARAMETER = contract("parameters:\n  day: {type: date}", where="day = ${day}")
TARGET = "sales.orders"


@pytest.fixture
def line() -> Iterator[Line]:
    """A Steward without jobs: the tests end before verification."""
    with memory_folder() as folder, line_at(folder) as made:
        yield without_jobs(made)


@pytest.fixture(scope="module")
def shared_line() -> Iterator[Line]:
    """A Steward for all tests that change nothing: `sales.orders` by day, with one open workload."""
    with memory_folder() as folder, line_at(folder) as made:
        made.protect(contract(BY_DAY_AND_NONE))
        open_now(without_jobs(made))
        yield made


def producer(line: Line, domain: str = "sales") -> Grant:
    return line.scene.grant(Role.PRODUCER, domain)


def service(line: Line) -> Workloads:
    return line.notary.workloads


def open_now(line: Line, workload_id: str = "run-1", **parameters: str) -> Workload:
    """Open a workload. If the first call returns a `Planning`, a second call returns the workload."""
    wanted = (producer(line), workload_id, TARGET, parameters)
    found = service(line).open(*wanted)
    found = service(line).open(*wanted) if isinstance(found, Planning) else found
    assert isinstance(found, Workload)
    return found


def open_workload(line: Line, text: str | None = None, workload_id: str = "run-1") -> str:
    """Protect the table and open a workload. Returns the id of the workload's first chunk."""
    line.protect(text or contract())
    open_now(line, workload_id)
    return service(line).list_chunks(producer(line), workload_id, after=0, count=1)[0].definition.chunk_id


def open_attempt(line: Line, chunk_id: str = "all", workload_id: str = "run-1") -> Attempt:
    return service(line).next_attempt(producer(line), workload_id, chunk_id, REASON)


def abort(line: Line, attempt: Attempt) -> None:
    line.notary.work.abort(producer(line), attempt.attempt_id, "given up", lease_number=1)


def fail(line: Line, attempt: Attempt) -> None:
    """End the attempt in the ledger as a FAIL does."""

    def work(unit: Unit) -> None:
        begun = attempts.begin_verifying(
            unit, attempt.attempt_id, nonce="f" * 24 + f"{attempt.number:08}", staged_snapshot_id=None, reason="staged"
        )
        attempts.end(unit, begun.attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL")

    line.notary.ledger.transact(work, at_micros=line.notary.clock.now_micros())


def publish(line: Line, attempt: Attempt, snapshot_id: str = "9") -> None:
    """Publish the attempt in the ledger as the gate does."""

    def work(unit: Unit) -> None:
        attempts.begin_committing(unit, attempt.attempt_id, reason="PASS")
        nonce = nonces.find_current(unit, attempt.attempt_id)
        assert nonce is not None
        attempts.publish(unit, attempt.attempt_id, nonce=nonce.nonce, snapshot_id=snapshot_id)

    line.notary.ledger.transact(work, at_micros=line.notary.clock.now_micros())


def refusal_of(call: Callable[[], object], kind: type[PvdmError] = InputError) -> str:
    return reason_of(call, kind)


# Opening


def test_a_workload_pins_the_source_and_fixes_the_plan(line: Line) -> None:
    line.protect(contract(BY_DAY_AND_NONE))
    found = open_now(line)
    source = line.scene.table_state(levels=RAW)
    assert found.state is WorkloadState.OPEN
    assert found.opening.contract_hash == line.scene.contract_of()
    assert found.opening.source == source.row.table_uuid
    assert found.source_snapshot_id == str(source.metadata.current_snapshot_id)
    planned = service(line).list_chunks(producer(line), "run-1", after=0, count=10)
    assert [chunk.chunk_id for chunk, _ in planned] == list(DAY_CHUNKS)


def test_opening_again_changes_nothing_even_if_the_source_has_moved(line: Line) -> None:
    line.protect()
    first = open_now(line)
    line.write(ROWS[:1])
    assert service(line).open(producer(line), "run-1", TARGET, {}) == first
    later = open_now(line, "run-2")
    assert later.source_snapshot_id != first.source_snapshot_id


def test_two_openings_at_once_make_one_workload(line: Line) -> None:
    line.protect()
    found: list[object] = []

    def work() -> None:
        found.append(open_now(line))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4


def test_the_same_id_with_other_parameters_is_refused(line: Line) -> None:
    line.protect(BY_PARAMETER)
    service(line).open(producer(line), "run-1", TARGET, {"day": "2026-11-13"})
    again = lambda: service(line).open(producer(line), "run-1", TARGET, {"day": "2026-11-14"})  # noqa: E731
    assert refusal_of(again) == "workload_parameters_differ"


def test_the_contract_is_bound_to_the_workloads_parameters(line: Line) -> None:
    line.protect(BY_PARAMETER)
    found = open_now(line, day="2026-11-13")
    with line.notary.ledger.read() as unit:
        assert bound_contract(unit, found).parameters == (("day", "2026-11-13"),)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "parameters_differ"),
        ({"day": "2026-11-13", "hour": "1"}, "parameters_differ"),
        ({"day": "x"}, "parameter_invalid"),
    ],
)
def test_parameters_that_do_not_fit_the_contract_are_refused(line: Line, given: dict[str, str], reason: str) -> None:
    line.protect(BY_PARAMETER)
    assert refusal_of(lambda: service(line).open(producer(line), "run-1", TARGET, given)) == reason


def test_a_workload_on_a_table_without_a_contract_is_refused(line: Line) -> None:
    call = lambda: service(line).open(producer(line), "run-1", TARGET, {})  # noqa: E731
    assert refusal_of(call, NotAllowedError) == "not_protected"


def test_a_workload_on_a_table_that_has_only_its_namespaces_contract_is_refused(line: Line) -> None:
    line.scene.protect(line.scene.namespace_protection(contract=contract()))
    line.scene.make("invoices")
    call = lambda: service(line).open(producer(line), "run-1", "sales.invoices", {})  # noqa: E731
    assert refusal_of(call, NotAllowedError) == "contract_of_other_table"


def test_a_source_without_a_snapshot_cannot_be_pinned(tmp_path: Path) -> None:
    with line_at(tmp_path, rows=()) as line:
        line.protect()
        assert refusal_of(lambda: service(line).open(producer(line), "run-1", TARGET, {})) == "source_empty"


def test_a_source_that_was_rolled_back_behind_a_published_snapshot_is_refused(line: Line) -> None:
    older = line.scene.table_state(levels=RAW).metadata.current_snapshot_id
    line.write(ROWS[:1])
    open_workload(line)
    publish(line, service(line).end_staging(producer(line), open_attempt(line).attempt_id))
    back = [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": older}]
    line.scene.commit(back, levels=RAW)
    call = lambda: service(line).open(producer(line), "run-2", TARGET, {})  # noqa: E731
    assert refusal_of(call, NotAllowedError) == "source_not_descended"


def test_a_producer_of_another_domain_cannot_open_a_workload(shared_line: Line) -> None:
    call = lambda: service(shared_line).open(producer(shared_line, "risk"), "run-9", TARGET, {})  # noqa: E731
    assert refusal_of(call, NotAllowedError) == "domain_wrong"


def test_after_a_migration_of_the_contract_an_attempt_can_only_be_aborted(line: Line) -> None:
    open_workload(line)
    before = open_attempt(line)
    line.scene.migrate(line.scene.migration([], contract=contract(BY_DAY_AND_NONE)))
    staged = lambda: service(line).end_staging(producer(line), before.attempt_id)  # noqa: E731
    assert refusal_of(staged, NotAllowedError) == "contract_moved"
    abort(line, before)
    assert refusal_of(lambda: open_attempt(line), NotAllowedError) == "contract_moved"
    again = lambda: service(line).open(producer(line), "run-1", TARGET, {})  # noqa: E731
    assert refusal_of(again, NotAllowedError) == "contract_moved"


# Attempts


def test_an_attempt_has_a_branch_from_mains_head_a_prefix_and_a_nonce(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    open_workload(line)
    found = open_attempt(line)
    metadata = line.scene.table_state().metadata
    assert (found.state, found.number, found.reason) == (AttemptState.STAGING, 1, REASON)
    assert found.branch == f"pvdm_{found.attempt_id}"
    assert metadata.refs[found.branch].snapshot_id == metadata.current_snapshot_id
    assert found.prefix == f"{metadata.location}/pvdm/{found.attempt_id}"
    with line.notary.ledger.read() as unit:
        assert nonces.find_current(unit, found.attempt_id) is not None


def test_on_an_empty_table_the_opening_of_an_attempt_creates_no_branch(line: Line) -> None:
    open_workload(line)
    found = open_attempt(line)
    assert found.branch not in line.scene.table_state().metadata.refs


@pytest.mark.parametrize("point", ["catalog.after_metadata_file", "ledger.before_commit"])
def test_if_the_opening_of_an_attempt_fails_neither_attempt_nor_branch_exists(line: Line, point: str) -> None:
    line.write(ROWS[:1], TARGET)
    open_workload(line)
    with fault.armed(point, fault.Raise(ConflictError("made_up", "stopped"))), pytest.raises(ConflictError):
        open_attempt(line)
    with line.notary.ledger.read() as unit:
        assert attempts.list_live(unit) == []
    assert set(line.scene.table_state().metadata.refs) == {"main"}


def test_a_second_attempt_is_refused_and_the_live_one_named(line: Line) -> None:
    open_workload(line)
    first = open_attempt(line)
    with pytest.raises(ConflictError) as caught:
        open_attempt(line)
    assert (caught.value.reason, caught.value.details["attempt_id"]) == ("attempt_live", first.attempt_id)


def test_attempts_are_capped_by_the_contract(line: Line) -> None:
    open_workload(line, contract("governance: {attempts: 2}"))
    for number in (1, 2):
        found = open_attempt(line)
        assert found.number == number
        fail(line, found)
    assert refusal_of(lambda: open_attempt(line), VerificationError) == "attempts_used_up"


def test_attempts_that_were_rolled_back_are_not_counted_by_the_contract(line: Line) -> None:
    open_workload(line, contract("governance: {attempts: 1}"))
    for number in (1, 2, 3):
        found = open_attempt(line)
        assert found.number == number
        abort(line, found)
    fail(line, open_attempt(line))
    assert refusal_of(lambda: open_attempt(line), VerificationError) == "attempts_used_up"


def test_a_chunk_that_is_not_in_the_plan_gets_no_attempt(shared_line: Line) -> None:
    assert refusal_of(lambda: open_attempt(shared_line, "day=2026-11-15")) == "chunk_unknown"


def test_a_producer_of_another_domain_gets_no_attempt(shared_line: Line) -> None:
    grant = producer(shared_line, "risk")
    call = lambda: service(shared_line).next_attempt(grant, "run-1", DAY_CHUNKS[2], REASON)  # noqa: E731
    assert refusal_of(call, NotAllowedError) == "domain_wrong"


# The end of staging


def test_the_staged_snapshot_is_the_branchs_head_in_the_catalog(line: Line) -> None:
    open_workload(line)
    with line.client() as client:
        found = client.attempt(open_attempt(line).attempt_id)
        line.stage(client, found, ROWS)
    staged = service(line).end_staging(producer(line), found.attempt_id)
    head = line.scene.table_state().metadata.refs[found.branch].snapshot_id
    assert (staged.state, staged.staged_snapshot_id) == (AttemptState.VERIFYING, str(head))
    assert service(line).end_staging(producer(line), found.attempt_id) == staged


def test_a_branch_that_is_equal_to_main_has_no_staged_snapshot(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    open_workload(line)
    assert service(line).end_staging(producer(line), open_attempt(line).attempt_id).staged_snapshot_id is None


def test_staging_of_an_aborted_attempt_cannot_be_ended(line: Line) -> None:
    open_workload(line)
    found = open_attempt(line)
    abort(line, found)
    call = lambda: service(line).end_staging(producer(line), found.attempt_id)  # noqa: E731
    assert refusal_of(call, ConflictError) == "attempt_moved"


def test_a_token_for_one_attempt_ends_only_the_staging_of_that_attempt(line: Line) -> None:
    chunk_id = open_workload(line, contract(BY_DAY_AND_NONE))
    first, second = open_attempt(line, chunk_id), open_attempt(line, DAY_CHUNKS[2])
    _, own = attempt_token(line.notary.access, producer(line), first.attempt_id)
    call = lambda: service(line).end_staging(own, second.attempt_id)  # noqa: E731
    assert refusal_of(call, NotAllowedError) == "token_of_other_attempt"
    assert service(line).end_staging(own, first.attempt_id).state is AttemptState.VERIFYING
    for call_with_own_token in (
        lambda: service(line).open(own, "run-2", TARGET, {}),
        lambda: service(line).next_attempt(own, "run-1", chunk_id, REASON),
        lambda: service(line).list_chunks(own, "run-1", after=0, count=1),
        lambda: service(line).adopt(own, "run-2", TARGET, "wap", {}),
    ):
        assert refusal_of(call_with_own_token, NotAllowedError) == "token_of_other_attempt"


def test_nothing_is_written_to_the_branch_after_staging_has_ended(line: Line) -> None:
    open_workload(line)
    with line.client() as client:
        found = client.attempt(open_attempt(line).attempt_id)
        line.stage(client, found, ROWS[:2])
        service(line).end_staging(producer(line), found.attempt_id)
        with pytest.raises(NotAllowedError) as caught:
            line.stage(client, found, ROWS[2:])
    assert caught.value.reason == "attempt_not_staging"


# Abandoned workloads


def test_an_abandoned_workload_rolls_live_attempts_back_and_opens_no_other_attempt(line: Line) -> None:
    first = open_workload(line, contract(BY_DAY_AND_NONE))
    staging, verifying, done = (open_attempt(line, each) for each in (first, DAY_CHUNKS[1], DAY_CHUNKS[2]))
    service(line).end_staging(producer(line), verifying.attempt_id)
    publish(line, service(line).end_staging(producer(line), done.attempt_id))
    for _ in range(2):
        abandoned = service(line).abandon(line.scene.grant(), "run-1", "the day is wrong")
        assert isinstance(abandoned, Workload)
        assert abandoned.state is WorkloadState.ABANDONED
    with line.notary.ledger.read() as unit:
        states = [attempts.get(unit, each.attempt_id).state for each in (staging, verifying, done)]
        assert workloads.get(unit, "run-1").reason == "the day is wrong"
    assert states == [AttemptState.ROLLED_BACK, AttemptState.ROLLED_BACK, AttemptState.COMMITTED]
    assert refusal_of(lambda: open_attempt(line, first), ConflictError) == "workload_moved"


def test_an_operator_of_another_domain_cannot_abandon_a_workload(shared_line: Line) -> None:
    grant = shared_line.scene.grant(Role.OPERATOR, "risk")
    call = lambda: service(shared_line).abandon(grant, "run-1", "not mine")  # noqa: E731
    assert refusal_of(call, NotAllowedError) == "domain_wrong"


# The plan


def test_chunks_are_listed_in_pages_with_the_last_attempt_at_each_chunk(line: Line) -> None:
    first = open_workload(line, contract(BY_DAY_AND_NONE))
    abort(line, open_attempt(line, first))
    second = open_attempt(line, first)
    found = service(line).list_chunks(producer(line), "run-1", after=0, count=2)
    assert [last and last.attempt_id for _, last in found] == [second.attempt_id, None]
    rest = service(line).list_chunks(producer(line), "run-1", after=2, count=2)
    assert [chunk.chunk_id for chunk, _ in rest] == [DAY_CHUNKS[2]]
    assert service(line).list_chunks(producer(line), "run-1", after=3, count=2) == []


def test_a_producer_of_another_domain_cannot_read_the_plan(shared_line: Line) -> None:
    grant = producer(shared_line, "risk")
    call = lambda: service(shared_line).list_chunks(grant, "run-1", after=0, count=1)  # noqa: E731
    assert refusal_of(call, NotAllowedError) == "domain_wrong"


# Branches that a job staged without an attempt (`pvdm publish`)


def test_a_branch_is_adopted_as_one_chunk(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    line.protect(contract(BY_DAY_AND_NONE))
    line.write(ROWS, TARGET, "wap")
    found = service(line).adopt(producer(line), "run-1", TARGET, "wap", {})
    head = line.scene.table_state().metadata.refs["wap"].snapshot_id
    assert (found.state, found.branch, found.staged_snapshot_id) == (AttemptState.VERIFYING, "wap", str(head))
    planned = service(line).list_chunks(producer(line), "run-1", after=0, count=10)
    assert [definition.where for definition, _ in planned] == ["true"]
    assert service(line).adopt(producer(line), "run-1", TARGET, "wap", {}) == found


def test_a_branch_is_adopted_once(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    line.protect()
    for branch in ("wap", "other"):
        line.write(ROWS, TARGET, branch)
    service(line).adopt(producer(line), "run-1", TARGET, "wap", {})
    adopt_again = lambda: service(line).adopt(producer(line), "run-2", TARGET, "wap", {})  # noqa: E731
    assert refusal_of(adopt_again, ConflictError) == "branch_taken"
    adopt_other = lambda: service(line).adopt(producer(line), "run-1", TARGET, "other", {})  # noqa: E731
    assert refusal_of(adopt_other) == "workload_parameters_differ"


def test_after_a_fail_another_branch_is_adopted_only_with_a_reason(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    line.protect()
    for branch in ("wap", "other"):
        line.write(ROWS, TARGET, branch)

    def adopt(branch: str, reason: str | None = None) -> Attempt:
        return service(line).adopt(producer(line), "run-1", TARGET, branch, {}, reason)

    first = adopt("wap")
    ended = line.notary.ledger.transact(
        lambda unit: attempts.end(unit, first.attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL"),
        at_micros=line.notary.clock.now_micros(),
    )
    assert adopt("wap") == ended
    assert refusal_of(lambda: adopt("other")) == "reason_missing"
    second = adopt("other", "the join is mended")
    assert (second.number, second.branch, second.state) == (2, "other", AttemptState.VERIFYING)


def test_a_workload_that_is_staged_by_chunks_adopts_no_branch(shared_line: Line) -> None:
    call = lambda: service(shared_line).adopt(producer(shared_line), "run-1", TARGET, "wap", {})  # noqa: E731
    assert refusal_of(call) == "workload_parameters_differ"


def test_main_an_attempts_branch_and_a_missing_branch_are_not_adopted(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    open_workload(line)
    of_attempt = open_attempt(line).branch
    for branch, reason in (("main", "branch_reserved"), (of_attempt, "branch_reserved")):
        call = lambda: service(line).adopt(producer(line), "run-2", TARGET, branch, {})  # noqa: B023, E731
        assert refusal_of(call, NotAllowedError) == reason
    assert refusal_of(lambda: service(line).adopt(producer(line), "run-2", TARGET, "gone", {})) == "branch_unknown"


def test_no_workload_is_opened_and_no_source_pinned_for_a_branch_that_cannot_be_adopted(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.write(ROWS[:1], TARGET)
    line.protect()
    pinned: list[BoundContract] = []
    line.write(ROWS, TARGET, "taken")
    service(line).adopt(producer(line), "run-0", TARGET, "taken", {})
    monkeypatch.setattr(service(line).sources, "pin", lambda bound, _: pinned.append(bound))
    for branch, reason in (("gone", "branch_unknown"), ("main", "branch_reserved"), ("taken", "branch_taken")):
        call = lambda: service(line).adopt(producer(line), "run-1", TARGET, branch, {})  # noqa: B023, E731
        assert refusal_of(call, PvdmError) == reason
    with line.notary.ledger.read() as unit:
        assert (workloads.find(unit, "run-1"), pinned) == (None, [])


def test_a_parameter_that_is_no_value_of_the_declared_partition_opens_no_workload(line: Line) -> None:
    by_id = {"action": "add-spec", "spec": {"fields": [{"name": "id", "transform": "bucket[4]", "source-id": 1}]}}
    line.scene.commit([by_id, {"action": "set-default-spec", "spec-id": -1}])
    declared = {"operation": "overwrite-partitions", "partition": "{id: '${part}'}"}
    line.protect(contract("parameters:\n  part: {type: long}", **declared))
    for value, reason in (("3000000000", "literal_invalid"), ("-2147483649", "literal_invalid")):
        call = lambda: service(line).open(producer(line), "run-1", TARGET, {"part": value})  # noqa: B023, E731
        assert refusal_of(call, PvdmError) == reason
    with line.notary.ledger.read() as unit:
        assert workloads.find(unit, "run-1") is None
    service(line).open(producer(line), "run-1", TARGET, {"part": "3"})
