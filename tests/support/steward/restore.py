"""For tests of restore: a Steward with an archive, a backup of its database, and the loss of the database."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger import Unit
from pvdm.ledger.record import receipts, statements
from pvdm.ledger.record.receipts import ReceiptRecord
from pvdm.ledger.record.statements import Statement
from pvdm.ledger.work import attempts
from pvdm.model.statements.epoch import EpochStage
from pvdm.model.statements.kind import StatementKind
from pvdm.model.states import AttemptState
from pvdm.steward.notary import Notary
from pvdm.steward.record.log import envelope_path
from pvdm.steward.record.proofs import RecordedProof
from pvdm.steward.record.recorder import Document
from pvdm.steward.restore.pointers import Pointers
from pvdm.steward.restore.restore import RestoreRequest, RestoreResult, restore
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.verify import sign_statement
from tests.support.steward.notary import NOTARY, Stand, core_of, opened, root_naming, signed_root, stand_at
from tools.proof_kit import RECEIPT

ORDER = RestoreRequest("operator-tom", "the disk of the database failed")
NEW_ORIGIN = "steward-one.example/log-2"


class Scene:
    """A Steward with an archive, whose database can be backed up and replaced by the backup."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.ledger = stand.folder / "ledger.db"
        self.backup = stand.folder / "backup.db"
        self.order = replace(ORDER, archive=stand.config.archive)

    @property
    def notary(self) -> Notary:
        return self.stand.notary

    def back_up(self) -> None:
        """Copy the database while the Steward is closed."""
        self.notary.close()
        shutil.copy(self.ledger, self.backup)
        self.start()

    def lose_the_database(self) -> None:
        """Close the Steward, and replace its database by the backup."""
        self.notary.close()
        shutil.copy(self.backup, self.ledger)

    def keep_keys(self) -> Callable[[], None]:
        """Save the keystore as it is now; returns a function that puts it back."""
        path = self.stand.folder / "keys"
        saved = path.read_bytes()

        def put_back() -> None:
            path.write_bytes(saved)

        return put_back

    def rotate(self) -> None:
        """Create epoch 2, name it in the next trust root, and activate it."""
        self.notary.epochs.create("rotation")
        self.name_epochs()
        self.notary.epochs.activate(2, "rotation")

    def name_epochs(self) -> bytes:
        """Submit the next trust root, which names every epoch; returns its envelope."""
        root = self.notary.trust.current()
        named = root_naming(*self.notary.epochs.book().epochs, version=root.version + 1, previous=root.sha256)
        envelope = signed_root(named)
        self.notary.trust.accept(envelope)
        return envelope

    def epochs(self) -> list[tuple[int, EpochStage]]:
        """Each epoch's number and stage."""
        return [(epoch.number, epoch.state) for epoch in self.notary.epochs.book().epochs]

    def statements(self, kind: StatementKind) -> list[Statement]:
        """The ledger's statements of a kind."""
        with self.notary.ledger.read() as unit:
            return statements.list_by_kind(unit, kind)

    def lose_envelope(self, envelope: bytes) -> None:
        """Delete an envelope from the archive."""
        assert self.stand.config.archive is not None
        envelope_path(self.stand.config.archive, hashlib.sha256(envelope).hexdigest()).unlink()

    def start(self) -> Notary:
        """Open the Steward again."""
        self.stand.notary = opened(self.stand.config, self.stand.time)
        return self.stand.notary

    def restore(self, order: RestoreRequest | None = None) -> RestoreResult:
        """Restore the ledger from the archive; the Steward must be closed."""
        time = self.stand.time
        with contextlib.ExitStack() as stack:
            if not any(Path(str(self.stand.config.catalog.metadata)).rglob("*.json")):
                # Without tables, the receipts name a table that is not in the catalog, so pointers are not prepared.
                without_pointers = mock.patch("pvdm.steward.restore.restore.prepare_pointers", return_value=Pointers())
                stack.enter_context(without_pointers)
            clock = {"wall": lambda: time.wall, "monotonic": lambda: time.monotonic}
            return restore(self.stand.config, order or self.order, **clock)

    def publish(self, name: str, recorded: RecordedProof, *, override_id: str | None = None) -> str:
        """Record a publication as the gate does: nonce, state and receipt in one transaction. Returns a snapshot id."""
        notary, attempt = self.notary, core_of(name).attempt
        epoch = notary.keys.epoch_for(None)
        receipt = replace(
            RECEIPT,
            notary=NOTARY,
            epoch=epoch,
            workload_id=attempt.workload_id,
            proof_ids=(recorded.statement_id,),
            override_id=override_id,
            published_at=notary.clock.now_micros(),
        )
        envelope = sign_statement(receipt, notary.keys.signer(KeyRole.SIGNING, epoch))
        document = Document(StatementKind.RECEIPT, envelope.payload_sha256, envelope.to_bytes())
        snapshot = str(receipt.new_snapshot_id)

        def work(unit: Unit, places: Sequence[int]) -> None:
            if attempts.get(unit, attempt.attempt_id).state is AttemptState.VERIFYING:
                attempts.begin_committing(unit, attempt.attempt_id, reason="PASS")
            attempts.publish(unit, attempt.attempt_id, nonce=attempt.nonce, snapshot_id=snapshot)
            record = ReceiptRecord(document.statement_id, attempt.workload_id, receipt.table.uuid, snapshot)
            receipts.put(unit, record, document.envelope, log_index=places[0])

        notary.recorder.record([document], work)
        return snapshot

    def wait_for_commit(self, name: str) -> None:
        """Move the proved attempt to COMMITTING."""
        attempt_id = core_of(name).attempt.attempt_id

        def work(unit: Unit) -> None:
            attempts.begin_committing(unit, attempt_id, reason="PASS")

        self.notary.ledger.transact(work, at_micros=self.notary.clock.now_micros())

    def activate_new_epoch(self) -> None:
        """After a restore: submit a trust root that names the new epoch's keys, and activate the epoch."""
        notary = self.notary
        book, root = notary.epochs.book(), notary.trust.current()
        named = root_naming(
            *book.epochs, version=root.version + 1, previous=root.sha256, origin=self.stand.config.origin
        )
        notary.trust.accept(signed_root(named))
        if book.epochs[-1].state is EpochStage.CREATED:
            notary.epochs.activate(book.epochs[-1].number, "restored")


@contextlib.contextmanager
def scene_at(folder: Path) -> Iterator[Scene]:
    """A Steward with an archive in this folder."""
    with stand_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as stand:
        yield Scene(stand)


def refused(call: Callable[[], object], code: str) -> PvdmError:
    """The error of the call, which must have this code."""
    with pytest.raises(PvdmError) as caught:
        call()
    assert caught.value.reason == code
    return caught.value
