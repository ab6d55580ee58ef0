"""Plans a workload with all values of its source, as the Steward's job does."""

from __future__ import annotations

from pvdm.model.chunk import ChunkPlan
from pvdm.model.contract import BoundContract
from pvdm.verify.chunk_values import ChunkValues, FoundValues, reads_rows
from pvdm.verify.fetch import Fetcher
from pvdm.verify.planning import plan_workload
from pvdm.verify.source import PinnedSource


def plan_with_rows(bound: BoundContract, source: PinnedSource, fetch: Fetcher) -> ChunkPlan:
    """The plan of the workload."""
    if not reads_rows(bound.contract.chunking):
        return plan_workload(bound, source, None)
    values = ChunkValues(bound, source)
    found = FoundValues(values, values.none)
    for file in values.files:
        found.add(values.read(file, fetch))
    return plan_workload(bound, source, found.table)
