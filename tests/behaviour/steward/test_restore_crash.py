"""A restore that is interrupted anywhere is finished by the next one. Until then no Steward starts on its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger.record import restores
from pvdm.ledger.work import attempts
from pvdm.model.statements.epoch import EpochStage, EpochStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.model.states import AttemptState
from pvdm.steward.notary import create_notary
from pvdm.steward.restore.restore import RestoreResult
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.statement import read_statement
from tests.support import fault
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import LOG_ORIGIN, core_of
from tests.support.steward.restore import NEW_ORIGIN, ORDER, Scene, refused, scene_at

CREATED, ACTIVE, RETIRED, REVOKED = EpochStage
# Each point with the number of times that it is passed before the crash.
COMMITS = [(point, passes) for point in ("ledger.before_commit", "ledger.after_commit") for passes in range(3)]
POINTS = [
    *COMMITS,
    ("steward.restore.after_refill", 0),
    ("keys.after_make", 0),
    *((point, passes) for point in ("keys.disk.after_temp", "keys.disk.after_rename") for passes in range(2)),
    ("steward.restore.after_epoch", 0),
    ("steward.before_outside", 0),
    ("steward.after_outside", 0),
    ("steward.after_epoch_step", 0),
]
GIVING_UP_POINTS = [
    *COMMITS,
    ("steward.restore.after_refill", 0),
    ("steward.restore.after_epoch", 0),
    ("steward.restore.before_swap", 0),
    ("steward.restore.after_keep", 0),
    ("steward.after_epoch_step", 0),
]


class CrashError(BaseException):
    """Stands for a power failure."""


@pytest.fixture
def scene() -> Iterator[Scene]:
    with memory_folder() as folder, scene_at(folder) as made:
        made.stand.proved("outstanding")
        made.wait_for_commit("outstanding")
        made.back_up()
        made.publish("gone", made.stand.proved("gone"))
        made.lose_the_database()
        yield made


def interrupt_restore(scene: Scene, point: str, passes: int = 0) -> None:
    with fault.armed(point, fault.Raise(CrashError()), passes=passes), pytest.raises(CrashError):
        scene.restore()


def try_start(scene: Scene) -> bool:
    """Start the Steward if the restore is finished; returns whether it started."""
    try:
        scene.start()
    except PvdmError as error:
        reason = error.reason
    else:
        return True
    # steward_differs: the configuration has the new name of the log already, and the ledger still has the old one.
    assert reason in {"restore_unfinished", "log_behind_checkpoint", "steward_differs"}
    return False


def require_restored(scene: Scene) -> None:
    """Require what every finished restore of this scene leaves, whether it was interrupted or not."""
    assert len(scene.statements(StatementKind.RESTORE)) == 1
    with scene.notary.ledger.read() as unit:
        state = attempts.get(unit, core_of("outstanding").attempt.attempt_id).state
        assert state is AttemptState.ROLLED_BACK
        lost_id = core_of("gone").attempt.workload_id
        refused(lambda: restores.require_not_published_in_lost_time(unit, lost_id), "workload_spent")
        assert restores.find_unfinished(unit) is None


@pytest.mark.parametrize(("point", "passes"), POINTS)
def test_an_interrupted_restore_is_finished_by_the_next_one(scene: Scene, point: str, passes: int) -> None:
    interrupt_restore(scene, point, passes)
    if not try_start(scene):
        done = scene.restore()
        assert (done.backup_size, done.outside_size, done.refilled, done.lost) == (4, 6, 2, 0)
        assert done.spent == (core_of("gone").attempt.workload_id,)
        assert done.abandoned == (core_of("outstanding").attempt.workload_id,)
        scene.start()
    require_restored(scene)
    assert scene.epochs() == [(1, RETIRED), (2, CREATED)]
    logged = [read_epoch_step(each.envelope) for each in scene.statements(StatementKind.EPOCH)]
    assert logged == [(1, CREATED), (1, ACTIVE), (1, RETIRED), (2, CREATED)]


def read_epoch_step(envelope: bytes) -> tuple[int, EpochStage]:
    statement = read_statement(parse_envelope(envelope).payload, EpochStatement)
    return statement.epoch, statement.after


@pytest.mark.parametrize("point", ["steward.restore.after_refill", "steward.restore.after_epoch"])
def test_nothing_else_starts_while_a_restore_is_unfinished(scene: Scene, point: str) -> None:
    interrupt_restore(scene, point)
    error = refused(scene.start, "restore_unfinished")
    assert error.hint is not None
    assert "pvdm steward restore" in error.hint
    time = scene.stand.time
    refused(
        lambda: create_notary(
            scene.stand.config, reason="again", wall=lambda: time.wall, monotonic=lambda: time.monotonic
        ),
        "restore_unfinished",
    )


def test_a_restore_is_finished_under_the_operator_who_began_it(scene: Scene) -> None:
    interrupt_restore(scene, "steward.restore.after_refill")
    scene.restore(replace(ORDER, operator="operator-ruth", reason="again", archive=scene.stand.config.archive))
    scene.start()
    (statement,) = scene.statements(StatementKind.RESTORE)
    assert b"operator-tom" in parse_envelope(statement.envelope).payload


def test_an_unfinished_restore_cannot_continue_under_another_name_of_the_log(scene: Scene) -> None:
    interrupt_restore(scene, "steward.restore.after_refill")
    scene.stand.config = replace(scene.stand.config, origin=NEW_ORIGIN, archive=None)
    refused(lambda: scene.restore(ORDER), "restore_origin_changed")


@pytest.mark.parametrize(("point", "passes"), GIVING_UP_POINTS)
def test_an_interrupted_restore_that_gives_up_entries_is_finished_by_the_next_one(
    scene: Scene, point: str, passes: int
) -> None:
    scene.stand.config = replace(scene.stand.config, origin=NEW_ORIGIN, archive=None)
    scene.order = replace(ORDER, lost_origin=LOG_ORIGIN)
    outside = scene.stand.config.outside_path
    old = outside.read_bytes()
    interrupt_restore(scene, point, passes)
    assert outside.exists()
    if not try_start(scene):
        again: RestoreResult = scene.restore()
        assert (again.lost, again.refilled, again.new_epoch) == (2, 0, 2)
        scene.start()
    assert scene.epochs() == [(1, REVOKED), (2, ACTIVE)]
    assert len(scene.statements(StatementKind.RESTORE)) == 1
    assert read_unverified(outside.read_bytes()).checkpoint.origin == NEW_ORIGIN
    assert [path.read_bytes() for path in outside.parent.glob("checkpoint.lost*")] == [old]
