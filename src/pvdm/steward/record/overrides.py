"""Break-glass at the Steward's side: an override is verified, its nonce reserved, and the whole logged at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pvdm.api.proofs import OverrideView
from pvdm.catalog.catalog import Catalog
from pvdm.errors import Code, ConflictError, NotAllowedError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import proofs, restores, statements
from pvdm.ledger.record.proofs import OverrideRecord, StoredOverride
from pvdm.ledger.record.statements import Statement
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.record import StatementKind
from pvdm.ledger.work import nonces
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.states import NonceState
from pvdm.steward.access import require_domain, scope
from pvdm.steward.record.recorder import Document, Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.trust.approval import MAIN_MOVED, raise_not_allowed, verify_override
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_signed, read_statement
from pvdm.trust.verify import VerifiedProof, verify_threshold


@dataclass(eq=False)
class Overrides:
    """Accepts and lists break-glass overrides."""

    ledger: Ledger
    clock: LedgerClock
    recorder: Recorder
    trust: TrustRoots
    catalog: Catalog

    def submit(self, envelope: bytes, grant: Grant) -> OverrideView:
        """Accept an override for a FAIL proof; it waives the verdict at the gate once, and nothing else."""
        with raise_not_allowed("override"):
            parsed = parse_envelope(envelope)
            said = read_statement(parsed.payload, BreakGlass)
        override_id = parsed.payload_sha256
        earlier = self._find_same(override_id, envelope)
        if earlier is None:
            try:
                self._accept(envelope, said, grant)
            except NotAllowedError as error:
                # A concurrent call with the same bytes may have been first; that is no replay.
                earlier = self._find_same(override_id, envelope)
                if error.code != Code.OVERRIDE_REPLAYED or earlier is None:
                    raise
        if earlier is None:
            return self.get(override_id, grant)
        require_domain(grant, earlier.domain)
        with self.ledger.read() as unit:
            require_usable(unit, earlier)  # a repeated call is refused once the override was used
            stored = statements.get(unit, override_id)
        self.recorder.cover()
        return _view(earlier, stored)

    def get(self, override_id: str, grant: Grant) -> OverrideView:
        """One override of the caller's domain."""
        with self.ledger.read() as unit:
            found = proofs.find_override(unit, override_id)
            if found is None:
                raise Code.OVERRIDE_UNKNOWN(got=ascii(override_id[:80]))
            require_domain(grant, found.domain)
            return _view(found, statements.get(unit, override_id))

    def listed(self, grant: Grant) -> list[OverrideView]:
        """Every override of the caller's domain, newest first."""
        with self.ledger.read() as unit:
            found = proofs.list_newest_overrides(unit, domain=scope(grant))
            return [_view(each, statements.get(unit, each.record.override_id)) for each in found]

    def _accept(self, envelope: bytes, said: BreakGlass, grant: Grant) -> None:
        with self.ledger.read() as unit:
            require_domain(grant, proofs.domain_of(unit, said.fail_proof_id))
        now = self.clock.now_micros()
        judged_by = self.trust.ids()
        root = self.trust.current()
        override = verify_override(
            envelope, root, failed=self._verify_fail_proof(said.fail_proof_id), now=now, used=self._is_used
        )
        with self.ledger.read() as unit:
            row = tables.find_by_uuid(unit, said.table.uuid)
        if row is not None:  # for a dropped table the gate refuses it
            require_over_main(said, self.catalog.states.of(row).metadata.current_snapshot_id)
        record = OverrideRecord(override.statement_id, said.fail_proof_id, said.nonce, said.operator, said.expires_at)

        def work(unit: Unit, places: Sequence[int]) -> None:
            # The log's lock is held here, so no trust root that revokes the key is accepted meanwhile.
            if statements.ids_of_kind(unit, StatementKind.TRUST_ROOT) != judged_by:
                raise Code.TRUST_ROOT_MOVED("a trust root was accepted meanwhile", hint="hand it in again")
            held = nonces.find(unit, said.nonce)
            if held is not None:
                _require_not_void(unit, said, held.state)
                raise Code.OVERRIDE_REPLAYED(got=said.nonce)
            other = proofs.find_live_override(unit, said.fail_proof_id)
            if other is not None:
                raise Code.OVERRIDE_REFUSED(reason="override_exists", got=other)
            restores.require_issued_after(unit, said.issued_at)
            unit.add_request_facts(override_id=record.override_id)
            try:
                proofs.put_override(unit, record, envelope, log_index=places[0])
            except ConflictError as error:
                raise Code.OVERRIDE_REPLAYED(got=said.nonce) if error.code == Code.NONCE_TAKEN else error from None

        self.recorder.record([Document(StatementKind.BREAK_GLASS, record.override_id, envelope)], work)

    def _find_same(self, override_id: str, envelope: bytes) -> StoredOverride | None:
        """The override that was accepted with exactly these bytes."""
        with self.ledger.read() as unit:
            found = proofs.find_override(unit, override_id)
            same = found is not None and statements.get(unit, override_id).envelope == envelope
        return found if same else None

    def _verify_fail_proof(self, proof_id: str) -> VerifiedProof:
        """The FAIL proof with every notary's statement, verified at the time of its log entry."""
        with self.ledger.read() as unit:
            nonce = proofs.get(unit, proof_id).nonce
            stored = [statements.get(unit, record.proof_id) for record in proofs.of_nonce(unit, nonce)]
        root, now = self.trust.current(), max(statement.at_micros for statement in stored)
        envelopes = [statement.envelope for statement in stored]
        return verify_threshold(envelopes, root, threshold=root.notary_threshold, now=now)

    def _is_used(self, nonce: str) -> bool:
        """Whether the nonce is reserved or committed; an aborted one is judged in the transaction."""
        with self.ledger.read() as unit:
            held = nonces.find(unit, nonce)
        return held is not None and held.state is not NonceState.ABORTED


def _view(stored: StoredOverride, statement: Statement) -> OverrideView:
    said = read_signed(statement.envelope, BreakGlass)
    return OverrideView(
        override_id=stored.record.override_id,
        operator=said.operator,
        reason=said.reason,
        table=said.table.name,
        table_uuid=said.table.uuid,
        fail_proof_id=said.fail_proof_id,
        nonce=said.nonce,
        state=stored.state,
        issued_at=said.issued_at,
        expires_at=said.expires_at,
        log_index=statement.log_index,
    )


def require_over_main(said: BreakGlass, shown: int | None) -> None:
    """Require that the override's base snapshot is what `main` shows now."""
    if said.base_snapshot_id != shown:
        wanted, base = ("none" if each is None else str(each) for each in (shown, said.base_snapshot_id))
        expected, got = f"an override over snapshot {wanted}", f"over snapshot {base}"
        raise Code.OVERRIDE_REFUSED(reason="override_base_moved", expected=expected, got=got, hint=MAIN_MOVED)


def require_usable(unit: Unit, override: StoredOverride) -> None:
    """Raise `override_replayed` for a used override, and `override_before_restore` for one that a restore voided."""
    if override.state is not NonceState.RESERVED:
        said = read_signed(statements.get(unit, override.record.override_id).envelope, BreakGlass)
        _require_not_void(unit, said, override.state)
        raise Code.OVERRIDE_REPLAYED(got=said.nonce)


def _require_not_void(unit: Unit, said: BreakGlass, state: NonceState) -> None:
    """Raise `override_before_restore` where a restore aborted the nonce of an unused override."""
    if state is NonceState.ABORTED:
        restores.require_issued_after(unit, said.issued_at)
