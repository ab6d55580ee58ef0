"""The audit's checks of claim releases: each is signed and logged, and names a publication of the table."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pvdm.metadata.audit.evidence import Evidence
from pvdm.metadata.audit.report import Notes, ReleaseEntry
from pvdm.metadata.audit.statements import Statements, UnverifiedStatement
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused, require_equal
from pvdm.trust.verify import require_pass


def read_releases(evidence: Evidence, statements: Statements, notes: Notes) -> tuple[ReleaseEntry, ...]:
    """The valid claim releases, in the log's order. Invalid and missing releases become findings."""
    receipts = {each.statement_id: each.predicate for each in statements.all_receipts()}
    entries = []
    for release in sorted(statements.releases, key=lambda each: each.logged.index):
        with notes.collect():
            statements.verify_approval(release)
            require_release_table(release.predicate, evidence)
            require_release_publication(release.predicate, receipts, statements)
            entries.append(_describe_release(release))
    known = {each.publication_id for each in entries}
    for publication_id in evidence.released_claims:
        notes.check(require_release, publication_id, known)
    return tuple(entries)


def require_release_table(release: ClaimRelease, evidence: Evidence) -> None:
    """The release names this table's UUID."""
    if (release.table.catalog, release.table.uuid) != (evidence.table.catalog, evidence.table.uuid):
        raise refused("audit_release_wrong_table", evidence.table.uuid, release.table.uuid)


def require_release_publication(release: ClaimRelease, receipts: Mapping[str, Receipt], statements: Statements) -> None:
    """The release names table, workload and proofs of a receipt in the evidence, or of a proof without a receipt."""
    facts: tuple[str, ...]
    if release.receipt_id is None:
        core = require_unreceipted_pass(release.publication_id, receipts, statements)
        facts = (core.target.table.uuid, core.attempt.workload_id, release.publication_id)
    elif (receipt := receipts.get(release.receipt_id)) is not None:
        facts = (receipt.table.uuid, receipt.workload_id, *receipt.proof_ids)
    else:
        raise refused("audit_release_wrong_publication", f"receipt {release.receipt_id}", "none")
    got = (release.table.uuid, release.workload_id, *release.proof_ids)
    require_equal("audit_release_wrong_publication", ", ".join(facts), ", ".join(got))


def require_unreceipted_pass(proof_id: str, receipts: Mapping[str, Receipt], statements: Statements) -> ProofCore:
    """The proof is a valid PASS that no receipt names. Without a receipt, a restore counts no FAIL as published."""
    named_by = next((receipt_id for receipt_id, each in receipts.items() if proof_id in each.proof_ids), None)
    if named_by is not None:
        raise refused("audit_release_wrong_publication", f"receipt {named_by}, which names the proof", "no receipt")
    proof = statements.verify_proof(proof_id)
    require_pass(proof)
    return proof.core


def require_release(publication_id: str, known: Collection[str]) -> None:
    """A valid claim release names this publication, whose lost claim is released according to the Steward."""
    if publication_id not in known:
        raise refused("audit_release_missing", f"a claim release for {publication_id}", "no valid one")


def _describe_release(release: UnverifiedStatement[ClaimRelease]) -> ReleaseEntry:
    signed, log = release.predicate, release.logged
    return ReleaseEntry(
        statement_id=release.statement_id,
        logged_at=log.logged_at,
        log_index=log.index,
        operator=signed.operator,
        reason=signed.reason,
        workload_id=signed.workload_id,
        publication_id=signed.publication_id,
        restore_id=signed.restore_id,
    )
