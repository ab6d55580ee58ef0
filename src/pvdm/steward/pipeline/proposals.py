"""Proposals for the gate, collected from the ledger and the vault: proofs, verified files, overrides, claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pvdm.errors import ConflictError, InputError
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import proofs, statements
from pvdm.ledger.schema.record import VerdictWord
from pvdm.ledger.work import attempts, chunks, claims, nonces, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.verified import VerifiedRecord
from pvdm.ledger.work.workloads import Workload
from pvdm.metadata.gate.proposal import Logged, Part, Proposal, Waiver
from pvdm.model.contract import Atomicity, BoundContract
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.workload import ChunkProofs, WorkloadStatement
from pvdm.model.states import AttemptState
from pvdm.steward.pipeline.break_glass import find_waiver
from pvdm.steward.pipeline.verified_files import read_verified
from pvdm.steward.pipeline.witness import Witness, logged
from pvdm.steward.work.opened import bound_contract
from pvdm.steward.work.sources import Sources
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_signed, read_statement
from pvdm.verify.claim_columns import with_source_column
from pvdm.verify.planning import claim_of


@dataclass(frozen=True, slots=True)
class _Found:
    """What the ledger has of one attempt; its files are read afterwards, in no transaction."""

    attempt: Attempt
    record: VerifiedRecord
    proofs: tuple[Logged, ...]
    waiver: Waiver | None


class Proposals:
    """Reads only, but for the workload statement, which is signed when all chunks of a plan are proved."""

    def __init__(self, ledger: Ledger, vault: Vault, sources: Sources, witness: Witness) -> None:
        self._ledger = ledger
        self._vault = vault
        self._sources = sources
        self._witness = witness

    def collect(self, workload_id: str, attempt_ids: Sequence[str]) -> Proposal:
        """Everything that the gate judges about these attempts; they must be proved, and of this workload."""
        with self._ledger.read() as unit:
            workload = workloads.get(unit, workload_id)
            bound = bound_contract(unit, workload)
            whole = bound.contract.atomicity is Atomicity.WORKLOAD
            found = [_found(unit, workload_id, attempt_id) for attempt_id in attempt_ids]
            # An attempt is at a chunk of its plan; the others are asked for only where all have to be there.
            planned = _chunk_ids(unit, workload_id) if whole else [each.attempt.chunk_id for each in found]
        parts = tuple(
            Part(
                each.attempt,
                each.record.nonce,
                each.record.core_sha256,
                each.proofs,
                read_verified(self._vault, each.record),
                each.waiver,
            )
            for each in found
        )
        statement = self._bound(workload, parts) if whole and parts else None
        return Proposal(workload, bound, frozenset(planned), parts, statement, self._claim(workload, bound))

    def _claim(self, workload: Workload, bound: BoundContract) -> Claim:
        """What the workload takes: as it claimed before, or as the contract's filter has it.

        The gate finds the target's column of it, on the base that it publishes on.
        """
        if bound.contract.boundary.claim is None:
            return Claim.everything()
        opening = workload.opening
        with self._ledger.read() as unit:
            own = claims.find(unit, opening.workload_id, target=opening.table_uuid)
        if own is not None:
            return own
        schema = self._sources.schema(workload, bound)
        return with_source_column(bound, claim_of(bound, schema), opening.source, schema)

    def _bound(self, workload: Workload, parts: Sequence[Part]) -> Logged:
        """The statement over these proofs: equal proofs, equal words, so that it is signed once."""
        listed, words = [], []
        for part in parts:
            envelopes = [parse_envelope(each.envelope) for each in part.proofs]
            ids = tuple(sorted(each.payload_sha256 for each in envelopes))
            words += [read_statement(each.payload, Proof) for each in envelopes]
            listed.append(ChunkProofs(part.attempt.chunk_id, part.attempt.attempt_id, part.nonce, ids))
        issued = max(proof.notary.issued_at for proof in words)
        return self._witness.bind(
            WorkloadStatement(
                self._witness.notary,
                workload.epoch,
                workload.opening.workload_id,
                workload.opening.contract_hash,
                workload.plan_hash,
                words[0].core.target.table,
                tuple(sorted(listed, key=lambda chunk: chunk.chunk_id)),
                issued,
                # A proof that ran out before the last one was made: the gate refuses it, and names it.
                max(issued + 1, min(proof.notary.expires_at for proof in words)),
            )
        )


def _chunk_ids(unit: Unit, workload_id: str) -> list[str]:
    found: list[str] = []
    while page := chunks.page(unit, workload_id, after=len(found), rows=chunks.CHUNKS_PAGE_MAX_ROWS):
        found += page
    return found


def _found(unit: Unit, workload_id: str, attempt_id: str) -> _Found:
    attempt = attempts.get(unit, attempt_id)
    if attempt.workload_id != workload_id:
        raise InputError(
            "attempt_of_other_workload",
            "the attempt belongs to another workload",
            expected=workload_id,
            got=attempt.workload_id,
        )
    held = nonces.held_by(unit, attempt_id)
    if attempt.state is not AttemptState.COMMITTING or held is None:
        raise ConflictError(
            "attempt_moved",
            "the attempt does not wait for publication",
            expected=AttemptState.COMMITTING,
            got=attempt.state,
            attempt_id=attempt_id,
        )
    said = proofs.of_nonce(unit, held.nonce)
    envelopes = tuple(logged(statements.get(unit, each.proof_id)) for each in said)
    failed = any(each.verdict is VerdictWord.FAIL for each in said)
    waiver = _waiver(unit, attempt, envelopes) if failed else None
    return _Found(attempt, verified.get(unit, held.nonce), envelopes, waiver)


def _waiver(unit: Unit, attempt: Attempt, envelopes: Sequence[Logged]) -> Waiver | None:
    """The override that waives this FAIL, if there is one, and all proofs of the FAIL that it names."""
    found = find_waiver(unit, attempt, read_signed(envelopes[0].envelope, Proof).core)
    if found is None:
        return None
    override, record = found
    failed = [statements.get(unit, each.proof_id) for each in proofs.of_nonce(unit, record.nonce)]
    stored = statements.get(unit, override.record.override_id)
    return Waiver(logged(stored), tuple(logged(each) for each in failed))
