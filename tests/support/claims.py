"""When two claims (the parts of a target that append workloads reserve) overlap, as the ledger's trigger decides it."""

from __future__ import annotations

from pvdm.model.filter.claim import Claim


def overlap(one: Claim, two: Claim) -> bool:
    """Whether a row could be in both claims. Claims on different columns or types are treated as overlapping."""
    if one.column is None or two.column is None or (one.column, one.kind) != (two.column, two.kind):
        return True
    return (two.upper is None or one.lower < two.upper) and (one.upper is None or two.lower < one.upper)
