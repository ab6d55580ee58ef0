"""Attacks on the Steward that once worked: one check stops each, and its test fails without that check."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger.record import tokens
from pvdm.ledger.work import attempts, nonces
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.notary import Notary
from pvdm.trust.log import outside
from pvdm.trust.root import Thresholds, TrustRoot
from tests.support import fault
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import count_overrides
from tests.support.steward.notary import (
    Stand,
    failed,
    opened,
    override_of,
    root_naming,
    signed_override,
    signed_root,
    stand_at,
)
from tools.proof_kit import NOW, SECOND


class _GoneError(Exception):
    """The disk of the outside checkpoint is gone."""


@pytest.fixture
def stand() -> Iterator[Stand]:
    with memory_folder() as folder, stand_at(folder) as made:
        yield made


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def rotate(stand: Stand) -> Notary:
    """Rotate the keys: epoch 2 is then active, and epoch 1 retired."""
    notary = stand.notary
    notary.epochs.create("rotation")
    root = notary.trust.current()
    notary.trust.accept(signed_root(root_naming(*notary.epochs.book().epochs, version=2, previous=root.sha256)))
    notary.epochs.activate(2, "rotation")
    return notary


def test_an_old_copy_of_the_keystore_brings_no_revoked_epoch_back(stand: Stand) -> None:
    notary = rotate(stand)
    keys = stand.folder / "keys"
    old = keys.read_bytes()
    notary.epochs.revoke(1, "leaked")
    notary.close()
    keys.write_bytes(old)
    assert reason_of(lambda: opened(stand.config, stand.time)) == "epoch_book_rolled_back"


def test_an_old_copy_of_the_keystore_lets_no_epoch_number_be_used_twice(stand: Stand) -> None:
    keys = stand.folder / "keys"
    old = keys.read_bytes()
    stand.notary.epochs.create("rotation")
    stand.notary.close()
    keys.write_bytes(old)
    assert reason_of(lambda: opened(stand.config, stand.time)) == "epoch_book_rolled_back"


def test_an_old_keystore_under_a_running_steward_gets_no_new_epoch(stand: Stand) -> None:
    notary = stand.notary
    keys = stand.folder / "keys"
    old = keys.read_bytes()
    notary.epochs.create("rotation")
    keys.write_bytes(old)
    with pytest.raises(PvdmError) as caught:
        notary.epochs.create("again")
    assert caught.value.reason in ("epoch_book_rolled_back", "keystore_rolled_back")


def test_a_running_steward_whose_database_is_rolled_back_signs_no_second_history(stand: Stand) -> None:
    core = stand.verifying("b")
    backup = stand.folder / "backup.db"
    copy_database(stand.folder / "ledger.db", backup)
    stand.proved("a")
    copy_database(backup, stand.folder / "ledger.db")
    assert reason_of(lambda: stand.record(core)) == "log_behind_checkpoint"
    assert stand.notary.log.size() < stand.notary.outside.load().checkpoint.size  # type: ignore[union-attr]
    assert "log_behind_checkpoint" in [error.reason for error in stand.notary.readiness()]


def copy_database(source: Path, target: Path) -> None:
    read, write = sqlite3.connect(source), sqlite3.connect(target)
    try:
        read.backup(write)
    finally:
        read.close()
        write.close()


def test_entries_that_the_outside_checkpoint_does_not_cover_are_not_shown(stand: Stand) -> None:
    core = stand.verifying("one")
    with (
        fault.armed("steward.before_outside", fault.Raise(_GoneError())),
        pytest.raises(_GoneError),
    ):
        stand.record(core)
    folder = stand.config.outside_path.parent
    hidden = folder.with_name("unmounted")
    folder.rename(hidden)
    grant = stand.grant(Role.AUDITOR)
    for call in (
        lambda: stand.notary.proofs.list_proofs(grant),
        stand.notary.log.checkpoint,
        lambda: stand.notary.log.proof(3),
        lambda: stand.notary.log.tile("tile/0/000.p/4"),
        lambda: stand.notary.log.consistency(3, 4),
    ):
        assert reason_of(call) == "outside_checkpoint_unavailable"
    hidden.rename(folder)
    assert [view.log_index for view in stand.notary.proofs.list_proofs(grant)] == [3]


def test_a_revoked_token_is_refused_by_a_steward_whose_clock_lags(stand: Stand) -> None:
    token, grant = stand.notary.access.issue(Role.AUDITOR, domain="*", name="audit", lifetime_seconds=86_400)
    ahead = stand.notary.clock.now_micros() + 240 * SECOND
    stand.notary.ledger.transact(lambda unit: tokens.revoke(unit, grant.token_id), at_micros=ahead)
    assert stand.notary.clock.trusted_micros() < ahead
    assert reason_of(lambda: stand.notary.access.authenticate(token.reveal())) == "token_revoked"


def test_a_token_can_be_revoked_while_the_time_is_in_doubt(stand: Stand) -> None:
    token, grant = stand.notary.access.issue(Role.AUDITOR, domain="*", name="audit", lifetime_seconds=86_400)
    stand.time.jump(365 * 86_400 * SECOND)
    stand.notary.access.revoke(grant.token_id)
    assert reason_of(lambda: stand.notary.access.authenticate(token.reveal())) == "token_revoked"


@pytest.mark.parametrize("state", [AttemptState.VERIFYING, AttemptState.COMMITTING])
def test_a_producer_cannot_abort_an_attempt_that_is_verifying_or_committing(stand: Stand, state: AttemptState) -> None:
    core = stand.verifying("one")
    if state is AttemptState.COMMITTING:
        stand.notary.ledger.transact(
            lambda unit: attempts.begin_committing(unit, core.attempt.attempt_id, reason="PASS"),
            at_micros=stand.notary.clock.now_micros(),
        )
    producer = stand.grant(Role.PRODUCER, "sales", "job")
    abort = partial(stand.notary.work.abort, producer, core.attempt.attempt_id, "I changed my mind", lease_number=1)
    assert reason_of(abort) == "attempt_not_staging"
    with stand.notary.ledger.read() as unit:
        assert attempts.get(unit, core.attempt.attempt_id).state is state


def test_the_last_epoch_is_kept_even_if_two_are_revoked_at_once(stand: Stand) -> None:
    notary = rotate(stand)
    notary.keys.revoke_epoch(1, "leaked", keep_a_signing_epoch=True)
    assert reason_of(lambda: notary.keys.revoke_epoch(2, "leaked", keep_a_signing_epoch=True)) == "epoch_last"


def test_a_trust_root_that_revokes_the_stewards_own_keys_makes_it_not_ready(stand: Stand) -> None:
    notary = stand.notary
    root = notary.trust.current()
    active = notary.epochs.book().active
    assert active is not None
    revoking = root_naming(active, version=2, previous=root.sha256)
    keys = tuple(replace(key, revoked_at=NOW) if key.identity == "steward-one" else key for key in revoking.keys)
    notary.trust.accept(signed_root(TrustRoot(2, root.sha256, NOW, NOW + 10**12, keys, Thresholds(1, 2))))
    assert "key_revoked" in [error.reason for error in notary.readiness()]


def test_a_second_override_of_a_fail_proof_is_refused_until_the_first_one_ends(stand: Stand) -> None:
    core = failed(stand.verifying("one"))
    recorded = stand.record(core)
    now = stand.notary.clock.now_micros()
    first = signed_override(override_of(recorded, core, now))
    stand.notary.overrides.submit(first, stand.grant())
    second = signed_override(override_of(recorded, core, now, nonce="another"))
    assert reason_of(lambda: stand.notary.overrides.submit(second, stand.grant())) == "override_exists"
    stand.notary.ledger.transact(
        lambda unit: nonces.abort(unit, override_of(recorded, core, now).nonce, reason="expired"), at_micros=now
    )
    stand.notary.overrides.submit(second, stand.grant())


def test_an_override_judged_by_an_older_trust_root_is_not_logged_after_a_newer_one(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    notary = stand.notary
    core = failed(stand.verifying("one"))
    envelope = signed_override(override_of(stand.record(core), core, notary.clock.now_micros()))
    record = notary.recorder.record
    root = notary.trust.current()
    active = notary.epochs.book().active
    assert active is not None

    def accept_root_then_record(_: object, documents: object, work: object) -> object:
        monkeypatch.undo()
        notary.trust.accept(signed_root(root_naming(active, version=2, previous=root.sha256)))
        return record(documents, work)  # type: ignore[arg-type]

    monkeypatch.setattr(type(notary.recorder), "record", accept_root_then_record)
    assert reason_of(lambda: notary.overrides.submit(envelope, stand.grant())) == "trust_root_moved"
    assert count_overrides(notary) == 0


def test_a_held_outside_lock_delays_the_steward_for_a_limited_time(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "OUTSIDE_LOCK_MAX_SECONDS", 0.2)
    core = stand.verifying("one")
    lock = stand.config.outside_path.with_name(stand.config.outside_path.name + ".lock")
    assert lock.stat().st_mode & 0o077 == 0
    held = os.open(lock, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert reason_of(lambda: stand.record(core)) == "outside_checkpoint_unavailable"
    finally:
        os.close(held)
    assert stand.record(core).log_index == 3


def test_a_steward_whose_archive_has_more_entries_than_its_ledger_does_not_start(tmp_path: Path) -> None:
    folder = tmp_path / "steward"
    with stand_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as stand:
        stand.notary.close()
        shutil.copy(folder / "ledger.db", folder / "backup.db")
        checkpoint = stand.config.outside_path.read_bytes()
        stand.notary = opened(stand.config, stand.time)
        stand.proved("one")
        stand.notary.close()
        # The archive has the entry; the ledger and the outside checkpoint do not.
        shutil.copy(folder / "backup.db", folder / "ledger.db")
        stand.config.outside_path.write_bytes(checkpoint)
        assert reason_of(lambda: opened(stand.config, stand.time)) == "log_behind_checkpoint"
