"""Finds the parts of the history of `main` that need proofs, by the heads that protections bind. Uses no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pvdm.metadata.audit.report import Notes
from pvdm.trust.refusal import refused

BEFORE_ALL = -1
_AFTER_ALL = 2**63


@dataclass(frozen=True, slots=True)
class Edge:
    """The begin or the end of a protection. `snapshot_id` is the head of `main` then, None for an empty table."""

    index: int
    begins: bool
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Past:
    """The history of `main`: the places of its snapshots, and the ids of older ones that have expired.

    `cut_at` is the first expired snapshot without a receipt; nothing is known of those before it. It is None if
    receipts lead back to the table's beginning.
    """

    places: Mapping[int, int]
    older: AbstractSet[int]
    cut_at: int | None

    def place(self, snapshot_id: int | None) -> int | None:
        """The place of the snapshot: `BEFORE_ALL` for none and for expired ones, None if it is not in the history."""
        if snapshot_id is None or snapshot_id in self.older:
            return BEFORE_ALL
        return self.places.get(snapshot_id)


@dataclass(frozen=True, slots=True)
class RequiredSpans:
    """The spans of the history whose snapshots must be proved: after the first place, up to the second.

    Publications before the log entry `unseen` may have expired without a trace.
    """

    spans: tuple[tuple[int, int], ...]
    unseen: int

    def at(self, place: int) -> bool:
        """Whether the snapshot in this place must be proved."""
        return any(begin < place <= end for begin, end in self.spans)


def find_required_spans(edges: Sequence[Edge], past: Past, notes: Notes) -> RequiredSpans:
    """The spans between the edges. An edge whose head cannot be found is noted and excuses no snapshot."""
    spans: list[tuple[int, int]] = []
    begin: int | None = None
    unseen = BEFORE_ALL
    for at, edge in enumerate(edges):
        place = past.place(edge.snapshot_id)
        if place is None:
            with notes.collect():
                require_expired(edges, at, past)
                place = BEFORE_ALL
                unseen = edge.index
        if edge.begins and begin is None:
            with notes.collect():
                require_begun(edges, at, past)
            begin = BEFORE_ALL if place is None else place
        elif not edge.begins and begin is not None and place is not None:
            spans.append((begin, place))
            begin = None
    if begin is not None:
        spans.append((begin, _AFTER_ALL))
    return RequiredSpans(tuple(spans), unseen)


def require_begun(edges: Sequence[Edge], at: int, past: Past) -> None:
    """For a table that was empty when protection began, receipts lead back to the table's beginning.

    This is not required if protection ended before the first snapshot, or if the head at its end has expired too.
    """
    if edges[at].snapshot_id is not None or past.cut_at is None:
        return
    ended = next((each for each in edges[at:] if not each.begins), None)
    if ended is None or (ended.snapshot_id is not None and past.place(ended.snapshot_id) is not None):
        raise refused(
            "audit_receipt_missing",
            "an expired snapshot that main descends from has no receipt",
            f"a receipt of snapshot {past.cut_at}",
            "no valid one",
        )


def require_expired(edges: Sequence[Edge], at: int, past: Past) -> None:
    """A head that is not in the history of `main` has expired.

    Receipts lead from the end of a protection back to its begin, however many snapshots have expired. A head is
    unknown only if its protection ended before a time without one. Nothing newer than a known head has expired.
    """
    older_in_sight = any(
        each.snapshot_id is not None and past.place(each.snapshot_id) is not None for each in edges[:at]
    )
    ended_out_of_sight = any(not each.begins and past.place(each.snapshot_id) is None for each in edges[at:])
    if past.cut_at is None or older_in_sight or not ended_out_of_sight:
        raise refused(
            "audit_head_not_shown",
            f"main does not descend from its head at the {'begin' if edges[at].begins else 'end'} of the protection",
            f"snapshot {edges[at].snapshot_id} in the history of main",
            "none",
        )
