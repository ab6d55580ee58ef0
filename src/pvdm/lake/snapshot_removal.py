"""Selects snapshots to remove: snapshots of removed branches, and expired snapshots of `main`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN


@dataclass(frozen=True, slots=True)
class BranchRemoval:
    """The refs and snapshots that one commit removes."""

    refs: tuple[str, ...] = ()
    snapshot_ids: tuple[int, ...] = ()
    expired: frozenset[int] = frozenset()
    """Those of `snapshot_ids` that were in `main` and have expired (`expired_history`)."""

    @classmethod
    def plan(cls, metadata: TableMetadata, refs: Collection[str], snapshot_ids: Iterable[int] = ()) -> BranchRemoval:
        """Plan to remove the refs, and all snapshots reachable from them or `snapshot_ids` but from no other ref."""
        existing = tuple(name for name in refs if name in metadata.refs)
        heads = [*(metadata.refs[name].snapshot_id for name in existing), *snapshot_ids]
        others = [ref.snapshot_id for name, ref in metadata.refs.items() if name not in existing]
        return cls(existing, tuple(sorted(find_reachable(metadata, heads) - find_reachable(metadata, others))))

    def updates(self) -> list[Json]:
        """The updates of the commit, as in Iceberg's REST protocol."""
        updates: list[Json] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in self.refs]
        if self.snapshot_ids:
            updates.append({"action": "remove-snapshots", "snapshot-ids": list(self.snapshot_ids)})
        return updates


def find_reachable(metadata: TableMetadata, heads: Iterable[int]) -> set[int]:
    """These snapshots and their ancestors. Each is visited once."""
    found: set[int] = set()
    for head in heads:
        snapshot = metadata.snapshot(head)
        while snapshot is not None and snapshot.snapshot_id not in found:
            found.add(snapshot.snapshot_id)
            snapshot = None if snapshot.parent_id is None else metadata.snapshot(snapshot.parent_id)
    return found


SNAPSHOTS_PROPERTY: Final = "history.expire.min-snapshots-to-keep"
AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
AGE_DEFAULT_MS: Final = 5 * 86_400_000  # five days, as in Iceberg
_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


def expired_history(metadata: TableMetadata, now_ms: int, *, held: Collection[int] = ()) -> frozenset[int]:
    """The oldest snapshots of `main` that may be removed, by Iceberg's retention settings. Empty without settings.

    The snapshots that stay have no gap. A snapshot whose id is in `held` (the caller needs it), or from which another
    branch or a tag was made, stays. Then every newer snapshot stays too.
    """
    limits = _retention_limits(metadata)
    if limits is None or metadata.current_snapshot_id is None:
        return frozenset()
    min_count, max_age_ms = limits
    newest_first = tuple(metadata.ancestry(metadata.current_snapshot_id))
    is_old = [i >= min_count and now_ms - each.timestamp_ms > max_age_ms for i, each in enumerate(newest_first)]
    keep_count = is_old.index(True) if True in is_old else len(newest_first)
    positions = {each.snapshot_id: i for i, each in enumerate(newest_first)}
    needed = [positions[snapshot_id] for snapshot_id in held if snapshot_id in positions]
    for name, ref in metadata.refs.items():
        if name != MAIN:
            ids = (each.snapshot_id for each in metadata.ancestry(ref.snapshot_id))
            in_main = (positions[snapshot_id] for snapshot_id in ids if snapshot_id in positions)
            needed += islice(in_main, 1)  # where the ref left main; nothing if it was not made from main
    keep_count = max(keep_count, 1 + max(needed, default=-1))
    return frozenset(each.snapshot_id for each in newest_first[keep_count:])


def _retention_limits(metadata: TableMetadata) -> tuple[int, int] | None:
    """How many snapshots stay at any age, and the maximum age of the others in milliseconds.

    A setting of the ref `main` overrides the table's property. None if there is no setting, or if a property is not a
    number: then all history stays.
    """
    main = metadata.refs.get(MAIN)
    min_count = None if main is None else main.min_snapshots_to_keep
    age_ms = None if main is None else main.max_snapshot_age_ms
    properties = metadata.properties
    if min_count is None and age_ms is None and properties.keys().isdisjoint((SNAPSHOTS_PROPERTY, AGE_PROPERTY)):
        return None
    min_count = _parse_number(properties.get(SNAPSHOTS_PROPERTY, "1")) if min_count is None else min_count
    age_ms = _parse_number(properties.get(AGE_PROPERTY, str(AGE_DEFAULT_MS))) if age_ms is None else age_ms
    return None if min_count is None or age_ms is None else (max(1, min_count), age_ms)


def _parse_number(text: str) -> int | None:
    return int(text) if _DIGITS.fullmatch(text) else None
