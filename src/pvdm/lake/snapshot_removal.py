"""Snapshots to remove: those of removed branches, and history that the table no longer keeps."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN


@dataclass(frozen=True, slots=True)
class BranchRemoval:
    """Refs to remove, and the snapshots that only they hold."""

    refs: tuple[str, ...] = ()
    snapshot_ids: tuple[int, ...] = ()
    expired: frozenset[int] = frozenset()
    """Those snapshots that `main` has shown and the table no longer keeps (`expired_history`)."""

    @classmethod
    def plan(cls, metadata: TableMetadata, refs: Collection[str], snapshot_ids: Iterable[int] = ()) -> BranchRemoval:
        """Plan to remove these refs, and `snapshot_ids` with their ancestors unless another ref holds them."""
        there = tuple(name for name in refs if name in metadata.refs)
        heads = [*(metadata.refs[name].snapshot_id for name in there), *snapshot_ids]
        others = [ref.snapshot_id for name, ref in metadata.refs.items() if name not in there]
        return cls(there, tuple(sorted(find_reachable(metadata, heads) - find_reachable(metadata, others))))

    def updates(self) -> list[Json]:
        """The updates of the commit."""
        made: list[Json] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in self.refs]
        if self.snapshot_ids:
            made.append({"action": "remove-snapshots", "snapshot-ids": list(self.snapshot_ids)})
        return made


def find_reachable(metadata: TableMetadata, heads: Iterable[int]) -> set[int]:
    """These snapshots and their ancestors. Each is visited once."""
    found: set[int] = set()
    for head in heads:
        at = metadata.snapshot(head)
        while at is not None and at.snapshot_id not in found:
            found.add(at.snapshot_id)
            at = None if at.parent_id is None else metadata.snapshot(at.parent_id)
    return found


SNAPSHOTS_PROPERTY: Final = "history.expire.min-snapshots-to-keep"
AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
AGE_DEFAULT_MS: Final = 5 * 86_400_000
_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


def expired_history(metadata: TableMetadata, now_ms: int, *, held: Collection[int] = ()) -> frozenset[int]:
    """The oldest snapshots of `main` that may be removed, by Iceberg's retention settings. Empty without settings.

    The rest has no gap: everything stays since the oldest snapshot that a branch or tag comes from, and since the
    oldest of `held`, which are still needed.
    """
    limits = _limits(metadata)
    if limits is None or metadata.current_snapshot_id is None:
        return frozenset()
    fewest, oldest_ms = limits
    shown = list(metadata.ancestry(metadata.current_snapshot_id))
    kept = next(
        (at for at, each in enumerate(shown) if at >= fewest and now_ms - each.timestamp_ms > oldest_ms), len(shown)
    )
    places = {each.snapshot_id: at for at, each in enumerate(shown)}
    for name, ref in metadata.refs.items():
        if name != MAIN:
            branched = (places.get(each.snapshot_id) for each in metadata.ancestry(ref.snapshot_id))
            kept = max(kept, 1 + next((at for at in branched if at is not None), -1))
    kept = max(kept, 1 + max((places.get(each, -1) for each in held), default=-1))
    return frozenset(each.snapshot_id for each in shown[kept:])


def _limits(metadata: TableMetadata) -> tuple[int, int] | None:
    """How many snapshots stay at any age, and the age limit of others. The settings of `main` come first.

    None if the table has neither setting, or one that is not a number: then all history stays.
    """
    main = metadata.refs.get(MAIN)
    fewest = None if main is None else main.min_snapshots_to_keep
    age = None if main is None else main.max_snapshot_age_ms
    properties = metadata.properties
    if fewest is None and age is None and SNAPSHOTS_PROPERTY not in properties and AGE_PROPERTY not in properties:
        return None
    fewest = _number(properties.get(SNAPSHOTS_PROPERTY, "1")) if fewest is None else fewest
    age = _number(properties.get(AGE_PROPERTY, str(AGE_DEFAULT_MS))) if age is None else age
    return None if fewest is None or age is None else (max(1, fewest), age)


def _number(text: str) -> int | None:
    return int(text) if _DIGITS.fullmatch(text) else None
