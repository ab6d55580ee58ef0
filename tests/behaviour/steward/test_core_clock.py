"""Clock and readiness: after a jump the Steward signs nothing until an operator confirms, but still accepts tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger.record import events
from pvdm.model.role import Role
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import Stand, Time, config_at, created, opened, signed_root, stand_at
from tools.proof_kit import DAY, SECOND

HOUR = 3_600 * SECOND


@pytest.fixture
def stand() -> Iterator[Stand]:
    with memory_folder() as folder, stand_at(folder) as made:
        yield made


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def readiness_reasons(stand: Stand) -> list[str]:
    return [error.reason for error in stand.notary.readiness()]


def log_times(stand: Stand) -> list[int]:
    log = stand.notary.log
    return [json.loads(entry_of(stand.notary, index))["time"] for index in range(log.size())]


def test_a_steward_with_all_it_needs_is_ready(stand: Stand) -> None:
    assert readiness_reasons(stand) == []


def test_after_a_jump_nothing_is_signed(stand: Stand) -> None:
    core = stand.verifying()
    stand.time.jump(HOUR)
    assert reason_of(lambda: stand.record(core)) == "clock_jumped"
    assert stand.notary.log.size() == 3
    assert readiness_reasons(stand) == ["clock_jumped"]


def test_after_a_jump_a_token_is_still_accepted(stand: Stand) -> None:
    text, grant = stand.token()
    stand.time.jump(365 * DAY)
    assert stand.notary.access.authenticate(text) == grant


def test_after_a_jump_a_token_still_expires_at_the_end_of_its_lifetime(stand: Stand) -> None:
    text, _ = stand.token()
    stand.time.jump(365 * DAY)
    stand.time.pass_by(30 * DAY)
    assert reason_of(lambda: stand.notary.access.authenticate(text)) == "token_expired"


def test_after_an_operators_confirmation_the_steward_is_ready_and_signs_again(stand: Stand) -> None:
    core = stand.verifying()
    stand.time.jump(HOUR)
    reason_of(lambda: stand.record(core))
    stand.notary.clock.confirm(operator="operator-tom", reason="the host's clock was set right")
    assert readiness_reasons(stand) == []
    recorded = stand.record(core)
    assert log_times(stand)[recorded.log_index] == stand.time.wall


def test_a_confirmation_is_in_the_step_log_with_name_and_reason(stand: Stand) -> None:
    stand.time.jump(HOUR)
    stand.notary.clock.confirm(operator="operator-tom", reason="set right")
    with stand.notary.ledger.read() as unit:
        found = [event for event in events.page(unit) if event.kind == "clock_confirmed"]
    assert found[-1].new is not None
    assert (found[-1].new["operator"], found[-1].new["reason"]) == ("operator-tom", "set right")


def test_times_in_the_log_do_not_run_back_when_the_clock_is_set_back(stand: Stand) -> None:
    stand.proved("one")
    stand.time.jump(-HOUR)
    stand.proved("two")
    assert log_times(stand) == sorted(log_times(stand))
    assert readiness_reasons(stand) == []


def test_a_steward_that_starts_after_a_jump_lets_an_operator_in(stand: Stand) -> None:
    """An operator has to confirm the time, so the start itself must not need a confirmed time."""
    token, _ = stand.notary.access.issue(Role.OPERATOR, domain="*", name="operator-tom", lifetime_seconds=90 * 86_400)
    stand.notary.close()
    stand.time.jump(365 * DAY)
    stand.notary = opened(stand.config, stand.time)
    assert "clock_jumped" in readiness_reasons(stand)
    assert stand.notary.access.authenticate(token.reveal()).name == "operator-tom"
    stand.notary.clock.confirm(operator="operator-tom", reason="it was off for a year")
    assert "clock_jumped" not in readiness_reasons(stand)


def test_an_epoch_step_that_a_jump_left_unlogged_is_logged_by_the_next_start(stand: Stand) -> None:
    stand.notary.keys.create_epoch("made, not logged")
    stand.notary.close()
    stand.time.jump(40 * DAY)
    stand.notary = opened(stand.config, stand.time)
    size = stand.notary.log.size()
    stand.notary.clock.confirm(operator="operator-tom", reason="it was off for a while")
    stand.reopen()
    assert stand.notary.log.size() == size + 1


def test_a_pause_of_twenty_days_is_no_jump(stand: Stand) -> None:
    stand.notary.close()
    stand.time.jump(20 * DAY)
    stand.notary = opened(stand.config, stand.time)
    assert readiness_reasons(stand) == []


def test_a_steward_without_a_trust_root_is_not_ready() -> None:
    with memory_folder() as folder, stand_at(folder, rooted=False) as stand:
        assert set(readiness_reasons(stand)) == {"steward_without_root"}


def test_an_active_epoch_that_the_trust_root_does_not_name_makes_the_steward_not_ready(stand: Stand) -> None:
    stand.notary.keys.create_epoch("behind the desk's back")
    stand.notary.keys.activate_epoch(2, "behind the desk's back")
    assert readiness_reasons(stand) == ["trust_root_lacks_epoch"]


def test_an_expired_trust_root_makes_the_steward_not_ready(stand: Stand) -> None:
    stand.time.pass_by(200 * DAY)
    assert readiness_reasons(stand) == ["trust_root_expired"]


def test_without_an_active_epoch_the_steward_is_not_ready(stand: Stand) -> None:
    stand.notary.epochs.retire(1, "pause")
    assert readiness_reasons(stand) == ["epoch_none_active"]


def test_an_unreachable_ledger_makes_the_steward_not_ready(stand: Stand) -> None:
    ledger = stand.folder / "ledger.db"
    ledger.rename(ledger.with_name("away"))
    ledger.mkdir()
    stand.notary.ledger.close()
    assert "ledger_unreachable" in readiness_reasons(stand)
    ledger.rmdir()
    ledger.with_name("away").rename(ledger)


def test_readiness_reports_every_problem_at_once(stand: Stand) -> None:
    stand.notary.epochs.retire(1, "pause")
    stand.config.outside_path.unlink()
    stand.time.jump(HOUR)
    assert readiness_reasons(stand) == ["clock_jumped", "epoch_none_active", "checkpoint_goes_back"]


def test_two_stewards_with_different_clocks_write_times_that_do_not_run_back(stand: Stand) -> None:
    behind = Time(wall=stand.time.wall - 120 * SECOND)
    other = Stand(stand.folder, stand.config, behind, opened(stand.config, behind))
    stand.time.pass_by(60 * SECOND)
    stand.proved("one")
    other.proved("two")
    stand.proved("three")
    other.notary.close()
    assert log_times(stand) == sorted(log_times(stand))


def test_after_a_close_the_time_never_goes_back_behind_it(stand: Stand) -> None:
    stand.time.pass_by(DAY)
    stand.notary.close()
    set_back = Time(wall=stand.time.wall - 12 * HOUR)
    stand.notary = opened(stand.config, set_back)
    assert stand.notary.clock.now_micros() >= stand.time.wall


def test_creating_a_steward_again_keeps_its_epochs_log_and_trust_root() -> None:
    with memory_folder() as folder:
        config, time = config_at(folder), Time()
        created(config, time).close()
        again = created(config, time, rooted=False)
        assert again.log.size() == 3
        assert [epoch.number for epoch in again.epochs.book().epochs] == [1]
        assert again.trust.chain() == (signed_root(again.trust.current()),)
        again.close()


def test_a_clock_set_back_after_a_kill_revives_no_token_that_had_expired_at_the_last_mark(stand: Stand) -> None:
    token, _ = stand.notary.access.issue(Role.AUDITOR, domain="*", name="audit", lifetime_seconds=60)
    stand.time.pass_by(120 * SECOND)
    stand.notary.mark_time()
    # Killed: the end is not recorded, and the host's clock is an hour earlier at the next start.
    stand.notary.ledger.close()
    stand.time.jump(-HOUR)
    stand.notary = opened(stand.config, stand.time)
    assert reason_of(lambda: stand.notary.access.authenticate(token.reveal())) == "token_expired"
