"""The gate's checks 7 to 12, 14 and 15: the table, the bytes, the log, the ledger and the result.

Checks 1 to 6 are in `checks_statements`. Check 13, the swap, is the commit itself (`gate`, `publication`). Each
`check_N…` is the row N of the table in spec/gate.md and raises with that number. A file is *bound* if a proof names its
path, size and SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pvdm.digest.plan import fingerprint
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.format.manifest.entry import FileContent, ManifestContent
from pvdm.lake.format.manifest.manifest_list import MANIFEST_LIST_MAX_BYTES
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import Location, in_file, parse_location
from pvdm.lake.read.entries import FileReader, branch_changes, listed_manifests, read_listed, replaced_files
from pvdm.lake.stores.seal import Seals
from pvdm.lake.vault import VaultKind
from pvdm.ledger.record import events
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import attempts, chunks, claims, nonces, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.nonces import Nonce
from pvdm.metadata.gate.checks_statements import SignedChunk, SignedProposal
from pvdm.metadata.gate.context import Gate, check, name_attempt, translate_main_errors
from pvdm.metadata.gate.ledger_changes import LedgerChanges, PublishedAttempt
from pvdm.metadata.gate.proposal import (
    LoggedEnvelope,
    Part,
    Proposal,
    PublicationResult,
    PublishedSnapshot,
    require_staged_shown,
)
from pvdm.metadata.gate.target import Base
from pvdm.model.contract import Source
from pvdm.model.filter.claim import Claim
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import AddedFile, Operation, ProofCore
from pvdm.model.statements.proof import Storage
from pvdm.model.statements.verdict import BOUNDARY_CODES
from pvdm.model.states import NonceState, WorkloadState
from pvdm.trust.bundle import log_checker
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.refusal import refuse_input_errors, refused, require_same
from pvdm.trust.verify import VerifiedProof
from pvdm.verify.fetch import Files, describe_bytes
from pvdm.verify.staged import ancestor_ids

FORMATS: Final = (2, 3)  # versions of the Iceberg table format
REHASH_THREADS_MAX: Final = 4
PUBLISHED: Final = "published"
"""The kind, and also the subject, of the step log's event with the facts for a receipt. Its key is `UUID/snapshot`."""


# 7 structure


@check(7)
def check_7_structure(signed: SignedProposal, base: Base) -> None:
    """The table has the schema, partition spec and format version for which the rows were verified."""
    metadata = base.metadata
    if metadata.format_version not in FORMATS:
        raise Code.NOT_PUBLISHABLE(reason="format_not_published", got=str(metadata.format_version))
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            require_structure(chunk.core, metadata)


def require_structure(core: ProofCore, metadata: TableMetadata) -> None:
    """The structure that the proof names is the table's. The content projection covers or excludes every column."""
    schema = to_model(metadata.current_schema)
    require_same(Code.PROOF_WRONG_SCHEMA, "schema", fingerprint(schema).hex(), core.target.schema_fingerprint)
    columns: set[str] = set()
    for projection in (each.projection for each in core.projections):
        if projection.name is ProjectionName.CONTENT:
            columns.update(projection.columns, (each.column for each in projection.excluded))
    require_same("proof_wrong_projection", "set of content columns", set(schema.names), columns)
    require_same(Code.PROOF_WRONG_SPEC, "partition spec", metadata.default_spec_id, core.target.spec_id)
    require_same(Code.PROOF_WRONG_FORMAT, "format version", metadata.format_version, core.target.format_version)


# 8 branch


@check(8)
def check_8_branch(signed: SignedProposal, base: Base) -> None:
    """Each attempt's branch is at the verified snapshot, which descends from a base in the history of `main`."""
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            require_staged_shown(base.metadata, chunk.core.staged.snapshot_id, upstream=base.row.upstream)
            require_staged(chunk.core, chunk.part.attempt)
            require_branch_head(chunk.core, base.metadata)


def require_staged(core: ProofCore, attempt: Attempt) -> None:
    """The proof names the attempt's branch, and the snapshot that was staged there."""
    require_same("proof_wrong_staging", "staging branch", attempt.branch, core.staged.branch)
    recorded = None if attempt.staged_snapshot_id is None else int(attempt.staged_snapshot_id)
    require_same("proof_wrong_staged", "staged snapshot", recorded, core.staged.snapshot_id)


def require_branch_head(core: ProofCore, metadata: TableMetadata) -> None:
    """The branch is at the staged snapshot, which descends from the proof's base, which is in the history of `main`."""
    staged, base_id = core.staged, core.target.base_snapshot_id
    ref = metadata.refs.get(staged.branch)
    head = None if ref is None else ref.snapshot_id
    history = ancestor_ids(metadata, metadata.current_snapshot_id)
    # If nothing was staged, the branch has no ref, or is where the Steward created it: at a former head of `main`.
    if head != staged.snapshot_id and not (staged.snapshot_id is None and head in history):
        raise refused(Code.BRANCH_MOVED, staged.snapshot_id, head)
    if base_id is not None and base_id not in history:
        raise refused(Code.BASE_LEFT_MAIN, base_id, "another history")
    if staged.snapshot_id is not None and base_id not in (None, *ancestor_ids(metadata, staged.snapshot_id)):
        raise refused("proof_wrong_base", base_id, head)


# 9 files


@check(9)
def check_9_files(signed: SignedProposal, base: Base, gate: Gate) -> None:
    """The files added and removed are exactly those that the proofs bind, in allowed folders, and each once."""
    vault = gate.vault.root.child(base.row.table_uuid, VaultKind.DATA.value)
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            require_bound_files(chunk, base.metadata, gate.files, vault)
            require_copies(chunk.proof, vault)
    check_9_boundary(signed, base.metadata, gate.files)
    require_files_once(signed.chunks)
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            require_verified_core(chunk.part, chunk.core)


def require_bound_files(chunk: SignedChunk, metadata: TableMetadata, reader: FileReader, vault: Location) -> None:
    """The branch adds and removes exactly the bound files. The verified manifest lists exactly the added files."""
    with refuse_input_errors():
        require_entries(chunk.core, metadata, reader)
    require_listed(chunk.part, chunk.core)
    for file in chunk.core.files.added:
        require_location(file, chunk.part.attempt, vault)


def require_entries(core: ProofCore, metadata: TableMetadata, reader: FileReader) -> None:
    """The manifests of the branch's own snapshots add and remove exactly the bound paths."""
    head = None if core.staged.snapshot_id is None else metadata.snapshot(core.staged.snapshot_id)
    added: set[str] = set()
    removed: set[str] = set()
    if head is not None:
        _, changes = branch_changes(metadata, head, core.target.base_snapshot_id, reader)
        # Delete files that the branch removes are ignored: the Steward itself removes those of the replaced files.
        deletes = [entry.data_file.file_path for entry in changes.deletes if entry.is_live]
        if deletes:
            raise refused("staged_deletes", "data files only", deletes[0], message="the branch adds delete files")
        added = {entry.data_file.file_path for entry in changes.added}
        removed = {entry.data_file.file_path for entry in changes.removed}
    _require_paths("proof_wrong_files", "added", {file.staged_path for file in core.files.added}, added)
    _require_paths("proof_wrong_removals", "removed", set(core.files.removed), removed)


def require_listed(part: Part, core: ProofCore) -> None:
    """The verified manifest lists exactly the bound data files, with their sizes and the proof's number of rows."""
    listed = {file.file_path: file.file_size_in_bytes for file in part.files}
    bound = {file.published_path: file.published_size_bytes for file in core.files.added}
    if len(listed) != len(part.files) or listed != bound:
        got = f"{len(part.files)} listed ones, with other paths or sizes"
        raise refused("proof_wrong_files", f"{len(bound)} bound files", got)
    if any(file.content is not FileContent.DATA for file in part.files):
        raise refused("staged_deletes", "data files", "others", message="the verified manifest lists a delete file")
    rows = sum(file.record_count for file in part.files)
    require_same("proof_wrong_rows", "number of rows", rows, core.rows.staged)


def require_location(file: AddedFile, attempt: Attempt, vault: Location) -> None:
    """A published file is in the attempt's folder, or in the vault's folder for the attempt, and not behind a link."""
    location = parse_location(file.published_path)
    folder = vault.child(attempt.attempt_id) if location.is_under(vault) else parse_location(attempt.prefix)
    link = location.link_below(folder)
    if not location.is_under(folder) or location == folder or link is not None:
        got = str(location if link is None else link)
        raise Code.PUBLISHED_FILE_CHANGED(reason="published_path_outside", expected=f"a file below {folder}", got=got)


def require_copies(proof: VerifiedProof, vault: Location) -> None:
    """If a proof says `copied`, every published file is in the Steward's vault."""
    if all(each.predicate.notary.storage is not Storage.COPIED for each in proof.statements):
        return
    for file in proof.core.files.added:
        if not parse_location(file.published_path).is_under(vault):
            message = "the proof says that the Steward's copies are published, but this file is the producer's"
            raise Code.PUBLISHED_FILE_CHANGED(
                message, reason="published_path_outside", expected=f"a file below {vault}", got=file.published_path
            )


@check(9)
def check_9_boundary(signed: SignedProposal, metadata: TableMetadata, reader: FileReader) -> None:
    """Each proof removes exactly the live files of its boundary (the part that it may change) at the head of `main`."""
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            require_boundary(chunk.part, chunk.core, metadata, reader)


def require_boundary(part: Part, core: ProofCore, metadata: TableMetadata, reader: FileReader) -> None:
    """The chunk removes the live files of its boundary. If it removes any, `main` got no delete file since the base."""
    head, target, removed = metadata.current_snapshot, core.target, set(core.files.removed)
    if target.operation is Operation.APPEND:
        _require_paths("proof_wrong_removals", "removed", set(), removed)
        return
    # Any other error than those about the boundary means that a manifest of `main` cannot be read.
    with refuse_input_errors(), translate_main_errors(except_codes=BOUNDARY_CODES):
        live = replaced_files(
            metadata, metadata.current_snapshot_id, target.operation, target.partition, part.files, reader
        )
    main_moved = metadata.current_snapshot_id != target.base_snapshot_id
    if main_moved and live != removed:
        raise Code.BOUNDARY_MOVED(expected=f"{len(removed)} files, as they were verified", got=f"{len(live)} files")
    _require_paths("proof_wrong_removals", "removed", set(live), removed)
    if main_moved and removed and head is not None:
        base = None if target.base_snapshot_id is None else metadata.snapshot(target.base_snapshot_id)
        since = 0 if base is None else base.sequence_number
        with translate_main_errors():
            newer = next(_deletes_since(metadata, head, since, reader), None)
        if newer is not None:
            raise Code.DELETES_NEWER(expected=f"no delete file after sequence number {since}", got=newer)


def _deletes_since(metadata: TableMetadata, head: Snapshot, since: int, reader: FileReader) -> Iterator[str]:
    for listed in listed_manifests(metadata, head, reader):
        if listed.content is not ManifestContent.DELETES or (listed.sequence_number or 0) <= since:
            continue
        for entry in read_listed(metadata, listed, reader).entries:
            if entry.is_live and (entry.sequence_number or 0) > since:
                yield entry.data_file.file_path


def require_files_once(chunks: Sequence[SignedChunk]) -> None:
    """The publication adds no file twice, not even under two spellings of one path."""
    seen: set[str] = set()
    for chunk in chunks:
        for file in chunk.core.files.added:
            path = str(parse_location(file.published_path))
            if path in seen:
                raise refused("file_listed_twice", "each file once", path)
            seen.add(path)


def require_verified_core(part: Part, core: ProofCore) -> None:
    """The verified manifest was written for exactly this core, and the proofs are for the attempt's nonce."""
    proved = f"nonce {core.attempt.nonce}, core {hashlib.sha256(core.to_bytes()).hexdigest()}"
    verified = f"nonce {part.nonce}, core {part.core_sha256}"
    if proved != verified:
        raise Code.PUBLICATION_MISMATCH(reason="verified_of_other_proof", expected=proved, got=verified)


def _require_paths(code: str, what: str, expected: set[str], got: set[str]) -> None:
    if expected != got:
        message = f"the files {what} are not the bound ones"
        raise refused(code, f"{len(expected)} files", f"{len(got)}, such as {min(expected ^ got)}", message=message)


# 10 bytes


@check(10)
def check_10_bytes(signed: SignedProposal, gate: Gate) -> None:
    """Each file to publish is hashed again, has the bound bytes and is synced; a sealed file has the bound version."""
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            added = chunk.core.files.added
            if all(each.predicate.notary.storage is Storage.SEALED for each in chunk.proof.statements):
                require_versions(added, parse_location(chunk.part.attempt.prefix), gate.seals)
            else:
                require_bytes(added, gate.files, threads=REHASH_THREADS_MAX)
                gate.files.make_durable([file.published_path for file in added])


def require_bytes(added: Sequence[AddedFile], files: Files, *, threads: int) -> None:
    """Each file, read to its end, has the bound size and SHA-256. The error names the first file that fails."""

    def require_file(file: AddedFile) -> None:
        with in_file(file.published_path):
            hashed = files.hash(file.published_path)
            if (hashed.size, hashed.sha256) != file.published_size_and_hash:
                message = f"a file was changed after it was verified: {file.published_path}"
                expected = describe_bytes(*file.published_size_and_hash)
                got = describe_bytes(hashed.size, hashed.sha256)
                raise Code.PUBLISHED_FILE_CHANGED(
                    message, reason="published_bytes_changed", expected=expected, got=got, file=file.published_path
                )

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(require_file, added))


def require_versions(added: Sequence[AddedFile], prefix: Location, seals: Seals | None) -> None:
    """Seal the attempt's folder again, in case its seal is gone. Each file is still the object version of the proof."""
    if seals is None:
        raise refused("seal_unknown", "a store that can seal", "none")
    seals.seal(prefix)
    versions = seals.versions(prefix)  # a version's bytes cannot change
    for file in added:
        version = versions.get(parse_location(file.published_path))
        if file.version_id is None or version != file.version_id:
            expected, got = f"version {file.version_id} of {file.published_path}", f"version {version}"
            raise Code.PUBLISHED_FILE_CHANGED(reason="sealed_version_changed", expected=expected, got=got)


# 11 log


@check(11)
def check_11_logged(signed: SignedProposal, gate: Gate) -> None:
    """Every statement that the publication relies on is in the log, by a checkpoint that a trusted log key signed."""
    checker = log_checker(signed.trust.root, origin=gate.origin)
    for logged in _all_statements(signed.proposal):
        leaf = LogEntry(logged.kind, hashlib.sha256(logged.envelope).hexdigest(), logged.at_micros)
        try:
            checker.require_included(leaf.to_bytes(), gate.log_proof(logged.index))
        except (InputError, VerificationError) as error:
            what = f"the {logged.kind.value} is not in the log"
            raise refused("statement_not_logged", f"entry {logged.index}", error.reason, message=what) from None


def _all_statements(proposal: Proposal) -> Iterator[LoggedEnvelope]:
    for part in proposal.parts:
        yield from part.proofs
        if part.waiver is not None:
            yield part.waiver.override
            yield from part.waiver.failed
    if proposal.workload_statement is not None:
        yield proposal.workload_statement


# 12 once, in the transaction


@check(12)
def check_12_nonces(signed: SignedProposal, unit: Unit) -> None:
    """Each proof's nonce is still RESERVED."""
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            require_reserved(chunk.core, nonces.find(unit, chunk.core.attempt.nonce))


def require_reserved(core: ProofCore, record: Nonce | None) -> None:
    """The ledger's record of the nonce says RESERVED."""
    if record is None or record.state is not NonceState.RESERVED:
        raise refused("nonce_reused", "a nonce that is still reserved", core.attempt.nonce)


def apply_changes(unit: Unit, changes: LedgerChanges) -> PublishedSnapshot:
    """Make the rest of check 12, and write the publication to the ledger. An error undoes the whole transaction."""
    shown = changes.shown
    snapshot_id = str(shown.new_snapshot_id)
    for attempt in changes.attempts:
        check_12_chunk(unit, attempt, snapshot_id)
    check_12_source(unit, shown.workload_id, changes.source)
    check_12_claim(unit, shown.workload_id, changes.claim)
    if changes.override_nonce is not None:
        check_12_override(unit, changes.override_nonce, snapshot_id)
    if chunks.count_published(unit, shown.workload_id) == chunks.count(unit, shown.workload_id):
        workloads.move(unit, shown.workload_id, WorkloadState.COMPLETE, reason="every chunk is published")
    events.note(unit, PUBLISHED, PUBLISHED, f"{shown.table.uuid}/{snapshot_id}", shown.facts())
    return shown


@check(12)
def check_12_chunk(unit: Unit, new: PublishedAttempt, snapshot_id: str) -> None:
    """The attempt's chunk was not published before. Record its publication, and use up its nonce."""
    with name_attempt(new):
        attempts.publish(unit, new.attempt_id, nonce=new.nonce, snapshot_id=snapshot_id, extent=new.extent)


@check(12)
def check_12_source(unit: Unit, workload_id: str, named: Source) -> None:
    """The source has the contract's UUID or, without one, the UUID last published from. Record the source's UUID."""
    opening = workloads.get(unit, workload_id).opening
    claims.lock(unit, opening.table_uuid)
    claims.require_same_source(unit, opening.table_uuid, named, opening.source)
    claims.note_source(unit, opening.table_uuid, named, opening.source, workload_id=workload_id)


@check(12)
def check_12_claim(unit: Unit, workload_id: str, claim: Claim | None) -> None:
    """No other workload has a claim on the target that overlaps this one. Take the claim."""
    if claim is not None:
        target = workloads.get(unit, workload_id).opening.table_uuid
        claims.take(unit, workload_id, target=target, claim=claim)


@check(12)
def check_12_override(unit: Unit, nonce: str, snapshot_id: str) -> None:
    """The override's nonce is RESERVED. Use it up."""
    nonces.commit(unit, nonce, snapshot_id=snapshot_id)


# 14 read back, 15 receipt, after the commit


@check(14)
def check_14_shown(shown: PublishedSnapshot, gate: Gate) -> None:
    """A new connection shows the snapshot in the history of `main`, with the manifest list that was written."""
    metadata = gate.target.read_back().metadata
    current = metadata.current_snapshot_id
    history = {} if current is None else {each.snapshot_id: each for each in metadata.ancestry(current)}
    snapshot = history.get(shown.new_snapshot_id)
    if snapshot is None or snapshot.parent_id != shown.old_snapshot_id or snapshot.manifest_list is None:
        expected = f"snapshot {shown.new_snapshot_id} with parent {shown.old_snapshot_id}"
        raise Code.PUBLICATION_NOT_SHOWN(expected=expected, got=f"snapshot {current}")
    sha256 = hashlib.sha256(gate.files.read(snapshot.manifest_list, max_bytes=MANIFEST_LIST_MAX_BYTES)).hexdigest()
    if sha256 != shown.manifest_list_sha256:
        expected = f"a manifest list with SHA-256 {shown.manifest_list_sha256}"
        raise Code.PUBLICATION_NOT_SHOWN(expected=expected, got=sha256)


@check(15)
def check_15_receipt(shown: PublishedSnapshot, gate: Gate) -> PublicationResult:
    """Sign and log the receipt."""
    return PublicationResult(shown, gate.witness(shown))
