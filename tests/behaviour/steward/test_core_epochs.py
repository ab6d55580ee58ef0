"""Epochs (generations of keys): every step is signed and logged once, in order, and one epoch can always sign."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger.record import statements
from pvdm.model.statements.epoch import EpochStage, EpochStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.record.epochs import missing_steps
from pvdm.steward.record.log import LogQueries
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.checkpoint import open_checkpoint
from pvdm.trust.log.note import NoteKey
from pvdm.trust.verify import VerifiedStatement, verify_statement
from tests.support import fault
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import LOG_ORIGIN, Stand, opened, root_naming, signed_root, stand_at

CREATED, ACTIVE, RETIRED, REVOKED = EpochStage


@pytest.fixture
def stand() -> Iterator[Stand]:
    with memory_folder() as folder, stand_at(folder) as made:
        yield made


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def list_epoch_statements(stand: Stand) -> list[VerifiedStatement[EpochStatement]]:
    """Every epoch statement in the log's order, each verified under the newest trust root."""
    with stand.notary.ledger.read() as unit:
        stored = statements.list_by_kind(unit, StatementKind.EPOCH)
    root, now = stand.notary.trust.current(), stand.time.wall
    return [verify_statement(statement.envelope, root, EpochStatement, now=now) for statement in stored]


def steps(stand: Stand) -> list[tuple[int, EpochStage | None, EpochStage]]:
    return [
        (each.predicate.epoch, each.predicate.before, each.predicate.after) for each in list_epoch_statements(stand)
    ]


def accept_root_with_all_epochs(stand: Stand) -> None:
    """Accept the next trust root, which names every epoch of the book."""
    current = stand.notary.trust.current()
    root = root_naming(*stand.notary.epochs.book().epochs, version=current.version + 1, previous=current.sha256)
    stand.notary.trust.accept(signed_root(root))


def rotate(stand: Stand) -> None:
    stand.notary.epochs.create("rotation")
    accept_root_with_all_epochs(stand)
    stand.notary.epochs.activate(2, "rotation")


FIRST_STEPS: list[tuple[int, EpochStage | None, EpochStage]] = [(1, None, CREATED), (1, CREATED, ACTIVE)]


def test_the_first_epoch_is_created_and_activated_in_the_log(stand: Stand) -> None:
    assert steps(stand) == FIRST_STEPS


def test_a_rotation_is_logged_step_by_step_each_once(stand: Stand) -> None:
    rotate(stand)
    assert steps(stand) == [*FIRST_STEPS, (2, None, CREATED), (1, ACTIVE, RETIRED), (2, CREATED, ACTIVE)]


def test_a_revocation_of_a_retired_epoch_is_one_step(stand: Stand) -> None:
    rotate(stand)
    stand.notary.epochs.revoke(1, "leaked")
    assert steps(stand)[5:] == [(1, RETIRED, REVOKED)]


def test_a_revocation_of_the_active_epoch_is_two_steps(stand: Stand) -> None:
    rotate(stand)
    stand.notary.epochs.revoke(2, "leaked")
    assert steps(stand)[5:] == [(2, ACTIVE, RETIRED), (2, RETIRED, REVOKED)]


def test_a_retirement_is_one_step(stand: Stand) -> None:
    stand.notary.epochs.retire(1, "pause")
    assert steps(stand) == [*FIRST_STEPS, (1, ACTIVE, RETIRED)]


def test_an_epoch_statement_has_the_reason_the_key_ids_and_the_time(stand: Stand) -> None:
    stand.notary.epochs.retire(1, "the yearly pause")
    last = list_epoch_statements(stand)[-1].predicate
    keys = stand.notary.keys
    wanted = {role.value: keys.public_key(role, 1).key_id for role in (KeyRole.SIGNING, KeyRole.LOG)}
    assert (last.reason, dict(last.key_ids), last.issued_at) == ("the yearly pause", wanted, stand.time.wall)


def test_nothing_is_logged_twice_when_the_steward_starts_again(stand: Stand) -> None:
    rotate(stand)
    before, size = steps(stand), stand.notary.log.size()
    stand.reopen()
    assert (steps(stand), stand.notary.log.size()) == (before, size)


def test_each_step_is_an_entry_of_its_own(stand: Stand) -> None:
    rotate(stand)
    log: LogQueries = stand.notary.log
    kinds = [json.loads(entry_of(stand.notary, index))["kind"] for index in range(log.size())]
    assert kinds == ["epoch", "epoch", "trust-root", "epoch", "trust-root", "epoch", "epoch"]


def test_an_epoch_that_no_trust_root_names_is_not_activated(stand: Stand) -> None:
    stand.notary.epochs.create("rotation")
    size = stand.notary.log.size()
    assert reason_of(lambda: stand.notary.epochs.activate(2, "rotation")) == "trust_root_lacks_epoch"
    assert (stand.notary.epochs.book().epoch(2).state, stand.notary.log.size()) == (CREATED, size)


def test_without_a_trust_root_no_epoch_is_activated() -> None:
    with memory_folder() as folder, stand_at(folder, rooted=False) as stand:
        stand.notary.epochs.create("rotation")
        assert reason_of(lambda: stand.notary.epochs.activate(2, "rotation")) == "steward_without_root"


def test_an_unknown_epoch_is_not_activated(stand: Stand) -> None:
    assert reason_of(lambda: stand.notary.epochs.activate(9, "rotation")) == "epoch_unknown"


def test_the_last_epoch_that_can_sign_is_not_revoked(stand: Stand) -> None:
    stand.notary.epochs.create("not active yet")
    size = stand.notary.log.size()
    assert reason_of(lambda: stand.notary.epochs.revoke(1, "leaked")) == "epoch_last"
    assert (stand.notary.epochs.book().epoch(1).state, stand.notary.log.size()) == (ACTIVE, size)


def test_the_last_epoch_is_not_revoked_after_the_others_either(stand: Stand) -> None:
    rotate(stand)
    stand.notary.epochs.revoke(1, "leaked")
    assert reason_of(lambda: stand.notary.epochs.revoke(2, "leaked too")) == "epoch_last"


def test_an_epoch_that_was_never_active_is_not_revoked(stand: Stand) -> None:
    stand.notary.epochs.create("never used")
    assert reason_of(lambda: stand.notary.epochs.revoke(2, "unused")) == "epoch_transition"


def test_a_step_without_a_reason_is_refused(stand: Stand) -> None:
    size = stand.notary.log.size()
    assert reason_of(lambda: stand.notary.epochs.create(" ")) == "epoch_reason"
    assert stand.notary.log.size() == size


def test_a_retired_epoch_still_signs_for_a_steward_without_an_active_one(stand: Stand) -> None:
    stand.notary.epochs.retire(1, "pause")
    stand.reopen()
    stand.notary.epochs.create("the end of the pause")
    assert list_epoch_statements(stand)[-1].key.public == stand.notary.keys.public_key(KeyRole.SIGNING, 1)


def test_after_a_rotation_the_new_epoch_signs_the_log(stand: Stand) -> None:
    rotate(stand)
    key = NoteKey(LOG_ORIGIN, stand.notary.keys.public_key(KeyRole.LOG, 2).der)
    note = stand.notary.log.checkpoint()
    assert open_checkpoint(note, origin=LOG_ORIGIN, keys=[key]).checkpoint.size == stand.notary.log.size()


def test_the_outside_checkpoint_is_the_newest_after_a_rotation_and_a_revocation(stand: Stand) -> None:
    rotate(stand)
    stand.notary.epochs.revoke(1, "leaked")
    assert stand.config.outside_path.read_bytes() == stand.notary.log.checkpoint()
    stand.reopen()
    assert stand.notary.readiness() == ()


def test_a_step_that_was_made_by_a_dying_steward_is_logged_by_another_that_runs(stand: Stand) -> None:
    other = opened(stand.config, stand.time)
    dies = fault.armed("steward.after_epoch_step", fault.Raise(KeyboardInterrupt()))
    with dies, pytest.raises(KeyboardInterrupt):
        other.epochs.create("dies on the way")
    other.close()
    assert steps(stand) == FIRST_STEPS
    stand.notary.epochs.create("the next")
    assert steps(stand)[2:] == [(2, None, CREATED), (3, None, CREATED)]


def test_two_stewards_that_find_the_same_step_missing_log_it_once(stand: Stand) -> None:
    other = opened(stand.config, stand.time)
    stand.notary.keys.create_epoch("made, not logged")
    real = stand.notary.recorder.record

    def record_after_the_other(*args: object) -> tuple[int, ...]:
        patch.undo()
        other.epochs.log_missing("found by the other")
        return real(*args)  # type: ignore[arg-type]

    patch = pytest.MonkeyPatch()
    patch.setattr(stand.notary.recorder, "record", record_after_the_other)
    stand.notary.epochs.log_missing("found by the first")
    other.close()
    assert steps(stand)[2:] == [(2, None, CREATED)]
    assert list_epoch_statements(stand)[-1].predicate.reason == "found by the other"


def test_missing_steps_are_those_of_the_book_that_the_log_lacks(stand: Stand) -> None:
    rotate(stand)
    book = stand.notary.epochs.book()
    found = [(epoch.number, before, after) for epoch, before, after in missing_steps(book, {1: ACTIVE})]
    assert found == [(1, ACTIVE, RETIRED), (2, None, CREATED), (2, CREATED, ACTIVE)]
    assert missing_steps(book, {1: RETIRED, 2: ACTIVE}) == []


def test_a_step_is_signed_by_an_epoch_that_may_still_sign(stand: Stand) -> None:
    rotate(stand)
    stand.notary.epochs.revoke(2, "leaked")
    with stand.notary.ledger.read() as unit:
        stored = statements.list_by_kind(unit, StatementKind.EPOCH)
    signer = parse_envelope(stored[-1].envelope).signature.key_id
    assert signer == stand.notary.keys.public_key(KeyRole.SIGNING, 1).key_id
