"""Publishing to an upstream: whatever is lost, late or unclear, what is shown is shown once, and nothing is lost."""

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
    code_of,
    house_over,
    load_attempt,
    publish,
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


def crash(house: House, point: str, attempt: Attempt) -> None:
    """The Steward ends at this point of the publication, and starts again."""
    with fault.armed(point, fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    house.stand.reopen()


def disposal(house: House) -> Disposal:
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
    """What the attempt is, what main shows, how its announcements ended, and how many receipts there are."""
    return str(load_attempt(house, attempt).state), house.rows(), announced_of(house, attempt), len(receipts_of(house))


def test_what_is_proved_is_shown_by_the_upstream_itself(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    done = publish(house, attempt)
    assert there.found().metadata.current_snapshot_id == done.shown.new_snapshot_id
    assert done.shown.metadata_path == there.found().row.pointer.location
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)


def test_format_3_reaches_the_upstream_with_its_row_ids(there: Upstream, house: House) -> None:
    house.table("returns", rows=BEFORE, version=3)
    publish(house, house.proved("w", NEW, name="returns"))
    metadata = there.found("returns").metadata
    shown = metadata.current_snapshot
    assert shown is not None
    # As Iceberg's own writers do it, a manifest that is written again keeps room for the rows that it has.
    assert (shown.first_row_id, shown.added_rows, metadata.next_row_id) == (4, 4, 8)
    ids = [each.data_file.first_row_id for each in live_entries(metadata, shown, house.files)]
    assert len(set(ids)) == len(ids)


# A crash between any two of the steps 12 (announce), 13 (swap), 14 (look) and 15 (second transaction, receipt).


@pytest.mark.parametrize("point", ["gate.after_files", "upstream.after_announce"])
def test_a_crash_before_the_swap_leaves_nothing_shown_and_publishing_goes_on(house: House, point: str) -> None:
    attempt = house.proved("w", NEW)
    crash(house, point, attempt)
    assert (house.rows(), load_attempt(house, attempt).state) == ([1, 2], "COMMITTING")
    settle(house)
    tried = ["RELEASED"] if point == "upstream.after_announce" else []
    assert state_of(house, attempt) == ("COMMITTING", [1, 2], tried, 0)
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", *tried], 1)


@pytest.mark.parametrize("point", ["upstream.after_swap", "upstream.after_look", "gate.before_receipt"])
def test_a_crash_after_the_swap_doubles_nothing_and_the_rest_is_made_good(house: House, point: str) -> None:
    attempt = house.proved("w", NEW)
    crash(house, point, attempt)
    assert house.rows() == [1, 2, 3, 4]
    settle(house)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)
    settle(house)
    again = publish(house, attempt)
    assert receipts_of(house) == [again.receipt_id]


def test_a_crash_before_the_fence_changes_nothing_about_it(house: House) -> None:
    attempt = house.proved("w", NEW)
    crash(house, "upstream.after_announce", attempt)
    with fault.armed("upstream.before_fence", fault.Raise(CrashError())), pytest.raises(CrashError):
        settle(house)
    house.stand.reopen()
    assert announced_of(house, attempt) == ["OPEN"]
    publish(house, attempt)  # whoever comes next settles first
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


# Answers that say nothing, or something else than what happened.


def test_a_commit_that_was_made_counts_whatever_its_answer_was(house: House, there: Upstream) -> None:
    ways = [lose_answer, *(do_and_answer(status) for status in (409, 429, 500, 502, 503, 504))]
    house.open("w", [str(at) for at, _ in enumerate(ways)])
    for at, way in enumerate(ways):
        attempt = house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=str(at), opened=False)
        there.proxy.plan.append(way)
        before = len(there.proxy.commits)
        publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", list(range(1, 4 + at)), ["DONE"], at + 1), way
        assert there.proxy.commit_statuses()[before:] == [200]


def test_a_commit_whose_answer_comes_when_nobody_waits_for_it_counts(there: Upstream) -> None:
    with memory_folder() as folder, house_over(folder, there, seconds=5) as house:
        house.table(rows=BEFORE)
        attempt = house.proved("w", NEW)
        there.proxy.plan.append(answer_late)
        before = len(there.proxy.commits)
        publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)
        assert there.proxy.commit_statuses()[before:] == [200]


def test_a_commit_that_was_not_made_is_fenced_off_and_made_anew(house: House, there: Upstream) -> None:
    ways = [lose_request, *(answer_without_doing(status) for status in (400, 409, 500, 503))]
    house.open("w", [str(at) for at, _ in enumerate(ways)])
    for at, way in enumerate(ways):
        attempt = house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=str(at), opened=False)
        there.proxy.plan.append(way)
        if code_of(house, attempt) == "upstream_rejected":  # the answer 400 is told, and the next try goes on
            publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", list(range(1, 4 + at)), ["DONE", "RELEASED"], at + 1), way


def test_a_commit_that_arrives_after_it_was_given_up_is_refused_by_its_fence(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    there.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    assert announced_of(house, attempt) == ["RELEASED"]
    assert there.proxy.deliver() == [409]
    assert house.rows() == [1, 2]
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


def test_a_commit_that_arrives_after_everything_was_cleaned_up_is_refused(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    there.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    house.transact(lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="given up"))
    disposal(house).dispose(attempt.attempt_id)
    assert sorted(there.found().metadata.refs) == ["main"]  # neither branch nor fence is left
    assert there.proxy.deliver() == [409]
    assert house.rows() == [1, 2]


def test_a_commit_that_arrives_while_it_is_fenced_off_counts(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    there.proxy.plan += [hold_request, after_doing(there.proxy.deliver)]
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)
    assert not [name for name in there.found().metadata.refs if "fence" in name]  # it was refused, and is not left


def test_the_fences_own_answer_may_be_lost_as_well(house: House, there: Upstream) -> None:
    house.open("w", ["made", "not made"])
    for at, (name, way) in enumerate((("made", lose_answer), ("not made", lose_request))):
        attempt = house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=name, opened=False)
        there.proxy.plan += [lose_request, way]
        publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", list(range(1, 4 + at)), ["DONE", "RELEASED"], at + 1)


def unknown(house: House, there: Upstream, attempt: Attempt, way: Fault = lose_answer) -> StateUnknownError:
    """The commit's answer is lost, and then the upstream cannot be reached at all."""
    there.proxy.plan.append(way)

    def gone() -> None:
        there.proxy.down = True

    with fault.armed("upstream.after_swap", fault.Call(gone)), pytest.raises(StateUnknownError) as caught:
        publish(house, attempt)
    return caught.value


def test_what_cannot_be_found_out_stays_open_until_it_can(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    error = unknown(house, there, attempt)
    assert (error.reason, error.exit_code) == ("upstream_unknown", 6)
    settle(house)
    assert (load_attempt(house, attempt).state, announced_of(house, attempt)) == ("COMMITTING", ["OPEN"])
    there.proxy.down = False
    settle(house)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)


def test_nothing_of_it_moves_while_it_is_not_known(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    said = house.scene.protection(contract=house.contracts["orders"], action=ProtectionAction.UNPROTECT)
    other = house.proved("w2", [(9, 1, "Ulm")])
    unknown(house, there, attempt, lose_request)
    with pytest.raises(ConflictError) as caught:
        house.transact(lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="given up"))
    assert caught.value.reason == "attempt_announced"
    there.proxy.down = False
    with pytest.raises(ConflictError) as caught:
        house.scene.protect(said)
    assert caught.value.reason == "publication_under_way"
    publish(house, other)  # settles the first one before it goes on
    assert state_of(house, attempt) == ("COMMITTING", [1, 2, 9], ["RELEASED"], 1)
    assert code_of(house, attempt) == "claim_overlaps"


def test_a_restore_ends_what_was_announced_and_leaves_it_to_an_audit(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    unknown(house, there, attempt)
    there.proxy.down = False
    assert house.transact(end_announced) == [str(there.found().metadata.current_snapshot_id)]
    assert announced_of(house, attempt) == ["RELEASED"]
    ended = house.transact(
        lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="restored")
    )
    assert ended.state is AttemptState.ROLLED_BACK
    with pytest.raises(ConflictError) as caught:
        house.gate().target.load()  # what it may have shown nobody vouches for
    assert caught.value.reason == "upstream_main_moved"


# Others who commit at the same time.


def test_a_branch_that_is_committed_to_meanwhile_only_makes_it_try_again(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    there.proxy.plan.append(after_doing(lambda: there.append_directly(house, [(8, 1, "Ulm")], branch="theirs")))
    publish(house, attempt)
    assert state_of(house, attempt)[:2] == ("COMMITTED", [1, 2, 3, 4])
    assert "theirs" in there.found().metadata.refs


def test_what_somebody_puts_onto_main_meanwhile_is_not_published_upon(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    base = there.found().metadata.current_snapshot_id
    there.proxy.plan.append(after_doing(lambda: there.append_directly(house, [(8, 1, "Ulm")])))
    assert code_of(house, attempt) == "upstream_main_moved"
    assert state_of(house, attempt) == ("COMMITTING", [1, 2, 8], ["RELEASED"], 0)
    there.commit([{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": base}])
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


def test_publications_follow_each_other_whichever_was_proved_first(house: House) -> None:
    house.open("w", ["a", "b"])
    one, other = (
        house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=chunk_id, opened=False) for at, chunk_id in enumerate("ab")
    )
    publish(house, other)
    publish(house, one)
    assert (house.rows(), len(receipts_of(house))) == ([1, 2, 3, 4], 2)


@pytest.fixture
def either(ledger_url: str, tmp_path: Path, there: Upstream) -> Iterator[House]:
    """The same on each database in turn."""
    with house_over(tmp_path, there, ledger_url=ledger_url) as made:
        made.table(rows=BEFORE)
        yield made


def test_it_is_the_same_on_each_database(either: House, there: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of the ledger is found before anything is sent, and another Steward's publication is waited for."""
    attempt = either.proved("w", NEW)
    monkeypatch.setattr("pvdm.catalog.target._HOLDER", "another-steward")
    there.proxy.plan.append(lose_answer)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(either, attempt)
    monkeypatch.undo()
    monkeypatch.setattr("pvdm.catalog.target.UPSTREAM_TURN_MAX_SECONDS", 0.2)
    second, before = either.proved("w2", [(9, 1, "Ulm")]), len(there.proxy.commits)
    assert code_of(either, second) == "claim_overlaps"
    assert len(there.proxy.commits) == before  # the overlap was found in the ledger
    settle(either)
    assert state_of(either, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE"], 1)


# An upstream that does not tell the truth.


@pytest.mark.parametrize("what", ["another list", "another parent"])
def test_a_snapshot_of_the_same_id_that_is_another_one_is_not_taken_for_it(
    house: House, there: Upstream, what: str
) -> None:
    attempt = house.proved("w", NEW)

    def lie(_: object, answer: dict[str, object]) -> dict[str, object]:
        metadata: dict[str, object] = answer["metadata"]  # type: ignore[assignment]
        listed: list[dict[str, object]] = metadata["snapshots"]  # type: ignore[assignment]
        newest = max(listed, key=lambda each: int(str(each["sequence-number"])))
        if what == "another list":
            newest["manifest-list"] = listed[0]["manifest-list"]
        else:
            newest.pop("parent-snapshot-id")
        return answer

    def begin() -> None:
        there.proxy.change_load = lie

    with fault.armed("upstream.after_swap", fault.Call(begin)), pytest.raises(PvdmError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, caught.value.exit_code) == ("upstream_contradicts", 6)
    assert load_attempt(house, attempt).state == "COMMITTING"
    assert (announced_of(house, attempt), receipts_of(house)) == (["OPEN"], [])


def test_a_publication_whose_upstream_hangs_is_not_looked_for_again_and_again(
    house: House, there: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = house.proved("w", NEW)
    there.proxy.plan.append(lose_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    looks = []

    def hanging(_: object) -> Base:
        looks.append(1)
        raise UnavailableError("upstream_unavailable", "it does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(UpstreamTarget, "read_back", hanging)
        settle(house)
        assert len(looks) == target.SETTLE_TRIES_MAX
        patch.setattr(target, "SETTLE_BEGIN_MAX_SECONDS", -1)
        settle(house)
        assert len(looks) == target.SETTLE_TRIES_MAX + 1
    publish(house, attempt)
    assert announced_of(house, attempt) == ["DONE", "RELEASED"]
