"""Submits proved attempts to the gate, and sets their new states according to the gate's result."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.target import UpstreamTarget, open_target
from pvdm.errors import Code, NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.lake.stores.seal import Seals
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import events, proofs, receipts
from pvdm.ledger.record.receipts import Publication
from pvdm.ledger.work import announced, attempts, nonces
from pvdm.ledger.work.announced import AnnouncedPublication
from pvdm.metadata.gate.checks_table import PUBLISHED
from pvdm.metadata.gate.context import Gate
from pvdm.metadata.gate.gate import confirm_publication, translate_errors_after_commit, validate_then_commit
from pvdm.metadata.gate.proposal import (
    TABLE_IN_DOUBT_CODES,
    VERIFY_AGAIN_CODES,
    PublicationResult,
    PublishedSnapshot,
    table_in_doubt,
)
from pvdm.model.states import AttemptState
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.locks import hold_work
from pvdm.steward.logs import log_failure
from pvdm.steward.pipeline.jobs import publication_id
from pvdm.steward.pipeline.proposals import Proposals, StatementSigner
from pvdm.steward.record.log import LogQueries
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.notices import NO_NOTICES, Notices
from pvdm.steward.work.opened import Facts, encode_refusal
from pvdm.steward.work.sources import table_name
from pvdm.verify.fetch import Files

# Errors about the trust root, not about a proof: a renewed root cures them.
_TRUST_ROOT_CODES: Final = frozenset({Code.LOG_KEY_MISSING, Code.TRUST_ROOT_EXPIRED})
_MAIN_MOVED_CODES: Final = frozenset({Code.BOUNDARY_MOVED, Code.DELETES_NEWER})
_CHECK_OF_NOTARIES: Final = 2  # the gate's check of the notaries' signatures


@dataclass(eq=False)
class Publishing:
    """Submits proved attempts to the gate; calls are idempotent, and `settle` finishes what a crash interrupted."""

    ledger: Ledger
    clock: LedgerClock
    catalog: Catalog
    trust: TrustRoots
    log: LogQueries
    vault: Vault
    files: Files
    origin: str
    dispose: Callable[[str], object]  # cleans up after an ended attempt, now or later
    proposals: Proposals
    signer: StatementSigner
    seals: Seals | None = None
    notices: Notices = NO_NOTICES

    def publish(self, workload_id: str, attempt_ids: Sequence[str]) -> PublicationResult:
        """Publish these proved attempts together: one attempt, or under atomicity `workload` one for each chunk.

        An attempt that the gate refuses becomes VERIFICATION_FAILED. If its proof expired or the table changed, it
        goes back to VERIFYING. After any other error it stays COMMITTING. The error is raised in each case.
        """
        with hold_work(self.ledger, publication_id(workload_id, attempt_ids)):
            return self._publish(workload_id, attempt_ids)

    def _publish(self, workload_id: str, attempt_ids: Sequence[str]) -> PublicationResult:
        earlier = self._find_earlier(attempt_ids)
        if earlier is not None:
            return earlier
        try:
            # Before the commit, the trust root must accept the keys that sign the receipt after the commit.
            self.trust.require_signing_trusted()
        except PvdmError as error:
            raise _untrusted_error(error) from error
        with self.ledger.read() as unit:
            current_nonces = [nonces.find_current(unit, attempt_id) for attempt_id in attempt_ids]
        nonces_before = {str(each.attempt_id): each.nonce for each in current_nonces if each is not None}
        try:
            proposal = self.proposals.collect(workload_id, attempt_ids)
            result = validate_then_commit(proposal, self._gate(proposal.workload.opening.table_uuid))
        except PvdmError as error:
            # Another call may have published the same attempts meanwhile; then its result counts.
            earlier = self._find_earlier(attempt_ids)
            if earlier is not None:
                return earlier
            if error.code in TABLE_IN_DOUBT_CODES:
                raise table_in_doubt(error) from error
            # A renewed trust root cures an expired key of a notary. For any other expired key the attempt is refused.
            is_notary_key = error.code == Code.KEY_EXPIRED and error.check == _CHECK_OF_NOTARIES
            if is_notary_key or error.code in _TRUST_ROOT_CODES:
                raise _untrusted_error(error) from error
            self._apply_refusal(error, nonces_before)
            raise
        self._clean_up(attempt_ids)
        return result

    def settle(self) -> list[PublicationResult]:
        """Make the receipts that a crash prevented, for publications that `main` shows.

        Pointer, nonces and states change in one transaction, so an attempt that is COMMITTING was not published. At an
        upstream, such an attempt may be published, so every announced publication is settled first.
        """
        self._settle_announced()
        with self.ledger.read() as unit:
            without_receipt = receipts.list_missing(unit)
        results = []
        for each in without_receipt:
            try:
                results.append(self._ensure_receipt(each))
            except PvdmError as error:
                # The other receipts are still made. This receipt is tried again later; until then audits report it.
                log_failure("receipt_not_made", error, snapshot=each.snapshot_id, **self._describe(each))
        return results

    def require_settled(self) -> None:
        """Raise `receipts_missing` while a publication has no receipt, so that settling is tried again."""
        with self.ledger.read() as unit:
            without_receipt = receipts.list_missing(unit)
        if without_receipt:
            raise Code.RECEIPTS_MISSING(got=f"{len(without_receipt)} without one")

    def _settle_announced(self) -> None:
        with self.ledger.read() as unit:
            unsettled = announced.list_open(unit)
        for each in unsettled:
            try:
                UpstreamTarget(self.ledger, self.clock, self.catalog, each.table_uuid).settle(each)
            except PvdmError as error:
                # Until a later try settles this publication, it blocks other publications to its table.
                log_failure("announced_not_settled", error, snapshot=each.snapshot_id, **self._describe(each))

    def _describe(self, subject: Publication | AnnouncedPublication) -> Facts:
        name = None
        with contextlib.suppress(PvdmError), self.ledger.read() as unit:
            name = table_name(unit, subject.table_uuid)
        return {"table": name, "table_uuid": subject.table_uuid, "workload_id": subject.workload_id}

    def _gate(self, table_uuid: str) -> Gate:
        target = open_target(self.ledger, self.clock, self.catalog, table_uuid, STEWARD_GRANT)
        prove, sign = self.log.proof, self.signer.sign_receipt
        return Gate(
            self.ledger, self.clock, target, self.trust, self.vault, self.files, self.origin, prove, sign, self.seals
        )

    def _find_earlier(self, attempt_ids: Sequence[str]) -> PublicationResult | None:
        """The result of an earlier call that published exactly these attempts."""
        with self.ledger.read() as unit:
            found = [attempts.get(unit, attempt_id) for attempt_id in attempt_ids]
            if not found or any(each.state is not AttemptState.COMMITTED for each in found):
                return None
            publication = receipts.get_publication(unit, [each.attempt_id for each in found])
        result = self._ensure_receipt(publication)
        self._clean_up(attempt_ids)
        return result

    def _ensure_receipt(self, publication: Publication) -> PublicationResult:
        """The result of a committed publication. If it has no receipt, the gate's checks 14 and 15 make one."""
        table_uuid, snapshot_id = publication.table_uuid, publication.snapshot_id
        with self.ledger.read() as unit:
            event = events.find_newest(unit, PUBLISHED, PUBLISHED, f"{table_uuid}/{snapshot_id}")
            proof_ids = [proof.proof_id for nonce in publication.nonces for proof in proofs.list_by_nonce(unit, nonce)]
            receipt = receipts.find_by_snapshot(unit, table_uuid, snapshot_id)
        if event is None:
            raise Code.RECEIPT_NOT_SIGNED(
                "the ledger does not have what a receipt states", got=f"snapshot {snapshot_id}"
            )
        published = PublishedSnapshot.from_facts(
            dict(event.new or {}), proof_ids=tuple(sorted(proof_ids)), published_at=publication.published_micros
        )
        if receipt is not None:
            self.signer.recorder.cover()
            return PublicationResult(published, receipt.receipt_id)
        with translate_errors_after_commit():
            return confirm_publication(published, self._gate(table_uuid))

    def _apply_refusal(self, error: PvdmError, nonces_before: Mapping[str, str]) -> None:
        """End the refused attempts, or have them verified again. If the error names an attempt, only that is refused.

        If `main` has moved, every attempt of the publication is verified again: what one of them replaces is often
        what the others replace, and one repair by the producer is to be enough for all.

        `nonces_before`: the nonce of each attempt at the gate's checks. An attempt whose state or nonce has changed
        since stays as it is, because the refusal is about its earlier state.
        """
        verify_again = error.code in VERIFY_AGAIN_CODES
        if not verify_again and not isinstance(error, VerificationError | NotAllowedError):
            return
        named_attempt = None if error.code in _MAIN_MOVED_CODES else error.details.get("attempt_id")
        refused = {each: nonce for each, nonce in nonces_before.items() if named_attempt in (None, each)}
        reason = encode_refusal(error)

        def work(unit: Unit) -> list[str]:
            ended = []
            for attempt_id, nonce_before in refused.items():
                attempt = attempts.lock(unit, attempt_id)
                current = nonces.find_current(unit, attempt_id)
                if attempt.state is not AttemptState.COMMITTING or current is None or current.nonce != nonce_before:
                    continue
                if verify_again:
                    staged, nonce = attempt.staged_snapshot_id, secrets.token_hex(16)
                    attempts.begin_verifying(unit, attempt_id, nonce=nonce, staged_snapshot_id=staged, reason=reason)
                else:
                    failed = attempts.end(unit, attempt.attempt_id, AttemptState.VERIFICATION_FAILED, reason=reason)
                    self.notices.add_gate_refusal(unit, failed, error)
                    ended.append(attempt.attempt_id)
            return ended

        self._clean_up(self.ledger.transact(work, at_micros=self.clock.now_micros()))

    def _clean_up(self, attempt_ids: Sequence[str]) -> None:
        """Clean up after these attempts. A clean-up that fails now is done when unfinished work is settled."""
        for attempt_id in attempt_ids:
            with contextlib.suppress(PvdmError):
                self.dispose(attempt_id)


def _untrusted_error(error: PvdmError) -> UnavailableError:
    return UnavailableError(
        Code.TRUST_IN_DOUBT,
        "nothing is published while the trust root is not valid",
        expected=error.expected,
        got=f"{error.reason}: {error.message}",
        hint="nothing is lost, and it is tried again; the root signers renew the trust root",
        **error.details,
    )
