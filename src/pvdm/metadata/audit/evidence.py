"""The input of an audit: the table's metadata file, logged statements, and manifests by location."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.errors import Code, InputError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.statements.table import TableRef
from pvdm.trust.log.entry import EntryKind, LogEntry

AUDIT_SNAPSHOTS_MAX: Final = 100_000
AUDIT_STATEMENTS_MAX: Final = 1_000_000
_LAST: Final = 4
KINDS: Final = (
    EntryKind.RECEIPT,
    EntryKind.PROOF,
    EntryKind.BREAK_GLASS,
    EntryKind.PROTECTION,
    EntryKind.MIGRATION,
)


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A signed envelope, and the inclusion path of its log entry in the evidence's checkpoint."""

    kind: EntryKind
    envelope: bytes
    logged_at: int
    index: int
    hashes: tuple[bytes, ...]

    @property
    def leaf(self) -> bytes:
        """The log's entry: kind, hash of the envelope, time."""
        return LogEntry(self.kind, hashlib.sha256(self.envelope).hexdigest(), self.logged_at).to_bytes()


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """The table's metadata file: its path and its bytes."""

    path: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The hash of the bytes."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything except manifests. `contract_sha256` is the table's contract now, as the Steward states it."""

    table: TableRef
    contract_sha256: str | None
    metadata: MetadataFile
    checkpoint: bytes
    statements: tuple[LoggedStatement, ...]


class ManifestFiles(Protocol):
    """Reads manifest lists and manifests of the table's own snapshots."""

    def read(self, snapshot_id: int, location: str, /, *, most: int) -> bytes:
        """The bytes at a location that this snapshot names, at most `most`."""
        ...


class RecordingFiles:
    """Keeps all files that were read, for a bundle that repeats the same audit."""

    def __init__(self, inner: ManifestFiles) -> None:
        self._inner = inner
        self.read_files: dict[str, bytes] = {}

    def read(self, snapshot_id: int, location: str, /, *, most: int) -> bytes:
        """The bytes. Each location is read once."""
        found = self.read_files.get(location)
        if found is None:
            found = self.read_files[location] = self._inner.read(snapshot_id, location, most=most)
        return found


class HashedFiles:
    """Keeps size and hash of every file that was read, and caches the last few files."""

    def __init__(self, inner: ManifestFiles) -> None:
        self._inner = inner
        self._last: OrderedDict[str, bytes] = OrderedDict()
        self.seen: dict[str, tuple[int, str]] = {}

    def read(self, snapshot_id: int, location: str, /, *, most: int) -> bytes:
        """The bytes, from the cache if the file was read recently."""
        found = self._last.get(location)
        if found is None:
            found = self._last[location] = self._inner.read(snapshot_id, location, most=most)
            self.seen[location] = (len(found), hashlib.sha256(found).hexdigest())
            if len(self._last) > _LAST:
                self._last.popitem(last=False)
        return found


def table_document(evidence: Evidence) -> TableMetadata:
    """The parsed metadata file of the evidence. It must belong to the audited table."""
    try:
        metadata = TableMetadata.parse(evidence.metadata.data)
    except InputError as error:
        raise Code.AUDIT_FAILED(reason="audit_metadata_unreadable", got=str(error)) from None
    if metadata.table_uuid is None or metadata.table_uuid.lower() != evidence.table.uuid:
        raise Code.AUDIT_FAILED(
            reason="audit_metadata_of_other_table", expected=evidence.table.uuid, got=str(metadata.table_uuid)
        )
    return metadata
