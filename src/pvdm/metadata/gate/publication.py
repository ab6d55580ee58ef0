"""Makes the Steward's own snapshot: the current head of `main`, less the removed files, plus the verified files.

No metadata that a producer staged is used. The head may be newer than the base of the proofs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from pvdm.errors import Code
from pvdm.lake.format.json_document import JsonObject, comparison_text
from pvdm.lake.format.table.main_state import structure_sha256
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, SnapshotRef, StatisticsFile
from pvdm.lake.next_snapshot import NewSnapshot, SnapshotChange, next_snapshot
from pvdm.lake.read.entries import FileReader
from pvdm.lake.snapshot_removal import BranchRemoval, find_reachable
from pvdm.metadata.gate.context import translate_main_errors
from pvdm.metadata.gate.target import Base, Permit

# From this number on, small manifests are merged. It is Iceberg's default (`commit.manifest.min-count-to-merge`).
MERGE_FROM: Final = 100

_K = TypeVar("_K", str, int)


def make_publication(
    metadata: TableMetadata,
    wanted: SnapshotChange,
    *,
    snapshot_id: int,
    now_ms: int,
    place: Callable[[str], str],
    reader: FileReader,
    found_sha256: str | None,
) -> NewSnapshot:
    """The next snapshot of `main`. `place` returns the location in the vault for a file name.

    `found_sha256` is the hash over the manifests that the table had when it was protected. The first publication takes
    over their entries, and they must still have this hash. With None, as after a restore, nothing is compared.
    """
    with translate_main_errors(except_codes=(Code.REMOVED_FILE_NOT_LIVE,)):
        made = next_snapshot(
            metadata,
            wanted,
            branch=MAIN,
            snapshot_id=snapshot_id,
            now_ms=now_ms,
            place=place,
            reader=reader,
            merge_from=MERGE_FROM,
            in_vault=True,
        )
        require_as_found(found_sha256, made.found_sha256)
        return made


def require_as_found(bound: str | None, found: str | None) -> None:
    """The manifests that were taken over have the hash that the protection binds. A missing hash is not compared."""
    if bound is not None and found is not None and bound != found:
        raise Code.PUBLISHED_FILE_CHANGED(reason="found_manifests_changed", expected=bound, got=found)


def permit_publication(
    base: Base, made: NewSnapshot, after: TableMetadata, data: bytes, removal: BranchRemoval
) -> Permit:
    """The permit for the commit from this base to these bytes, which may change only what `made` and `removal` say."""
    require_no_other_change(base.metadata, made, after, removal)
    return Permit(base.row.table_uuid, base.row.pointer.sha256, hashlib.sha256(data).hexdigest())


def require_no_other_change(
    before: TableMetadata, made: NewSnapshot, after: TableMetadata, removal: BranchRemoval
) -> None:
    """The new snapshot is the head of `main`. All other refs, snapshots, statistics and the structure are unchanged.

    Only `removal` is removed: staging branches, their snapshots, expired snapshots, and statistics of these snapshots.
    """
    update = made.updates[0]  # it adds the snapshot
    snapshot = update.get("snapshot") if isinstance(update, dict) else None
    new = after.current_snapshot
    removed_ids, made_id = removal.snapshot_ids, (made.snapshot_id,)
    partition_statistics = _statistics(before.partition_statistics, but=removed_ids)
    heads = [] if before.current_snapshot_id is None else [before.current_snapshot_id]
    for what, is_as_made in (
        ("snapshot of main", new is not None and new.comparison_text() == comparison_text(snapshot)),
        ("retention of main", before.current_snapshot is None or _retention(before) == _retention(after)),
        ("structure", structure_sha256(before) == structure_sha256(after)),
        ("set of refs", _are_equal(_refs(before, but=removal.refs), _refs(after))),
        ("set of snapshots", _are_equal(_snapshots(before, but=removed_ids), _snapshots(after, but=made_id))),
        ("history of main", set(removed_ids) & find_reachable(before, heads) == removal.expired),
        ("kept history of main", _are_oldest(before, removal.expired)),
        ("statistics", _statistics(before.statistics, but=removed_ids) == after.statistics),
        ("partition statistics", partition_statistics == after.partition_statistics),
    ):
        if not is_as_made:
            message = f"the publication would lead to another {what} than it may"
            raise Code.PUBLICATION_CHANGES_MORE(message, expected=f"the {what} as the gate made it", got="another")


def _retention(metadata: TableMetadata) -> SnapshotRef | None:
    """The ref `main` with its retention settings, but without its snapshot; None if there is no such ref."""
    return replace(metadata.refs[MAIN], snapshot_id=0) if MAIN in metadata.refs else None


def _are_oldest(before: TableMetadata, expired: frozenset[int]) -> bool:
    """Whether these are the oldest snapshots of `main`, without a gap, and without its head."""
    history = [] if before.current_snapshot_id is None else list(before.ancestry(before.current_snapshot_id))
    kept = history[: len(history) - len(expired)]
    return not expired or (bool(kept) and not any(each.snapshot_id in expired for each in kept))


def _refs(metadata: TableMetadata, *, but: Collection[str] = ()) -> dict[str, JsonObject]:
    return {name: ref.raw for name, ref in metadata.refs.items() if name != MAIN and name not in but}


def _snapshots(metadata: TableMetadata, *, but: Collection[int] = ()) -> dict[int, JsonObject]:
    return {each.snapshot_id: each.raw for each in metadata.snapshots if each.snapshot_id not in but}


def _statistics(files: Sequence[StatisticsFile], *, but: Collection[int]) -> tuple[StatisticsFile, ...]:
    return tuple(each for each in files if each.snapshot_id not in but)


def _are_equal(old: Mapping[_K, JsonObject], new: Mapping[_K, JsonObject]) -> bool:
    """Whether the parts are equal. A commit keeps unchanged parts as the same objects, which need no comparison."""
    return old.keys() == new.keys() and all(
        each is new[key] or comparison_text(each) == comparison_text(new[key]) for key, each in old.items()
    )
