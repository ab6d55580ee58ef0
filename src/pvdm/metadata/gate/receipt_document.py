"""Checks a metadata file against its receipt, down to the data files, before a restore points a table to it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from pvdm.lake.format.manifest.manifest import MANIFEST_MAX_BYTES
from pvdm.lake.format.manifest.manifest_list import MANIFEST_LIST_MAX_BYTES
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import in_file
from pvdm.lake.read.entries import load_manifest_list, read_listed
from pvdm.lake.read.found_manifests import UnchangingFiles
from pvdm.metadata.audit import checks
from pvdm.metadata.gate.checks_table import require_bytes
from pvdm.model.statements.core import AddedFile, ProofCore
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused
from pvdm.verify.fetch import Files

_THREADS: Final = 8


def parse_receipted_metadata(receipt: Receipt, data: bytes) -> TableMetadata:
    """Parse the metadata file of a receipt. Its hash, table and current snapshot must be those of the receipt."""
    got = hashlib.sha256(data).hexdigest()
    if got != receipt.metadata_sha256:
        raise refused("audit_metadata_changed", receipt.metadata_sha256, got)
    metadata = TableMetadata.parse(data)
    if metadata.table_uuid is None or metadata.table_uuid.lower() != receipt.table.uuid:
        raise refused("audit_metadata_of_other_table", receipt.table.uuid, metadata.table_uuid)
    checks.require_receipt_branch(receipt)
    checks.require_receipt_snapshot(receipt, _head(receipt, metadata))
    return metadata


def _head(receipt: Receipt, metadata: TableMetadata) -> Snapshot:
    head = metadata.current_snapshot_id
    found = None if head is None else metadata.snapshot(head)
    if found is None:
        message = "main of the metadata file has no snapshot"
        raise refused("audit_receipt_wrong_snapshot", receipt.new_snapshot_id, "none", message=message)
    return found


def require_proved(receipt: Receipt, cores: Mapping[str, ProofCore | None]) -> None:
    """Every proof that the receipt names exists (`core` is not None), is about its table, and is a PASS or waived."""
    for proof_id, core in cores.items():
        if core is None:
            raise refused("audit_proof_missing", proof_id, "none")
        if core.target.table.uuid != receipt.table.uuid:
            raise refused("audit_proof_wrong_table", receipt.table.uuid, core.target.table.uuid)
        if not core.verdict.passed and receipt.override_id is None:
            raise refused("audit_verdict_not_pass", "PASS", "FAIL")


def require_published_bytes(
    receipt: Receipt, metadata: TableMetadata, added: Sequence[AddedFile], files: Files
) -> dict[str, int | None]:
    """The paths of the files that `main` of the metadata file shows, each with the snapshot that added the file.

    The manifest list and its manifests must have the bytes that the receipt binds. Live files among `added`, the files
    that proofs add, must have the bytes that the proofs bind. An error names the file (`file`).
    """
    head = _head(receipt, metadata)
    reader = UnchangingFiles(files)  # raises if a second read gives other bytes
    with in_file(head.manifest_list or receipt.metadata_path):
        if head.manifest_list is not None:
            checks.require_published_list(receipt, reader.read(head.manifest_list, max_bytes=MANIFEST_LIST_MAX_BYTES))
        listed = load_manifest_list(metadata, head, reader)
        # The SHA-256 of each manifest, by path, from the header of the list that the receipt binds.
        bound = checks.require_manifest_hashes(listed)
    live: dict[str, int | None] = {}
    for each in listed.manifests:
        with in_file(each.manifest_path):
            reader.read(each.manifest_path, max_bytes=MANIFEST_MAX_BYTES)
            checks.require_manifests(bound, [(each.manifest_path, reader.hashes[each.manifest_path])])
            entries = read_listed(metadata, each, reader).entries
        live |= {entry.data_file.file_path: entry.snapshot_id for entry in entries if entry.is_live}
    require_bytes([file for file in added if file.published_path in live], files, threads=_THREADS)
    return live
