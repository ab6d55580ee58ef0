"""Orders for workers: pickled by the Steward, without keys, and unpickled only by workers."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import dataclass, replace
from typing import Self

from pvdm.digest import Plan
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.scan import Scan
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.statements.table import TableRef
from pvdm.verify.readers import JobInputs, SourceOrder, StagedOrder
from pvdm.verify.source import PinnedSource


class Message:
    """A value that the Steward sends to a worker."""

    __slots__ = ()

    def to_bytes(self) -> bytes:
        """The bytes for a worker."""
        return zlib.compress(pickle.dumps(self), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The value that `to_bytes` wrote; for workers only."""
        found = pickle.loads(zlib.decompress(data))  # noqa: S301 - only the Steward writes it
        assert isinstance(found, cls)  # noqa: S101 - as `to_bytes` wrote it
        return found


@dataclass(frozen=True, slots=True)
class KeyDoor:
    """Where a worker gets the job's keys: the Steward's address, the handle, and the file with the worker's token.

    Handle and token are useless without each other, and the token lies on the worker's host.
    """

    address: str
    job_id: str
    handle: str
    token_file: str
    authorities: str | None


@dataclass(frozen=True, slots=True)
class Task(Message):
    """The files of one task."""

    staged: tuple[StagedOrder, ...]
    source: tuple[SourceOrder, ...]


@dataclass(frozen=True, slots=True)
class Rows(Message):
    """Which rows Spark hands to workers: the staged ones, or the source's, which are then filtered and mapped.

    `files` are the source files whose rows count, where the chunk names them; each row then has its file's name.
    """

    staged: bool
    files: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Common(Message):
    """What all tasks of a job share; `store` is the access to its object store, under the job's seal."""

    door: KeyDoor
    plan: Plan
    metadata: bytes
    bound: BoundContract
    chunk: ChunkDefinition
    source: tuple[TableRef, int, Scan]
    rewrites: bool
    store: bytes | None = None

    @classmethod
    def of(cls, inputs: JobInputs, door: KeyDoor, store: bytes | None = None) -> Common:
        """The inputs of a job, without the source's files, which are in the tasks."""
        pinned = inputs.source
        scan = replace(pinned.scan, files=(), defaults=dict(pinned.scan.defaults))
        source = (pinned.ref, pinned.snapshot_id, scan)
        metadata = inputs.metadata.to_bytes()
        return cls(door, inputs.plan, metadata, inputs.bound, inputs.chunk, source, inputs.rewrites, store)

    def inputs(self) -> JobInputs:
        """The inputs of the job."""
        metadata = TableMetadata.parse(self.metadata)
        return JobInputs(self.plan, metadata, self.bound, self.chunk, PinnedSource(*self.source), self.rewrites)
