"""Fences are the Steward's own: nobody else takes one down through us, and past us it shows nobody anything."""

from __future__ import annotations

from typing import Any

import pytest

from pvdm import fault
from pvdm.model.migration import ProtectionAction
from pvdm.model.role import Role
from pvdm.store.attempts import Attempt
from tests.behaviour.upstream.test_upstream_publishing import CrashError, settle, state_of
from tests.behaviour.upstream.test_upstream_serving import commit, refused, shown_to, to_main
from tests.fault_proxy import held
from tests.gate_examples import House
from tests.upstream_examples import NEW, There, code_of, publish

Doc = dict[str, Any]


def fenced_off(house: House, there: There, attempt: Attempt) -> str:
    """A publication whose request is held up on its way, and that was given up meanwhile."""
    there.proxy.plan.append(held)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    (fence,) = [name for name in there.found().metadata.refs if name.startswith("pvdm-fence-")]
    return fence


def changes(there: There, fence: str) -> dict[str, list[Doc]]:
    refs = there.found().metadata.refs
    other = next(ref.snapshot_id for ref in refs.values() if ref.snapshot_id != refs[fence].snapshot_id)
    move = {"action": "set-snapshot-ref", "ref-name": fence, "type": "branch", "snapshot-id": other}
    return {
        "removed": [{"action": "remove-snapshot-ref", "ref-name": fence}],
        "moved": [move],
        "another one": [{**move, "ref-name": "pvdm-fence-mine"}],
        "as a tag": [{**move, "ref-name": "pvdm-fence-mine", "type": "tag"}],
    }


def test_nobody_else_touches_a_fence_through_us(house: House, there: There) -> None:
    attempt = house.proved("w", NEW)
    fence = fenced_off(house, there, attempt)
    for what, updates in changes(there, fence).items():
        for role in (Role.PRODUCER, Role.OPERATOR):
            assert refused(lambda role=role, updates=updates: commit(house, updates, role=role)) == "ref_reserved", what  # type: ignore[misc]
    assert there.proxy.deliver() == [409]
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


def test_a_fence_stands_when_the_table_is_protected_no_longer(house: House, there: There) -> None:
    attempt = house.proved("w", NEW)
    fence = fenced_off(house, there, attempt)
    said = house.scene.protection(contract=house.contracts["orders"], action=ProtectionAction.UNPROTECT)
    house.scene.protect(said)
    assert refused(lambda: commit(house, changes(there, fence)["removed"])) == "ref_reserved"
    assert there.proxy.deliver() == [409]


def test_a_fence_does_not_go_with_the_snapshot_that_it_holds(house: House, there: There) -> None:
    house.table("empty")
    attempt = house.proved("w", NEW, name="empty")
    there.proxy.plan.append(held)
    with fault.armed("upstream.after_swap", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    settle(house)
    staged = there.found("empty").metadata.refs[attempt.branch].snapshot_id
    gone = [{"action": "remove-snapshots", "snapshot-ids": [staged]}]
    assert refused(lambda: commit(house, gone, name="empty")) == "ref_reserved"


def test_what_arrives_after_a_fence_was_taken_down_at_the_upstream_is_not_shown_to_consumers(
    house: House, there: There
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
