"""Handles open one job's digest keys, after the freeze, before the end, once a worker; each refusal has its code."""

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
from tests.support.steward.keys import attempt, keystore


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


def frozen(handles: Handles, job: str = "job-1", *, redemptions: int = 3) -> str:
    handle = handles.issue(job, redemptions=redemptions)
    handles.freeze(job, attempt())
    return handle


def code(handles: Handles, handle: str, *, job: str = "job-1", worker: str = "worker-1") -> str:
    with pytest.raises(PvdmError) as caught:
        handles.redeem(handle, job_id=job, worker=worker)
    return caught.value.reason


def test_a_handle_is_128_random_bits_as_hex(handles: Handles) -> None:
    first, second = (handles.issue(job, redemptions=1) for job in ("a", "b"))
    assert (len(bytes.fromhex(first)), first == second, first == first.lower()) == (16, False, True)


def test_a_redeemed_handle_gives_the_digest_keys_of_the_attempt(handles: Handles, keys: KeyService) -> None:
    given = handles.redeem(frozen(handles), job_id="job-1", worker="worker-1")
    wanted = {name: keys.row_hash_key(attempt(), name).reveal() for name in ProjectionName}
    assert {name: key.reveal() for name, key in given.items()} == wanted


def test_nothing_is_given_before_the_freeze(handles: Handles) -> None:
    assert code(handles, handles.issue("job-1", redemptions=1)) == "handle_not_frozen"


def test_nothing_is_given_after_the_end(handles: Handles) -> None:
    handle = frozen(handles)
    handles.end("job-1")
    assert code(handles, handle) == "handle_ended"


def test_a_job_that_ended_before_its_freeze_cannot_be_frozen(handles: Handles) -> None:
    handles.issue("job-1", redemptions=1)
    handles.end("job-1")
    with pytest.raises(NotAllowedError) as caught:
        handles.freeze("job-1", attempt())
    assert caught.value.reason == "handle_ended"


def test_a_job_is_frozen_once(handles: Handles) -> None:
    frozen(handles)
    with pytest.raises(NotAllowedError) as caught:
        handles.freeze("job-1", attempt(nonce="f" * 32))
    assert caught.value.reason == "handle_frozen_already"


def test_a_worker_redeems_once(handles: Handles) -> None:
    handle = frozen(handles)
    handles.redeem(handle, job_id="job-1", worker="worker-1")
    assert code(handles, handle) == "handle_redeemed"


def test_a_task_that_is_run_again_redeems_as_another_worker(handles: Handles) -> None:
    handle = frozen(handles)
    first = handles.redeem(handle, job_id="job-1", worker="worker-1")
    again = handles.redeem(handle, job_id="job-1", worker="worker-1.again")
    assert {name: key.reveal() for name, key in first.items()} == {name: key.reveal() for name, key in again.items()}


def test_redemptions_are_capped(handles: Handles) -> None:
    handle = frozen(handles, redemptions=2)
    for worker in ("a", "b"):
        handles.redeem(handle, job_id="job-1", worker=worker)
    assert code(handles, handle, worker="c") == "handle_exhausted"


def test_a_handle_opens_its_own_job_only(handles: Handles) -> None:
    handle = frozen(handles)
    frozen(handles, "job-2")
    assert code(handles, handle, job="job-2") == "handle_wrong_job"


def test_a_handle_that_was_never_issued_is_unknown(handles: Handles) -> None:
    frozen(handles)
    assert code(handles, "0" * 32) == "handle_unknown"


@pytest.mark.parametrize("handle", ["", "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n", 7])
def test_what_is_not_a_handle_is_malformed(handles: Handles, handle: str) -> None:
    assert code(handles, handle) == "handle_malformed"


@pytest.mark.parametrize("worker", ["", "a" * 129, "a b", "a\n"])
def test_a_worker_without_a_proper_name_is_refused(handles: Handles, worker: str) -> None:
    assert code(handles, frozen(handles), worker=worker) == "handle_name"


def test_a_job_has_one_handle(handles: Handles) -> None:
    frozen(handles)
    with pytest.raises(NotAllowedError) as caught:
        handles.issue("job-1", redemptions=1)
    assert caught.value.reason == "handle_job_taken"


@pytest.mark.parametrize("redemptions", [0, -1, 10_001, True])
def test_a_number_of_redemptions_out_of_range_is_refused(handles: Handles, redemptions: int) -> None:
    with pytest.raises(InputError) as caught:
        handles.issue("job-1", redemptions=redemptions)
    assert caught.value.reason == "handle_redemptions"


@pytest.mark.parametrize("step", ["freeze", "end"])
def test_a_job_that_has_no_handle_is_unknown(handles: Handles, step: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        handles.freeze("job-9", attempt()) if step == "freeze" else handles.end("job-9")
    assert caught.value.reason == "handle_unknown"


def test_ending_twice_is_no_error(handles: Handles) -> None:
    frozen(handles)
    handles.end("job-1")
    handles.end("job-1")


def test_the_registry_does_not_hold_the_handle(handles: Handles, registry: HandleRegistry) -> None:
    handle = frozen(handles)
    assert handle not in repr(registry.find_job("job-1"))


def test_an_end_between_look_and_record_wins(handles: Handles) -> None:
    """The keys are derived already, but nothing is handed out."""
    handle = frozen(handles)
    with fault.armed("keys.handle.before_record", fault.Call(lambda: handles.end("job-1"))):
        assert code(handles, handle) == "handle_ended"


def test_of_many_redemptions_under_one_name_at_once_one_wins(handles: Handles) -> None:
    handle = frozen(handles, redemptions=16)
    barrier = threading.Barrier(8)
    codes: list[str] = []

    def redeem() -> None:
        barrier.wait()
        try:
            handles.redeem(handle, job_id="job-1", worker="worker-1")
            codes.append("given")
        except PvdmError as error:
            codes.append(error.reason)

    threads = [threading.Thread(target=redeem) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == ["given"] + ["handle_redeemed"] * 7


def test_a_key_home_that_is_away_costs_the_worker_nothing(tmp_path: Path, registry: HandleRegistry) -> None:
    path = tmp_path / "keys"
    handles = Handles(keystore(path), registry)
    handle = frozen(handles)
    path.rename(path.with_name("away"))
    with pytest.raises(UnavailableError):
        handles.redeem(handle, job_id="job-1", worker="worker-1")
    path.with_name("away").rename(path)
    assert len(handles.redeem(handle, job_id="job-1", worker="worker-1")) == 2


def test_a_revoked_epoch_opens_nothing(tmp_path: Path, registry: HandleRegistry) -> None:
    service = keystore(tmp_path / "keys")
    handles = Handles(service, registry)
    handle = frozen(handles)
    service.revoke_epoch(1, "leaked")
    assert code(handles, handle) == "epoch_revoked"


def test_a_step_that_raises_changes_nothing_in_the_registry(registry: HandleRegistry) -> None:
    record = HandleRecord("a" * 64, "job-1", 1)
    registry.add(record)

    def fail(_: HandleRecord) -> HandleRecord:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        registry.change("a" * 64, fail)
    assert registry.find("a" * 64) == record
