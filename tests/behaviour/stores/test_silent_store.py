"""An object store that hangs or is down: errors come soon and name the bucket, and no work is lost."""

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
from pvdm.steward.config.steward import StewardConfig
from tests.behaviour.stores.conftest import SECONDS, Lake
from tests.support.ledger.databases import memory_folder
from tests.support.servers.silent_proxy import SilentProxy, silent_proxy
from tests.support.steward.pipeline import contract, line_at
from tests.support.stores.s3_server import Bucket, S3Server

pytest.importorskip("pvdm_kernel")

TIMEOUT_SECONDS = 2


@pytest.fixture
def proxy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentProxy]:
    monkeypatch.setattr(circuit_breaker, "_breakers", {})
    address = urlsplit(s3_server.endpoint)
    with silent_proxy(str(address.hostname), address.port or 0) as found:
        yield found


@pytest.fixture
def settings(s3_server: S3Server, proxy: SilentProxy) -> S3Settings:
    """The store behind the proxy, with a time-out that is longer than any normal answer takes."""
    return replace(s3_server.steward, endpoint=proxy.url, timeout_seconds=TIMEOUT_SECONDS)


@pytest.fixture
def bucket(s3_server: S3Server) -> Bucket:
    return s3_server.bucket()


@pytest.fixture
def lake(s3_server: S3Server, settings: S3Settings, bucket: Bucket) -> Iterator[Lake]:
    in_bucket = bucket.config()

    def changed(config: StewardConfig) -> StewardConfig:
        return replace(in_bucket(config), s3=settings)

    with memory_folder() as folder, line_at(folder, changed=changed) as line:
        yield Lake(line, bucket, s3_server.store)


def call_and_fail(store: S3Store, bucket: Bucket) -> tuple[OSError, float]:
    """Call the store, which must fail. Returns the error, and how many seconds it took."""
    begun = time.monotonic()
    with pytest.raises(OSError, match="the store") as caught:
        store.facts(parse_location(f"{bucket.root}/any"))
    return caught.value, time.monotonic() - begun


def test_a_call_to_a_store_that_hangs_ends_after_two_tries_and_names_the_bucket(
    settings: S3Settings, proxy: SilentProxy, bucket: Bucket
) -> None:
    proxy.silent = True
    error, seconds = call_and_fail(S3Store(settings), bucket)
    assert isinstance(error, TimeoutError)
    assert error.strerror == f"the store of the bucket {bucket.name} does not answer: ReadTimeoutError"
    assert seconds < 20
    assert proxy.connections == S3_SILENT_TRIES_MAX


def test_the_next_call_to_a_store_that_hangs_fails_at_once_without_a_connection(
    settings: S3Settings, proxy: SilentProxy, bucket: Bucket
) -> None:
    proxy.silent = True
    call_and_fail(S3Store(settings), bucket)
    before = proxy.connections
    error, seconds = call_and_fail(S3Store(settings), bucket)
    assert "does not answer" in str(error.strerror)
    assert seconds < TIMEOUT_SECONDS
    assert proxy.connections == before


def test_a_store_that_answers_again_is_used_after_the_breakers_pause(
    settings: S3Settings, proxy: SilentProxy, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.silent = True
    store = S3Store(settings)
    call_and_fail(store, bucket)
    proxy.resume()
    monkeypatch.setattr(circuit_breaker, "OPEN_SECONDS", 0)
    with pytest.raises(FileNotFoundError):
        store.facts(parse_location(f"{bucket.root}/any"))


def test_a_silent_call_does_not_open_the_breaker_if_another_call_was_answered_since_it_began() -> None:
    times = iter([0.0, 1.0, 2.0, 3.0])
    breaker = circuit_breaker.CircuitBreaker(clock=lambda: next(times))
    begun = breaker.begin()
    breaker.record_answer()
    breaker.record_silence(begun)
    breaker.begin()


def test_the_rest_of_a_file_is_not_requested_from_a_store_that_fell_silent(
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


def test_the_error_of_a_store_that_is_down_names_the_bucket(bucket: Bucket, s3_server: S3Server) -> None:
    store = S3Store(replace(s3_server.steward, endpoint="http://127.0.0.1:9", tries=2))
    error, _ = call_and_fail(store, bucket)
    assert str(error.strerror).startswith(f"the store of the bucket {bucket.name} does not answer: ")


def test_the_answer_to_a_request_that_needs_the_silent_store_names_the_bucket_and_not_the_address(
    lake: Lake, producer: StewardClient, proxy: SilentProxy
) -> None:
    lake.line.protect(contract("storage: copied"))
    proxy.silent = True
    begun = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        lake.stage_attempt(producer)
    assert time.monotonic() - begun < 40
    text = str(caught.value.to_json())
    assert f"the store of the bucket {lake.bucket.name} does not answer" in text
    assert proxy.url.removeprefix("http://") not in text


def test_a_job_waits_for_a_silent_store_and_succeeds_when_it_answers(
    lake: Lake, producer: StewardClient, proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "OPEN_SECONDS", 0)
    lake.line.protect(contract("storage: open"))
    attempt = lake.stage_attempt(producer)
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


def test_the_steward_starts_while_its_store_is_silent_and_is_not_ready(
    s3_server: S3Server, bucket: Bucket, proxy: SilentProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.lend_to(monkeypatch)
    store = bucket.store_file(tmp_path / "store.toml")
    store.write_text(store.read_text().replace(s3_server.endpoint, proxy.url))
    proxy.silent = True
    with pvdm.Steward.embedded(tmp_path / "steward", store=store) as steward:
        found = steward.readiness()
        anonymous = httpx.get(f"{steward.url}/readyz", trust_env=False)
    assert [reason.reason for reason in found.reasons] == ["store_unavailable"]
    assert proxy.url in str(found.reasons[0].expected)
    assert bucket.name in found.reasons[0].message
    assert anonymous.status_code == 503
    assert bucket.name not in anonymous.text
    assert str(proxy.port) not in anonymous.text


def test_the_health_check_caches_its_result_and_its_success_closes_the_breaker(
    settings: S3Settings, bucket: Bucket, proxy: SilentProxy
) -> None:
    now = [0.0]
    health = StoreHealth(settings, [bucket.name, bucket.name], clock=lambda: now[0])
    proxy.silent = True
    for _ in range(3):
        with pytest.raises(UnavailableError, match=bucket.name):
            health.require()
    assert proxy.connections == 1
    call_and_fail(S3Store(settings), bucket)
    proxy.resume()
    now[0] += 10
    health.require()
    with pytest.raises(FileNotFoundError):  # without a pause: the health check got an answer
        S3Store(settings).facts(parse_location(f"{bucket.root}/any"))


def test_a_missing_bucket_is_reported(s3_server: S3Server) -> None:
    with pytest.raises(UnavailableError) as caught:
        StoreHealth(s3_server.steward, ["nowhere-at-all"]).require()
    assert caught.value.got == "no such bucket"


def test_missing_credentials_are_reported(
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
    error, _ = call_and_fail(S3Store(bare), bucket)
    assert isinstance(error, PermissionError)
    assert str(error.strerror).startswith(f"no credentials for the store of the bucket {bucket.name}")
    with pytest.raises(PvdmError, match=bucket.name):
        StoreHealth(bare, [bucket.name]).require()
