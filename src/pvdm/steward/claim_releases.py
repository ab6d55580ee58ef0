"""Claim releases: verifies what operators sign to release claims that a restore has lost, then logs and applies it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pvdm.api.protection import ClaimReleaseView, LostClaimView
from pvdm.catalog.names import full_name
from pvdm.errors import Code
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import restores, statements
from pvdm.ledger.record.protections import APPROVALS_PAGE_MAX_ROWS
from pvdm.ledger.record.restores import LostClaim
from pvdm.ledger.record.statements import Statement
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant, require_domain
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.steward.access import visible_domain
from pvdm.steward.protections import Approvals, VerifiedApproval, find_table, refuse_replay, require_current
from pvdm.steward.record.recorder import Document
from pvdm.steward.work.sources import levels_of
from pvdm.trust.statement import read_unchecked


class ClaimReleases:
    """Accepts claim releases, and lists lost claims."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._ledger = approvals.ledger
        self._recorder = approvals.recorder
        self._catalog_name = approvals.catalog.name

    def submit(self, envelope: bytes, grant: Grant) -> ClaimReleaseView:
        """Release a lost claim; a repeated call with the same bytes changes nothing."""
        release_id = self._approvals.accept_once(envelope, ClaimRelease, lambda signed: self._accept(signed, grant))
        with self._ledger.read() as unit:
            view = _make_release_view(statements.get(unit, release_id))
            row = tables.find_by_uuid(unit, view.table_uuid)
            require_domain(grant, EVERY_DOMAIN if row is None else row.domain)
        self._recorder.cover()
        return view

    def list_lost(self, grant: Grant, *, receipt_id: str | None = None) -> list[LostClaimView]:
        """The lost claims on tables of the caller's domain, those that block claims first; or that of one receipt."""
        with self._ledger.read() as unit:
            found = restores.list_lost_claims(
                unit, domain=visible_domain(grant), receipt_id=receipt_id, count=APPROVALS_PAGE_MAX_ROWS
            )
            return [_make_view(unit, each, self._catalog_name) for each in found]

    def _accept(self, approval: VerifiedApproval[ClaimRelease], grant: Grant) -> None:
        release, release_id = approval.predicate, approval.statement.statement_id

        def work(unit: Unit, log_indexes: Sequence[int]) -> None:
            require_current(unit, approval)
            find_table(unit, release.table, grant, self._catalog_name)
            lost = restores.lock_lost_claim(unit, release.publication_id)
            _require_as_found(unit, release, lost)
            use_nonce(unit, release)
            statements.put(unit, StatementKind.CLAIM_RELEASE, release_id, approval.envelope, log_index=log_indexes[0])
            restores.release_lost_claim(unit, lost, release_id)

        with refuse_replay(approval):
            self._recorder.store([Document(StatementKind.CLAIM_RELEASE, release_id, approval.envelope)], work)


def use_nonce(unit: Unit, release: ClaimRelease) -> None:
    """Use up the nonce of a claim release. Raises `nonce_taken`."""
    nonces.reserve(unit, release.nonce, purpose=NoncePurpose.CLAIM_RELEASE, holder=release.operator)
    nonces.commit(unit, release.nonce, snapshot_id=None)


def _require_as_found(unit: Unit, release: ClaimRelease, lost: LostClaim) -> None:
    """Raise unless the release names exactly what the restore found of the lost claim."""
    receipt_id, proof_ids, _ = _find_evidence(unit, lost)
    for what, expected, got in (
        ("table", lost.target, release.table.uuid),
        ("workload", lost.workload_id, release.workload_id),
        ("receipt", receipt_id, release.receipt_id),
        ("proof", proof_ids, release.proof_ids),
        ("restore", _find_last_restore(unit), release.restore_id),
    ):
        if expected != got:
            message = f"the claim release names another {what} than the lost claim"
            raise Code.APPROVAL_REFUSED(message, reason="claim_release_differs", expected=str(expected), got=str(got))


def _find_evidence(unit: Unit, lost: LostClaim) -> tuple[str | None, tuple[str, ...], TableRef]:
    """What the restore found of the publication: its receipt's id or None, its proofs' ids, and its table."""
    stored = statements.get(unit, lost.receipt_id)
    if stored.kind is StatementKind.RECEIPT:
        receipt = read_unchecked(stored.envelope, Receipt)
        return lost.receipt_id, receipt.proof_ids, receipt.table
    return None, (lost.receipt_id,), read_unchecked(stored.envelope, Proof).core.target.table


def _find_last_restore(unit: Unit) -> str:
    """The id of the last restore's statement. Every restore is logged before the Steward starts again."""
    return statements.list_ids_by_kind(unit, StatementKind.RESTORE)[-1]


def _make_view(unit: Unit, lost: LostClaim, catalog: str) -> LostClaimView:
    receipt_id, proof_ids, table = _find_evidence(unit, lost)
    row = tables.find_by_uuid(unit, lost.target)
    if row is not None:
        table = replace(table, catalog=catalog, name=full_name((*levels_of(unit, row), row.name)))
    released = None if lost.release_id is None else _make_release_view(statements.get(unit, lost.release_id))
    return LostClaimView(
        catalog=table.catalog,
        table=table.name,
        table_uuid=table.uuid,
        workload_id=lost.workload_id,
        receipt_id=receipt_id,
        proof_ids=proof_ids,
        restore_id=_find_last_restore(unit),
        release=released,
    )


def _make_release_view(statement: Statement) -> ClaimReleaseView:
    release = read_unchecked(statement.envelope, ClaimRelease)
    return ClaimReleaseView(
        release_id=statement.statement_id,
        table=release.table.name,
        table_uuid=release.table.uuid,
        workload_id=release.workload_id,
        receipt_id=release.receipt_id,
        proof_ids=release.proof_ids,
        restore_id=release.restore_id,
        operator=release.operator,
        reason=release.reason,
        issued_at=release.issued_at,
        expires_at=release.expires_at,
        log_index=statement.log_index,
    )
