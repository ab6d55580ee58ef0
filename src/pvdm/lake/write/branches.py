"""Staging branches that go: with each of them the snapshots that no other ref holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pvdm.lake.format.json.document import Json
from pvdm.lake.format.table.metadata import TableMetadata


@dataclass(frozen=True, slots=True)
class BranchRemoval:
    """Refs of one document, and snapshots that are theirs alone."""

    refs: tuple[str, ...] = ()
    snapshot_ids: tuple[int, ...] = ()
    expired: frozenset[int] = frozenset()
    """Those of them that `main` has shown, and that the table keeps no longer (`lake/read/history.py`)."""

    @classmethod
    def plan(cls, metadata: TableMetadata, refs: Collection[str], snapshot_ids: Iterable[int] = ()) -> BranchRemoval:
        """These refs, as far as they are there; `snapshot_ids` and their ancestors go too, unless a ref holds them."""
        there = tuple(name for name in refs if name in metadata.refs)
        heads = [*(metadata.refs[name].snapshot_id for name in there), *snapshot_ids]
        others = [ref.snapshot_id for name, ref in metadata.refs.items() if name not in there]
        return cls(there, tuple(sorted(reached(metadata, heads) - reached(metadata, others))))

    def updates(self) -> list[Json]:
        """The updates of a commit that takes all of it away."""
        made: list[Json] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in self.refs]
        if self.snapshot_ids:
            made.append({"action": "remove-snapshots", "snapshot-ids": list(self.snapshot_ids)})
        return made


def reached(metadata: TableMetadata, heads: Iterable[int]) -> set[int]:
    """These snapshots and their ancestors; each is looked at once, however many refs lead to it."""
    found: set[int] = set()
    for head in heads:
        at = metadata.snapshot(head)
        while at is not None and at.snapshot_id not in found:
            found.add(at.snapshot_id)
            at = None if at.parent_id is None else metadata.snapshot(at.parent_id)
    return found
