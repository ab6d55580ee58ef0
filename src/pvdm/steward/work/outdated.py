"""Whether an overwrite would replace rows with older ones: those from a newer snapshot of the same source stay."""

from __future__ import annotations

from collections.abc import Collection

from pvdm.errors import InputError
from pvdm.lake.read.entries import FileReader, live_entries
from pvdm.ledger import Ledger
from pvdm.ledger.work import workloads
from pvdm.ledger.work.workloads import Workload
from pvdm.verify.job import VerifyJob
from pvdm.verify.usable import unusable


def require_not_outdated(
    ledger: Ledger, workload: Workload, job: VerifyJob, removed: Collection[str], reader: FileReader
) -> None:
    """Refuse to replace files that were published from a snapshot of the source that is newer than the pinned one.

    A workload that waited may be taken up after another one has corrected the same rows. A snapshot that the source
    does not have any more is taken as older.
    """
    source, base = job.source.metadata, None if job.base_id is None else job.metadata.snapshot(job.base_id)
    if not removed or source is None or base is None:
        return
    gone = frozenset(removed)
    entries = live_entries(job.metadata, base, reader)
    shown_by = {str(each.snapshot_id) for each in entries if each.data_file.file_path in gone}
    with ledger.read() as unit:
        replaced = workloads.list_publishers(unit, workload.opening.table_uuid, shown_by)
    older = {each.snapshot_id for each in source.ancestry(job.source.snapshot_id)}
    for other in replaced:
        pinned = int(other.source_snapshot_id or 0)
        if other.opening.source != workload.opening.source or pinned in older or source.snapshot(pinned) is None:
            continue
        raise unusable(
            InputError(
                "source_outdated",
                f"workload {other.opening.workload_id} has published these rows from a newer snapshot of the source",
                expected=f"snapshot {pinned} of {job.source.ref.name}, or a later one",
                got=str(job.source.snapshot_id),
                hint="nothing was published; an operator abandons this workload, and a new workload id pins the "
                "source as it is now",
            )
        )
