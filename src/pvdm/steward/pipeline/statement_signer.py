"""Signs and logs the Steward's statements about publications: workload statements before, receipts after."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import receipts, statements
from pvdm.ledger.record.receipts import ReceiptRecord
from pvdm.ledger.schema.record import StatementKind
from pvdm.metadata.gate.proposal import Logged, PublishedSnapshot
from pvdm.model.statements.proof import WorkloadStatement
from pvdm.steward.record.recorder import Document, Recorder, signing_epoch
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.service import KeyService
from pvdm.trust.verify import sign_statement


class StatementSigner:
    """Signs for one notary; an existing statement is not signed again."""

    def __init__(self, ledger: Ledger, keys: KeyService, recorder: Recorder, *, notary: str) -> None:
        self._ledger = ledger
        self._keys = keys
        self._recorder = recorder
        self.notary = notary

    def sign(self, shown: PublishedSnapshot) -> str:
        """Sign the receipt of a publication and log it; returns its id."""
        epoch = signing_epoch(self._keys.book())
        envelope = sign_statement(shown.receipt(self.notary, epoch), self._keys.signer(KeyRole.SIGNING, epoch))
        data, snapshot_id = envelope.to_bytes(), str(shown.new_snapshot_id)
        record = ReceiptRecord(envelope.payload_sha256, shown.workload_id, shown.table.uuid, snapshot_id)

        def work(unit: Unit, places: Sequence[int]) -> None:
            earlier = receipts.of_snapshot(unit, record.table_uuid, record.snapshot_id)
            if earlier is not None:
                raise _SignedMeanwhileError(earlier.receipt_id)
            receipts.put(unit, record, data, log_index=places[0])

        try:
            self._recorder.record([Document(StatementKind.RECEIPT, record.receipt_id, data)], work)
        except _SignedMeanwhileError as error:
            self._recorder.cover()
            return error.statement_id
        return record.receipt_id

    def cover(self) -> None:
        """Bring the outside checkpoint up to the log."""
        self._recorder.cover()

    def bind(self, said: WorkloadStatement) -> Logged:
        """Sign and log a workload statement; an equal one is returned as it is."""
        envelope = sign_statement(said, self._keys.signer(KeyRole.SIGNING, said.epoch))
        data, statement_id = envelope.to_bytes(), envelope.payload_sha256
        with self._ledger.read() as unit:
            known = statements.find(unit, statement_id)

        def work(unit: Unit, places: Sequence[int]) -> None:
            if statements.find(unit, statement_id) is not None:
                raise _SignedMeanwhileError(statement_id)
            statements.put(unit, StatementKind.WORKLOAD, statement_id, data, log_index=places[0])

        if known is None:
            try:
                self._recorder.record([Document(StatementKind.WORKLOAD, statement_id, data)], work)
            except _SignedMeanwhileError:
                self._recorder.cover()
            with self._ledger.read() as unit:
                known = statements.get(unit, statement_id)
        return logged(known)


def logged(statement: statements.Statement) -> Logged:
    """A statement of the ledger in the form that the gate takes."""
    return Logged(statement.kind, statement.envelope, statement.log_index, statement.at_micros)


class _SignedMeanwhileError(Exception):
    """Another thread or Steward has signed the same statement first."""

    def __init__(self, statement_id: str) -> None:
        super().__init__(statement_id)
        self.statement_id = statement_id
