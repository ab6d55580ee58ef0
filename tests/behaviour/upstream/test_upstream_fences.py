"""Fences are the Steward's own: nobody else takes one down through us, and past us it shows nobody anything."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm.ledger.work import announced, attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.model.statements.migration import ProtectionAction
from pvdm.model.states import AttemptState
from tests.behaviour.upstream.test_upstream_publishing import CrashError, disposal, settle, state_of
from tests.behaviour.upstream.test_upstream_serving import commit, refused, shown_to, to_main
from tests.support import fault
from tests.support.catalog.upstream import NEW, Upstream, code_of, publish
from tests.support.gate.protected_tables import House
from tests.support.servers.fault_proxy import hold_request

Doc = dict[str, Any]


def fenced_off(house: House, there: Upstream, attempt: Attempt) -> str:
    """A publication whose request is held up on its way, and that was given up meanwhile."""
    there.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    (fence,) = [name for name in there.found().metadata.refs if name.startswith("pvdm-fence-")]
    return fence


def changes(there: Upstream, fence: str) -> dict[str, list[Doc]]:
    refs = there.found().metadata.refs
    other = next(ref.snapshot_id for ref in refs.values() if ref.snapshot_id != refs[fence].snapshot_id)
    move = {"action": "set-snapshot-ref", "ref-name": fence, "type": "branch", "snapshot-id": other}
    return {
        "removed": [{"action": "remove-snapshot-ref", "ref-name": fence}],
        "moved": [move],
        "another one": [{**move, "ref-name": "pvdm-fence-mine"}],
        "as a tag": [{**move, "ref-name": "pvdm-fence-mine", "type": "tag"}],
    }


def test_nobody_else_touches_a_fence_through_us(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    fence = fenced_off(house, there, attempt)
    for what, updates in changes(there, fence).items():
        for role in (Role.PRODUCER, Role.OPERATOR):
            assert refused(lambda role=role, updates=updates: commit(house, updates, role=role)) == "ref_reserved", what  # type: ignore[misc]
    assert there.proxy.deliver() == [409]
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


def test_a_fence_stands_when_the_table_is_protected_no_longer(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    fence = fenced_off(house, there, attempt)
    said = house.scene.protection(contract=house.contracts["orders"], action=ProtectionAction.UNPROTECT)
    house.scene.protect(said)
    assert refused(lambda: commit(house, changes(there, fence)["removed"])) == "ref_reserved"
    assert there.proxy.deliver() == [409]


def test_a_fence_does_not_go_with_the_snapshot_that_it_holds(house: House, there: Upstream) -> None:
    house.table("empty")
    attempt = house.proved("w", NEW, name="empty")
    there.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    staged = there.found("empty").metadata.refs[attempt.branch].snapshot_id
    gone = [{"action": "remove-snapshots", "snapshot-ids": [staged]}]
    assert refused(lambda: commit(house, gone, name="empty")) == "ref_reserved"


def test_what_arrives_after_a_fence_was_taken_down_at_the_upstream_is_not_shown_to_consumers(
    house: House, there: Upstream
) -> None:
    attempt = house.proved("w", NEW)
    base = there.found().metadata.current_snapshot_id
    fence = fenced_off(house, there, attempt)
    there.commit([{"action": "remove-snapshot-ref", "ref-name": fence}])
    assert there.proxy.deliver() == [200]
    assert refused(lambda: shown_to(house, Role.CONSUMER)) == "main_unproved"
    assert code_of(house, attempt) == "upstream_main_moved"
    assert base is not None
    there.commit([to_main(base)])  # an operator takes it back there; nothing was lost, and nothing is doubled
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)
    assert shown_to(house, Role.CONSUMER)["metadata"]["snapshots"]


def test_the_branch_of_an_attempt_never_comes_again_and_so_no_late_publication(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    head = there.found().metadata.refs[attempt.branch].snapshot_id
    staged = there.found().metadata.snapshot(head)
    assert staged is not None
    fenced_off(house, there, attempt)
    house.transact(
        lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="given up by the test")
    )
    disposal(house).dispose(attempt.attempt_id)
    now = there.found().metadata
    assert set(now.refs) == {"main"}
    again = {
        **staged.raw,
        "sequence-number": now.last_sequence_number + 1,
        "timestamp-ms": house.scene.now // 1_000,
        "manifest-list": f"{now.location}/metadata/mine.avro",
    }
    put: Doc = {"action": "set-snapshot-ref", "type": "branch", "snapshot-id": head}
    for role in (Role.PRODUCER, Role.OPERATOR):
        updates = [{"action": "add-snapshot", "snapshot": again}, {**put, "ref-name": attempt.branch}]
        assert refused(lambda role=role, updates=updates: commit(house, updates, role=role)) == "ref_reserved"  # type: ignore[misc]
    commit(house, [{"action": "add-snapshot", "snapshot": again}, {**put, "ref-name": "mine"}])
    assert there.proxy.deliver() == [409]
    assert house.rows() == [1, 2]


def test_nobody_takes_the_id_of_a_publication_that_is_not_settled(house: House, there: Upstream) -> None:
    attempt = house.proved("w", NEW)
    there.proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    with house.notary.ledger.read() as unit:
        (said,) = announced.list_open(unit)
    now = there.found().metadata
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

    assert refused(lambda: commit(house, put(int(said.snapshot_id)))) == "snapshot_id_taken"
    commit(house, put(int(said.snapshot_id) ^ 1))
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)
