"""Publishing at the Steward's side: proved attempts are put before the gate, and moved by what comes of it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.upstream.target import open_target, settle_announced
from pvdm.errors import NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.lake.stores.seal import Seals
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import events, proofs, receipts
from pvdm.ledger.record.receipts import Publication
from pvdm.ledger.work import announced, attempts, nonces
from pvdm.ledger.work.announced import Announced
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
from pvdm.steward.access import OWN
from pvdm.steward.logs import log_failure
from pvdm.steward.pipeline.proposals import Proposals
from pvdm.steward.pipeline.unfinished import publication_of, working_on
from pvdm.steward.pipeline.witness import Witness
from pvdm.steward.record.log import LogDesk
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.end_reasons import reason_of
from pvdm.steward.work.log_lines import Facts, describe_workload
from pvdm.verify.fetch import Files

# Facts about the newest trust root, and no word about any proof: a root that is renewed mends them.
_UNTRUSTED: Final = frozenset({"log_key_missing", "trust_root_expired"})
_CHECK_OF_NOTARIES: Final = 2


@dataclass(frozen=True, slots=True)
class Ground:
    """What publishing stands on; `dispose` cleans up after an attempt that has ended, now or soon."""

    ledger: Ledger
    clock: LedgerClock
    catalog: Callable[[], Catalog]
    trust: TrustRoots
    log: LogDesk
    vault: Vault
    files: Files
    origin: str
    dispose: Callable[[str], object]
    seals: Seals | None = None


class Publishing:
    """Puts proved attempts before the gate; each call is idempotent, and what a crash left is settled at the start."""

    def __init__(self, ground: Ground, proposals: Proposals, witness: Witness) -> None:
        self._ground = ground
        self._ledger = ground.ledger
        self._clock = ground.clock
        self._proposals = proposals
        self._witness = witness

    def publish(self, workload_id: str, attempt_ids: Sequence[str]) -> PublicationResult:
        """Publish these proved attempts at once: one of a chunk, or one of every chunk under atomicity `workload`.

        An attempt that the gate refuses is VERIFICATION_FAILED, one whose proof ran out or whose table moved goes back
        to VERIFYING, and the refusal is raised; whatever is nobody's verdict leaves it COMMITTING.
        """
        with working_on(self._ledger, publication_of(workload_id, attempt_ids)):
            return self._publish(workload_id, attempt_ids)

    def _publish(self, workload_id: str, attempt_ids: Sequence[str]) -> PublicationResult:
        earlier = self._earlier(attempt_ids)
        if earlier is not None:
            return earlier
        self._require_receipt_trusted()
        judged = self._nonces(attempt_ids)
        try:
            proposal = self._proposals.collect(workload_id, attempt_ids)
            done = validate_then_commit(proposal, self._gate(proposal.workload.opening.table_uuid))
        except PvdmError as error:
            # Somebody else may have published the very same meanwhile; then that is what came of it.
            earlier = self._earlier(attempt_ids)
            if earlier is not None:
                return earlier
            if error.code in TABLE_IN_DOUBT_CODES:
                raise table_in_doubt(error) from error
            if _is_untrusted(error):
                raise _untrusted(error) from error
            self._move(error, judged)
            raise
        self._clean_up(attempt_ids)
        return done

    def _require_receipt_trusted(self) -> None:
        """Nothing is shown whose receipt nobody would accept: it is signed only after the commit."""
        try:
            self._ground.trust.require_signing_trusted()
        except PvdmError as error:
            raise _untrusted(error) from error

    def settle(self) -> list[PublicationResult]:
        """At start-up: publications whose receipt a crash prevented get it, once `main` is seen to show them.

        Pointer, nonces and states change in one transaction: an attempt that is COMMITTING was not published. To an
        upstream's table it may have been, if it was announced: there the upstream is asked first.
        """
        self._settle_announced()
        with self._ledger.read() as unit:
            waiting = receipts.list_missing(unit)
        found = []
        for each in waiting:
            try:
                found.append(self._receipted(each))
            except PvdmError as error:
                # One that cannot be settled keeps no other from it; it is tried again, and an audit names it.
                log_failure("receipt_not_made", error, snapshot=each.snapshot_id, **self._facts(each))
        return found

    def require_settled(self) -> None:
        """Every publication has its receipt; where one could not be made just now, settling is due again."""
        with self._ledger.read() as unit:
            waiting = receipts.list_missing(unit)
        if waiting:
            raise UnavailableError(
                "receipts_missing",
                "a publication has no receipt yet",
                expected="a receipt of every snapshot that was published",
                got=f"{len(waiting)} without one",
                hint="it is tried again; the Steward's log says why it could not be made",
            )

    def _settle_announced(self) -> None:
        with self._ledger.read() as unit:
            standing = announced.list_open(unit)
        for each in standing:
            try:
                settle_announced(self._ledger, self._clock, self._ground.catalog(), each)
            except PvdmError as error:
                # It stays open, and so nothing else is published to its table; it is asked again.
                log_failure("announced_not_settled", error, snapshot=each.snapshot_id, **self._facts(each))

    def _facts(self, of: Publication | Announced) -> Facts:
        return describe_workload(self._ledger, of.workload_id, of.table_uuid)

    def _gate(self, table_uuid: str) -> Gate:
        ground = self._ground
        return Gate(
            ground.ledger,
            ground.clock,
            open_target(ground.ledger, ground.clock, ground.catalog(), table_uuid, OWN),
            ground.trust,
            ground.vault,
            ground.files,
            ground.origin,
            ground.log.proof,
            self._witness.sign,
            ground.seals,
        )

    def _earlier(self, attempt_ids: Sequence[str]) -> PublicationResult | None:
        """What came of an earlier call, if that published exactly these."""
        with self._ledger.read() as unit:
            found = [attempts.get(unit, attempt_id) for attempt_id in attempt_ids]
            if not found or any(each.state is not AttemptState.COMMITTED for each in found):
                return None
            said = receipts.publication_of(unit, [each.attempt_id for each in found])
        done = self._receipted(said)
        self._clean_up(attempt_ids)
        return done

    def _receipted(self, each: Publication) -> PublicationResult:
        """Checks 14 and 15 for what is committed; a receipt that is there is the one that counts."""
        with self._ledger.read() as unit:
            (noted, *_) = events.history(unit, PUBLISHED, f"{each.table_uuid}/{each.snapshot_id}", count=1)
            of = [record.proof_id for nonce in each.nonces for record in proofs.of_nonce(unit, nonce)]
            receipt = receipts.of_snapshot(unit, each.table_uuid, each.snapshot_id)
        facts = dict(noted.new or {})
        shown = PublishedSnapshot.from_facts(facts, proof_ids=tuple(sorted(of)), published_at=each.published_micros)
        if receipt is not None:
            self._witness.cover()
            return PublicationResult(shown, receipt.receipt_id)
        with translate_errors_after_commit():
            return confirm_publication(shown, self._gate(each.table_uuid))

    def _nonces(self, attempt_ids: Sequence[str]) -> dict[str, str]:
        """The nonces that the attempts hold, before any of it is judged."""
        with self._ledger.read() as unit:
            held = [nonces.held_by(unit, attempt_id) for attempt_id in attempt_ids]
        return {str(each.attempt_id): each.nonce for each in held if each is not None}

    def _move(self, error: PvdmError, judged: Mapping[str, str]) -> None:
        """What the gate's refusal makes of the attempts it is about: of one of a workload's chunks, that one."""
        again = error.code in VERIFY_AGAIN_CODES
        if not again and not isinstance(error, VerificationError | NotAllowedError):
            return
        about = error.details.get("attempt_id")
        hit = {attempt_id: nonce for attempt_id, nonce in judged.items() if about in (None, attempt_id)}
        reason = reason_of(error)

        def work(unit: Unit) -> list[str]:
            ended = []
            for attempt_id, nonce in hit.items():
                attempt = attempts.lock(unit, attempt_id)
                held = nonces.held_by(unit, attempt_id)
                # Whoever moved it meanwhile has judged it anew; this refusal is about what it was before.
                if attempt.state is not AttemptState.COMMITTING or held is None or held.nonce != nonce:
                    continue
                if again:
                    _verify_again(unit, attempt, reason)
                else:
                    attempts.end(unit, attempt.attempt_id, AttemptState.VERIFICATION_FAILED, reason=reason)
                    ended.append(attempt.attempt_id)
            return ended

        self._clean_up(self._ledger.transact(work, at_micros=self._clock.now_micros()))

    def _clean_up(self, attempt_ids: Sequence[str]) -> None:
        """Branch and leftovers; what cannot be done now is taken up at the next start."""
        for attempt_id in attempt_ids:
            with contextlib.suppress(PvdmError):
                self._ground.dispose(attempt_id)


def _verify_again(unit: Unit, attempt: attempts.Attempt, reason: str) -> None:
    attempts.begin_verifying(
        unit,
        attempt.attempt_id,
        nonce=secrets.token_hex(16),
        staged_snapshot_id=attempt.staged_snapshot_id,
        reason=reason,
    )


def _is_untrusted(error: PvdmError) -> bool:
    """Whether nobody's word counts just now, since the trust root was not renewed: not what the proofs say is wrong."""
    if error.code == "key_expired":
        return error.check == _CHECK_OF_NOTARIES
    return error.code in _UNTRUSTED


def _untrusted(error: PvdmError) -> UnavailableError:
    return UnavailableError(
        "trust_in_doubt",
        "nothing is published while the trust root does not tell whom to believe",
        expected=error.expected,
        got=f"{error.code}: {error.message}",
        hint="nothing is lost, and it is tried again; the root signers renew the trust root",
        **error.details,
    )
