"""A source that has moved on since a workload pinned it: how its newest rows are published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pvdm.client import WorkloadView
from pvdm.durable.outcome import ChunkOutcome, SourceMoved, extent_of
from pvdm.model.filter.claim import WAY_TO_CORRECT
from pvdm.model.states import AttemptState, WorkloadState

_OF_APPEND: Final = (
    f"rows of a claim are appended once; to correct what is published, {WAY_TO_CORRECT}, "
    "and you run it under a new workload id"
)
_OF_OVERWRITE: Final = "run it under a new workload id: it replaces what is published"
_OF_NOTHING: Final = (
    "0 rows were published then, so nothing is claimed: publish what came since under a new workload id"
)


def source_moved(workload: WorkloadView, chunks: Sequence[ChunkOutcome], *, appends: bool) -> SourceMoved | None:
    """Both snapshots and the way on, where they differ; None too where the Steward cannot tell the newest."""
    pinned, newest = workload.source_snapshot_id, workload.source_newest_snapshot_id
    if pinned is None or newest is None or pinned == newest:
        return None
    is_open = workload.state is WorkloadState.OPEN
    way = _way_on(workload, chunks, newest, appends=appends)
    return SourceMoved(pinned, newest, way, workload.changed_at if is_open else None)


def _way_on(workload: WorkloadView, chunks: Sequence[ChunkOutcome], newest: int, *, appends: bool) -> str:
    done = sum(1 for each in chunks if each.state is AttemptState.COMMITTED)
    if done < workload.chunk_count:
        if not done and AttemptState.COMMITTED not in {each.state for each in workload.chunk_states}:
            return (
                f"to publish {newest}: an operator abandons {workload.workload_id}, of which nothing is published, "
                "and you run it under a new workload id"
            )
        return f"publish the rest of this one first; then: {_OF_APPEND if appends else _OF_OVERWRITE}"
    if not appends:
        return _OF_OVERWRITE
    extent = extent_of(chunks)
    return _OF_NOTHING if extent is not None and not extent.rows_added else _OF_APPEND


def must_read(moved: SourceMoved) -> str:
    """What a job whose rows are wrong is told of the snapshot that it has to read."""
    return (
        f"the job must read snapshot {moved.pinned_snapshot_id} of the source, which the workload has pinned; "
        f"the source is at {moved.newest_snapshot_id}"
    )
