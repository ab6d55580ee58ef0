"""Messages for workers: pickled by the Steward, without keys, and unpickled only by workers."""

from __future__ import annotations

import copyreg
import pickle
import zlib
from dataclasses import dataclass, replace
from typing import Final, Self

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.verify.readers import JobInputs, SourceItem, StagedItem

FILE_COLUMN: Final = "_file"  # Iceberg's name for the file of a row

# A table's metadata is sent as its JSON document, because its parsed parts cannot be pickled.
copyreg.pickle(TableMetadata, lambda metadata: (TableMetadata.parse, (metadata.to_bytes(),)))


class Message:
    """A value that the Steward sends to a worker."""

    __slots__ = ()

    def to_bytes(self) -> bytes:
        """The bytes for a worker."""
        return zlib.compress(pickle.dumps(self), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The value that `to_bytes` wrote; for workers only."""
        value = pickle.loads(zlib.decompress(data))  # noqa: S301 - only the Steward writes it
        assert isinstance(value, cls)  # noqa: S101 - as `to_bytes` wrote it
        return value


@dataclass(frozen=True, slots=True)
class KeyEndpoint:
    """Where a worker gets the job's keys: the Steward's address, the handle, and the token file on the worker's host.

    Handle and token are useless without each other. `authorities` is a file with certificates on the worker's host.
    """

    address: str
    job_id: str
    handle: str
    token_file: str
    authorities: str | None


@dataclass(frozen=True, slots=True)
class Task(Message):
    """The files of one task."""

    staged: tuple[StagedItem, ...]
    source: tuple[SourceItem, ...]


@dataclass(frozen=True, slots=True)
class RowSelection(Message):
    """The rows that workers get from Spark's reader: staged rows, or the source's, which they filter and map.

    If the chunk is a list of source files, `files` has them, and each row has its file's name.
    """

    staged: bool
    files: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Common(Message):
    """What all tasks of a job share; `store` is the access to its object store, encrypted by `JobCipher`."""

    endpoint: KeyEndpoint
    inputs: JobInputs
    store: bytes | None = None

    @classmethod
    def for_tasks(cls, inputs: JobInputs, endpoint: KeyEndpoint, store: bytes | None = None) -> Common:
        """The inputs of a job without the source's metadata, and without the source's files, which are in the tasks."""
        scan = replace(inputs.source.scan, files=(), defaults=dict(inputs.source.scan.defaults))
        source = replace(inputs.source, scan=scan, metadata=None, newer_columns=())
        return cls(endpoint, replace(inputs, source=source), store)
