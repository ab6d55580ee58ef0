"""Signs, logs, stores, lists and opens proofs. To open a proof is to give an auditor its attempt's digest keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pvdm.api.proofs import ProofView
from pvdm.errors import Code
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import events, proofs, statements
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.ledger.work import attempts, nonces, workloads
from pvdm.model import canonical_json
from pvdm.model.role import Role
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Commitments, Isolation, NotaryPart, Proof, Storage
from pvdm.model.statements.verdict import FailureClass
from pvdm.model.states import ATTEMPT, AttemptState, NonceState
from pvdm.steward.access import refuse_attempt_token, visible_domain
from pvdm.steward.record.log import LogQueries
from pvdm.steward.record.recorder import Document, RecordedMeanwhileError, Recorder
from pvdm.trust.bundle import LoggedProof, ProofBundle
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.service import AttemptKeys, KeyService, release_keys
from pvdm.trust.statement import read_unchecked
from pvdm.trust.verify import sign_statement


@dataclass(frozen=True, slots=True)
class RecordedProof:
    """A proof that is in ledger and log, and that the outside checkpoint covers."""

    statement_id: str
    envelope: bytes
    log_index: int


@dataclass(eq=False)
class Proofs:
    """Signs, lists and opens the proofs of one notary."""

    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    recorder: Recorder
    log: LogQueries
    notary: str
    isolation: Isolation

    def record(
        self,
        core: ProofCore,
        commitments: tuple[Commitments, ...],
        *,
        storage: Storage,
        lifetime_micros: int,
        context: AttemptContext | None,
    ) -> RecordedProof:
        """Sign, log and store a proof, or return the nonce's earlier proof. Raises `proof_exists` if cores differ."""
        with self.ledger.read() as unit:
            earlier = proofs.find_by_notary(unit, core.attempt.nonce, self.notary)
            epoch = workloads.get(unit, core.attempt.workload_id).epoch
        if earlier is not None:
            return self._require_same_core(earlier.proof_id, core)
        now = self.clock.now_micros()
        part = NotaryPart(self.notary, epoch, commitments, self.isolation, storage, now, now + lifetime_micros)
        envelope = sign_statement(Proof(core, part), self.keys.signer(KeyRole.SIGNING, epoch))
        data = envelope.to_bytes()
        record = proof_record(envelope.payload_sha256, core, part, context=_context_text(context, core, epoch))

        def work(unit: Unit, log_indexes: Sequence[int]) -> None:
            concurrent = proofs.find_by_notary(unit, record.nonce, self.notary)
            if concurrent is not None:
                raise RecordedMeanwhileError(concurrent.proof_id)
            _require_verifying(unit, core)
            proofs.put(unit, record, data, log_index=log_indexes[0])

        try:
            log_indexes = self.recorder.record([Document(StatementKind.PROOF, record.proof_id, data)], work)
        except RecordedMeanwhileError as error:
            return self._require_same_core(error.statement_id, core)
        return RecordedProof(record.proof_id, data, log_indexes[0])

    def find_recorded(self, nonce: str) -> tuple[RecordedProof, ProofCore] | None:
        """This notary's existing proof for the nonce, with its core, once the outside checkpoint covers the proof."""
        with self.ledger.read() as unit:
            earlier = proofs.find_by_notary(unit, nonce, self.notary)
            stored = None if earlier is None else statements.get(unit, earlier.proof_id)
        if stored is None:
            return None
        self.recorder.cover()
        recorded = RecordedProof(stored.statement_id, stored.envelope, stored.log_index)
        return recorded, read_unchecked(stored.envelope, Proof).core

    def get(self, proof_id: str, grant: Grant) -> ProofView:
        """One proof of the caller's domain. Raises if it is unknown or the caller may not see it."""
        with self.ledger.read() as unit:
            self._require_readable(unit, proof_id, grant)
            found = proofs.get(unit, proof_id)
            index = statements.get(unit, proof_id).log_index
            override_ids = proofs.find_overrides_of_proofs(unit, [proof_id])
        self.recorder.require_covered(index + 1)
        return _make_view(found, index, override_ids, grant)

    def list_proofs(
        self,
        grant: Grant,
        *,
        workload_id: str | None = None,
        attempt_id: str | None = None,
        after: int | None = None,
        count: int = 100,
    ) -> list[ProofView]:
        """The newest proofs of the caller's domain, newest first; with `after`, only proofs of a lower log index."""
        wanted, domain = attempt_id or grant.attempt_id, visible_domain(grant)
        refuse_attempt_token(grant, allowed_attempt_id=wanted)
        with self.ledger.read() as unit:
            found = proofs.page(
                unit, domain=domain, workload_id=workload_id, attempt_id=wanted, before_index=after, count=count
            )
            override_ids = proofs.find_overrides_of_proofs(unit, [record.proof_id for record, _ in found])
        self.recorder.require_covered(max((index + 1 for _, index in found), default=0))
        return [_make_view(record, index, override_ids, grant) for record, index in found]

    def envelope(self, proof_id: str, grant: Grant) -> bytes:
        """The signed envelope of one proof."""
        with self.ledger.read() as unit:
            self._require_readable(unit, proof_id, grant)
            stored = statements.get(unit, proof_id)
        self.recorder.require_covered(stored.log_index + 1)
        return stored.envelope

    def bundle(self, proof_id: str, grant: Grant) -> bytes:
        """All proofs of this proof's nonce, with a log proof for each, for checks without the Steward."""
        with self.ledger.read() as unit:
            self._require_readable(unit, proof_id, grant)
            records = proofs.list_by_nonce(unit, proofs.get(unit, proof_id).nonce)
            stored = [statements.get(unit, record.proof_id) for record in records]
        logged = [
            LoggedProof(each.envelope, each.at_micros, self.log.proof(each.log_index).decode()) for each in stored
        ]
        return ProofBundle(tuple(logged)).to_bytes()

    def open(self, proof_id: str, grant: Grant, *, reason: str) -> tuple[AttemptContext, AttemptKeys]:
        """The keys of an ended attempt, with which an auditor can compute its digests. The step log notes the call."""
        if not reason.strip():
            raise Code.IDENTIFIER_INVALID("opening a proof needs a reason", reason="reason_missing")
        with self.ledger.read() as unit:
            self._require_readable(unit, proof_id, grant)
            record = proofs.get(unit, proof_id)
            attempt = attempts.find(unit, record.attempt_id)
        if record.context is None or attempt is None:
            raise Code.PROOF_WITHOUT_DIGEST(got=record.proof_id)
        context = AttemptContext.parse(canonical_json.parse(record.context.encode(), size_max_bytes=1_048_576))
        keys = release_keys(self.keys, context, ended=attempt.state not in ATTEMPT.live())
        facts = {"by": grant.name, "token_id": grant.token_id, "reason": reason}
        self.ledger.transact(
            lambda unit: events.note(unit, "proof_opened", "proofs", proof_id, facts), at_micros=self.clock.now_micros()
        )
        return context, keys

    def _require_same_core(self, proof_id: str, core: ProofCore) -> RecordedProof:
        """The existing proof, once the outside checkpoint covers it; raises `proof_exists` if it has another core."""
        with self.ledger.read() as unit:
            stored = statements.get(unit, proof_id)
        if read_unchecked(stored.envelope, Proof).core.to_bytes() != core.to_bytes():
            raise Code.RECORD_DIFFERS(reason="proof_exists", expected=proof_id, got="another core")
        self.recorder.cover()
        return RecordedProof(stored.statement_id, stored.envelope, stored.log_index)

    @staticmethod
    def _require_readable(unit: Unit, proof_id: str, grant: Grant) -> None:
        require_domain(grant, proofs.get_domain(unit, proof_id))
        refuse_attempt_token(grant, allowed_attempt_id=proofs.get(unit, proof_id).attempt_id)


def _require_verifying(unit: Unit, core: ProofCore) -> None:
    """Require that the attempt is the one that the proof names, and is VERIFYING under the proof's nonce."""
    attempt = attempts.lock(unit, core.attempt.attempt_id)
    if attempt.state is not AttemptState.VERIFYING:
        raise Code.ATTEMPT_MOVED("the attempt is not being verified", expected="VERIFYING", got=attempt.state)
    proved = core.attempt
    if (attempt.workload_id, attempt.chunk_id, attempt.number) != (proved.workload_id, proved.chunk_id, proved.number):
        raise Code.PROOF_OF_OTHER_ATTEMPT(
            expected=f"attempt {attempt.number} of chunk {attempt.chunk_id} of {attempt.workload_id}",
            got=f"attempt {proved.number} of chunk {proved.chunk_id} of {proved.workload_id}",
        )
    nonce = nonces.find(unit, core.attempt.nonce)
    if nonce is None or nonce.attempt_id != attempt.attempt_id or nonce.state is not NonceState.RESERVED:
        message = "the nonce is not the one drawn for this verification"
        raise Code.PROOF_MISMATCH(message, reason="nonce_of_other_attempt")


def _context_text(context: AttemptContext | None, core: ProofCore, epoch: int) -> str | None:
    """The key context as the ledger stores it; raises `context_differs` if it is of another attempt."""
    if context is None:
        return None
    context_ids = (context.epoch, context.workload_id, context.chunk_id, context.attempt_id, context.nonce)
    attempt = core.attempt
    if context_ids != (epoch, attempt.workload_id, attempt.chunk_id, attempt.attempt_id, attempt.nonce):
        raise Code.CONTEXT_DIFFERS()
    return canonical_json.dump(context.to_json()).decode()


def proof_record(proof_id: str, core: ProofCore, part: NotaryPart, *, context: str | None) -> ProofRecord:
    """The proof as the ledger stores it. `summary`: the facts that listings show and that have no column."""
    rows, attempt, verdict = core.rows, core.attempt, core.verdict
    summary = canonical_json.dump(
        {
            "workload_id": attempt.workload_id,
            "chunk_id": attempt.chunk_id,
            "classes": [each.value for each in verdict.classes],
            "rows_intent": None if rows.intent is None else str(rows.intent),
            "rows_staged": None if rows.staged is None else str(rows.staged),
            "profile": core.method.profile.value,
            "epoch": str(part.epoch),
            "issued_at": part.issued_at,
        }
    ).decode()
    return ProofRecord(
        proof_id, attempt.attempt_id, attempt.nonce, verdict.outcome, part.notary, part.expires_at, summary, context
    )


def _make_view(record: ProofRecord, log_index: int, override_ids: dict[str, str], grant: Grant) -> ProofView:
    summary = json.loads(record.summary)
    # Under profile T, the row counts would show a producer what the independent recomputation found.
    may_see_counts = not (grant.role is Role.PRODUCER and summary["profile"] == "T")
    return ProofView(
        proof_id=record.proof_id,
        workload_id=summary["workload_id"],
        chunk_id=summary["chunk_id"],
        attempt_id=record.attempt_id,
        nonce=record.nonce,
        verdict=record.verdict,
        classes=tuple(FailureClass(each) for each in summary["classes"]),
        rows_intent=summary["rows_intent"] if may_see_counts else None,
        rows_staged=summary["rows_staged"] if may_see_counts else None,
        profile=summary["profile"],
        notary=record.notary,
        epoch=summary["epoch"],
        issued_at=summary["issued_at"],
        expires_at=record.expires_micros,
        log_index=log_index,
        overridden=record.proof_id in override_ids,
        override_id=override_ids.get(record.proof_id),
    )
