"""The Steward's own snapshot of `main`: from its head plus verified files, wherever the head is by now.

Nothing that a producer wrote as metadata is taken over; a `main` that has moved meanwhile is no other case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from pvdm.errors import NotAllowedError, VerificationError
from pvdm.lake.entries import FileReader
from pvdm.lake.format.document import canonical
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.node import Raw
from pvdm.lake.format.snapshots import MAIN
from pvdm.lake.format.structure import structure_sha256
from pvdm.lake.next_snapshot import NewFile, Publication, Wanted, next_snapshot
from pvdm.metadata.ground import of_main
from pvdm.metadata.permit import Permit
from pvdm.metadata.target import Base

# As Iceberg's own writers do it (`commit.manifest.min-count-to-merge`).
MERGE_FROM: Final = 100

_K = TypeVar("_K", str, int)

__all__ = ["NewFile", "Publication", "Wanted", "permit_publication", "publication"]


def publication(
    metadata: TableMetadata,
    wanted: Wanted,
    *,
    snapshot_id: int,
    now_ms: int,
    place: Callable[[str], str],
    reader: FileReader,
    found_sha256: str | None,
) -> Publication:
    """The next snapshot of `main`; `place` says where a file of that name will lie, in the vault.

    `found_sha256` is what protection found: a `main` that is taken over must still be that.
    """
    with of_main(but=("removed_file_not_live",)):
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
    """The list and the manifests that are taken over have the bytes that they had when the table was protected."""
    if bound is not None and found is not None and bound != found:
        raise VerificationError(
            "found_manifests_changed",
            "the manifest list or a manifest of main was changed after the table was protected",
            expected=bound,
            got=found,
            hint="bring the files back, or look at what main shows now, and unprotect and protect the table anew",
        )


def permit_publication(base: Base, made: Publication, after: TableMetadata, data: bytes) -> Permit:
    """The permit for the swap from this base to these bytes, once all that they change is what was made."""
    require_only(base.metadata, made, after)
    return Permit(base.row.table_uuid, base.row.pointer.sha256, hashlib.sha256(data).hexdigest())


def require_only(before: TableMetadata, made: Publication, after: TableMetadata) -> None:
    """`main` shows the new snapshot; every other ref, snapshot and statistics file, and all structure, is as before."""
    update = made.updates[0]
    snapshot = update.get("snapshot") if isinstance(update, dict) else None
    new = after.current_snapshot
    kept = tuple(None if MAIN not in each.refs else replace(each.refs[MAIN], snapshot_id=0) for each in (before, after))
    for what, same in (
        ("snapshot of main", new is not None and canonical(new.raw) == canonical(snapshot)),
        ("retention of main", before.current_snapshot is None or kept[0] == kept[1]),
        ("structure", structure_sha256(before) == structure_sha256(after)),
        ("set of refs", _same(_refs(before), _refs(after))),
        ("set of snapshots", _same(_snapshots(before), _snapshots(after, but=made.snapshot_id))),
        ("statistics", before.statistics == after.statistics),
        ("partition statistics", before.partition_statistics == after.partition_statistics),
    ):
        if not same:
            raise NotAllowedError(
                "publication_changes_more",
                f"the publication would lead to another {what} than it may",
                expected=f"the {what} as the gate made it",
                got="another",
                hint="nothing was published",
            )


def _refs(metadata: TableMetadata) -> dict[str, Raw]:
    return {name: ref.raw for name, ref in metadata.refs.items() if name != MAIN}


def _snapshots(metadata: TableMetadata, *, but: int | None = None) -> dict[int, Raw]:
    return {each.snapshot_id: each.raw for each in metadata.snapshots if each.snapshot_id != but}


def _same(old: Mapping[_K, Raw], new: Mapping[_K, Raw]) -> bool:
    """Parts that a commit left alone are the same objects, so that a long history is not spelled out again."""
    return old.keys() == new.keys() and all(
        each is new[key] or canonical(each) == canonical(new[key]) for key, each in old.items()
    )
