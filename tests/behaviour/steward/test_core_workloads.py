"""Workloads: opened under the table's own contract, pinned and planned once, attempted with a branch of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError
from pvdm.ledger import Unit
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, nonces, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.work.opened import bound_contract
from pvdm.steward.work.opening import Workloads
from tests.support import fault
from tests.support.gate.approvals import code_of
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import attempt_token
from tests.support.steward.pipeline import BY_DAY, RAW, REASON, ROWS, Line, contract, line_at

BY_PARAMETER = contract("parameters:\n  day: {type: date}", where="day = ${day}")
TARGET = "sales.orders"


def quiet(line: Line) -> Line:
    """Nobody verifies: what is looked at here is what comes before."""
    line.notary.jobs.stop()
    return line


@pytest.fixture
def line() -> Iterator[Line]:
    with memory_folder() as folder, line_at(folder) as made:
        yield quiet(made)


@pytest.fixture(scope="module")
def still() -> Iterator[Line]:
    """For refusals, which change nothing: `sales.orders` by day, with one workload of it."""
    with memory_folder() as folder, line_at(folder) as made:
        made.protect(contract(BY_DAY))
        desk(quiet(made)).open(producer(made), "run-1", TARGET, {})
        yield made


def producer(line: Line, domain: str = "sales") -> Grant:
    return line.scene.grant(Role.PRODUCER, domain)


def desk(line: Line) -> Workloads:
    return line.notary.workloads


def opened(line: Line, text: str | None = None, workload_id: str = "run-1") -> str:
    """A protected table and a workload of it; its first chunk."""
    line.protect(text or contract())
    desk(line).open(producer(line), workload_id, TARGET, {})
    return desk(line).chunks(producer(line), workload_id, after=0, count=1)[0].definition.chunk_id


def attempt(line: Line, chunk_id: str = "all", workload_id: str = "run-1") -> Attempt:
    return desk(line).next_attempt(producer(line), workload_id, chunk_id, REASON)


def given_up(line: Line, found: Attempt) -> None:
    line.notary.work.abort(producer(line), found.attempt_id, "given up")


def failed(line: Line, found: Attempt) -> None:
    """What a FAIL does in the ledger."""

    def work(unit: Unit) -> None:
        begun = attempts.begin_verifying(
            unit, found.attempt_id, nonce="f" * 24 + f"{found.number:08}", staged_snapshot_id=None, reason="staged"
        )
        attempts.end(unit, begun.attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL")

    line.notary.ledger.transact(work, at_micros=line.notary.clock.now_micros())


def publish(line: Line, found: Attempt, snapshot_id: str = "9") -> None:
    """What the gate does in the ledger."""

    def work(unit: Unit) -> None:
        attempts.begin_committing(unit, found.attempt_id, reason="PASS")
        held = nonces.find_held(unit, found.attempt_id)
        assert held is not None
        attempts.publish(unit, found.attempt_id, nonce=held.nonce, snapshot_id=snapshot_id)

    line.notary.ledger.transact(work, at_micros=line.notary.clock.now_micros())


def refused(call: Callable[[], object], kind: type[PvdmError] = InputError) -> str:
    return code_of(call, kind)


# Opening


def test_a_workload_pins_the_source_and_fixes_the_plan(line: Line) -> None:
    line.protect(contract(BY_DAY))
    found = desk(line).open(producer(line), "run-1", TARGET, {})
    source = line.scene.found(levels=RAW)
    assert found.state is WorkloadState.OPEN
    assert found.opening.contract_hash == line.scene.contract_of()
    assert found.opening.source == source.row.table_uuid
    assert found.source_snapshot_id == str(source.metadata.current_snapshot_id)
    planned = desk(line).chunks(producer(line), "run-1", after=0, count=10)
    assert [chunk.chunk_id for chunk, _ in planned] == ["day=2026-11-13", "day=2026-11-14", "day=~other"]


def test_opening_again_changes_nothing_though_the_source_has_moved(line: Line) -> None:
    line.protect()
    first = desk(line).open(producer(line), "run-1", TARGET, {})
    line.write(ROWS[:1])
    assert desk(line).open(producer(line), "run-1", TARGET, {}) == first
    later = desk(line).open(producer(line), "run-2", TARGET, {})
    assert later.source_snapshot_id != first.source_snapshot_id


def test_two_openings_at_once_make_one_workload(line: Line) -> None:
    line.protect()
    found: list[object] = []

    def work() -> None:
        found.append(desk(line).open(producer(line), "run-1", TARGET, {}))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4


def test_the_same_id_with_other_parameters_is_refused(line: Line) -> None:
    line.protect(BY_PARAMETER)
    desk(line).open(producer(line), "run-1", TARGET, {"day": "2026-11-13"})
    again = lambda: desk(line).open(producer(line), "run-1", TARGET, {"day": "2026-11-14"})  # noqa: E731
    assert refused(again) == "workload_parameters_differ"


def test_parameters_are_bound_in_their_one_spelling(line: Line) -> None:
    line.protect(BY_PARAMETER)
    found = desk(line).open(producer(line), "run-1", TARGET, {"day": "2026-11-13"})
    with line.notary.ledger.read() as unit:
        assert bound_contract(unit, found).parameters == (("day", "2026-11-13"),)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "parameters_differ"),
        ({"day": "2026-11-13", "hour": "1"}, "parameters_differ"),
        ({"day": "x"}, "parameter_invalid"),
    ],
)
def test_parameters_are_those_of_the_contract(line: Line, given: dict[str, str], code: str) -> None:
    line.protect(BY_PARAMETER)
    assert refused(lambda: desk(line).open(producer(line), "run-1", TARGET, given)) == code


def test_a_table_without_a_contract_has_no_workload(line: Line) -> None:
    call = lambda: desk(line).open(producer(line), "run-1", TARGET, {})  # noqa: E731
    assert refused(call, NotAllowedError) == "not_protected"


def test_a_table_that_was_born_under_a_namespaces_contract_has_none_of_its_own(line: Line) -> None:
    line.scene.protect(line.scene.namespace_protection(contract=contract()))
    line.scene.make("invoices")
    call = lambda: desk(line).open(producer(line), "run-1", "sales.invoices", {})  # noqa: E731
    assert refused(call, NotAllowedError) == "contract_of_other_table"


def test_a_source_that_shows_nothing_cannot_be_pinned(tmp_path: Path) -> None:
    with line_at(tmp_path, rows=()) as line:
        line.protect()
        assert refused(lambda: desk(line).open(producer(line), "run-1", TARGET, {})) == "source_empty"


def test_a_source_that_went_back_behind_what_was_published_is_refused(line: Line) -> None:
    older = line.scene.found(levels=RAW).metadata.current_snapshot_id
    line.write(ROWS[:1])
    opened(line)
    publish(line, desk(line).end_staging(producer(line), attempt(line).attempt_id))
    back = [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": older}]
    line.scene.commit(back, levels=RAW)
    call = lambda: desk(line).open(producer(line), "run-2", TARGET, {})  # noqa: E731
    assert refused(call, NotAllowedError) == "source_not_descended"


def test_another_domain_opens_nothing_here(still: Line) -> None:
    call = lambda: desk(still).open(producer(still, "risk"), "run-9", TARGET, {})  # noqa: E731
    assert refused(call, NotAllowedError) == "domain_wrong"


def test_a_workload_that_is_not_the_tables_contracts_any_more_goes_no_further(line: Line) -> None:
    opened(line)
    before = attempt(line)
    line.scene.migrate(line.scene.migration([], contract=contract(BY_DAY)))
    staged = lambda: desk(line).end_staging(producer(line), before.attempt_id)  # noqa: E731
    assert refused(staged, NotAllowedError) == "contract_moved"
    given_up(line, before)
    assert refused(lambda: attempt(line), NotAllowedError) == "contract_moved"
    again = lambda: desk(line).open(producer(line), "run-1", TARGET, {})  # noqa: E731
    assert refused(again, NotAllowedError) == "contract_moved"


# Attempts


def test_an_attempt_has_a_branch_from_mains_head_a_prefix_and_a_nonce(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    opened(line)
    found = attempt(line)
    metadata = line.scene.found().metadata
    assert (found.state, found.number, found.reason) == (AttemptState.STAGING, 1, REASON)
    assert found.branch == f"pvdm_{found.attempt_id}"
    assert metadata.refs[found.branch].snapshot_id == metadata.current_snapshot_id
    assert found.prefix == f"{metadata.location}/pvdm/{found.attempt_id}"
    with line.notary.ledger.read() as unit:
        assert nonces.find_held(unit, found.attempt_id) is not None


def test_on_an_empty_table_the_branch_comes_with_the_first_write(line: Line) -> None:
    opened(line)
    found = attempt(line)
    assert found.branch not in line.scene.found().metadata.refs


@pytest.mark.parametrize("point", ["catalog.after_metadata_file", "ledger.before_commit"])
def test_branch_and_attempt_come_together_or_not_at_all(line: Line, point: str) -> None:
    line.write(ROWS[:1], TARGET)
    opened(line)
    with fault.armed(point, fault.Raise(ConflictError("made_up", "stopped"))), pytest.raises(ConflictError):
        attempt(line)
    with line.notary.ledger.read() as unit:
        assert attempts.list_live(unit) == []
    assert set(line.scene.found().metadata.refs) == {"main"}


def test_a_second_attempt_is_refused_with_the_live_one(line: Line) -> None:
    opened(line)
    first = attempt(line)
    with pytest.raises(ConflictError) as caught:
        attempt(line)
    assert (caught.value.reason, caught.value.details["attempt_id"]) == ("attempt_live", first.attempt_id)


def test_attempts_are_capped_by_the_contract(line: Line) -> None:
    opened(line, contract("governance: {attempts: 2}"))
    for number in (1, 2):
        found = attempt(line)
        assert found.number == number
        failed(line, found)
    assert refused(lambda: attempt(line)) == "attempts_used_up"


def test_attempts_that_were_rolled_back_are_not_counted_by_the_contract(line: Line) -> None:
    opened(line, contract("governance: {attempts: 1}"))
    for number in (1, 2, 3):
        found = attempt(line)
        assert found.number == number
        given_up(line, found)
    failed(line, attempt(line))
    assert refused(lambda: attempt(line)) == "attempts_used_up"


def test_a_chunk_that_the_plan_does_not_have_is_not_tried(still: Line) -> None:
    assert refused(lambda: attempt(still, "day=2026-11-15")) == "chunk_unknown"


def test_another_domain_tries_nothing_here(still: Line) -> None:
    call = lambda: desk(still).next_attempt(producer(still, "risk"), "run-1", "day=~other", REASON)  # noqa: E731
    assert refused(call, NotAllowedError) == "domain_wrong"


# Staged


def test_the_staged_snapshot_is_the_branchs_head_in_the_catalog(line: Line) -> None:
    opened(line)
    with line.client() as client:
        found = client.attempt(attempt(line).attempt_id)
        line.stage(client, found, ROWS)
    staged = desk(line).end_staging(producer(line), found.attempt_id)
    head = line.scene.found().metadata.refs[found.branch].snapshot_id
    assert (staged.state, staged.staged_snapshot_id) == (AttemptState.VERIFYING, str(head))
    assert desk(line).end_staging(producer(line), found.attempt_id) == staged


def test_a_branch_that_shows_what_main_shows_has_nothing_staged(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    opened(line)
    assert desk(line).end_staging(producer(line), attempt(line).attempt_id).staged_snapshot_id is None


def test_what_was_given_up_is_not_staged(line: Line) -> None:
    opened(line)
    found = attempt(line)
    given_up(line, found)
    assert refused(lambda: desk(line).end_staging(producer(line), found.attempt_id), ConflictError) == "attempt_moved"


def test_a_token_for_one_attempt_says_only_that_its_own_is_staged(line: Line) -> None:
    chunk_id = opened(line, contract(BY_DAY))
    first, second = attempt(line, chunk_id), attempt(line, "day=~other")
    _, own = attempt_token(line.notary.access, producer(line), first.attempt_id)
    call = lambda: desk(line).end_staging(own, second.attempt_id)  # noqa: E731
    assert refused(call, NotAllowedError) == "token_of_other_attempt"
    assert desk(line).end_staging(own, first.attempt_id).state is AttemptState.VERIFYING
    for refused_too in (
        lambda: desk(line).open(own, "run-2", TARGET, {}),
        lambda: desk(line).next_attempt(own, "run-1", chunk_id, REASON),
        lambda: desk(line).chunks(own, "run-1", after=0, count=1),
        lambda: desk(line).adopt(own, "run-2", TARGET, "wap", {}),
    ):
        assert refused(refused_too, NotAllowedError) == "token_of_other_attempt"


def test_no_more_is_written_once_the_steward_has_it(line: Line) -> None:
    opened(line)
    with line.client() as client:
        found = client.attempt(attempt(line).attempt_id)
        line.stage(client, found, ROWS[:2])
        desk(line).end_staging(producer(line), found.attempt_id)
        with pytest.raises(NotAllowedError) as caught:
            line.stage(client, found, ROWS[2:])
    assert caught.value.reason == "attempt_not_staging"


# Given up


def test_an_abandoned_workload_rolls_its_live_attempts_back_and_opens_no_more(line: Line) -> None:
    first = opened(line, contract(BY_DAY))
    staging, verifying, done = (attempt(line, each) for each in (first, "day=2026-11-14", "day=~other"))
    desk(line).end_staging(producer(line), verifying.attempt_id)
    publish(line, desk(line).end_staging(producer(line), done.attempt_id))
    for _ in range(2):
        assert desk(line).abandon(line.scene.grant(), "run-1", "the day is wrong").state is WorkloadState.ABANDONED
    with line.notary.ledger.read() as unit:
        states = [attempts.get(unit, each.attempt_id).state for each in (staging, verifying, done)]
        assert workloads.get(unit, "run-1").reason == "the day is wrong"
    assert states == [AttemptState.ROLLED_BACK, AttemptState.ROLLED_BACK, AttemptState.COMMITTED]
    assert refused(lambda: attempt(line, first), ConflictError) == "workload_moved"


def test_another_domains_operator_abandons_nothing_here(still: Line) -> None:
    call = lambda: desk(still).abandon(still.scene.grant(Role.OPERATOR, "risk"), "run-1", "not mine")  # noqa: E731
    assert refused(call, NotAllowedError) == "domain_wrong"


# The plan


def test_chunks_come_in_pages_with_the_last_attempt_at_each(line: Line) -> None:
    first = opened(line, contract(BY_DAY))
    given_up(line, attempt(line, first))
    second = attempt(line, first)
    found = desk(line).chunks(producer(line), "run-1", after=0, count=2)
    assert [last and last.attempt_id for _, last in found] == [second.attempt_id, None]
    rest = desk(line).chunks(producer(line), "run-1", after=2, count=2)
    assert [chunk.chunk_id for chunk, _ in rest] == ["day=~other"]
    assert desk(line).chunks(producer(line), "run-1", after=3, count=2) == []


def test_a_plan_is_for_its_own_domain(still: Line) -> None:
    call = lambda: desk(still).chunks(producer(still, "risk"), "run-1", after=0, count=1)  # noqa: E731
    assert refused(call, NotAllowedError) == "domain_wrong"


# Branches that were staged before


def test_a_branch_is_taken_over_as_one_chunk(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    line.protect(contract(BY_DAY))
    line.write(ROWS, TARGET, "wap")
    found = desk(line).adopt(producer(line), "run-1", TARGET, "wap", {})
    head = line.scene.found().metadata.refs["wap"].snapshot_id
    assert (found.state, found.branch, found.staged_snapshot_id) == (AttemptState.VERIFYING, "wap", str(head))
    planned = desk(line).chunks(producer(line), "run-1", after=0, count=10)
    assert [definition.where for definition, _attempt in planned] == ["true"]
    assert desk(line).adopt(producer(line), "run-1", TARGET, "wap", {}) == found


def test_a_branch_is_taken_over_once(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    line.protect()
    for branch in ("wap", "other"):
        line.write(ROWS, TARGET, branch)
    desk(line).adopt(producer(line), "run-1", TARGET, "wap", {})
    taken = lambda: desk(line).adopt(producer(line), "run-2", TARGET, "wap", {})  # noqa: E731
    assert refused(taken, ConflictError) == "branch_taken"
    differs = lambda: desk(line).adopt(producer(line), "run-1", TARGET, "other", {})  # noqa: E731
    assert refused(differs) == "workload_parameters_differ"


def test_after_a_branch_that_failed_another_is_taken_over_only_with_a_reason(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    line.protect()
    for branch in ("wap", "other"):
        line.write(ROWS, TARGET, branch)

    def take(branch: str, reason: str | None = None) -> Attempt:
        return desk(line).adopt(producer(line), "run-1", TARGET, branch, {}, reason)

    first = take("wap")
    failed = line.notary.ledger.transact(
        lambda unit: attempts.end(unit, first.attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL"),
        at_micros=line.notary.clock.now_micros(),
    )
    assert take("wap") == failed
    assert refused(lambda: take("other")) == "reason_missing"
    second = take("other", "the join is mended")
    assert (second.number, second.branch, second.state) == (2, "other", AttemptState.VERIFYING)


def test_a_workload_that_is_staged_by_chunks_takes_no_branch_over(still: Line) -> None:
    call = lambda: desk(still).adopt(producer(still), "run-1", TARGET, "wap", {})  # noqa: E731
    assert refused(call) == "workload_parameters_differ"


def test_main_an_attempts_branch_and_what_is_none_are_not_taken_over(line: Line) -> None:
    line.write(ROWS[:1], TARGET)
    opened(line)
    theirs = attempt(line).branch
    for branch, code in (("main", "branch_reserved"), (theirs, "branch_reserved")):
        call = lambda: desk(line).adopt(producer(line), "run-2", TARGET, branch, {})  # noqa: B023, E731
        assert refused(call, NotAllowedError) == code
    assert refused(lambda: desk(line).adopt(producer(line), "run-2", TARGET, "gone", {})) == "branch_unknown"
