"""The verified manifest: what verification writes into the vault, and the gate reads back from exactly those bytes."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.errors import VerificationError
from pvdm.lake.format.avro.container import AVRO_FILE_MAX_BYTES
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import read_manifest
from pvdm.lake.format.manifest.write import write_manifest
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import header_of
from pvdm.lake.vault import Vault
from pvdm.ledger.work.verified import VerifiedRecord


def verified_manifest(metadata: TableMetadata, files: Sequence[DataFile], nonce: str) -> bytes:
    """The verified entries as a manifest: added, by a snapshot that has no id yet; the same files, the same bytes."""
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
    entries = [ManifestEntry(status=EntryStatus.ADDED, data_file=file) for file in files]
    return write_manifest(header, entries, sync=bytes.fromhex(nonce)).data


def read_verified(vault: Vault, record: VerifiedRecord) -> tuple[DataFile, ...]:
    """The files of a verified manifest, from exactly the bytes that were written."""
    if record.location is None or record.sha256 is None:
        raise VerificationError("verified_without_files", "no file list was verified under this nonce")
    data = vault.read(record.location, sha256=record.sha256, most=AVRO_FILE_MAX_BYTES)
    return tuple(entry.data_file for entry in read_manifest(data).entries)
