"""Epochs as the Steward changes them: a step is made in the epoch book, then signed and logged, after a crash too."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm import fault
from pvdm.errors import ConflictError, NotAllowedError
from pvdm.model.epoch import EpochStage, EpochStatement
from pvdm.steward.recorder import Document, Recorder, signing_epoch
from pvdm.steward.roots import TrustRoots
from pvdm.store import Ledger, Unit, statements
from pvdm.store.clock import LedgerClock
from pvdm.store.schema import StatementKind
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.keys.epochs import Epoch, EpochBook, EpochChange, KeyRole
from pvdm.trust.keys.service import KeyService
from pvdm.trust.statement import read_statement
from pvdm.trust.verify import sign_statement

_STAGES = tuple(EpochStage)


class Epochs:
    """Creates, activates, retires and revokes; nothing is reported as done before it is in the log."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        keys: KeyService,
        recorder: Recorder,
        trust: TrustRoots,
        *,
        notary: str,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._keys = keys
        self._recorder = recorder
        self._trust = trust
        self._notary = notary

    def book(self) -> EpochBook:
        """The epochs as they stand."""
        return self._keys.book()

    def create(self, reason: str, *, above: int = 0) -> tuple[EpochChange, ...]:
        """Four new keys as the next epoch, CREATED; nothing is signed with them before it is activated."""
        changes = self._keys.create_epoch(reason, above=above)
        self.log_missing(reason)
        return changes

    def activate(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """CREATED → ACTIVE, once the trust root names its keys: else nobody could check what it signs."""
        self._trust.require_names(self._keys.book().epoch(number))
        changes = self._keys.activate_epoch(number, reason)
        self.log_missing(reason)
        return changes

    def retire(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """ACTIVE → RETIRED."""
        changes = self._keys.retire_epoch(number, reason)
        self.log_missing(reason)
        return changes

    def revoke(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """→ REVOKED; the last epoch that can sign is kept, since its end could not be logged."""
        book = self._keys.book()
        usable = [epoch.number for epoch in book.epochs if epoch.state in (EpochStage.ACTIVE, EpochStage.RETIRED)]
        if usable == [number]:
            raise NotAllowedError(
                "epoch_last",
                f"epoch {number} is the only one that can sign",
                expected="another epoch that is ACTIVE or RETIRED",
                got="none",
                hint="create and activate its successor first, then revoke it",
            )
        changes = self._keys.revoke_epoch(number, reason)
        self.log_missing(reason)
        return changes

    def log_missing(self, reason: str) -> None:
        """Log every step that the book has made and the log does not know yet; after a crash it finds the rest."""
        fault.point("steward.after_epoch_step")
        book = self._keys.book()
        if not any(epoch.state in (EpochStage.ACTIVE, EpochStage.RETIRED) for epoch in book.epochs):
            return
        seen, logged = self._logged()
        steps = missing_steps(book, logged)
        if not steps:
            self._recorder.cover()
            return
        documents = [self._signed(epoch, before, after, reason) for epoch, before, after in steps]

        def work(unit: Unit, places: Sequence[int]) -> None:
            # The log's lock is held here, so another Steward has either logged these steps before or cannot any more.
            if statements.ids_of_kind(unit, StatementKind.EPOCH) != seen:
                raise ConflictError("epoch_steps_moved", "another Steward logged a step of an epoch first")
            for document, place in zip(documents, places, strict=True):
                statements.put(unit, document.kind, document.statement_id, document.envelope, log_index=place)

        try:
            self._recorder.record(documents, work)
        except ConflictError as error:
            if error.code != "epoch_steps_moved":
                raise
            self.log_missing(reason)

    def _signed(self, epoch: Epoch, before: EpochStage | None, after: EpochStage, reason: str) -> Document:
        statement = EpochStatement(
            notary=self._notary,
            epoch=epoch.number,
            before=before,
            after=after,
            reason=reason,
            key_ids=tuple(sorted((key.role.value, key.public.key_id) for key in epoch.keys if key.public)),
            issued_at=self._clock.now_micros(),
        )
        signer = self._keys.signer(KeyRole.SIGNING, signing_epoch(self._keys.book()))
        envelope = sign_statement(statement, signer)
        return Document(StatementKind.EPOCH, envelope.payload_sha256, envelope.to_bytes())

    def _logged(self) -> tuple[tuple[str, ...], dict[int, EpochStage]]:
        with self._ledger.read() as unit:
            stored = statements.of_kind(unit, StatementKind.EPOCH)
        found: dict[int, EpochStage] = {}
        for statement in stored:
            said = read_statement(parse_envelope(statement.envelope).payload, EpochStatement)
            found[said.epoch] = said.after
        return tuple(statement.statement_id for statement in stored), found


def missing_steps(book: EpochBook, logged: dict[int, EpochStage]) -> list[tuple[Epoch, EpochStage | None, EpochStage]]:
    """Each step from what is logged of an epoch to where it stands, in the order in which it was made."""
    found = []
    for epoch in book.epochs:
        before = logged.get(epoch.number)
        first = 0 if before is None else _STAGES.index(before) + 1
        for after in _STAGES[first : _STAGES.index(epoch.state) + 1]:
            found.append((epoch, before, after))
            before = after
    return found
