"""Publishing to an upstream: whatever answer is lost, late or wrong, each publication is made exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.catalog import target
from pvdm.catalog.target import UpstreamTarget
from pvdm.errors import ConflictError, PvdmError, StateUnknownError, UnavailableError
from pvdm.lake.read.entries import live_entries
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.target import Base
from pvdm.model.statements.migration import ProtectionAction
from pvdm.model.states import AttemptState
from pvdm.steward.cleanup.disposal import Disposal
from pvdm.steward.restore.reconcile import end_announced
from tests.support import fault
from tests.support.catalog.upstream import (
    BEFORE,
    NEW,
    Upstream,
    announced_of,
    house_over,
    load_attempt,
    publish,
    reason_of,
    receipts_of,
)
from tests.support.gate.protected_tables import House
from tests.support.ledger.databases import memory_folder
from tests.support.servers.fault_proxy import (
    Fault,
    after_doing,
    answer_late,
    answer_without_doing,
    do_and_answer,
    hold_request,
    lose_answer,
    lose_request,
)


class CrashError(BaseException):
    """The process ends here."""


def crash_and_restart(house: House, point: str, attempt: Attempt) -> None:
    """The Steward ends at this point of the publication, and starts again."""
    with fault.armed(point, fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    house.stand.reopen()


def make_disposal(house: House) -> Disposal:
    notary = house.notary
    return Disposal(
        notary.ledger,
        notary.clock,
        notary.catalog,
        house.vault,
        house.files,
        notary.recorder.require_consistent,
    )


def settle(house: House) -> None:
    house.publishing().settle()


def state_of(house: House, attempt: Attempt) -> tuple[str, list[int], list[str], int]:
    """The attempt's state, the rows of main, the states of its announced publications, and the number of receipts."""
    return str(load_attempt(house, attempt).state), house.rows(), announced_of(house, attempt), len(receipts_of(house))


def test_a_publication_is_visible_in_the_upstream_itself(house: House, upstream: Upstream) -> None:
    attempt = house.proved("w", NEW)
    done = publish(house, attempt)
    assert upstream.table_state().metadata.current_snapshot_id == done.shown.new_snapshot_id
    assert done.shown.metadata_path == upstream.table_state().row.pointer.location
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)


def test_format_3_reaches_the_upstream_with_its_row_ids(upstream: Upstream, house: House) -> None:
    house.table("returns", rows=BEFORE, version=3)
    publish(house, house.proved("w", NEW, name="returns"))
    metadata = upstream.table_state("returns").metadata
    shown = metadata.current_snapshot
    assert shown is not None
    # As with Iceberg's own writers, a rewritten manifest reserves row ids for all of its rows.
    assert (shown.first_row_id, shown.added_rows, metadata.next_row_id) == (4, 4, 8)
    ids = [each.data_file.first_row_id for each in live_entries(metadata, shown, house.files)]
    assert len(set(ids)) == len(ids)


# Crashes between the gate's steps: 12 announce, 13 commit at the upstream ("swap"), 14 read back, 15 receipt.


@pytest.mark.parametrize("point", ["gate.after_files", "upstream.after_announce"])
def test_after_a_crash_before_the_commit_nothing_is_visible_and_publishing_can_be_repeated(
    house: House, point: str
) -> None:
    attempt = house.proved("w", NEW)
    crash_and_restart(house, point, attempt)
    assert (house.rows(), load_attempt(house, attempt).state) == ([1, 2], "COMMITTING")
    settle(house)
    tried = ["RELEASED"] if point == "upstream.after_announce" else []
    assert state_of(house, attempt) == ("COMMITTING", [1, 2], tried, 0)
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", *tried], 1)


@pytest.mark.parametrize("point", ["upstream.after_swap", "upstream.after_look", "gate.before_receipt"])
def test_after_a_crash_after_the_commit_nothing_is_doubled_and_the_receipt_is_signed(house: House, point: str) -> None:
    attempt = house.proved("w", NEW)
    crash_and_restart(house, point, attempt)
    assert house.rows() == [1, 2, 3, 4]
    settle(house)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)
    settle(house)
    again = publish(house, attempt)
    assert receipts_of(house) == [again.receipt_id]


def test_a_crash_before_the_fence_leaves_the_announced_publication_open(house: House) -> None:
    attempt = house.proved("w", NEW)
    crash_and_restart(house, "upstream.after_announce", attempt)
    with fault.armed("upstream.before_fence", fault.Raise(CrashError())), pytest.raises(CrashError):
        settle(house)
    house.stand.reopen()
    assert announced_of(house, attempt) == ["OPEN"]
    publish(house, attempt)  # settles the open publication first
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


# Answers that are lost, or that say something else than what happened.


def test_a_commit_that_was_made_counts_whatever_its_answer_was(house: House, upstream: Upstream) -> None:
    ways = [lose_answer, *(do_and_answer(status) for status in (409, 429, 500, 502, 503, 504))]
    house.open("w", [str(at) for at, _ in enumerate(ways)])
    for at, way in enumerate(ways):
        attempt = house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=str(at), opened=False)
        upstream.proxy.plan.append(way)
        before = len(upstream.proxy.commits)
        publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", list(range(1, 4 + at)), ["DONE"], at + 1), way
        assert upstream.proxy.commit_statuses()[before:] == [200]


def test_a_commit_whose_answer_comes_after_the_time_out_counts(upstream: Upstream) -> None:
    with memory_folder() as folder, house_over(folder, upstream, seconds=5) as house:
        house.table(rows=BEFORE)
        attempt = house.proved("w", NEW)
        upstream.proxy.plan.append(answer_late)
        before = len(upstream.proxy.commits)
        publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)
        assert upstream.proxy.commit_statuses()[before:] == [200]


def test_a_commit_that_was_not_made_is_fenced_off_and_made_again(house: House, upstream: Upstream) -> None:
    ways = [lose_request, *(answer_without_doing(status) for status in (400, 409, 500, 503))]
    house.open("w", [str(at) for at, _ in enumerate(ways)])
    for at, way in enumerate(ways):
        attempt = house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=str(at), opened=False)
        upstream.proxy.plan.append(way)
        if reason_of(house, attempt) == "upstream_rejected":  # the answer 400 is reported, and the next call succeeds
            publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", list(range(1, 4 + at)), ["DONE", "RELEASED"], at + 1), way


def test_a_commit_that_arrives_after_it_was_given_up_is_refused_by_its_fence(house: House, upstream: Upstream) -> None:
    attempt = house.proved("w", NEW)
    upstream.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    assert announced_of(house, attempt) == ["RELEASED"]
    assert upstream.proxy.deliver() == [409]
    assert house.rows() == [1, 2]
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


def test_a_commit_that_arrives_after_everything_was_cleaned_up_is_refused(house: House, upstream: Upstream) -> None:
    attempt = house.proved("w", NEW)
    upstream.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    house.transact(lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="given up"))
    make_disposal(house).dispose(attempt.attempt_id)
    assert sorted(upstream.table_state().metadata.refs) == ["main"]  # neither branch nor fence is left
    assert upstream.proxy.deliver() == [409]
    assert house.rows() == [1, 2]


def test_a_commit_that_arrives_while_it_is_fenced_off_counts(house: House, upstream: Upstream) -> None:
    attempt = house.proved("w", NEW)
    upstream.proxy.plan += [hold_request, after_doing(upstream.proxy.deliver)]
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)
    assert not [name for name in upstream.table_state().metadata.refs if "fence" in name]  # it was refused


def test_a_publication_succeeds_even_if_the_answer_to_its_fence_is_lost(house: House, upstream: Upstream) -> None:
    house.open("w", ["made", "not made"])
    for at, (name, way) in enumerate((("made", lose_answer), ("not made", lose_request))):
        attempt = house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=name, opened=False)
        upstream.proxy.plan += [lose_request, way]
        publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", list(range(1, 4 + at)), ["DONE", "RELEASED"], at + 1)


def publish_with_unknown_result(
    house: House, upstream: Upstream, attempt: Attempt, way: Fault = lose_answer
) -> StateUnknownError:
    """Lose the answer of the commit, and let the upstream be unreachable afterwards. Returns the error."""
    upstream.proxy.plan.append(way)

    def gone() -> None:
        upstream.proxy.down = True

    with fault.armed("upstream.after_swap", fault.Call(gone)), pytest.raises(StateUnknownError) as caught:
        publish(house, attempt)
    return caught.value


def test_a_publication_of_unknown_result_stays_open_until_the_upstream_answers(
    house: House, upstream: Upstream
) -> None:
    attempt = house.proved("w", NEW)
    error = publish_with_unknown_result(house, upstream, attempt)
    assert (error.reason, error.exit_code) == ("upstream_unknown", 6)
    settle(house)
    assert (load_attempt(house, attempt).state, announced_of(house, attempt)) == ("COMMITTING", ["OPEN"])
    upstream.proxy.down = False
    settle(house)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)


def test_an_attempt_of_unknown_result_cannot_end_and_its_table_cannot_be_unprotected(
    house: House, upstream: Upstream
) -> None:
    attempt = house.proved("w", NEW)
    protection = house.scene.protection(contract=house.contracts["orders"], action=ProtectionAction.UNPROTECT)
    other = house.proved("w2", [(9, 1, "Ulm")])
    publish_with_unknown_result(house, upstream, attempt, lose_request)
    with pytest.raises(ConflictError) as caught:
        house.transact(lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="given up"))
    assert caught.value.reason == "attempt_announced"
    upstream.proxy.down = False
    with pytest.raises(ConflictError) as caught:
        house.scene.protect(protection)
    assert caught.value.reason == "publication_under_way"
    publish(house, other)  # settles the first one before it goes on
    assert state_of(house, attempt) == ("COMMITTING", [1, 2, 9], ["RELEASED"], 1)
    assert reason_of(house, attempt) == "claim_overlaps"


def test_a_restore_ends_announced_publications_and_the_gate_refuses_what_they_may_have_shown(
    house: House, upstream: Upstream
) -> None:
    attempt = house.proved("w", NEW)
    publish_with_unknown_result(house, upstream, attempt)
    upstream.proxy.down = False
    assert house.transact(end_announced) == [str(upstream.table_state().metadata.current_snapshot_id)]
    assert announced_of(house, attempt) == ["RELEASED"]
    ended = house.transact(
        lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="restored")
    )
    assert ended.state is AttemptState.ROLLED_BACK
    with pytest.raises(ConflictError) as caught:
        house.gate().target.load()  # no statement covers what the publication may have shown
    assert caught.value.reason == "upstream_main_moved"


# Other writers that commit at the same time.


def test_a_publication_is_tried_again_if_another_branch_is_committed_to_meanwhile(
    house: House, upstream: Upstream
) -> None:
    attempt = house.proved("w", NEW)
    upstream.proxy.plan.append(after_doing(lambda: upstream.append_directly(house, [(8, 1, "Ulm")], branch="theirs")))
    publish(house, attempt)
    assert state_of(house, attempt)[:2] == ("COMMITTED", [1, 2, 3, 4])
    assert "theirs" in upstream.table_state().metadata.refs


def test_nothing_is_published_on_a_snapshot_that_somebody_puts_onto_main_meanwhile(
    house: House, upstream: Upstream
) -> None:
    attempt = house.proved("w", NEW)
    base = upstream.table_state().metadata.current_snapshot_id
    upstream.proxy.plan.append(after_doing(lambda: upstream.append_directly(house, [(8, 1, "Ulm")])))
    assert reason_of(house, attempt) == "upstream_main_moved"
    assert state_of(house, attempt) == ("COMMITTING", [1, 2, 8], ["RELEASED"], 0)
    upstream.commit([{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": base}])
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


def test_publications_need_not_have_the_order_of_their_proofs(house: House) -> None:
    house.open("w", ["a", "b"])
    one, other = (
        house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=chunk_id, opened=False) for at, chunk_id in enumerate("ab")
    )
    publish(house, other)
    publish(house, one)
    assert (house.rows(), len(receipts_of(house))) == ([1, 2, 3, 4], 2)


@pytest.fixture
def house_on_each_database(ledger_url: str, tmp_path: Path, upstream: Upstream) -> Iterator[House]:
    """A house on each database in turn."""
    with house_over(tmp_path, upstream, ledger_url=ledger_url) as made:
        made.table(rows=BEFORE)
        yield made


def test_an_overlapping_claim_is_refused_while_a_publication_is_open_on_each_database(
    house_on_each_database: House, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent to the upstream for the refused one. The open publication is another Steward's."""
    attempt = house_on_each_database.proved("w", NEW)
    monkeypatch.setattr("pvdm.catalog.target._HOLDER", "another-steward")
    upstream.proxy.plan.append(lose_answer)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house_on_each_database, attempt)
    monkeypatch.undo()
    monkeypatch.setattr("pvdm.catalog.target.UPSTREAM_TURN_MAX_SECONDS", 0.2)
    second, before = house_on_each_database.proved("w2", [(9, 1, "Ulm")]), len(upstream.proxy.commits)
    assert reason_of(house_on_each_database, second) == "claim_overlaps"
    assert len(upstream.proxy.commits) == before  # the overlap was found in the ledger
    settle(house_on_each_database)
    assert state_of(house_on_each_database, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)


# An upstream whose answers are wrong.


@pytest.mark.parametrize("what", ["another list", "another parent"])
def test_a_snapshot_of_the_same_id_with_another_list_or_parent_is_a_contradiction(
    house: House, upstream: Upstream, what: str
) -> None:
    attempt = house.proved("w", NEW)

    def change_newest(_: object, answer: dict[str, object]) -> dict[str, object]:
        metadata: dict[str, object] = answer["metadata"]  # type: ignore[assignment]
        listed: list[dict[str, object]] = metadata["snapshots"]  # type: ignore[assignment]
        newest = max(listed, key=lambda each: int(str(each["sequence-number"])))
        if what == "another list":
            newest["manifest-list"] = listed[0]["manifest-list"]
        else:
            newest.pop("parent-snapshot-id")
        return answer

    def begin() -> None:
        upstream.proxy.change_load = change_newest

    with fault.armed("upstream.after_swap", fault.Call(begin)), pytest.raises(PvdmError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, caught.value.exit_code) == ("upstream_contradicts", 6)
    assert load_attempt(house, attempt).state == "COMMITTING"
    assert (announced_of(house, attempt), receipts_of(house)) == (["OPEN"], [])


def test_settling_stops_after_some_tries_if_the_upstream_does_not_answer(
    house: House, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = house.proved("w", NEW)
    upstream.proxy.plan.append(lose_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    looks = []

    def fail_to_read_back(_: object) -> Base:
        looks.append(1)
        raise UnavailableError("upstream_unavailable", "it does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(UpstreamTarget, "read_back", fail_to_read_back)
        settle(house)
        assert len(looks) == target.SETTLE_TRIES_MAX
        patch.setattr(target, "SETTLE_BEGIN_MAX_SECONDS", -1)
        settle(house)
        assert len(looks) == target.SETTLE_TRIES_MAX + 1
    publish(house, attempt)
    assert announced_of(house, attempt) == ["DONE", "RELEASED"]
