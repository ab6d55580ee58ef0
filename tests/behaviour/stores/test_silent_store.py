"""An object store that hangs or is down: told soon and by name, waited for within limits, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import pvdm
from pvdm.api.work import JobState
from pvdm.client import StewardClient
from pvdm.errors import PvdmError, UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores import circuit_breaker
from pvdm.lake.stores.health import StoreHealth
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import S3_SILENT_TRIES_MAX, S3Settings
from pvdm.lake.stores.store import WriteHooks
from pvdm.model.states import AttemptState
from tests.behaviour.stores.conftest import SECONDS, Lake
from tests.support.ledger.databases import memory_folder
from tests.support.servers.silent_proxy import SilentProxy, silent_proxy
from tests.support.steward.pipeline import contract, line_at
from tests.support.stores.s3_server import Bucket, S3Server

pytest.importorskip("pvdm_kernel")

SOON = 2


@pytest.fixture
def proxy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentProxy]:
    monkeypatch.setattr(circuit_breaker, "_breakers", {})
    address = urlsplit(s3_server.endpoint)
    with silent_proxy(str(address.hostname), address.port or 0) as found:
        yield found


@pytest.fixture
def settings(s3_server: S3Server, proxy: SilentProxy) -> S3Settings:
    """The store behind the proxy, waited for some seconds at a time, which no honest answer takes."""
    return replace(s3_server.steward, endpoint=proxy.url, timeout_seconds=SOON)


@pytest.fixture
def bucket(s3_server: S3Server) -> Bucket:
    return s3_server.bucket()


@pytest.fixture
def lake(s3_server: S3Server, settings: S3Settings, bucket: Bucket) -> Iterator[Lake]:
    made = bucket.config()
    with memory_folder() as folder, line_at(folder, changed=lambda config: replace(made(config), s3=settings)) as line:
        yield Lake(line, bucket, s3_server.store)


def failed(store: S3Store, bucket: Bucket) -> tuple[OSError, float]:
    """What a call to the store meets, and after how many seconds."""
    begun = time.monotonic()
    with pytest.raises(OSError, match="the store") as caught:
        store.facts(parse_location(f"{bucket.root}/any"))
    return caught.value, time.monotonic() - begun


def test_a_call_to_a_store_that_hangs_ends_after_two_tries_and_names_the_bucket(
    settings: S3Settings, proxy: SilentProxy, bucket: Bucket
) -> None:
    proxy.silent = True
    error, seconds = failed(S3Store(settings), bucket)
    assert isinstance(error, TimeoutError)
    assert error.strerror == f"the store of the bucket {bucket.name} does not answer: ReadTimeoutError"
    assert seconds < 20
    assert proxy.connections == S3_SILENT_TRIES_MAX


def test_the_next_call_to_a_store_that_hangs_fails_at_once_and_asks_nobody(
    settings: S3Settings, proxy: SilentProxy, bucket: Bucket
) -> None:
    proxy.silent = True
    failed(S3Store(settings), bucket)
    before = proxy.connections
    error, seconds = failed(S3Store(settings), bucket)
    assert "does not answer" in str(error.strerror)
    assert seconds < SOON
    assert proxy.connections == before


def test_a_store_that_answers_again_is_found_after_the_rest(
    settings: S3Settings, proxy: SilentProxy, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.silent = True
    store = S3Store(settings)
    failed(store, bucket)
    proxy.resume()
    monkeypatch.setattr(circuit_breaker, "OPEN_SECONDS", 0)
    with pytest.raises(FileNotFoundError):
        store.facts(parse_location(f"{bucket.root}/any"))


def test_one_call_that_gets_nothing_does_not_stop_the_others_of_a_store_that_answers() -> None:
    times = iter([0.0, 1.0, 2.0, 3.0])
    line = circuit_breaker.CircuitBreaker(clock=lambda: next(times))
    begun = line.begin()
    line.record_answer()
    line.record_silence(begun)
    line.begin()


def test_a_store_that_falls_silent_in_the_middle_of_a_file_is_asked_for_the_rest_by_nobody(
    settings: S3Settings, proxy: SilentProxy, bucket: Bucket
) -> None:
    store, place = S3Store(settings), parse_location(f"{bucket.root}/large")
    store.put_new(place, bytes(32 << 20), WriteHooks())
    pieces = store.start_reading(place).pieces
    next(pieces)
    proxy.silent = True
    before = proxy.connections
    with pytest.raises(TimeoutError, match=bucket.name):
        list(pieces)
    assert proxy.connections == before


def test_a_store_that_is_down_is_told_by_its_bucket(bucket: Bucket, s3_server: S3Server) -> None:
    store = S3Store(replace(s3_server.steward, endpoint="http://127.0.0.1:9", tries=2))
    error, _ = failed(store, bucket)
    assert str(error.strerror).startswith(f"the store of the bucket {bucket.name} does not answer: ")


def test_a_request_that_needs_the_silent_store_is_answered_with_what_is_wrong(
    lake: Lake, producer: StewardClient, proxy: SilentProxy
) -> None:
    lake.line.protect(contract("storage: copied"))
    proxy.silent = True
    begun = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        lake.staged(producer)
    assert time.monotonic() - begun < 40
    told = str(caught.value.to_json())
    assert f"the store of the bucket {lake.bucket.name} does not answer" in told
    assert proxy.url.removeprefix("http://") not in told


def test_a_job_that_meets_the_silent_store_waits_and_ends_well_when_it_answers(
    lake: Lake, producer: StewardClient, proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "OPEN_SECONDS", 0)
    lake.line.protect(contract("storage: open"))
    attempt = lake.staged(producer)
    jobs = lake.line.notary.jobs
    jobs.stop()
    producer.staged(attempt.attempt_id)
    proxy.silent = True
    jobs.start()
    ends = time.monotonic() + SECONDS
    while not any(job.state is JobState.WAITING for job in jobs.list_jobs()):
        assert time.monotonic() < ends
        time.sleep(0.05)
    problem = next(job.error for job in jobs.list_jobs() if job.state is JobState.WAITING)
    assert problem is not None
    assert lake.bucket.name in str(problem.to_json())
    proxy.resume()
    found = producer.await_attempt(attempt.attempt_id, seconds=SECONDS)
    assert found.state is AttemptState.COMMITTED


def test_the_steward_starts_without_its_store_and_says_that_it_does_not_answer(
    s3_server: S3Server, bucket: Bucket, proxy: SilentProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.lend_to(monkeypatch)
    store = bucket.store_file(tmp_path / "store.toml")
    store.write_text(store.read_text().replace(s3_server.endpoint, proxy.url))
    proxy.silent = True
    with pvdm.Steward.embedded(tmp_path / "steward", store=store) as steward:
        found = steward.readiness()
        stranger = httpx.get(f"{steward.url}/readyz", trust_env=False)
    assert [reason.reason for reason in found.reasons] == ["store_unavailable"]
    assert proxy.url in str(found.reasons[0].expected)
    assert bucket.name in found.reasons[0].message
    assert stranger.status_code == 503
    assert bucket.name not in stranger.text
    assert str(proxy.port) not in stranger.text


def test_whether_the_store_answers_is_asked_at_most_every_few_seconds_and_tells_the_others(
    settings: S3Settings, bucket: Bucket, proxy: SilentProxy
) -> None:
    now = [0.0]
    answering = StoreHealth(settings, [bucket.name, bucket.name], clock=lambda: now[0])
    proxy.silent = True
    for _ in range(3):
        with pytest.raises(UnavailableError, match=bucket.name):
            answering.require()
    assert proxy.connections == 1
    failed(S3Store(settings), bucket)
    proxy.resume()
    now[0] += 10
    answering.require()
    with pytest.raises(FileNotFoundError):  # without the rest: the check has heard an answer
        S3Store(settings).facts(parse_location(f"{bucket.root}/any"))


def test_a_bucket_that_is_not_there_is_told(s3_server: S3Server) -> None:
    with pytest.raises(UnavailableError) as caught:
        StoreHealth(s3_server.steward, ["nowhere-at-all"]).require()
    assert caught.value.got == "no such bucket"


def test_credentials_that_are_missing_are_told_as_that(
    s3_server: S3Server, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    from pvdm.lake.stores import s3_client

    s3_client._session.cache_clear()
    bare = replace(s3_server.steward, credentials=None)
    error, _ = failed(S3Store(bare), bucket)
    assert isinstance(error, PermissionError)
    assert str(error.strerror).startswith(f"no credentials for the store of the bucket {bucket.name}")
    with pytest.raises(PvdmError, match=bucket.name):
        StoreHealth(bare, [bucket.name]).require()
