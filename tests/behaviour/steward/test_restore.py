"""A restore refills a backup of the ledger from the archive, begins a new epoch, and is logged."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.digest.plan import Mode
from pvdm.errors import PvdmError, VerificationError
from pvdm.ledger.record import events, statements
from pvdm.ledger.work import attempts, nonces, workloads
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.model.statements.epoch import EpochStage, RestoreStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.model.states import AttemptState, NonceState, WorkloadState
from pvdm.steward.record.attestations import ChallengeRequest
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.fsck import fsck
from pvdm.trust.log.note import NoteKey
from pvdm.trust.verify import require_epoch, verify_statement, verify_threshold
from tests.support import fault
from tests.support.ledger.rows import receipts_of
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import LOG_ORIGIN, core_of, override_of, root_naming, signed_override, signed_root
from tests.support.steward.restore import ORDER, Scene, refused, scene_at
from tools.proof_kit import ATTESTATION, DAY, SECOND, SOURCE


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_at(tmp_path / "steward") as made:
        yield made


def test_a_backup_starts_only_after_a_restore(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    refused(scene.start, "log_behind_checkpoint")
    scene.restore()
    scene.start()


def test_the_log_is_refilled_with_the_same_entries_and_envelopes(scene: Scene) -> None:
    scene.back_up()
    recorded = scene.stand.proved("after")
    size, entry = scene.notary.log.size(), entry_of(scene.notary, recorded.log_index)
    scene.lose_the_database()
    done = scene.restore()
    assert (done.refilled, done.lost, done.missing) == (1, 0, 0)
    assert done.outside_size == size
    notary = scene.start()
    assert entry_of(notary, recorded.log_index) == entry
    with notary.ledger.read() as unit:
        assert statements.get(unit, recorded.statement_id).envelope == recorded.envelope


def test_the_restore_is_logged(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    done = scene.restore()
    notary = scene.start()
    with notary.ledger.read() as unit:
        stored = statements.list_by_kind(unit, StatementKind.RESTORE)
    assert [each.log_index for each in stored] == [done.outside_size]
    now = notary.clock.now_micros()
    root = notary.trust.current()
    statement = verify_statement(stored[0].envelope, root, RestoreStatement, now=now).predicate
    assert (statement.operator, statement.reason) == (ORDER.operator, ORDER.reason)
    assert (statement.refilled, statement.new_epoch) == (1, 2)


def test_the_whole_log_after_a_restore_passes_the_checker(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    scene.restore()
    notary = scene.start()
    assert scene.stand.config.archive is not None
    public = notary.keys.public_key(KeyRole.LOG, 1)
    fsck(scene.stand.config.archive / "log", [NoteKey(LOG_ORIGIN, public.der).to_vkey()])


def test_unused_proofs_of_the_old_epoch_are_refused_after_a_restore(scene: Scene) -> None:
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


def test_an_attempt_under_way_is_rolled_back_and_its_nonce_is_void(scene: Scene) -> None:
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


def test_a_receipt_from_after_the_backup_commits_the_waiting_attempt(scene: Scene) -> None:
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
        assert [each.snapshot_id for each in receipts_of(unit, attempt.workload_id)] == [snapshot]


def test_a_workload_of_which_only_the_receipt_is_left_is_never_opened_again(scene: Scene) -> None:
    scene.back_up()
    scene.publish("lost", scene.stand.proved("lost"))
    scene.lose_the_database()
    done = scene.restore()
    assert done.spent == (core_of("lost").attempt.workload_id,)
    scene.start()
    scene.activate_new_epoch()
    refused(lambda: scene.stand.verifying("lost"), "workload_spent")


def test_an_epoch_that_was_revoked_after_the_backup_stays_revoked(scene: Scene) -> None:
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


def test_log_entries_that_no_archive_has_stop_the_restore(scene: Scene) -> None:
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
    # Changes the time of the last entry, which only the root of the hash tree protects.
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
    # Somebody replaces the outside checkpoint by the old one of the backup, starts the backup, and works on.
    scene.stand.config = replace(scene.stand.config, archive=None)
    with pytest.raises(PvdmError):
        scene.start()
    outside.write_bytes(newest_checkpoint(scene))
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


def newest_checkpoint(scene: Scene) -> bytes:
    import sqlite3

    connection = sqlite3.connect(scene.ledger)
    try:
        row = connection.execute("SELECT note FROM log_checkpoints ORDER BY size DESC LIMIT 1").fetchone()
    finally:
        connection.close()
    return bytes(row[0])


def test_a_missing_outside_checkpoint_stops_the_restore(scene: Scene) -> None:
    scene.back_up()
    scene.notary.close()
    scene.stand.config.outside_path.unlink()
    with pytest.raises(VerificationError) as caught:
        scene.restore()
    assert caught.value.reason == "outside_checkpoint_missing"


def test_a_second_restore_of_the_same_ledger_changes_nothing(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    first = scene.restore()
    scene.start()
    text, _ = scene.stand.token(Role.OPERATOR, "*", "ruth")
    scene.notary.close()
    before = scene.ledger.read_bytes()
    second = scene.restore()
    assert second == replace(first, log_size=second.log_size, repeated=True)
    assert scene.ledger.read_bytes() == before
    assert scene.start().access.authenticate(text).name == "ruth"


def test_a_restored_ledger_that_lacks_nothing_is_restored_once_more_with_again(scene: Scene) -> None:
    """The backup may have tokens that were revoked since. The log does not have revocations of tokens."""
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    first = scene.restore()
    scene.start()
    text, _ = scene.stand.token(Role.OPERATOR, "*", "mallory")
    scene.notary.close()
    second = scene.restore(replace(scene.order, again=True))
    assert (second.tokens, second.new_epoch, second.repeated) == (1, first.new_epoch + 1, False)
    refused(lambda: scene.start().access.authenticate(text), "token_revoked")
    scene.activate_new_epoch()
    assert scene.notary.readiness() == ()


def test_a_restore_revokes_every_token_of_the_backup(scene: Scene) -> None:
    revoked, grant = scene.stand.token(Role.OPERATOR, "*", "mallory")
    kept, _ = scene.stand.token(Role.PRODUCER, "sales", "nightly")
    scene.back_up()
    scene.notary.access.revoke(grant.token_id)
    scene.stand.proved("after")
    scene.lose_the_database()
    assert scene.restore().tokens == 2
    notary = scene.start()
    for text in (revoked, kept):
        refused(functools.partial(notary.access.authenticate, text), "token_revoked")
    fresh, _ = scene.stand.token(Role.OPERATOR, "*", "ruth")
    assert notary.access.authenticate(fresh).name == "ruth"


def test_an_unused_override_of_the_backup_is_void(scene: Scene) -> None:
    """It is refused again, and so are others with its nonce or its time. The reason does not say that it was used."""
    recorded = scene.stand.proved("failed", passed=False)
    now = scene.notary.clock.now_micros()
    override = override_of(recorded, core_of("failed"), now)
    view = scene.notary.overrides.submit(signed_override(override), scene.stand.grant())
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    assert scene.restore().nonces == 1
    notary, grant = scene.start(), scene.stand.grant()
    with notary.ledger.read() as unit:
        found = nonces.find(unit, view.nonce)
    assert found is not None
    assert found.state is NonceState.ABORTED
    refused(lambda: notary.overrides.submit(signed_override(override), grant), "override_before_restore")
    refused(lambda: notary.override_staging.stage_override(grant, view.override_id), "override_before_restore")
    same_nonce = replace(override, reason="another reason")
    refused(lambda: notary.overrides.submit(signed_override(same_nonce), grant), "override_before_restore")
    other = override_of(recorded, core_of("failed"), now, nonce="another")
    refused(lambda: notary.overrides.submit(signed_override(other), grant), "override_before_restore")


def test_an_override_from_after_the_backup_is_refused(scene: Scene) -> None:
    recorded = scene.stand.proved("failed", passed=False)
    scene.back_up()
    envelope = signed_override(override_of(recorded, core_of("failed"), scene.notary.clock.now_micros()))
    scene.notary.overrides.submit(envelope, scene.stand.grant())
    scene.lose_the_database()
    scene.restore()
    notary, grant = scene.start(), scene.stand.grant()
    refused(lambda: notary.overrides.submit(envelope, grant), "override_before_restore")


def test_an_override_that_was_used_after_the_backup_is_refused_as_used(scene: Scene) -> None:
    recorded = scene.stand.proved("failed", passed=False)
    scene.back_up()
    envelope = signed_override(override_of(recorded, core_of("failed"), scene.notary.clock.now_micros()))
    view = scene.notary.overrides.submit(envelope, scene.stand.grant())
    scene.publish("failed", recorded, override_id=view.override_id)
    scene.lose_the_database()
    scene.restore()
    notary, grant = scene.start(), scene.stand.grant()
    refused(lambda: notary.overrides.submit(envelope, grant), "override_replayed")


def test_an_override_that_was_signed_after_the_restore_is_accepted(scene: Scene) -> None:
    recorded = scene.stand.proved("failed", passed=False)
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    scene.restore()
    notary = scene.start()
    scene.stand.time.pass_by(SECOND)
    override = override_of(recorded, core_of("failed"), notary.clock.now_micros())
    assert notary.overrides.submit(signed_override(override), scene.stand.grant()).state == NonceState.RESERVED


def test_an_unanswered_challenge_of_the_backup_is_void(scene: Scene) -> None:
    grant = scene.stand.grant(Role.ATTESTOR, "payments", "source-payments")
    fingerprint = bytes.fromhex(ATTESTATION.schema_fingerprint)
    request = ChallengeRequest(
        ATTESTATION.nonce,
        SOURCE.catalog,
        SOURCE.uuid,
        ATTESTATION.snapshot_id,
        Mode.STORED,
        ((ProjectionName.CONTENT, fingerprint),),
    )
    scene.notary.attestations.challenge(grant, request)
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    assert scene.restore().nonces == 1
    with scene.start().ledger.read() as unit:
        found = nonces.find(unit, ATTESTATION.nonce)
    assert found is not None
    assert found.state is NonceState.ABORTED


def test_an_epoch_that_the_keystore_knows_as_created_is_revoked_if_the_log_says_so(scene: Scene) -> None:
    scene.notary.epochs.create("rotation")
    scene.back_up()
    put_back = scene.keep_keys()
    scene.name_epochs()
    scene.notary.epochs.activate(2, "rotation")
    scene.notary.epochs.revoke(2, "leaked")
    scene.lose_the_database()
    put_back()
    scene.restore()
    scene.start()
    assert scene.epochs() == [(1, EpochStage.RETIRED), (2, EpochStage.REVOKED), (3, EpochStage.CREATED)]


def test_a_log_key_that_the_operator_gives_is_stored_for_the_next_try(scene: Scene) -> None:
    scene.back_up()
    put_back = scene.keep_keys()
    scene.rotate()
    scene.stand.proved("under-epoch-2")
    der = scene.notary.keys.public_key(KeyRole.LOG, 2).der
    scene.lose_the_database()
    put_back()
    hint = str(refused(scene.restore, "note_key_unknown").hint)
    assert ("--log-key FILE.pub, once for each" in hint, "root fetch" in hint) == (True, False)
    order = replace(scene.order, log_keys=(der,))
    with (
        fault.armed("steward.restore.after_refill", fault.Raise(KeyboardInterrupt())),
        pytest.raises(KeyboardInterrupt),
    ):
        scene.restore(order)
    scene.restore()
    notary = scene.start()
    assert scene.epochs() == [(1, EpochStage.RETIRED), (3, EpochStage.CREATED)]
    notary.recorder.require_consistent()


def test_a_restore_confirms_a_jumped_clock_only_if_asked_to(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    scene.stand.time.pass_by(100 * DAY)
    error = refused(scene.restore, "clock_jumped")
    assert error.hint is not None
    assert "--confirm-clock" in error.hint
    scene.restore(replace(scene.order, confirm_clock=True))
    assert scene.start().clock.now_micros() == scene.stand.time.wall
    with scene.notary.ledger.read() as unit:
        assert [each.row_key for each in events.page(unit) if each.kind == "clock_confirmed"] == [ORDER.operator]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"operator": "somebody else!"}, "document_value_invalid"),
        ({"reason": "x" * 1_025}, "epoch_reason"),
        ({"reason": " "}, "epoch_reason"),
    ],
)
def test_an_operator_or_reason_that_cannot_be_signed_stops_a_restore_before_it_begins(
    scene: Scene, changed: dict[str, str], code: str
) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    before = scene.ledger.read_bytes()
    refused(lambda: scene.restore(replace(scene.order, **changed)), code)  # type: ignore[arg-type]
    assert scene.ledger.read_bytes() == before


def test_entries_of_the_archive_beyond_the_outside_checkpoint_are_refilled(scene: Scene) -> None:
    """As after a crash between the write of the archive and that of the outside checkpoint."""
    scene.back_up()
    core = scene.stand.verifying("after")
    with fault.armed("steward.after_outside", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        scene.stand.record(core)
    scene.lose_the_database()
    scene.stand.config.outside_path.write_bytes(newest_checkpoint(scene))
    refused(lambda: scene.restore(ORDER), "restore_entries_missing")
    assert scene.restore().refilled == 1
    scene.start()
