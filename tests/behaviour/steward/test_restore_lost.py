"""A restore gives up log entries that no archive has: the log gets a new name and new keys, and old files are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import InputError
from pvdm.model.statements.epoch import EpochStage
from pvdm.steward.restore.restore import RestoreRequest
from pvdm.trust.log.checkpoint import read_unverified
from tests.support.steward.notary import LOG_ORIGIN
from tests.support.steward.restore import NEW_ORIGIN, ORDER, Scene, refused, scene_at

CREATED, ACTIVE, RETIRED, REVOKED = EpochStage


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_at(tmp_path / "steward") as made:
        yield made


def give_up_entries(scene: Scene, archive: Path | None = None) -> RestoreRequest:
    """Configure a new name and archive of the log. Returns the request that gives up the missing entries."""
    scene.stand.config = replace(scene.stand.config, origin=NEW_ORIGIN, archive=archive)
    return replace(ORDER, lost_origin=LOG_ORIGIN)


def test_a_log_whose_missing_entries_are_given_up_continues_under_a_new_name(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    scene.stand.config = replace(scene.stand.config, origin=NEW_ORIGIN, archive=None)
    done = scene.restore(replace(ORDER, lost_origin=LOG_ORIGIN))
    assert (done.refilled, done.lost) == (0, 1)
    notary = scene.start()
    newest = read_unverified(notary.log.checkpoint()).checkpoint
    assert newest.origin == NEW_ORIGIN
    kept = scene.stand.config.outside_path.with_name("checkpoint.lost-1")
    assert read_unverified(kept.read_bytes()).checkpoint.size == done.outside_size
    scene.activate_new_epoch()
    assert notary.readiness() == ()
    scene.stand.proved("again")


def test_a_restore_that_gives_up_entries_under_the_old_name_is_refused(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    with pytest.raises(InputError) as caught:
        scene.restore(replace(ORDER, lost_origin=LOG_ORIGIN))
    assert caught.value.reason == "restore_origin_same"


def test_a_new_name_is_refused_if_no_entry_is_missing(scene: Scene) -> None:
    scene.stand.verifying("under-way")
    scene.notary.close()
    before = scene.ledger.read_bytes()
    order = give_up_entries(scene)
    refused(lambda: scene.restore(order), "restore_nothing_lost")
    assert scene.ledger.read_bytes() == before


def test_a_new_name_is_refused_if_the_archive_has_every_entry(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    archive = scene.stand.config.archive
    scene.lose_the_database()
    order = replace(give_up_entries(scene), archive=archive)
    refused(lambda: scene.restore(order), "restore_nothing_lost")


def test_the_archive_of_the_old_name_is_not_written_under_the_new_one(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    old = scene.stand.config.archive
    assert old is not None
    scene.lose_the_database()
    order = give_up_entries(scene, archive=old)
    before = scene.ledger.read_bytes()
    refused(lambda: scene.restore(order), "restore_archive_taken")
    assert scene.ledger.read_bytes() == before
    order = give_up_entries(scene, archive=old.with_name("archive-2"))
    scene.restore(order)
    scene.start()
    scene.activate_new_epoch()
    scene.stand.proved("again")


def test_entries_of_the_old_archive_are_refilled_before_the_others_are_given_up(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("archived")
    archive = scene.stand.config.archive
    assert archive is not None
    scene.stand.config = replace(scene.stand.config, archive=None)
    scene.notary.close()
    scene.start()
    scene.stand.proved("not-archived")
    scene.lose_the_database()
    order = replace(give_up_entries(scene), archive=archive)
    done = scene.restore(order)
    assert (done.refilled, done.lost) == (1, 1)
    scene.start()


def test_every_old_epoch_is_revoked_if_entries_are_given_up(scene: Scene) -> None:
    scene.rotate()
    scene.notary.epochs.create("the next one")
    scene.back_up()
    put_back = scene.keep_keys()
    scene.notary.epochs.revoke(1, "stolen")
    scene.lose_the_database()
    put_back()
    scene.restore(give_up_entries(scene))
    scene.start()
    assert scene.epochs() == [(1, REVOKED), (2, REVOKED), (3, REVOKED), (4, ACTIVE)]


def test_checkpoints_of_lost_logs_are_all_kept(scene: Scene) -> None:
    outside = scene.stand.config.outside_path
    earlier = outside.with_name("checkpoint.lost-1")
    earlier.write_bytes(b"of an earlier loss")
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    old = outside.read_bytes()
    scene.restore(give_up_entries(scene))
    assert earlier.read_bytes() == b"of an earlier loss"
    assert outside.with_name("checkpoint.lost-2").read_bytes() == old
