"""Where in the history of `main` proofs are owed: from and to the snapshots that protections bind, by no clock."""

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
    """Protection begins or ends; `snapshot_id` is what `main` showed then, None where it showed nothing."""

    index: int
    begins: bool
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Past:
    """The history of `main`: the places of its snapshots, those older than all of them that are known by their ids.

    `cut_at` is one that has expired and has no receipt: of those before it nothing is known. None: the way back leads
    to the table's beginning.
    """

    places: Mapping[int, int]
    older: AbstractSet[int]
    cut_at: int | None

    def place(self, snapshot_id: int | None) -> int | None:
        """Where the snapshot stands; nothing, and what has expired, stand before all others. None: nowhere."""
        if snapshot_id is None or snapshot_id in self.older:
            return BEFORE_ALL
        return self.places.get(snapshot_id)


@dataclass(frozen=True, slots=True)
class Owed:
    """The parts of the history whose snapshots have to be proved: behind the first place, up to the second.

    What was published before the entry `unseen` of the log may have expired without a trace.
    """

    spans: tuple[tuple[int, int], ...]
    unseen: int

    def at(self, place: int) -> bool:
        """Whether the snapshot in this place has to be proved."""
        return any(begin < place <= end for begin, end in self.spans)


def owed(edges: Sequence[Edge], past: Past, notes: Notes) -> Owed:
    """What lies between the edges; one that cannot be found is noted, and excuses no snapshot."""
    spans: list[tuple[int, int]] = []
    begin: int | None = None
    unseen = BEFORE_ALL
    for at, edge in enumerate(edges):
        place = past.place(edge.snapshot_id)
        if place is None:
            with notes.held():
                require_expired(edges, at, past)
                place = BEFORE_ALL
                unseen = edge.index
        if edge.begins and begin is None:
            with notes.held():
                require_begun(edges, at, past)
            begin = BEFORE_ALL if place is None else place
        elif not edge.begins and begin is not None and place is not None:
            spans.append((begin, place))
            begin = None
    if begin is not None:
        spans.append((begin, _AFTER_ALL))
    return Owed(tuple(spans), unseen)


def require_begun(edges: Sequence[Edge], at: int, past: Past) -> None:
    """What is protected since the table showed nothing goes back to the table's beginning, by receipts.

    Unless protection ended before the first snapshot, or so long ago that its end has expired out of sight too.
    """
    if edges[at].snapshot_id is not None or past.cut_at is None:
        return
    ended = next((each for each in edges[at:] if not each.begins), None)
    if ended is None or (ended.snapshot_id is not None and past.place(ended.snapshot_id) is not None):
        raise refused(
            "audit_receipt_missing",
            "nothing says that a snapshot was proved that main goes back to and that has expired",
            f"a receipt of snapshot {past.cut_at}",
            "none that holds",
        )


def require_expired(edges: Sequence[Edge], at: int, past: Past) -> None:
    """A head that is not in the history of main is one that has expired.

    From the end of a time under protection receipts lead back to its beginning, however many snapshots have expired;
    out of sight is only what ended before a time without protection. What is younger than a head that is in sight
    has not expired.
    """
    older_in_sight = any(
        each.snapshot_id is not None and past.place(each.snapshot_id) is not None for each in edges[:at]
    )
    ended_out_of_sight = any(not each.begins and past.place(each.snapshot_id) is None for each in edges[at:])
    if past.cut_at is None or older_in_sight or not ended_out_of_sight:
        raise refused(
            "audit_head_not_shown",
            f"main does not descend from what it showed when protection {'began' if edges[at].begins else 'ended'}",
            f"snapshot {edges[at].snapshot_id} in the history of main",
            "none",
        )
