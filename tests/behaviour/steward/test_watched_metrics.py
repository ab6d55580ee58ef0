"""Metrics that operators watch: expiries, free disk space, the vault, its quarantine, and the age of waiting work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from prometheus_client.parser import text_string_to_metric_families

from pvdm import Committed, Coordinator, VerificationFailed
from pvdm.api.work import JobState
from pvdm.errors import InputError
from pvdm.lake.vault import Vault, VaultKind
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.cleanup.vault import VaultUsage
from pvdm.steward.http import app
from pvdm.steward.record import expiries
from pvdm.steward.record.expiries import certificate_end
from tests.support.steward.http import Served, served
from tests.support.steward.shop import ROWS, contract, shop_at, table_of
from tools.proof_kit import DAY

TABLE = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def steward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(expiries, "_CACHE_SECONDS", 0.0)
    with served(tmp_path) as made:
        yield made


def samples(text: str, name: str) -> dict[str, float]:
    """The values of a metric by its last label."""
    return {
        next(reversed(sample.labels.values()), ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"pvdm_steward_{name}"
    }


def scrape(steward: Served, name: str) -> dict[str, float]:
    response = steward.http.get("/metrics", headers=steward.headers(Role.AUDITOR))
    assert response.status_code == 200
    return samples(response.text, name)


def test_the_expiry_of_the_trust_root_and_its_keys_is_shown(steward: Served) -> None:
    root = steward.stand.notary.trust.current()
    found = scrape(steward, "expiry_seconds")
    now = steward.stand.time.wall
    assert found["trust_root"] == pytest.approx((root.expires_at - now) / 1e6, abs=60)
    assert {"notary_key", "log_key", "operator_key", "root_key", "break_glass_key"} <= found.keys()
    assert found["notary_key"] == pytest.approx((min(each.valid_until for each in root.keys) - now) / 1e6, abs=60)


def test_the_nearest_token_and_the_last_operators_token_are_shown(steward: Served) -> None:
    access = steward.stand.notary.access
    access.issue(Role.PRODUCER, domain="sales", name="nightly", lifetime_seconds=600)
    access.issue(Role.OPERATOR, domain="*", name="ruth", lifetime_seconds=30 * 86_400)
    found = scrape(steward, "expiry_seconds")
    assert found["token"] == pytest.approx(600, abs=30)
    assert found["last_operator_token"] == pytest.approx(30 * 86_400, abs=30)


def test_a_rotated_token_does_not_count_as_near_its_end(steward: Served) -> None:
    access = steward.stand.notary.access
    headers = steward.headers(Role.AUDITOR)
    _, old = access.issue(Role.PRODUCER, domain="sales", name="nightly", lifetime_seconds=60)
    assert samples(steward.http.get("/metrics", headers=headers).text, "expiry_seconds")["token"] < 61
    access.rotate(old.token_id, lifetime_seconds=30 * 86_400, overlap_seconds=30)
    assert samples(steward.http.get("/metrics", headers=headers).text, "expiry_seconds")["token"] > 61


def test_a_revoked_token_does_not_count_as_near_its_end(steward: Served) -> None:
    access = steward.stand.notary.access
    _, gone = access.issue(Role.PRODUCER, domain="sales", name="nightly", lifetime_seconds=60)
    access.revoke(gone.token_id)
    assert scrape(steward, "expiry_seconds")["token"] > 61


def test_the_expiry_of_an_expired_trust_root_is_negative(steward: Served) -> None:
    root = steward.stand.notary.trust.current()
    while steward.stand.time.wall <= root.expires_at:
        steward.stand.time.pass_by(DAY)
    assert scrape(steward, "expiry_seconds")["trust_root"] < 0


def test_the_end_of_a_certificate_chain_is_that_of_its_first_certificate_to_expire(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steward.example")])
    begin = datetime(2026, 11, 14, tzinfo=UTC)
    chain = b""
    for days in (90, 30):
        certificate = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        certificate = certificate.serial_number(days)
        certificate = certificate.not_valid_before(begin).not_valid_after(begin + timedelta(days=days))
        chain += certificate.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    path = tmp_path / "tls.pem"
    path.write_bytes(chain)
    assert certificate_end(path) == int((begin + timedelta(days=30)).timestamp()) * 1_000_000
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(InputError) as caught:
        certificate_end(path)
    assert caught.value.reason == "tls_invalid"


def test_expiries_are_read_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[None] = []
    with served(tmp_path) as steward:
        found = steward.stand.notary.expiries
        read = type(found)._read

        def read_and_count(self: Any) -> Any:
            reads.append(None)
            return read(self)

        monkeypatch.setattr(type(found), "_read", read_and_count)
        for _ in range(5):
            scrape(steward, "expiry_seconds")
    assert len(reads) == 1


def test_free_space_and_size_of_each_folder_are_shown(steward: Served) -> None:
    free, size = scrape(steward, "folder_free_bytes"), scrape(steward, "folder_size_bytes")
    facts = os.statvfs(steward.stand.notary.config.outside_path.parent)
    assert {"ledger", "outside", "temporary"} <= free.keys() == size.keys()
    assert size["outside"] == facts.f_blocks * facts.f_frsize
    assert 0 < free["outside"] <= size["outside"]


def test_attempts_that_wait_are_counted_with_the_age_of_the_oldest(steward: Served) -> None:
    steward.stand.staging("one")
    steward.stand.time.pass_by(300 * 1_000_000)
    steward.stand.staging("two")
    assert scrape(steward, "attempts")[AttemptState.STAGING] == 2
    oldest = scrape(steward, "attempt_oldest_seconds")
    assert oldest.keys() == {AttemptState.STAGING}
    assert oldest[AttemptState.STAGING] >= 300


def test_jobs_that_are_not_done_are_counted_with_their_age(steward: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = steward.stand.notary.jobs
    assert scrape(steward, "job_oldest_seconds") == {}
    begun = time.monotonic()
    jobs.stop()
    jobs._stopping = False  # the threads have ended, so a new job stays queued
    jobs.dispose("00" * 16)
    # Only for these requests: with a clock that stands still the server would wait in vain for its end.
    with monkeypatch.context() as later:
        later.setattr(time, "monotonic", lambda: begun + 500)
        assert scrape(steward, "jobs")[JobState.QUEUED.value] == 1
        assert scrape(steward, "job_oldest_seconds")[JobState.QUEUED.value] > 400


def test_the_vault_is_counted_by_kind_with_the_oldest_file_in_quarantine(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "vault")
    vault.write(TABLE, VaultKind.METADATA, "a.avro", b"1234")
    vault.copy_in(TABLE, "a" * 32, 0, b"12345678", "0" * 64)
    old = vault.quarantine(TABLE, "b" * 32, b"12")
    vault.quarantine(TABLE, "b" * 32, b"123")
    os.utime(old.removeprefix("file://"), (1_000, 1_000))
    found = VaultUsage(vault).count()
    assert dict(found.files) == {VaultKind.METADATA: 1, VaultKind.DATA: 1, VaultKind.QUARANTINE: 2}
    assert dict(found.size_bytes) == {VaultKind.METADATA: 4, VaultKind.DATA: 8, VaultKind.QUARANTINE: 5}
    assert (found.oldest_modified_at, found.whole) == (1_000, True)


def test_a_count_of_the_vault_stops_at_its_limit_and_says_so(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "vault")
    for number in range(5):
        vault.write(TABLE, VaultKind.METADATA, f"{number}.avro", b"1")
    found = VaultUsage(vault, most=4).count()
    assert (found.files[VaultKind.METADATA], found.whole) == (4, False)
    assert VaultUsage(vault, most=5).count().whole


def test_a_served_steward_shows_its_vault_and_quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "VAULT_COUNT_SECONDS", 0.05)
    with shop_at(tmp_path) as shop:
        shop.make("sales.orders")
        shop.protect(contract("sales.orders"))
        with Coordinator(shop.steward) as coordinator:
            lost = coordinator.execute_workload("a", lambda _s, _c: table_of(ROWS[:2]), table="sales.orders")
            assert isinstance(lost, VerificationFailed)
            done = coordinator.execute_workload("b", lambda _s, _c: table_of(ROWS), table="sales.orders")
            assert isinstance(done, Committed)
        ends = time.monotonic() + 30
        while True:
            code, text = shop.metrics()
            assert code == 200
            files = samples(text, "vault_files")
            if (files.get("data"), files.get("quarantine")) == (1, 1):
                break
            assert time.monotonic() < ends, files
        assert samples(text, "vault_bytes")["quarantine"] > 0
        assert 0 <= samples(text, "quarantine_oldest_seconds")[""] < 60
        assert samples(text, "vault_counted_whole") == {"": 1}
        assert 0 <= samples(text, "vault_counted_seconds")[""] < 60
