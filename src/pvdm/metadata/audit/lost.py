"""Receipts whose snapshots `main` lacks: what was published was taken away, and is a finding unless it is accepted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from pvdm.errors import InputError
from pvdm.metadata.audit.report import Notes
from pvdm.metadata.audit.statements import Said, Statements
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused


def judge_lost(
    lost: Iterable[Said[Receipt]], statements: Statements, notes: Notes, accepted: AbstractSet[int]
) -> Sequence[str]:
    """Note every receipt without its snapshot; of those that are accepted, one sentence each.

    Raise `audit_not_lost` where a snapshot is accepted as lost that no receipt misses.
    """
    found = {said.predicate.new_snapshot_id: said for said in lost}
    strange = sorted(accepted - found.keys())
    if strange:
        raise InputError(
            "audit_not_lost",
            "a snapshot is accepted as lost that is not missing",
            expected="snapshots that a receipt names and main lacks: "
            + (", ".join(str(each) for each in sorted(found)) or "none"),
            got=", ".join(str(each) for each in strange),
        )
    told = []
    for snapshot_id, said in sorted(found.items()):
        if snapshot_id in accepted:
            told.append(
                f"snapshot {snapshot_id}, which workload {said.predicate.workload_id} published: main lacks it, and"
                " that was accepted"
            )
            continue
        with notes.held():
            statements.receipt(said)
            raise refused(
                "audit_receipt_without_snapshot",
                f"main does not show what workload {said.predicate.workload_id} has published",
                f"snapshot {snapshot_id} in the history of main",
                "none",
            )
    return told
