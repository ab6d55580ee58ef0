"""Break-glass overrides (an operator waives a FAIL): verifies them, then logs and stores them in one transaction."""

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
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.ledger.work import nonces
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.kind import StatementKind
from pvdm.model.states import NonceState
from pvdm.steward.access import visible_domain
from pvdm.steward.record.recorder import Document, Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.trust.approval import MAIN_MOVED_HINT, translate_refusals, verify_override
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_statement, read_unchecked
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
        """Accept an override for a FAIL proof. At the gate it waives only the check of the verdict, and only once."""
        with translate_refusals("override"):
            parsed = parse_envelope(envelope)
            override = read_statement(parsed.payload, BreakGlass)
        override_id = parsed.payload_sha256
        earlier = self._find_same(override_id, envelope)
        if earlier is None:
            try:
                self._accept(envelope, override, grant)
            except NotAllowedError as error:
                # A concurrent call may have stored the same bytes first; then this call succeeds too.
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
        return _make_view(earlier, stored)

    def get(self, override_id: str, grant: Grant) -> OverrideView:
        """One override of the caller's domain. Raises if it is unknown or of another domain."""
        with self.ledger.read() as unit:
            found = get_override(unit, override_id)
            require_domain(grant, found.domain)
            return _make_view(found, statements.get(unit, override_id))

    def list_overrides(self, grant: Grant) -> list[OverrideView]:
        """The latest overrides of the caller's domain, newest first."""
        with self.ledger.read() as unit:
            found = proofs.list_newest_overrides(unit, domain=visible_domain(grant))
            return [_make_view(each, statements.get(unit, each.record.override_id)) for each in found]

    def _accept(self, envelope: bytes, override: BreakGlass, grant: Grant) -> None:
        with self.ledger.read() as unit:
            require_domain(grant, proofs.get_domain(unit, override.fail_proof_id))
        now = self.clock.now_micros()
        root_ids = self.trust.ids()
        root = self.trust.current()
        failed = self._verify_fail_proof(override.fail_proof_id)
        verified = verify_override(envelope, root, failed=failed, now=now, used=self._is_used)
        with self.ledger.read() as unit:
            row = tables.find_by_uuid(unit, override.table.uuid)
        if row is not None:  # the gate refuses an override for a dropped table
            require_base_is_main(override, self.catalog.states.load(row).metadata.current_snapshot_id)
        record = override_record(verified.statement_id, override)

        def work(unit: Unit, log_indexes: Sequence[int]) -> None:
            # The log's lock is held here, so no trust root that revokes the key is accepted meanwhile.
            if statements.list_ids_by_kind(unit, StatementKind.TRUST_ROOT) != root_ids:
                raise Code.TRUST_ROOT_MOVED("a trust root was accepted meanwhile", hint="submit the override again")
            nonce = nonces.find(unit, override.nonce)
            if nonce is not None:
                _require_not_void(unit, override, nonce.state)
                raise Code.OVERRIDE_REPLAYED(got=override.nonce)
            other_id = proofs.find_live_override(unit, override.fail_proof_id)
            other = None if other_id is None else get_override(unit, other_id)
            # The gate refuses an expired override, so an expired override does not block a new one.
            if other is not None and (other.state is NonceState.COMMITTED or other.record.expires_micros > now):
                raise Code.OVERRIDE_REFUSED(reason="override_exists", got=other_id)
            restores.require_issued_after(unit, override.issued_at)
            unit.add_request_facts(override_id=record.override_id)
            try:
                proofs.put_override(unit, record, envelope, log_index=log_indexes[0])
            except ConflictError as error:
                if error.code != Code.NONCE_TAKEN:
                    raise
                raise Code.OVERRIDE_REPLAYED(got=override.nonce) from None

        self.recorder.record([Document(StatementKind.BREAK_GLASS, record.override_id, envelope)], work)

    def _find_same(self, override_id: str, envelope: bytes) -> StoredOverride | None:
        """The override, if it was accepted before with exactly these bytes."""
        with self.ledger.read() as unit:
            found = proofs.find_override(unit, override_id)
            same = found is not None and statements.get(unit, override_id).envelope == envelope
        return found if same else None

    def _verify_fail_proof(self, proof_id: str) -> VerifiedProof:
        """The FAIL proof with every notary's statement, verified as of the time when the last of them was logged."""
        with self.ledger.read() as unit:
            nonce = proofs.get(unit, proof_id).nonce
            stored = [statements.get(unit, record.proof_id) for record in proofs.list_by_nonce(unit, nonce)]
        root, now = self.trust.current(), max(statement.at_micros for statement in stored)
        envelopes = [statement.envelope for statement in stored]
        return verify_threshold(envelopes, root, threshold=root.thresholds.notary, now=now)

    def _is_used(self, nonce: str) -> bool:
        """Whether the nonce is reserved or committed. The transaction of `_accept` checks an aborted nonce."""
        with self.ledger.read() as unit:
            found = nonces.find(unit, nonce)
        return found is not None and found.state is not NonceState.ABORTED


def get_override(unit: Unit, override_id: str) -> StoredOverride:
    """The override. Raises `override_unknown` if there is none."""
    found = proofs.find_override(unit, override_id)
    if found is None:
        raise Code.RECORD_UNKNOWN(reason="override_unknown", got=ascii(override_id[:80]))
    return found


def override_record(override_id: str, override: BreakGlass) -> OverrideRecord:
    """The override as the ledger stores it."""
    return OverrideRecord(override_id, override.fail_proof_id, override.nonce, override.operator, override.expires_at)


def _make_view(stored: StoredOverride, statement: Statement) -> OverrideView:
    override = read_unchecked(statement.envelope, BreakGlass)
    return OverrideView(
        override_id=stored.record.override_id,
        operator=override.operator,
        reason=override.reason,
        table=override.table.name,
        table_uuid=override.table.uuid,
        fail_proof_id=override.fail_proof_id,
        nonce=override.nonce,
        state=stored.state,
        issued_at=override.issued_at,
        expires_at=override.expires_at,
        log_index=statement.log_index,
    )


def require_base_is_main(override: BreakGlass, main_snapshot_id: int | None) -> None:
    """Require that the override's base snapshot is what `main` shows now."""
    base_id = override.base_snapshot_id
    if base_id != main_snapshot_id:
        expected = f"an override over snapshot {'none' if main_snapshot_id is None else main_snapshot_id}"
        got = f"over snapshot {'none' if base_id is None else base_id}"
        raise Code.OVERRIDE_REFUSED(reason="override_base_moved", expected=expected, got=got, hint=MAIN_MOVED_HINT)


def require_usable(unit: Unit, stored: StoredOverride) -> None:
    """Raise `override_replayed` for a used override, and `override_before_restore` for one that a restore voided."""
    if stored.state is not NonceState.RESERVED:
        override = read_unchecked(statements.get(unit, stored.record.override_id).envelope, BreakGlass)
        _require_not_void(unit, override, stored.state)
        raise Code.OVERRIDE_REPLAYED(got=override.nonce)


def _require_not_void(unit: Unit, override: BreakGlass, state: NonceState) -> None:
    """Raise `override_before_restore` if the nonce is ABORTED and the override is older than the last restore."""
    if state is NonceState.ABORTED:
        restores.require_issued_after(unit, override.issued_at)
