"""The base of a branch: the newest snapshot that it shares with `main`, and whether `main` has left it behind."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.errors import InputError, VerificationError
from pvdm.lake.format.manifest.entry import DataFile, ManifestContent
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.read.entries import FileReader, branch_changes, listed_manifests
from pvdm.model.statements.core import Operation
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import Finding
from pvdm.verify.staged import boundary_files


def base_of(metadata: TableMetadata, head: Snapshot | None) -> int | None:
    """Where the branch left `main`; of one that staged nothing what `main` shows, of one without a base nothing."""
    if head is None:
        return metadata.current_snapshot_id
    shown = _main(metadata)
    return next((each.snapshot_id for each in metadata.ancestry(head.snapshot_id) if each.snapshot_id in shown), None)


def overtaken(
    metadata: TableMetadata,
    operation: Operation,
    partition: Sequence[tuple[str, str | None]],
    head: Snapshot | None,
    reader: FileReader,
) -> tuple[Finding, ...]:
    """An overwrite whose boundary `main` has changed since it was staged: only a new attempt can replace what is there.

    An append, and an overwrite of what was not touched, are not concerned: they fit on any later `main`.
    """
    base_id, now = base_of(metadata, head), metadata.current_snapshot
    if operation is Operation.APPEND or now is None or now.snapshot_id == base_id:
        return ()
    newer = _main(metadata) - set(_ids(metadata, base_id))
    if any(
        listed.added_snapshot_id in newer and listed.content is ManifestContent.DELETES
        for listed in listed_manifests(metadata, now, reader)
    ):
        return (_moved("deletes_newer", "rows were deleted from main since it was staged", base_id, now),)
    added = _added(metadata, head, base_id, reader)
    before, after = (
        boundary_files(metadata, each, operation, partition, added, reader) for each in (base_id, now.snapshot_id)
    )
    if before == after:
        return ()
    return (_moved("boundary_moved", "what it replaces was changed in main since it was staged", base_id, now),)


def _added(
    metadata: TableMetadata, head: Snapshot | None, base_id: int | None, reader: FileReader
) -> tuple[DataFile, ...]:
    if head is None:
        return ()
    try:
        _, changes = branch_changes(metadata, head, base_id, reader)
    except (VerificationError, InputError):
        return ()  # what is wrong with it is found where it is judged
    return tuple(entry.data_file for entry in changes.added)


def _main(metadata: TableMetadata) -> set[int]:
    return set(_ids(metadata, metadata.current_snapshot_id))


def _ids(metadata: TableMetadata, snapshot_id: int | None) -> list[int]:
    return [] if snapshot_id is None else [each.snapshot_id for each in metadata.ancestry(snapshot_id)]


def _moved(code: str, message: str, base_id: int | None, now: Snapshot) -> Finding:
    base = "an empty main" if base_id is None else f"main at {base_id}"
    return Finding(FailureClass.METADATA, code, message, base, f"main at {now.snapshot_id}")
