"""Orders on their way to a worker: pickled once by the Steward, key-free, and unpickled nowhere but there."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import dataclass, replace

from pvdm.digest import Plan
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.scan import Scan
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.statements.table import TableRef
from pvdm.verify.file_orders import Ground, SourceOrder, StagedOrder
from pvdm.verify.source import PinnedSource


@dataclass(frozen=True, slots=True)
class KeyDoor:
    """Where a worker gets the job's keys: the Steward's address, the handle, and the file with the worker's own token.

    None of these opens anything by itself: the token lies on the worker's host, and the handle opens with it only.
    """

    address: str
    job_id: str
    handle: str
    token_file: str
    authorities: str | None


@dataclass(frozen=True, slots=True)
class Task:
    """The files of one task."""

    staged: tuple[StagedOrder, ...]
    source: tuple[SourceOrder, ...]

    def to_bytes(self) -> bytes:
        """The task as a worker gets it."""
        return zlib.compress(pickle.dumps(self), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Task:
        """On a worker: the Steward's own words, bound to what the worker reports."""
        found = pickle.loads(zlib.decompress(data))  # noqa: S301 - the Steward wrote it; nothing else is ever given
        assert isinstance(found, cls)  # noqa: S101 - as `to_bytes` wrote it
        return found


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows Spark hands to workers: the staged ones as they are, or the source's, on their way to the target.

    `files` are those of the source whose rows count, where the chunk names them; then each row says its file.
    """

    staged: bool
    files: tuple[str, ...] | None = None

    def to_bytes(self) -> bytes:
        """For a worker."""
        return pickle.dumps(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Rows:
        """On a worker."""
        found = pickle.loads(data)  # noqa: S301 - the Steward wrote it; nothing else is ever given
        assert isinstance(found, cls)  # noqa: S101 - as `to_bytes` wrote it
        return found


@dataclass(frozen=True, slots=True)
class Common:
    """What all tasks of a job share; `store` is the way to its objects, under the job's seal."""

    door: KeyDoor
    plan: Plan
    metadata: bytes
    bound: BoundContract
    chunk: ChunkDefinition
    source: tuple[TableRef, int, Scan]
    rewrites: bool
    store: bytes | None = None

    @classmethod
    def of(cls, ground: Ground, door: KeyDoor, store: bytes | None = None) -> Common:
        """The ground of a job, with the source's files left to the tasks."""
        pinned = ground.source
        scan = replace(pinned.scan, files=(), defaults=dict(pinned.scan.defaults))
        source = (pinned.ref, pinned.snapshot_id, scan)
        metadata = ground.metadata.to_bytes()
        return cls(door, ground.plan, metadata, ground.bound, ground.chunk, source, ground.rewrites, store)

    def ground(self) -> Ground:
        """The ground again."""
        metadata = TableMetadata.parse(self.metadata)
        return Ground(self.plan, metadata, self.bound, self.chunk, PinnedSource(*self.source), self.rewrites)

    def to_bytes(self) -> bytes:
        """For a worker."""
        return zlib.compress(pickle.dumps(self), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Common:
        """On a worker."""
        found = pickle.loads(zlib.decompress(data))  # noqa: S301 - the Steward wrote it; nothing else is ever given
        assert isinstance(found, cls)  # noqa: S101 - as `to_bytes` wrote it
        return found
