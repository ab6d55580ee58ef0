"""A worker redeems a handle once for the digest keys of one job, between the job's freeze and its end."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.ledger.clock import LedgerClock
from pvdm.model.projection import ProjectionName
from pvdm.steward.record.epochs import LedgerHandles
from pvdm.trust.keys.handles import HandleRecord, HandleRegistry, Handles
from pvdm.trust.keys.service import KeyService
from tests.support import fault
from tests.support.ledger.databases import ledger_at
from tests.support.steward.keys import attempt_context, keystore


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyService:
    path: Path = tmp_path_factory.mktemp("keys") / "keys"
    return keystore(path)


@pytest.fixture(params=["sqlite", "postgresql"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HandleRegistry]:
    """The registry in each kind of ledger."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "ledger.db")
        url = f"sqlite:///{tmp_path}/ledger.db"
    else:
        url = request.getfixturevalue("postgresql").create_database()
    with ledger_at(url) as ledger:
        yield LedgerHandles(ledger, LedgerClock(ledger))


@pytest.fixture
def handles(keys: KeyService, registry: HandleRegistry) -> Handles:
    return Handles(keys, registry)


def issue_and_freeze(handles: Handles, job: str = "job-1", *, redemptions: int = 3) -> str:
    handle = handles.issue(job, redemptions=redemptions)
    handles.freeze(job, attempt_context())
    return handle


def reason_of(handles: Handles, handle: str, *, job: str = "job-1", worker: str = "worker-1") -> str:
    with pytest.raises(PvdmError) as caught:
        handles.redeem(handle, job_id=job, worker=worker)
    return caught.value.reason


def test_a_handle_is_128_random_bits_as_hex(handles: Handles) -> None:
    first, second = (handles.issue(job, redemptions=1) for job in ("a", "b"))
    assert (len(bytes.fromhex(first)), first == second, first == first.lower()) == (16, False, True)


def test_a_redeemed_handle_gives_the_digest_keys_of_the_attempt(handles: Handles, keys: KeyService) -> None:
    redeemed = handles.redeem(issue_and_freeze(handles), job_id="job-1", worker="worker-1")
    wanted = {name: keys.row_hash_key(attempt_context(), name).reveal() for name in ProjectionName}
    assert {name: key.reveal() for name, key in redeemed.items()} == wanted


def test_redeeming_before_the_freeze_is_refused(handles: Handles) -> None:
    assert reason_of(handles, handles.issue("job-1", redemptions=1)) == "handle_not_frozen"


def test_redeeming_after_the_end_is_refused(handles: Handles) -> None:
    handle = issue_and_freeze(handles)
    handles.end("job-1")
    assert reason_of(handles, handle) == "handle_ended"


def test_a_job_that_ended_before_its_freeze_cannot_be_frozen(handles: Handles) -> None:
    handles.issue("job-1", redemptions=1)
    handles.end("job-1")
    with pytest.raises(NotAllowedError) as caught:
        handles.freeze("job-1", attempt_context())
    assert caught.value.reason == "handle_ended"


def test_freezing_a_job_twice_is_refused(handles: Handles) -> None:
    issue_and_freeze(handles)
    with pytest.raises(NotAllowedError) as caught:
        handles.freeze("job-1", attempt_context(nonce="f" * 32))
    assert caught.value.reason == "handle_frozen_already"


def test_a_second_redemption_by_one_worker_is_refused(handles: Handles) -> None:
    handle = issue_and_freeze(handles)
    handles.redeem(handle, job_id="job-1", worker="worker-1")
    assert reason_of(handles, handle) == "handle_redeemed"


def test_a_repeated_task_gets_the_same_keys_as_another_worker(handles: Handles) -> None:
    handle = issue_and_freeze(handles)
    first = handles.redeem(handle, job_id="job-1", worker="worker-1")
    again = handles.redeem(handle, job_id="job-1", worker="worker-1.again")
    assert {name: key.reveal() for name, key in first.items()} == {name: key.reveal() for name, key in again.items()}


def test_redemptions_above_the_limit_are_refused(handles: Handles) -> None:
    handle = issue_and_freeze(handles, redemptions=2)
    for worker in ("a", "b"):
        handles.redeem(handle, job_id="job-1", worker=worker)
    assert reason_of(handles, handle, worker="c") == "handle_exhausted"


def test_a_handle_for_another_job_is_refused(handles: Handles) -> None:
    handle = issue_and_freeze(handles)
    issue_and_freeze(handles, "job-2")
    assert reason_of(handles, handle, job="job-2") == "handle_wrong_job"


def test_a_handle_that_was_never_issued_is_refused(handles: Handles) -> None:
    issue_and_freeze(handles)
    assert reason_of(handles, "0" * 32) == "handle_unknown"


@pytest.mark.parametrize("handle", ["", "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n", 7])
def test_a_malformed_handle_is_refused(handles: Handles, handle: str) -> None:
    assert reason_of(handles, handle) == "handle_malformed"


@pytest.mark.parametrize("worker", ["", "a" * 129, "a b", "a\n"])
def test_an_invalid_name_of_a_worker_is_refused(handles: Handles, worker: str) -> None:
    assert reason_of(handles, issue_and_freeze(handles), worker=worker) == "handle_name"


def test_a_second_handle_for_a_job_is_refused(handles: Handles) -> None:
    issue_and_freeze(handles)
    with pytest.raises(NotAllowedError) as caught:
        handles.issue("job-1", redemptions=1)
    assert caught.value.reason == "handle_job_taken"


@pytest.mark.parametrize("redemptions", [0, -1, 10_001, True])
def test_a_number_of_redemptions_out_of_range_is_refused(handles: Handles, redemptions: int) -> None:
    with pytest.raises(InputError) as caught:
        handles.issue("job-1", redemptions=redemptions)
    assert caught.value.reason == "handle_redemptions"


@pytest.mark.parametrize("step", ["freeze", "end"])
def test_freezing_or_ending_a_job_without_a_handle_is_refused(handles: Handles, step: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        handles.freeze("job-9", attempt_context()) if step == "freeze" else handles.end("job-9")
    assert caught.value.reason == "handle_unknown"


def test_ending_twice_is_no_error(handles: Handles) -> None:
    issue_and_freeze(handles)
    handles.end("job-1")
    handles.end("job-1")


def test_the_registry_does_not_store_the_handle_itself(handles: Handles, registry: HandleRegistry) -> None:
    handle = issue_and_freeze(handles)
    assert handle not in repr(registry.find_job("job-1"))


def test_an_end_before_the_redemption_is_recorded_refuses_it(handles: Handles) -> None:
    """The keys are derived already, but they are not returned."""
    handle = issue_and_freeze(handles)
    with fault.armed("keys.handle.before_record", fault.Call(lambda: handles.end("job-1"))):
        assert reason_of(handles, handle) == "handle_ended"


def test_of_many_concurrent_redemptions_by_one_worker_one_succeeds(handles: Handles) -> None:
    handle = issue_and_freeze(handles, redemptions=16)
    barrier = threading.Barrier(8)
    outcomes: list[str] = []

    def redeem() -> None:
        barrier.wait()
        try:
            handles.redeem(handle, job_id="job-1", worker="worker-1")
            outcomes.append("given")
        except PvdmError as error:
            outcomes.append(error.reason)

    threads = [threading.Thread(target=redeem) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["given"] + ["handle_redeemed"] * 7


def test_a_worker_can_redeem_again_after_the_key_home_was_unavailable(tmp_path: Path, registry: HandleRegistry) -> None:
    path = tmp_path / "keys"
    handles = Handles(keystore(path), registry)
    handle = issue_and_freeze(handles)
    path.rename(path.with_name("away"))
    with pytest.raises(UnavailableError):
        handles.redeem(handle, job_id="job-1", worker="worker-1")
    path.with_name("away").rename(path)
    assert len(handles.redeem(handle, job_id="job-1", worker="worker-1")) == 2


def test_redeeming_a_handle_of_a_revoked_epoch_is_refused(tmp_path: Path, registry: HandleRegistry) -> None:
    service = keystore(tmp_path / "keys")
    handles = Handles(service, registry)
    handle = issue_and_freeze(handles)
    service.revoke_epoch(1, "leaked")
    assert reason_of(handles, handle) == "epoch_revoked"


def test_a_step_that_raises_changes_nothing_in_the_registry(registry: HandleRegistry) -> None:
    record = HandleRecord("a" * 64, "job-1", 1)
    registry.add(record)

    def fail(_: HandleRecord) -> HandleRecord:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        registry.change("a" * 64, fail)
    assert registry.find("a" * 64) == record
