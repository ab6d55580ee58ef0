"""Fences are branches at the upstream that make late commits fail. Nobody can change them through the Steward."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.ledger.work import announced, attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.model.statements.migration import ProtectionAction
from pvdm.model.states import AttemptState
from tests.behaviour.upstream.test_upstream_publishing import CrashError, make_disposal, settle, state_of
from tests.behaviour.upstream.test_upstream_serving import commit, load_as, refusal_reason, set_main
from tests.support import fault
from tests.support.catalog.upstream import NEW, Upstream, publish, reason_of
from tests.support.gate.protected_tables import House
from tests.support.servers.fault_proxy import hold_request

Doc = dict[str, Any]


def fence_publication(house: House, upstream: Upstream, attempt: Attempt) -> str:
    """Hold back the commit request of a publication, and settle it, which sets a fence. Returns the fence's name.

    The fault point is reached once the request is sent, whatever the upstream does with it.
    """
    upstream.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    (fence,) = [name for name in upstream.table_state().metadata.refs if name.startswith("pvdm-fence-")]
    return fence


def fence_changes(upstream: Upstream, fence: str) -> dict[str, list[Doc]]:
    refs = upstream.table_state().metadata.refs
    other = next(ref.snapshot_id for ref in refs.values() if ref.snapshot_id != refs[fence].snapshot_id)
    move = {"action": "set-snapshot-ref", "ref-name": fence, "type": "branch", "snapshot-id": other}
    return {
        "removed": [{"action": "remove-snapshot-ref", "ref-name": fence}],
        "moved": [move],
        "another one": [{**move, "ref-name": "pvdm-fence-mine"}],
        "as a tag": [{**move, "ref-name": "pvdm-fence-mine", "type": "tag"}],
    }


def test_a_fence_cannot_be_changed_through_the_steward(house: House, upstream: Upstream) -> None:
    attempt = house.proved("w", NEW)
    fence = fence_publication(house, upstream, attempt)
    for what, updates in fence_changes(upstream, fence).items():
        for role in (Role.PRODUCER, Role.OPERATOR):
            reason = refusal_reason(lambda role=role, updates=updates: commit(house, updates, role=role))  # type: ignore[misc]
            assert reason == "ref_reserved", what
    assert upstream.proxy.deliver() == [409]
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


def test_a_fence_stays_after_the_protection_has_ended(house: House, upstream: Upstream) -> None:
    attempt = house.proved("w", NEW)
    fence = fence_publication(house, upstream, attempt)
    protection = house.scene.protection(contract=house.contracts["orders"], action=ProtectionAction.UNPROTECT)
    house.scene.protect(protection)
    assert refusal_reason(lambda: commit(house, fence_changes(upstream, fence)["removed"])) == "ref_reserved"
    assert upstream.proxy.deliver() == [409]


def test_the_snapshot_of_a_fence_cannot_be_removed(house: House, upstream: Upstream) -> None:
    house.table("empty")
    attempt = house.proved("w", NEW, name="empty")
    upstream.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    # `main` is empty, so the fence points at the staged snapshot.
    staged = upstream.table_state("empty").metadata.refs[attempt.branch].snapshot_id
    gone = [{"action": "remove-snapshots", "snapshot-ids": [staged]}]
    assert refusal_reason(lambda: commit(house, gone, name="empty")) == "ref_reserved"


def test_a_late_commit_after_its_fence_was_removed_at_the_upstream_is_not_shown_to_consumers(
    house: House, upstream: Upstream
) -> None:
    attempt = house.proved("w", NEW)
    base = upstream.table_state().metadata.current_snapshot_id
    fence = fence_publication(house, upstream, attempt)
    upstream.commit([{"action": "remove-snapshot-ref", "ref-name": fence}])
    assert upstream.proxy.deliver() == [200]
    assert refusal_reason(lambda: load_as(house, Role.CONSUMER)) == "main_unproved"
    assert reason_of(house, attempt) == "upstream_main_moved"
    assert base is not None
    upstream.commit([set_main(base)])  # an operator sets main back there
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)
    assert load_as(house, Role.CONSUMER)["metadata"]["snapshots"]


def test_the_branch_of_an_ended_attempt_cannot_be_created_again_so_a_late_commit_fails(
    house: House, upstream: Upstream
) -> None:
    attempt = house.proved("w", NEW)
    head = upstream.table_state().metadata.refs[attempt.branch].snapshot_id
    staged = upstream.table_state().metadata.snapshot(head)
    assert staged is not None
    fence_publication(house, upstream, attempt)
    house.transact(
        lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="given up by the test")
    )
    make_disposal(house).dispose(attempt.attempt_id)
    now = upstream.table_state().metadata
    assert set(now.refs) == {"main"}  # the branch and its fence are gone; the late request needs the branch
    again = {
        **staged.raw,
        "sequence-number": now.last_sequence_number + 1,
        "timestamp-ms": house.scene.now // 1_000,
        "manifest-list": f"{now.location}/metadata/mine.avro",
    }
    put: Doc = {"action": "set-snapshot-ref", "type": "branch", "snapshot-id": head}
    for role in (Role.PRODUCER, Role.OPERATOR):
        updates = [{"action": "add-snapshot", "snapshot": again}, {**put, "ref-name": attempt.branch}]
        assert refusal_reason(lambda role=role, updates=updates: commit(house, updates, role=role)) == "ref_reserved"  # type: ignore[misc]
    commit(house, [{"action": "add-snapshot", "snapshot": again}, {**put, "ref-name": "mine"}])
    assert upstream.proxy.deliver() == [409]
    assert house.rows() == [1, 2]


def test_the_snapshot_id_of_an_unsettled_publication_is_refused_to_others(house: House, upstream: Upstream) -> None:
    attempt = house.proved("w", NEW)
    upstream.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    with house.notary.ledger.read() as unit:
        (announcement,) = announced.list_open(unit)
    now = upstream.table_state().metadata
    staged = now.snapshot(now.refs[attempt.branch].snapshot_id)
    assert staged is not None
    mine: Doc = {
        **staged.raw,
        "sequence-number": now.last_sequence_number + 1,
        "timestamp-ms": house.scene.now // 1_000,
        "manifest-list": f"{now.location}/metadata/mine.avro",
    }

    def put(snapshot_id: int) -> list[Doc]:
        ref = {"action": "set-snapshot-ref", "ref-name": "mine", "type": "branch", "snapshot-id": snapshot_id}
        return [{"action": "add-snapshot", "snapshot": {**mine, "snapshot-id": snapshot_id}}, ref]

    assert refusal_reason(lambda: commit(house, put(int(announcement.snapshot_id)))) == "snapshot_id_taken"
    commit(house, put(int(announcement.snapshot_id) ^ 1))
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)
