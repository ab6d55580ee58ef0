"""The history of `main` that a table no longer keeps, by Iceberg's own retention settings."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN

SNAPSHOTS_PROPERTY: Final = "history.expire.min-snapshots-to-keep"
AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
AGE_DEFAULT_MS: Final = 5 * 86_400_000
_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


def expired_history(metadata: TableMetadata, now_ms: int, *, held: Collection[int] = ()) -> frozenset[int]:
    """The oldest snapshots of `main` that may go: too old, and more than the table keeps. None unless it says so.

    What is kept has no gap: as far back as a branch or tag leads into `main`, everything stays.
    So does everything since the oldest snapshot of `held`, which somebody still needs.
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
    """How many snapshots stay whatever their age, and how old others become; what `main` says of itself comes first.

    None where the table says neither, or says something that is no number: then all history stays.
    """
    main = metadata.refs.get(MAIN)
    fewest = None if main is None else main.min_snapshots_to_keep
    age = None if main is None else main.max_snapshot_age_ms
    told = metadata.properties
    if fewest is None and age is None and SNAPSHOTS_PROPERTY not in told and AGE_PROPERTY not in told:
        return None
    fewest = _number(told.get(SNAPSHOTS_PROPERTY, "1")) if fewest is None else fewest
    age = _number(told.get(AGE_PROPERTY, str(AGE_DEFAULT_MS))) if age is None else age
    return None if fewest is None or age is None else (max(1, fewest), age)


def _number(text: str) -> int | None:
    return int(text) if _DIGITS.fullmatch(text) else None
