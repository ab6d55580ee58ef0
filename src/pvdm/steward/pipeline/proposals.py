"""Collects proposals (what the gate checks) from ledger and vault, and signs the statements about publications."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.avro.container import AVRO_FILE_MAX_BYTES
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import read_manifest
from pvdm.lake.format.manifest.write import write_manifest
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import header_of
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import events, proofs, receipts, statements
from pvdm.ledger.record.proofs import ProofRecord, StoredOverride
from pvdm.ledger.record.receipts import ReceiptRecord
from pvdm.ledger.work import attempts, chunks, claims, nonces, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.verified import VerifiedRecord
from pvdm.ledger.work.workloads import Workload
from pvdm.metadata.gate.proposal import LoggedEnvelope, Part, Proposal, PublishedSnapshot, Waiver
from pvdm.model.contract import Atomicity, BoundContract
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import ChunkProofs, Proof, WorkloadStatement
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import AttemptState, NonceState
from pvdm.steward.record.recorder import Document, RecordedMeanwhileError, Recorder, signing_epoch
from pvdm.steward.work.opened import bound_contract
from pvdm.steward.work.sources import Sources
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.service import KeyService
from pvdm.trust.statement import read_statement, read_unchecked
from pvdm.trust.verify import sign_statement
from pvdm.verify.planning import claim_of, with_source_column

_BREAK_GLASS: Final = "break-glass"
_OVERRIDE_ID: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(eq=False)
class Proposals:
    """Collects proposals; under atomicity `workload` it also signs the statement over the proofs of all chunks."""

    ledger: Ledger
    vault: Vault
    sources: Sources
    signer: StatementSigner

    def collect(self, workload_id: str, attempt_ids: Sequence[str]) -> Proposal:
        """Everything that the gate checks for these attempts. Raises unless all are proved and of this workload."""
        with self.ledger.read() as unit:
            workload = workloads.get(unit, workload_id)
            bound = bound_contract(unit, workload)
            all_at_once = bound.contract.atomicity is Atomicity.WORKLOAD
            found = [_read_attempt(unit, workload_id, attempt_id) for attempt_id in attempt_ids]
            # The whole plan is read only if all chunks are published at once.
            own_chunks = [part.attempt.chunk_id for part, _ in found]
            planned = _read_chunk_ids(unit, workload_id) if all_at_once else own_chunks
        # The files are read outside of the transaction.
        parts = tuple(replace(part, files=read_verified(self.vault, record)) for part, record in found)
        statement = self._sign_workload(workload, parts) if all_at_once and parts else None
        return Proposal(workload, bound, frozenset(planned), parts, statement, self._claim(workload, bound))

    def _claim(self, workload: Workload, bound: BoundContract) -> Claim:
        """The part of the target that the workload reserves: the stored claim, or else the claim in the contract.

        Without `claim` in the contract, everything is reserved. The gate adds the target column to the claim.
        """
        if bound.contract.boundary.claim is None:
            return Claim.everything()
        opening = workload.opening
        with self.ledger.read() as unit:
            own = claims.find(unit, opening.workload_id, target=opening.table_uuid)
        if own is not None:
            return own
        schema = self.sources.load_schema(workload, bound)
        return with_source_column(bound, claim_of(bound, schema), opening.source, schema)

    def _sign_workload(self, workload: Workload, parts: Sequence[Part]) -> LoggedEnvelope:
        """The workload statement over these proofs; equal proofs give an equal statement, which is signed once."""
        chunk_proofs, signed = [], []
        for part in parts:
            envelopes = [parse_envelope(each.envelope) for each in part.proofs]
            proof_ids = tuple(sorted(each.payload_sha256 for each in envelopes))
            signed += [read_statement(each.payload, Proof) for each in envelopes]
            chunk_proofs.append(ChunkProofs(part.attempt.chunk_id, part.attempt.attempt_id, part.nonce, proof_ids))
        issued_at = max(proof.notary.issued_at for proof in signed)
        return self.signer.sign_workload(
            WorkloadStatement(
                self.signer.notary,
                workload.epoch,
                workload.opening.workload_id,
                workload.opening.contract_hash,
                workload.plan_hash,
                signed[0].core.target.table,
                tuple(sorted(chunk_proofs, key=lambda chunk: chunk.chunk_id)),
                issued_at,
                # Never before `issued_at`, even if a proof had expired by then; the gate refuses that proof.
                max(issued_at + 1, min(proof.notary.expires_at for proof in signed)),
            )
        )


def _read_chunk_ids(unit: Unit, workload_id: str) -> list[str]:
    found: list[str] = []
    while page := chunks.page_ids(unit, workload_id, start=len(found), rows=chunks.CHUNKS_PAGE_MAX_ROWS):
        found += page
    return found


def _read_attempt(unit: Unit, workload_id: str, attempt_id: str) -> tuple[Part, VerifiedRecord]:
    """One attempt's part of the proposal, still without files, and the record that names its verified manifest."""
    attempt = attempts.get(unit, attempt_id)
    if attempt.workload_id != workload_id:
        raise Code.WORKLOAD_INVALID(reason="attempt_of_other_workload", expected=workload_id, got=attempt.workload_id)
    nonce = nonces.find_current(unit, attempt_id)
    if attempt.state is not AttemptState.COMMITTING or nonce is None:
        message, expected = "the attempt does not wait for publication", AttemptState.COMMITTING
        raise Code.ATTEMPT_MOVED(message, expected=expected, got=attempt.state, attempt_id=attempt_id)
    records = proofs.list_by_nonce(unit, nonce.nonce)
    envelopes = tuple(to_logged_envelope(statements.get(unit, each.proof_id)) for each in records)
    failed = any(each.verdict is Outcome.FAIL for each in records)
    waiver = _read_waiver(unit, attempt, envelopes) if failed else None
    record = verified.get(unit, nonce.nonce)
    return Part(attempt, record.nonce, record.core_sha256, envelopes, files=(), waiver=waiver), record


def _read_waiver(unit: Unit, attempt: Attempt, envelopes: Sequence[LoggedEnvelope]) -> Waiver | None:
    """The override that waives this FAIL, with all proofs of the FAIL that it names; None if there is none."""
    found = find_waiver(unit, attempt, read_unchecked(envelopes[0].envelope, Proof).core)
    if found is None:
        return None
    override, record = found
    failed = [statements.get(unit, each.proof_id) for each in proofs.list_by_nonce(unit, record.nonce)]
    stored = statements.get(unit, override.record.override_id)
    return Waiver(to_logged_envelope(stored), tuple(to_logged_envelope(each) for each in failed))


def find_waiver(unit: Unit, attempt: Attempt, core: ProofCore) -> tuple[StoredOverride, ProofRecord] | None:
    """The unused override that waives this attempt's FAIL, and the FAIL that the override was signed for.

    The override must name exactly the attempt's bytes. If the attempt was opened for an override, no other is used.
    Else the override must name the attempt's base; if several overrides do, the override that expires last is used.
    """
    opened_for = find_override_of(unit, attempt)
    found: list[tuple[int, StoredOverride, ProofRecord]] = []
    for earlier in attempts.list_by_chunk(unit, attempt.workload_id, attempt.chunk_id):
        for record in proofs.list_by_attempt(unit, earlier.attempt_id):
            override_id = proofs.find_live_override(unit, record.proof_id)
            stored = None if override_id is None else proofs.find_override(unit, override_id)
            if stored is None or stored.state is not NonceState.RESERVED:
                continue
            statement = read_unchecked(statements.get(unit, stored.record.override_id).envelope, BreakGlass)
            same_base = statement.base_snapshot_id == core.target.base_snapshot_id
            is_for_attempt = same_base if opened_for is None else stored.record.override_id == opened_for
            if is_for_attempt and statement.file_hashes == core.files.staged_hashes:
                found.append((statement.expires_at, stored, record))
    if not found:
        return None
    _, override, failed = max(found, key=lambda each: each[0])  # the latest expiry
    return override, failed


def may_still_be_used(unit: Unit, attempt: Attempt, override: StoredOverride, now_micros: int) -> bool:
    """Whether to send override and attempt to the gate: the override is unexpired, or the attempt was opened for it."""
    record = override.record
    return record.expires_micros > now_micros or find_override_of(unit, attempt) == record.override_id


def override_reason(override_id: str) -> str:
    """The reason of an attempt that is opened for an override; `find_override_of` reads it."""
    return f"{_BREAK_GLASS} {override_id}"


def find_override_of(unit: Unit, attempt: Attempt) -> str | None:
    """The id of the override that the attempt was opened for; None for a producer's attempt."""
    first = events.history(unit, "attempts", attempt.attempt_id, count=1)  # the attempt's opening, with its reason
    reason = str(first[0].new["reason"]) if first and first[0].new is not None else ""
    prefix, _, override_id = reason.partition(" ")
    return override_id if prefix == _BREAK_GLASS and _OVERRIDE_ID.fullmatch(override_id) else None


def encode_verified(metadata: TableMetadata, files: Sequence[DataFile], nonce: str) -> bytes:
    """Encode the verified entries as a manifest; equal files and nonces give equal bytes."""
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
    entries = [ManifestEntry(status=EntryStatus.ADDED, data_file=file) for file in files]
    return write_manifest(header, entries, sync=bytes.fromhex(nonce)).data


def read_verified(vault: Vault, record: VerifiedRecord) -> tuple[DataFile, ...]:
    """Read the file entries of a verified manifest. Raises if there is none, or its hash is not the recorded one."""
    if record.location is None or record.sha256 is None:
        raise Code.PUBLICATION_MISMATCH(reason="verified_without_files")
    data = vault.read(record.location, sha256=record.sha256, max_bytes=AVRO_FILE_MAX_BYTES)
    return tuple(entry.data_file for entry in read_manifest(data).entries)


@dataclass(eq=False)
class StatementSigner:
    """Signs and logs receipts and workload statements of one notary; equal statements are stored once."""

    ledger: Ledger
    keys: KeyService
    recorder: Recorder
    notary: str

    def sign_receipt(self, published: PublishedSnapshot) -> str:
        """Sign the receipt of a publication and log it, unless it has one; returns the receipt's id."""
        epoch = signing_epoch(self.keys.book())
        envelope = sign_statement(published.receipt(self.notary, epoch), self.keys.signer(KeyRole.SIGNING, epoch))
        data, snapshot_id = envelope.to_bytes(), str(published.new_snapshot_id)
        record = ReceiptRecord(envelope.payload_sha256, published.workload_id, published.table.uuid, snapshot_id)

        def work(unit: Unit, log_indexes: Sequence[int]) -> None:
            earlier = receipts.find_by_snapshot(unit, record.table_uuid, record.snapshot_id)
            if earlier is not None:
                raise RecordedMeanwhileError(earlier.receipt_id)
            receipts.put(unit, record, data, log_index=log_indexes[0])

        try:
            self.recorder.record([Document(StatementKind.RECEIPT, record.receipt_id, data)], work)
        except RecordedMeanwhileError as error:
            self.recorder.cover()
            return error.statement_id
        return record.receipt_id

    def sign_workload(self, workload: WorkloadStatement) -> LoggedEnvelope:
        """Sign and log a workload statement; if an equal one is stored already, return that."""
        envelope = sign_statement(workload, self.keys.signer(KeyRole.SIGNING, workload.epoch))
        data, statement_id = envelope.to_bytes(), envelope.payload_sha256
        with self.ledger.read() as unit:
            stored = statements.find(unit, statement_id)

        def work(unit: Unit, log_indexes: Sequence[int]) -> None:
            if statements.find(unit, statement_id) is not None:
                raise RecordedMeanwhileError(statement_id)
            statements.put(unit, StatementKind.WORKLOAD, statement_id, data, log_index=log_indexes[0])

        if stored is None:
            try:
                self.recorder.record([Document(StatementKind.WORKLOAD, statement_id, data)], work)
            except RecordedMeanwhileError:
                self.recorder.cover()
            with self.ledger.read() as unit:
                stored = statements.get(unit, statement_id)
        return to_logged_envelope(stored)


def to_logged_envelope(statement: statements.Statement) -> LoggedEnvelope:
    """A statement of the ledger in the form that the gate takes."""
    return LoggedEnvelope(statement.kind, statement.envelope, statement.log_index, statement.at_micros)
