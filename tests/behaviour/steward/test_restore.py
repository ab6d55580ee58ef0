"""A backup is brought back without hiding it: refilled from the archive, under a new epoch, told by the log itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import InputError, PvdmError, VerificationError
from pvdm.model.epoch import EpochStage
from pvdm.model.restore import RestoreStatement
from pvdm.model.states import AttemptState, NonceState, WorkloadState
from pvdm.steward.notary import Notary
from pvdm.steward.proofs import Recorded
from pvdm.steward.recorder import Document
from pvdm.steward.restore import Order, Restored, restore
from pvdm.store import Unit, attempts, nonces, receipts, statements, workloads
from pvdm.store.receipts import ReceiptRecord
from pvdm.store.schema import StatementKind
from pvdm.trust.expectation import require_epoch
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.fsck import fsck
from pvdm.trust.log.note import NoteKey
from pvdm.trust.verify import sign_statement, verify_statement, verify_threshold
from tests.steward_examples import LOG_ORIGIN, NOTARY, Stand, core_of, opened, root_naming, signed_root, stand_at
from tools.proof_kit import RECEIPT

ORDER = Order("operator-tom", "the disk of the database failed")
NEW_ORIGIN = "steward-one.example/log-2"


class Scene:
    """A Steward that archives, with a backup and a way to lose the database."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.ledger = stand.folder / "ledger.db"
        self.backup = stand.folder / "backup.db"
        self.order = replace(ORDER, archive=stand.config.archive)

    @property
    def notary(self) -> Notary:
        return self.stand.notary

    def back_up(self) -> None:
        self.notary.close()
        shutil.copy(self.ledger, self.backup)
        self.start()

    def lose_the_database(self) -> None:
        self.notary.close()
        shutil.copy(self.backup, self.ledger)

    def start(self) -> Notary:
        self.stand.notary = opened(self.stand.config, self.stand.time)
        return self.stand.notary

    def restore(self, order: Order | None = None) -> Restored:
        time = self.stand.time
        return restore(self.stand.config, order or self.order, wall=lambda: time.wall, monotonic=lambda: time.monotonic)

    def publish(self, name: str, recorded: Recorded) -> str:
        """What the gate does at the end: nonce, state and receipt at once."""
        notary, attempt = self.notary, core_of(name).attempt
        epoch = notary.keys.epoch_for(None)
        said = replace(
            RECEIPT,
            notary=NOTARY,
            epoch=epoch,
            workload_id=attempt.workload_id,
            proof_ids=(recorded.statement_id,),
            override_id=None,
            published_at=notary.clock.now_micros(),
        )
        envelope = sign_statement(said, notary.keys.signer(KeyRole.SIGNING, epoch))
        document = Document(StatementKind.RECEIPT, envelope.payload_sha256, envelope.to_bytes())
        snapshot = str(said.new_snapshot_id)

        def work(unit: Unit, places: Sequence[int]) -> None:
            if attempts.get(unit, attempt.attempt_id).state is AttemptState.VERIFYING:
                attempts.begin_committing(unit, attempt.attempt_id, reason="PASS")
            attempts.publish(unit, attempt.attempt_id, nonce=attempt.nonce, snapshot_id=snapshot)
            record = ReceiptRecord(document.statement_id, attempt.workload_id, said.table.uuid, snapshot)
            receipts.put(unit, record, document.envelope, log_index=places[0])

        notary.recorder.record([document], work)
        return snapshot

    def wait_for_commit(self, name: str) -> None:
        """The attempt is proved and waits for its turn."""
        attempt_id = core_of(name).attempt.attempt_id

        def work(unit: Unit) -> None:
            attempts.begin_committing(unit, attempt_id, reason="PASS")

        self.notary.ledger.transact(work, at_micros=self.notary.clock.now_micros())

    def activate_new_epoch(self) -> None:
        """The ceremony after a restore: a trust root that names the new keys, then activation."""
        notary = self.notary
        book, root = notary.epochs.book(), notary.trust.current()
        named = root_naming(
            *book.epochs, version=root.version + 1, previous=root.sha256, origin=self.stand.config.origin
        )
        notary.trust.accept(signed_root(named))
        notary.epochs.activate(book.epochs[-1].number, "restored")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    folder = tmp_path / "steward"
    with stand_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as stand:
        yield Scene(stand)


def refused(call: object, code: str) -> PvdmError:
    with pytest.raises(PvdmError) as caught:
        call()  # type: ignore[operator]
    assert caught.value.code == code
    return caught.value


def test_a_restored_backup_does_not_start_by_itself(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    refused(scene.start, "log_behind_checkpoint")
    scene.restore()
    scene.start()


def test_the_log_is_refilled_with_the_very_entries_and_envelopes(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("after")
    size, entry = scene.notary.log.size(), scene.notary.log.entry(recorded.log_index)
    scene.lose_the_database()
    done = scene.restore()
    assert (done.refilled, done.lost, done.missing) == (1, 0, 0)
    assert done.outside_size == size
    notary = scene.start()
    assert notary.log.entry(recorded.log_index) == entry
    with notary.ledger.read() as unit:
        assert statements.get(unit, recorded.statement_id).envelope == recorded.envelope


def test_the_restore_stands_in_the_log_itself(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    done = scene.restore()
    notary = scene.start()
    with notary.ledger.read() as unit:
        stored = statements.of_kind(unit, StatementKind.RESTORE)
    assert [each.log_index for each in stored] == [done.outside_size]
    now = notary.clock.now_micros()
    said = verify_statement(stored[0].envelope, notary.trust.current(), RestoreStatement, now=now).predicate
    assert (said.operator, said.reason, said.refilled, said.new_epoch) == (ORDER.operator, ORDER.reason, 1, 2)


def test_the_whole_log_after_a_restore_passes_the_checker(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    scene.restore()
    notary = scene.start()
    assert scene.stand.config.archive is not None
    public = notary.keys.public_key(KeyRole.LOG, 1)
    fsck(scene.stand.config.archive / "log", [NoteKey(LOG_ORIGIN, public.der).to_vkey()])


def test_outstanding_proofs_die_with_the_epoch(scene: Scene) -> None:
    outstanding = scene.stand.proved("before")
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    done = scene.restore()
    notary = scene.start()
    refused(lambda: notary.keys.epoch_for(None), "epoch_none_active")
    scene.activate_new_epoch()
    assert notary.keys.epoch_for(None) == done.new_epoch == 2
    root, now = notary.trust.current(), notary.clock.now_micros()
    proof = verify_threshold([outstanding.envelope], root, threshold=1, now=now)
    refused(lambda: require_epoch(proof, notary.keys.epoch_for(None)), "proof_wrong_epoch")


def test_what_was_under_way_is_rolled_back_and_its_nonces_are_void(scene: Scene) -> None:
    core = scene.stand.verifying("under-way")
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    done = scene.restore()
    assert done.abandoned == (core.attempt.workload_id,)
    with scene.start().ledger.read() as unit:
        assert attempts.get(unit, core.attempt.attempt_id).state is AttemptState.ROLLED_BACK
        assert workloads.get(unit, core.attempt.workload_id).state is WorkloadState.ABANDONED
        found = nonces.find(unit, core.attempt.nonce)
        assert found is not None
        assert found.state is NonceState.ABORTED


def test_a_receipt_of_the_lost_time_settles_the_attempt_that_waited(scene: Scene) -> None:
    recorded = scene.stand.proved("waiting")
    scene.wait_for_commit("waiting")
    scene.back_up()
    snapshot = scene.publish("waiting", recorded)
    scene.lose_the_database()
    done = scene.restore()
    attempt = core_of("waiting").attempt
    assert done.settled == (attempt.attempt_id,)
    with scene.start().ledger.read() as unit:
        assert attempts.get(unit, attempt.attempt_id).state is AttemptState.COMMITTED
        found = nonces.find(unit, attempt.nonce)
        assert found is not None
        assert (found.state, found.snapshot_id) == (NonceState.COMMITTED, snapshot)
        assert [each.snapshot_id for each in receipts.of_workload(unit, attempt.workload_id)] == [snapshot]


def test_a_workload_of_which_only_the_receipt_is_left_is_never_opened_again(scene: Scene) -> None:
    scene.back_up()
    scene.publish("lost", scene.stand.proved("lost"))
    scene.lose_the_database()
    done = scene.restore()
    assert done.spent == (core_of("lost").attempt.workload_id,)
    scene.start()
    scene.activate_new_epoch()
    refused(lambda: scene.stand.verifying("lost"), "workload_spent")


def test_an_epoch_that_was_revoked_in_the_lost_time_stays_revoked(scene: Scene) -> None:
    notary = scene.notary
    notary.epochs.create("rotation")
    root = notary.trust.current()
    notary.trust.accept(signed_root(root_naming(*notary.epochs.book().epochs, version=2, previous=root.sha256)))
    notary.epochs.activate(2, "rotation")
    scene.back_up()
    keys_then = (scene.stand.folder / "keys").read_bytes()
    scene.notary.epochs.revoke(1, "leaked")
    scene.lose_the_database()
    (scene.stand.folder / "keys").write_bytes(keys_then)
    scene.restore()
    assert scene.start().epochs.book().epoch(1).state is EpochStage.REVOKED


def test_a_gap_that_no_archive_fills_is_refused(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    before = scene.ledger.read_bytes()
    refused(lambda: scene.restore(ORDER), "restore_entries_missing")
    refused(scene.start, "log_behind_checkpoint")
    assert scene.ledger.stat().st_size == len(before)


def test_an_archive_whose_entries_were_changed_is_refused(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    archive = scene.stand.config.archive
    assert archive is not None
    bundles = [path for path in (archive / "log" / "tile" / "entries").rglob("*") if path.is_file()]
    newest = max(bundles, key=lambda path: path.stat().st_mtime_ns)
    # The last entry's time, which nothing but the tree's root vouches for.
    newest.write_bytes(newest.read_bytes()[:-2] + b"9}")
    refused(scene.restore, "log_forked")


def test_an_envelope_of_the_archive_that_was_changed_is_refused(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    archive = scene.stand.config.archive
    assert archive is not None
    newest = max((archive / "statements").rglob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes() + b" ")
    refused(scene.restore, "archive_damaged")


def test_a_backup_that_has_grown_again_is_recognized_as_a_fork(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("one-time")
    outside = scene.stand.config.outside_path
    signed = outside.read_bytes()
    scene.lose_the_database()
    # Someone hides the checkpoint kept outside, starts the old ledger, and works on.
    scene.stand.config = replace(scene.stand.config, archive=None)
    with pytest.raises(PvdmError):
        scene.start()
    outside.write_bytes(_checkpoint_of(scene))
    scene.start()
    scene.stand.proved("other-time")
    scene.notary.close()
    outside.write_bytes(signed)
    refused(scene.start, "log_forked")
    refused(scene.restore, "log_forked")
    scene.ledger.unlink()
    shutil.copy(scene.backup, scene.ledger)
    assert scene.restore().refilled == 1
    scene.start()


def _checkpoint_of(scene: Scene) -> bytes:
    import sqlite3

    connection = sqlite3.connect(scene.ledger)
    try:
        row = connection.execute("SELECT note FROM log_checkpoints ORDER BY size DESC LIMIT 1").fetchone()
    finally:
        connection.close()
    return bytes(row[0])


def test_entries_that_are_lost_for_good_end_the_old_name_of_the_log(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    scene.stand.config = replace(scene.stand.config, origin=NEW_ORIGIN, archive=None)
    done = scene.restore(replace(ORDER, lost_origin=LOG_ORIGIN))
    assert (done.refilled, done.lost) == (0, 1)
    notary = scene.start()
    newest = read_unverified(notary.log.checkpoint()).checkpoint
    assert newest.origin == NEW_ORIGIN
    kept = scene.stand.config.outside_path.with_name("checkpoint.lost")
    assert read_unverified(kept.read_bytes()).checkpoint.size == done.outside_size
    scene.activate_new_epoch()
    assert notary.readiness() == ()
    scene.stand.proved("again")


def test_a_log_whose_end_is_lost_does_not_go_on_under_its_own_name(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    with pytest.raises(InputError) as caught:
        scene.restore(replace(ORDER, lost_origin=LOG_ORIGIN))
    assert caught.value.code == "restore_origin_same"


def test_a_missing_outside_checkpoint_is_not_made_up(scene: Scene) -> None:
    scene.back_up()
    scene.notary.close()
    scene.stand.config.outside_path.unlink()
    with pytest.raises(VerificationError) as caught:
        scene.restore()
    assert caught.value.code == "outside_checkpoint_missing"


def test_restoring_twice_does_no_harm(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    first, second = scene.restore(), scene.restore()
    assert (second.refilled, second.lost, second.new_epoch) == (0, 0, first.new_epoch + 1)
    scene.start()
    scene.activate_new_epoch()
    assert scene.notary.readiness() == ()
