"""Storage `sealed`: after the freeze the store refuses the producer's writes, and no other version is published."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.errors import UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores import roles, seal
from pvdm.lake.stores.roles import VendingSettings
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import call_store
from pvdm.lake.stores.seal import Seals
from pvdm.lake.stores.store import WriteHooks
from pvdm.lake.stores.stores import Stores
from pvdm.ledger.record import proofs
from pvdm.model.statements.proof import Proof, Storage
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState
from pvdm.trust.statement import read_unchecked
from tests.behaviour.stores.conftest import Lake
from tests.behaviour.stores.test_s3_path import audit_codes, consumer_rows
from tests.support import fault
from tests.support.gate.approvals import reason_of
from tests.support.ledger.databases import memory_folder
from tests.support.steward.pipeline import ROWS, contract, line_at
from tests.support.stores.s3_server import CONSUMERS, PRODUCERS, S3Server
from tests.support.waiting import wait_for_jobs

pytest.importorskip("pvdm_kernel")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
ROLE = roles.Role(PRODUCERS)


@pytest.fixture
def attempt(lake: Lake, producer: StewardClient) -> AttemptView:
    """An attempt that is staged and not handed in. Its contract has the storage `sealed`."""
    lake.line.protect(contract("storage: sealed"))
    return lake.stage_attempt(producer)


def rewrite_first_file(lake: Lake, attempt: AttemptView, *, same: bool = False) -> Callable[[], None]:
    """A function that writes the attempt's first data file again, as an administrator."""

    def write() -> None:
        place = lake.data_files(attempt)[0]
        data, tag = lake.admin.read_tagged(place, 100_000)
        assert lake.admin.swap(place, data if same else data[::-1], tag)

    return write


def test_the_store_refuses_the_producers_writes_after_the_freeze(
    lake: Lake, producer: StewardClient, attempt: AttemptView
) -> None:
    own = S3Store(lake.attempt_storage(producer, attempt))
    place, refusals = lake.data_files(attempt)[0], list[str]()

    def overwrite() -> None:
        for name, call in (
            (
                "put_object",
                lambda: call_store(own.client.put_object, Bucket=place.authority, Key="/".join(place.parts)),
            ),
            ("delete_object", lambda: own.remove(place)),
            ("another", lambda: own.put_new(place.child("x"), b"x", WriteHooks())),
        ):
            try:
                call()
            except OSError as error:
                refusals.append(f"{name}: {error.strerror}")

    own.put(parse_location(attempt.prefix).child("data", "more"), b"x", WriteHooks())
    with fault.armed("verify.after_freeze", fault.Call(overwrite)):
        found = lake.hand_in(producer, attempt)
    assert len(refusals) == 3
    assert all("AccessDenied" in each or "403" in each for each in refusals)
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert consumer_rows(lake) == sorted(ROWS)
    overwrite()
    assert len(refusals) == 6


def test_the_proof_says_sealed_and_pins_each_version(lake: Lake, producer: StewardClient, attempt: AttemptView) -> None:
    found = lake.hand_in(producer, attempt)
    with lake.line.notary.ledger.read() as unit:
        (record,) = proofs.list_by_attempt(unit, found.attempt_id)
        proof = read_unchecked(proofs.get_envelope(unit, record.proof_id), Proof)
    shown = lake.admin.versions(parse_location(attempt.prefix).child("data"))
    assert proof.notary.storage is Storage.SEALED
    assert {file.version_id for file in proof.core.files.added} == set(shown.values())


@pytest.mark.parametrize("same", [True, False], ids=["the same bytes", "other bytes"])
def test_a_new_version_between_freeze_and_digest_is_physical(
    lake: Lake, producer: StewardClient, attempt: AttemptView, same: bool
) -> None:
    with fault.armed("verify.after_freeze", fault.Call(rewrite_first_file(lake, attempt, same=same))):
        found = lake.hand_in(producer, attempt)
    assert (found.state, found.classes) == (AttemptState.VERIFICATION_FAILED, (FailureClass.PHYSICAL,))


@pytest.mark.parametrize("same", [True, False], ids=["the same bytes", "other bytes"])
def test_a_new_version_after_the_verdict_is_refused_by_the_gate(
    lake: Lake, producer: StewardClient, attempt: AttemptView, same: bool
) -> None:
    with fault.armed("verify.after_verdict", fault.Call(rewrite_first_file(lake, attempt, same=same))):
        found = lake.hand_in(producer, attempt)
    assert (found.state, found.verdict) == (AttemptState.VERIFICATION_FAILED, Outcome.PASS)
    assert found.refusal is not None
    assert found.refusal.reason == "sealed_version_changed"
    assert consumer_rows(lake) == []


def test_an_attempt_whose_file_was_removed_after_the_verdict_is_refused(
    lake: Lake, producer: StewardClient, attempt: AttemptView
) -> None:
    with fault.armed("verify.after_verdict", fault.Call(lambda: lake.admin.remove(lake.data_files(attempt)[0]))):
        found = lake.hand_in(producer, attempt)
    assert found.refusal is not None
    assert found.refusal.reason == "sealed_version_changed"


def test_a_new_version_after_the_commit_is_found_by_an_audit(
    lake: Lake, producer: StewardClient, attempt: AttemptView
) -> None:
    lake.hand_in(producer, attempt)
    assert audit_codes(lake) == set()
    rewrite_first_file(lake, attempt, same=True)()
    assert audit_codes(lake) == {"audit_version_changed"}


def test_a_multipart_upload_that_was_begun_before_the_seal_is_aborted(
    lake: Lake, producer: StewardClient, attempt: AttemptView
) -> None:
    own = S3Store(replace(lake.attempt_storage(producer, attempt), tries=1))
    place = lake.data_files(attempt)[0]
    named = {"Bucket": place.authority, "Key": "/".join(place.parts)}
    upload = call_store(own.client.create_multipart_upload, **named)["UploadId"]
    part = call_store(own.client.upload_part, **named, PartNumber=1, UploadId=upload, Body=b"other bytes")
    found = lake.hand_in(producer, attempt)
    assert found.state is AttemptState.COMMITTED
    listed = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    with pytest.raises(OSError, match="the store"):
        call_store(own.client.complete_multipart_upload, **named, UploadId=upload, MultipartUpload=listed)
    assert consumer_rows(lake) == sorted(ROWS)


def test_an_attempt_continues_after_a_crash_between_policy_and_freeze(
    lake: Lake, producer: StewardClient, attempt: AttemptView
) -> None:
    with fault.armed("lake.seal.after_policy", fault.Raise(UnavailableError("stopped", "for the test"))):
        producer.staged(attempt.attempt_id)
        assert wait_for_jobs(lake.line.notary.jobs, 60)
    found = lake.hand_in(producer, attempt)
    assert found.state is AttemptState.COMMITTED


def test_a_seal_that_was_removed_is_set_again_before_the_publication(
    lake: Lake, producer: StewardClient, attempt: AttemptView
) -> None:
    def lift() -> None:
        lake.admin.client.delete_bucket_policy(Bucket=lake.bucket.name)

    with fault.armed("verify.after_verdict", fault.Call(lift)):
        found = lake.hand_in(producer, attempt)
    assert found.state is AttemptState.COMMITTED
    policy = lake.admin.client.get_bucket_policy(Bucket=lake.bucket.name)["Policy"]
    assert roles.is_sealed(policy, ROLE, parse_location(attempt.prefix), until=1)


# What can be sealed


def open_seals(server: S3Server, vending: VendingSettings | None = None) -> Seals:
    return Seals(Stores(server.steward), vending, lambda _, work: work())


def vending_settings(server: S3Server) -> VendingSettings:
    return VendingSettings(PRODUCERS, CONSUMERS, server.endpoint, 900)


def test_a_bucket_without_versions_cannot_be_sealed(s3_server: S3Server) -> None:
    bucket = s3_server.bucket(versioned=False)
    seals = open_seals(s3_server, vending_settings(s3_server))
    assert reason_of(lambda: seals.seal(parse_location(f"{bucket.root}/a"))) == "bucket_unversioned"


def test_without_vended_credentials_nothing_can_be_sealed(s3_server: S3Server) -> None:
    bucket = s3_server.bucket()
    assert reason_of(lambda: open_seals(s3_server).seal(parse_location(f"{bucket.root}/a"))) == "seal_impossible"


def test_local_files_cannot_be_sealed(s3_server: S3Server) -> None:
    seals = open_seals(s3_server, vending_settings(s3_server))
    assert reason_of(lambda: seals.seal(parse_location("/srv/a"))) == "seal_impossible"


def test_a_seal_fails_if_the_store_does_not_enforce_its_policies(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.s3.models import FakeBucket

    monkeypatch.setattr(seal, "SEAL_WAIT_MAX_SECONDS", 0)
    monkeypatch.setattr(FakeBucket, "get_permission", lambda *_: None)
    bucket = s3_server.bucket()
    seals = open_seals(s3_server, vending_settings(s3_server))
    assert reason_of(lambda: seals.seal(parse_location(f"{bucket.root}/a"))) == "seal_not_in_force"
    assert list(s3_server.store.walk(parse_location(bucket.root))) == []


def test_two_seals_and_the_bucket_owners_own_statements_are_in_one_policy(s3_server: S3Server) -> None:
    bucket, seals = s3_server.bucket(), open_seals(s3_server, vending_settings(s3_server))
    own = (
        '{"Version":"2012-10-17","Statement":[{"Sid":"Own","Effect":"Deny","Principal":"*",'
        f'"Action":"s3:GetObject","Resource":"arn:aws:s3:::{bucket.name}/private/*"}}]}}'
    )
    s3_server.store.client.put_bucket_policy(Bucket=bucket.name, Policy=own)
    first, second = (parse_location(f"{bucket.root}/t/{name}") for name in ("one", "two"))
    seals.seal(first)
    seals.seal(second)
    policy = s3_server.store.client.get_bucket_policy(Bucket=bucket.name)["Policy"]
    assert '"Sid":"Own"' in policy.replace(" ", "")
    assert all(roles.is_sealed(policy, ROLE, each, until=1) for each in (first, second))


def test_a_workload_on_a_table_that_cannot_be_sealed_is_refused_when_it_is_opened(
    lake: Lake, producer: StewardClient, attempt: AttemptView
) -> None:
    client = lake.admin.client
    client.put_bucket_versioning(Bucket=lake.bucket.name, VersioningConfiguration={"Status": "Suspended"})
    assert reason_of(lambda: producer.open_workload("run-9", "sales.orders", {})) == "bucket_unversioned"


def test_a_seal_lasts_longer_than_every_session_that_was_vended_before_it(s3_server: S3Server) -> None:
    """Sessions last 1,800 seconds here. The seal must deny writes for at least 299 seconds more."""
    bucket = s3_server.bucket()
    seals = open_seals(s3_server, replace(vending_settings(s3_server), lifetime_seconds=1_800))
    prefix = parse_location(f"{bucket.root}/t")
    before = time.time()
    seals.seal(prefix)
    policy = s3_server.store.client.get_bucket_policy(Bucket=bucket.name)["Policy"]
    assert roles.is_sealed(policy, ROLE, prefix, until=int(before) + 1_800 + 299)


def test_a_workload_on_local_files_that_should_be_sealed_is_refused_when_it_is_opened() -> None:
    with memory_folder() as folder, line_at(folder) as line, line.client() as client:
        line.protect(contract("storage: sealed"))
        assert reason_of(lambda: client.open_workload("run-1", "sales.orders", {})) == "seal_impossible"
