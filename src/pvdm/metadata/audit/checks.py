"""The audit's checks of a receipt and its proofs, each with its own code. A statement *binds* bytes by their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from pvdm.digest.plan import fingerprint
from pvdm.lake.format.manifest.manifest_list import ManifestFile, ManifestList
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, Snapshot
from pvdm.lake.read.found_manifests import MANIFESTS_KEY, read_manifest_hashes
from pvdm.metadata.audit.changes import SnapshotChanges
from pvdm.metadata.audit.evidence import Evidence
from pvdm.metadata.audit.protection import ProtectionHistory
from pvdm.metadata.audit.report import Notes
from pvdm.metadata.audit.statements import ProvedChunk, Statements, UnverifiedStatement, added_files, removed_paths
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import AddedFile, ProofCore
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused

PathAndSize: TypeAlias = tuple[str, int | None]  # the size in bytes, or None if sizes are not compared


def require_receipt_table(receipt: Receipt, evidence: Evidence) -> None:
    """The receipt names this table's UUID. The name is not enough: another table can have the same name."""
    if (receipt.table.catalog, receipt.table.uuid) != (evidence.table.catalog, evidence.table.uuid):
        raise refused("audit_receipt_wrong_table", evidence.table.uuid, receipt.table.uuid)


def require_receipt_branch(receipt: Receipt) -> None:
    """The receipt is for `main`, which consumers read."""
    if receipt.branch != MAIN:
        raise refused("audit_receipt_wrong_branch", MAIN, repr(receipt.branch))


def require_receipt_snapshot(receipt: Receipt, snapshot: Snapshot) -> None:
    """The receipt names this snapshot and its parent."""
    for what, expected, got in (
        ("snapshot", snapshot.snapshot_id, receipt.new_snapshot_id),
        ("parent snapshot", snapshot.parent_id, receipt.old_snapshot_id),
    ):
        if expected != got:
            raise refused("audit_receipt_wrong_snapshot", expected, got, message=f"the receipt names another {what}")


def require_published_list(receipt: Receipt, data: bytes) -> None:
    """The manifest list is the one that was published, to the byte."""
    got = hashlib.sha256(data).hexdigest()
    if got != receipt.manifest_list_sha256:
        raise refused("audit_list_changed", receipt.manifest_list_sha256, got)


def require_manifest_hashes(listed: ManifestList) -> dict[str, str]:
    """The SHA-256 of every manifest, by location, from the header of the list, which the receipt binds."""
    hashes = read_manifest_hashes(listed.file.text(MANIFESTS_KEY), len(listed.manifests))
    if hashes is None:
        message, expected = "the published list does not bind its manifests", f"{len(listed.manifests)} manifests"
        raise refused("audit_manifest_unbound", f"the hashes of {expected}", "none, or others", message=message)
    return dict(zip((each.manifest_path for each in listed.manifests), hashes, strict=True))


def require_manifests(bound: Mapping[str, str], manifests: Iterable[tuple[str, str | None]]) -> None:
    """The manifests, each a location and its SHA-256, have the hashes that the list binds."""
    for location, got in manifests:
        if got != bound.get(location):
            expected = bound.get(location, "a manifest of the list")
            raise refused("audit_manifests_changed", expected, f"{got or 'another'} for {location}")


def require_taken_over(kept: Sequence[ManifestFile], found_sha256: str | None) -> str:
    """A first publication after a protection copies entries, and lists no older manifest. Returns `found_sha256`."""
    if kept or found_sha256 is None:
        message = "the snapshot carries over manifests that no receipt binds"
        expected = "manifests that the Steward wrote, and the hash of those that it found"
        got = kept[0].manifest_path if kept else "no hash of what was found"
        raise refused("audit_manifest_unbound", expected, got, message=message)
    return found_sha256


def require_found_unchanged(bound: str, got: str) -> None:
    """The snapshot from before the protection still has the manifests that the first publication took over."""
    if got != bound:
        raise refused("audit_found_changed", bound, got)


def require_metadata(receipt: Receipt, evidence: Evidence) -> None:
    """If the receipt's metadata file is still the current one, it has the hash that the receipt names."""
    now = evidence.metadata
    if receipt.metadata_path == now.path and receipt.metadata_sha256 != now.sha256:
        raise refused("audit_metadata_changed", receipt.metadata_sha256, now.sha256)


def require_metadata_known(receipt: Receipt, snapshot: Snapshot, evidence: Evidence, metadata: TableMetadata) -> None:
    """The receipt's metadata file is in the table's metadata log, as far back as the log goes."""
    log = metadata.metadata_log
    # If the log has an older entry than this snapshot, it must have the snapshot's entry too.
    reaches_back = bool(log) and log[0].timestamp_ms < snapshot.timestamp_ms
    known = {evidence.metadata.path, *(entry.metadata_file for entry in log)}
    if reaches_back and receipt.metadata_path not in known:
        raise refused("audit_metadata_unknown", "one of the table's metadata files", receipt.metadata_path)


def require_workload(receipt: Receipt, chunks: Sequence[ProvedChunk]) -> None:
    """The proofs are of the receipt's workload, one for each chunk."""
    seen: set[str] = set()
    for chunk in chunks:
        attempt = chunk.proof.core.attempt
        if attempt.workload_id != receipt.workload_id:
            raise refused("audit_proof_wrong_workload", receipt.workload_id, attempt.workload_id)
        if attempt.chunk_id in seen:
            raise refused("audit_chunk_twice", "one proof for each chunk", attempt.chunk_id)
        seen.add(attempt.chunk_id)


def require_target(core: ProofCore, evidence: Evidence) -> None:
    """The proof is about this table's `main`."""
    table, branch, own = core.target.table, core.target.branch, evidence.table
    if (table.catalog, table.uuid, branch) != (own.catalog, own.uuid, MAIN):
        raise refused("audit_proof_wrong_table", f"{own.uuid}, {MAIN}", f"{table.uuid}, {branch}")


def require_contract(core: ProofCore, in_force: Collection[str | None]) -> None:
    """The contract is one of those in force between proof and receipt. None stands for no protection."""
    if core.attempt.contract_sha256 not in in_force:
        expected = " or ".join(sorted(each for each in in_force if each is not None)) or "none: it was not protected"
        raise refused("audit_proof_wrong_contract", expected, core.attempt.contract_sha256)


def require_logged_before(last_index: int, receipt_index: int) -> None:
    """The last proof of a chunk, or the override, was logged before the receipt."""
    if last_index >= receipt_index:
        raise refused("audit_logged_too_late", f"before entry {receipt_index}", last_index)


def require_verdict(core: ProofCore, override: BreakGlass | None) -> None:
    """The verdict is PASS, or a FAIL that an override waives for exactly these bytes."""
    if core.verdict.passed:
        return
    classes = ", ".join(found.value for found in core.verdict.classes)
    if override is None:
        raise refused("audit_verdict_not_pass", "PASS, or an override", f"FAIL ({classes})")
    hashes = core.files.staged_hashes
    if (override.table.uuid, override.file_hashes) != (core.target.table.uuid, hashes):
        expected = f"{len(override.file_hashes)} files of the override"
        raise refused("audit_override_for_others", expected, f"{len(hashes)} other files")


def require_override_needed(chunks: Sequence[ProvedChunk], override: BreakGlass | None) -> None:
    """If there is an override, at least one verdict is FAIL."""
    if override is not None and all(chunk.proof.core.verdict.passed for chunk in chunks):
        raise refused("audit_override_of_pass", "a FAIL", "PASS")


def require_added(chunks: Sequence[ProvedChunk], changed: SnapshotChanges) -> dict[str, AddedFile]:
    """The added files are exactly those of the proofs, by path and size. Returns the proofs' files by path."""
    bound: dict[str, AddedFile] = {}
    for file in added_files(chunks):
        if file.published_path in bound:
            raise refused("audit_file_proved_twice", "each file once", file.published_path)
        bound[file.published_path] = file
    proved = {(file.published_path, file.published_size_bytes) for file in bound.values()}
    shown = [(file.file_path, file.file_size_in_bytes) for file in changed.added]
    require_same_files("audit_files_added_differ", proved, shown)
    return bound


def require_removed(chunks: Sequence[ProvedChunk], changed: SnapshotChanges) -> None:
    """The removed files are exactly those of the proofs."""
    proved = {(path, None) for path in removed_paths(chunks)}
    require_same_files("audit_files_removed_differ", proved, [(file.file_path, None) for file in changed.removed])


def require_same_files(code: str, proved: AbstractSet[PathAndSize], shown: Sequence[PathAndSize]) -> None:
    """The manifests show exactly the proved files, each once."""
    found = set(shown)
    if len(found) != len(shown) or found != proved:
        expected = _name_paths(proved - found, "every file of the proofs")
        raise refused(code, expected, _name_paths(found - proved, "no other file, but one twice, or some missing"))


def require_rows(chunks: Sequence[ProvedChunk], changed: SnapshotChanges) -> None:
    """The manifests count as many rows as were verified. Skipped if a proof has no count, as a FAIL may."""
    counts = [chunk.proof.core.rows.staged for chunk in chunks]
    known = [count for count in counts if count is not None]
    if len(known) == len(counts) and sum(known) != changed.rows_added:
        raise refused("audit_rows_differ", sum(known), changed.rows_added)


def require_schema(core: ProofCore, snapshot: Snapshot, fingerprints: Mapping[int, str]) -> None:
    """The snapshot names the schema for which the rows were verified. `fingerprints` are by schema id."""
    shown = None if snapshot.schema_id is None else fingerprints.get(snapshot.schema_id)
    if shown != core.target.schema_fingerprint:
        got = shown or f"no schema {snapshot.schema_id}"
        raise refused("audit_schema_differs", core.target.schema_fingerprint, got)


def require_spec(core: ProofCore, changed: SnapshotChanges) -> None:
    """The added files are listed under the partition spec that the proof names."""
    if changed.spec_ids - {core.target.spec_id}:
        raise refused("audit_spec_differs", core.target.spec_id, ", ".join(map(str, sorted(changed.spec_ids))))


def schema_fingerprints(metadata: TableMetadata) -> dict[int, str]:
    """The fingerprint of every schema that the table has, by schema id."""
    return {schema.schema_id: fingerprint(to_model(schema)).hex() for schema in metadata.schemas}


def _name_paths(files: AbstractSet[PathAndSize], otherwise: str) -> str:
    """The first path and the number of further ones, or `otherwise` if there is none."""
    paths = sorted(path for path, _ in files)
    if len(paths) < 2:
        return paths[0] if paths else otherwise
    return f"{paths[0]} and {len(paths) - 1} more"


@dataclass(frozen=True, slots=True)
class PublicationProofs:
    """The verified proofs and the override of one publication."""

    chunks: tuple[ProvedChunk, ...] = ()
    override: BreakGlass | None = None


class Proofs:
    """Checks the proofs of receipts. Over all receipts, a nonce, chunk or override must be used once."""

    def __init__(self, statements: Statements, protected: ProtectionHistory, evidence: Evidence) -> None:
        self._statements = statements
        self._protected = protected
        self._evidence = evidence
        self._used: dict[tuple[str, ...], int] = {}  # the snapshot, by kind and id of what it used

    def judge(self, receipt: UnverifiedStatement[Receipt], notes: Notes) -> PublicationProofs:
        """Check the proofs and the override of a valid receipt, and return them. Failed checks are noted."""
        content = receipt.predicate
        chunks: tuple[ProvedChunk, ...] = ()
        with notes.collect():
            chunks = self._statements.verify_proofs(content.proof_ids)
        override: BreakGlass | None = None
        if content.override_id is not None:
            with notes.collect():
                verified, index = self._statements.verify_override(content.override_id)
                override = verified.predicate
                require_logged_before(index, receipt.logged.index)
                self._require_unused(content, "override", content.override_id)
        if chunks:
            notes.check(require_workload, content, chunks)
            notes.check(require_override_needed, chunks, override)
        for chunk in chunks:
            self._judge_chunk(receipt, chunk, override, notes)
        return PublicationProofs(chunks, override)

    def _judge_chunk(
        self, receipt: UnverifiedStatement[Receipt], chunk: ProvedChunk, override: BreakGlass | None, notes: Notes
    ) -> None:
        core, content = chunk.proof.core, receipt.predicate
        in_force = self._protected.contracts(chunk.first_index, receipt.logged.index)
        notes.check(require_target, core, self._evidence)
        notes.check(require_contract, core, in_force)
        notes.check(require_logged_before, chunk.last_index, receipt.logged.index)
        notes.check(require_verdict, core, override)
        # A nonce is used once, and a chunk is published once.
        notes.check(self._require_unused, content, "nonce", core.attempt.nonce)
        notes.check(self._require_unused, content, "chunk", core.attempt.workload_id, core.attempt.chunk_id)

    def _require_unused(self, content: Receipt, *key: str) -> None:
        """No other snapshot has used this `key`: its kind, then its id."""
        other = self._used.setdefault(key, content.new_snapshot_id)
        if other != content.new_snapshot_id:
            message = f"one {key[0]} was used by two publications"
            raise refused("audit_used_twice", f"{' '.join(key[1:])} once", f"in snapshot {other} too", message=message)
