"""Verifies, logs and applies the claim releases that operators sign, and lists the claims that a restore has lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

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

LOST_CLAIM_CHUNKS_MAX: Final = 10
"""How many proofs of a publication are read for the list of lost claims."""


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
        """At most 1,000 lost claims on tables of the caller's domain, or the lost claim of one receipt or proof.

        Claims without a release come first. Both groups are sorted by workload and time.
        """
        with self._ledger.read() as unit:
            found = restores.list_lost_claims(
                unit, domain=visible_domain(grant), receipt_id=receipt_id, count=APPROVALS_PAGE_MAX_ROWS
            )
            views = [_make_view(unit, each, self._catalog_name) for each in found]
        return sorted(views, key=lambda each: (each.release is not None, each.workload_id, each.published_at or 0))

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
    """Raise unless the release names the last restore, and exactly what it found of the lost claim."""
    found = _find_evidence(unit, lost)
    for what, expected, got in (
        ("table", lost.target, release.table.uuid),
        ("workload", lost.workload_id, release.workload_id),
        ("receipt", found.receipt_id, release.receipt_id),
        ("proof", found.proof_ids, release.proof_ids),
        ("restore", _find_last_restore(unit), release.restore_id),
    ):
        if expected != got:
            message = f"the claim release names another {what} than the lost claim"
            raise Code.APPROVAL_REFUSED(message, reason="claim_release_differs", expected=str(expected), got=str(got))


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What the restore found of a publication. `receipt_id` and `published_at` are None if it has no receipt."""

    receipt_id: str | None
    proof_ids: tuple[str, ...]
    table: TableRef
    snapshot_id: int | None
    published_at: int | None


def _find_evidence(unit: Unit, lost: LostClaim) -> _Evidence:
    stored = statements.get(unit, lost.receipt_id)
    if stored.kind is StatementKind.RECEIPT:
        found = read_unchecked(stored.envelope, Receipt)
        return _Evidence(lost.receipt_id, found.proof_ids, found.table, found.new_snapshot_id, found.published_at)
    used = [each for each in restores.list_used_chunks(unit, lost.workload_id) if each.statement_id == lost.receipt_id]
    table = read_unchecked(stored.envelope, Proof).core.target.table
    return _Evidence(None, (lost.receipt_id,), table, int(used[0].snapshot_id) if used else None, None)


def _find_last_restore(unit: Unit) -> str:
    """The id of the last restore's statement. Every restore is logged before the Steward starts again."""
    return statements.list_ids_by_kind(unit, StatementKind.RESTORE)[-1]


def _make_view(unit: Unit, lost: LostClaim, catalog: str) -> LostClaimView:
    evidence = _find_evidence(unit, lost)
    table = evidence.table
    row = tables.find_by_uuid(unit, lost.target)
    if row is not None:
        table = replace(table, catalog=catalog, name=full_name((*levels_of(unit, row), row.name)))
    released = None if lost.release_id is None else _make_release_view(statements.get(unit, lost.release_id))
    return LostClaimView(
        catalog=table.catalog,
        table=table.name,
        table_uuid=table.uuid,
        workload_id=lost.workload_id,
        receipt_id=evidence.receipt_id,
        proof_ids=evidence.proof_ids,
        restore_id=_find_last_restore(unit),
        release=released,
        snapshot_id=evidence.snapshot_id,
        published_at=evidence.published_at,
        **_describe_chunks(unit, evidence.proof_ids),
    )


def _describe_chunks(unit: Unit, proof_ids: Sequence[str]) -> dict[str, Any]:
    """The publication's parameters, chunks and row count, from its first proofs. The ledger may lack a proof."""
    stored = [statements.find(unit, proof_id) for proof_id in proof_ids[:LOST_CLAIM_CHUNKS_MAX]]
    cores = [read_unchecked(each.envelope, Proof).core for each in stored if each is not None]
    rows = [core.rows.staged for core in cores]
    counted = [count for count in rows if count is not None]
    return {
        "parameters": dict(cores[0].attempt.parameters) if cores else None,
        "chunk_ids": tuple(core.attempt.chunk_id for core in cores),
        "chunks_more": len(proof_ids) - len(cores),
        "rows": sum(counted) if len(counted) == len(proof_ids) else None,
    }


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
