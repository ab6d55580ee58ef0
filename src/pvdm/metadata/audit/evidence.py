"""What an audit is made from: the table's document, logged statements, and manifests by their locations."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.errors import InputError, VerificationError
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
    """A signed envelope, and the way from its entry to the root of the evidence's checkpoint."""

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
    """The table's document: where it lies, and its bytes."""

    path: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The hash of the bytes."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything but manifests; `contract_sha256` is the contract that the table is said to be under now."""

    table: TableRef
    contract_sha256: str | None
    metadata: MetadataFile
    checkpoint: bytes
    statements: tuple[LoggedStatement, ...]


class ManifestFiles(Protocol):
    """Gives manifest lists and manifests of the table's own snapshots."""

    def read(self, snapshot_id: int, location: str, /, *, most: int) -> bytes:
        """The bytes at a location that this snapshot names, or its manifest list; more than `most` are refused."""
        ...


class RecordingFiles:
    """Remembers what was read, so that the same audit can be made again from the same bytes."""

    def __init__(self, inner: ManifestFiles) -> None:
        self._inner = inner
        self.read_files: dict[str, bytes] = {}

    def read(self, snapshot_id: int, location: str, /, *, most: int) -> bytes:
        """The bytes; the same location is asked for once."""
        found = self.read_files.get(location)
        if found is None:
            found = self.read_files[location] = self._inner.read(snapshot_id, location, most=most)
        return found


class HashedFiles:
    """Remembers size and hash of what was read, and the last few files themselves."""

    def __init__(self, inner: ManifestFiles) -> None:
        self._inner = inner
        self._last: OrderedDict[str, bytes] = OrderedDict()
        self.seen: dict[str, tuple[int, str]] = {}

    def read(self, snapshot_id: int, location: str, /, *, most: int) -> bytes:
        """The bytes; the same file again soon is not fetched again."""
        found = self._last.get(location)
        if found is None:
            found = self._last[location] = self._inner.read(snapshot_id, location, most=most)
            self.seen[location] = (len(found), hashlib.sha256(found).hexdigest())
            if len(self._last) > _LAST:
                self._last.popitem(last=False)
        return found


def table_document(evidence: Evidence) -> TableMetadata:
    """The document of the evidence; it must be that of the table that is audited."""
    try:
        metadata = TableMetadata.parse(evidence.metadata.data)
    except InputError as error:
        raise VerificationError(
            "audit_metadata_unreadable",
            "the table's document cannot be read",
            expected="a metadata document of Iceberg",
            got=str(error),
        ) from None
    if metadata.table_uuid is None or metadata.table_uuid.lower() != evidence.table.uuid:
        raise VerificationError(
            "audit_metadata_of_other_table",
            "the document is of another table than the one that is audited",
            expected=evidence.table.uuid,
            got=str(metadata.table_uuid),
        )
    return metadata
