"""Plans a workload as the Steward's job does: reads the values of every source file first."""

from __future__ import annotations

import hashlib

from pvdm.model.chunk import ChunkPlan
from pvdm.model.contract import BoundContract
from pvdm.verify.chunk_files import hash_file
from pvdm.verify.chunk_values import ChunkValues, FoundValues, reads_rows
from pvdm.verify.fetch import Fetcher, HashedFile
from pvdm.verify.planning import ReadSource, plan_workload
from pvdm.verify.source import PinnedSource


def plan_with_rows(bound: BoundContract, source: PinnedSource, fetch: Fetcher) -> ChunkPlan:
    """The plan of the workload."""
    if not reads_rows(bound.contract.chunking):
        return plan_workload(bound, source, None)
    values = ChunkValues(bound, source)
    found = FoundValues(values, values.none)
    hashes = []
    for file in values.files:
        found.add(values.read(file, fetch))
        data = {location: fetch(location) for location in source.scan.locations([file])}
        hashed = [HashedFile(each, len(data[each]), hashlib.sha256(data[each]).hexdigest()) for each in data]
        hashes.append(hash_file(source.listing_sha256, hashed))
    return plan_workload(bound, source, ReadSource(found.table, hashes))
