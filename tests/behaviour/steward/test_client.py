"""The client against the real service: every route, the Steward's errors, and which calls are retried."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pvdm import check_proof
from pvdm.api.leases import LeaseRequest
from pvdm.client import Retries, StewardClient
from pvdm.client.wire import Call, Wire
from pvdm.digest.plan import Mode
from pvdm.errors import InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.ledger.work import attempts
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.model.statements.epoch import EpochStage
from pvdm.model.statements.proof import Isolation
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState, NonceState, WorkloadState
from pvdm.steward.http.roles import RULES
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.service import release_keys
from pvdm.trust.log.merkle import ConsistencyProof
from pvdm.trust.verify import sign_statement
from tests.support.steward.http import NO_SUCH_PROOF, Served, limited, served
from tests.support.steward.notary import (
    NOTARY,
    Stand,
    core_of,
    failed,
    override_of,
    root_naming,
    signed_override,
    signed_root,
)
from tools.proof_kit import ATTESTATION, SIGNERS, fixed

EMPTY = hashlib.sha256(b"").hexdigest()
HEX16, HEX32 = "ab" * 16, "ab" * 32


@dataclass(slots=True)
class House:
    """A served Steward, and a client for each role."""

    stand: Stand
    url: str

    def client(
        self, role: Role = Role.OPERATOR, domain: str = "*", name: str = "operator-tom", **options: Any
    ) -> StewardClient:
        return StewardClient(self.url, self.stand.token(role, domain, name)[0], **options)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with served(tmp_path) as steward:
        yield house_on(steward)


def house_on(steward: Served) -> House:
    return House(steward.stand, steward.server.url)


def refusal(work: Any) -> tuple[type[PvdmError], str]:
    with pytest.raises(PvdmError) as caught:
        work()
    return type(caught.value), caught.value.reason


ENVELOPE = b'{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[]}'
UUID = "0188c1f0-1111-7222-8333-944445555666"


def audit_calls(client: StewardClient) -> tuple[Callable[[], object], ...]:
    """One call of each method for audits."""
    return (
        lambda: client.audit("sales.orders"),
        lambda: client.audit_receipts("sales.orders", size=1),
        lambda: client.audit_statements("sales.orders", [HEX32], size=1),
        lambda: client.audit_file("sales.orders", 1),
        lambda: client.report_audit("sales.orders", ["audit_receipt_missing"], 1),
    )


def every_call(client: StewardClient) -> tuple[Callable[[], object], ...]:
    """One call of each method."""
    return (
        client.health,
        client.readiness,
        client.metrics,
        client.identity,
        client.info,
        client.events,
        lambda: client.confirm_clock("r"),
        client.trust_root,
        lambda: client.submit_trust_root(ENVELOPE),
        client.epochs,
        lambda: client.create_epoch("r"),
        lambda: client.activate_epoch(1, "r"),
        lambda: client.retire_epoch(1, "r"),
        lambda: client.revoke_epoch(1, "r"),
        client.workloads,
        client.newest_workloads,
        lambda: client.workload("w"),
        lambda: client.open_workload("w", "sales.orders", {}),
        lambda: client.chunks("w"),
        lambda: client.acquire_lease("w", LeaseRequest(run_id=HEX16, runner="r")),
        lambda: client.renew_lease("w", HEX16, 1),
        lambda: client.release_lease("w", HEX16, 1),
        lambda: client.next_attempt("w", "c", "r", 1),
        lambda: client.abandon_workload("w", "r"),
        lambda: client.publish_branch("w", "sales.orders", "b", {}),
        lambda: client.orphans("sales.orders"),
        lambda: client.remove_orphans("sales.orders"),
        client.quarantine,
        lambda: client.remove_quarantined([HEX16], "r"),
        lambda: client.staged(HEX16),
        lambda: client.attempt(HEX16),
        lambda: client.abort_attempt(HEX16, "r", 1),
        lambda: client.attempt_token(HEX16),
        client.proofs,
        lambda: client.proof(HEX32),
        lambda: client.proof_envelope(HEX32),
        lambda: client.proof_bundle(HEX32),
        lambda: client.open_proof(HEX32, "r"),
        client.overrides,
        lambda: client.submit_override(ENVELOPE),
        lambda: client.publish_override("09" * 32),
        client.jobs,
        lambda: client.target("table", "sales.orders"),
        client.protected,
        client.protections,
        lambda: client.submit_protection(ENVELOPE),
        lambda: client.contract(EMPTY),
        client.migrations,
        lambda: client.migration("ef" * 32),
        lambda: client.submit_migration(ENVELOPE),
        client.lost_claims,
        lambda: client.submit_claim_release(ENVELOPE),
        *audit_calls(client),
        lambda: client.challenge(
            nonce=HEX16, catalog="c", table_uuid=UUID, snapshot_id=1, mode="stored", fingerprints={}
        ),
        lambda: client.submit_attestation(ENVELOPE),
        client.attestations,
        client.log_checkpoint,
        lambda: client.log_tile("0/000"),
        lambda: client.log_proof(1),
        lambda: client.log_consistency(1, 2),
        lambda: client.exchange("id", "pvdm_x"),
    )


class RecordedError(Exception):
    """The call was recorded instead of sent."""


@pytest.fixture
def recorded_calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Keep the calls of every client in this list, and send none of them."""
    seen: list[Call] = []

    def record(_: Wire, call: Call, __: object) -> None:
        seen.append(call)
        raise RecordedError

    monkeypatch.setattr(Wire, "send", record)
    return seen


def record(*calls: Callable[[], object]) -> None:
    for call in calls:
        with pytest.raises(RecordedError):
            call()


def test_there_is_one_method_for_each_route(recorded_calls: list[Call]) -> None:
    record(*every_call(StewardClient("http://127.0.0.1:1")))
    values = {
        HEX16: "{attempt_id}",
        HEX32: "{proof_id}",
        EMPTY: "{contract_sha256}",
        "ef" * 32: "{migration_id}",
        "09" * 32: "{override_id}",
        "/targets/table": "/targets/{kind}",
        "/epochs/1": "/epochs/{number}",
        "/workloads/w": "/workloads/{workload_id}",
        "/tables/sales.orders": "/tables/{table}",
    }
    values |= {"/tile/0/000": "/tile/{path:path}", "/entries/1": "/entries/{index}"}
    called = set()
    for call in recorded_calls:
        path = call.path
        for value, name in sorted(values.items(), key=lambda pair: -len(pair[0])):
            path = path.replace(value, name)
        called.add((call.method, path))
    # The catalog's own routes are for Iceberg's clients.
    paths = {(verb, path) for verb, path in RULES if not path.startswith("/catalog/") or path.endswith("/oauth/tokens")}
    # Only the Steward's own workers redeem keys, and they do not use this client.
    assert called == paths - {("GET", "/v1/openapi.json"), ("POST", "/v1/keys/redeem")}


def test_only_idempotent_calls_are_repeatable(recorded_calls: list[Call]) -> None:
    client = StewardClient("http://127.0.0.1:1")
    record(
        lambda: client.submit_trust_root(ENVELOPE),
        lambda: client.submit_override(ENVELOPE),
        lambda: client.submit_protection(ENVELOPE),
        lambda: client.submit_migration(ENVELOPE),
        lambda: client.submit_claim_release(ENVELOPE),
        lambda: client.submit_attestation(ENVELOPE),
        lambda: client.challenge(
            nonce=HEX16, catalog="c", table_uuid=UUID, snapshot_id=1, mode="stored", fingerprints={}
        ),
        lambda: client.abort_attempt(HEX16, "r", 1),
        lambda: client.attempt_token(HEX16),
    )
    assert (len(recorded_calls), [call.path for call in recorded_calls if not call.repeatable]) == (9, [])
    recorded_calls.clear()
    record(
        lambda: client.create_epoch("r"),
        lambda: client.activate_epoch(1, "r"),
        lambda: client.retire_epoch(1, "r"),
        lambda: client.revoke_epoch(1, "r"),
        lambda: client.open_proof(HEX32, "r"),
        lambda: client.confirm_clock("r"),
        lambda: client.exchange("id", "pvdm_x"),
    )
    wrong = [call.path for call in recorded_calls if call.repeatable or not call.lost_hint]
    assert (len(recorded_calls), wrong) == (7, [])


def test_info_and_readiness_describe_the_running_steward(house: House) -> None:
    with house.client() as client:
        client.health()
        assert client.readiness().ready
        found = client.info()
        assert (found.notary, found.isolation, found.active_epoch) == (NOTARY, Isolation.PROCESS, 1)
        assert found.log_size == house.stand.notary.log.size()
        assert "# HELP" in client.metrics()


def test_after_a_clock_jump_the_steward_is_not_ready_until_the_clock_is_confirmed(house: House) -> None:
    with house.client() as client:
        client.identity()
        house.stand.time.jump(400 * 86_400 * 1_000_000)
        found = client.readiness()
        assert (found.ready, "clock_jumped" in [reason.reason for reason in found.reasons]) == (False, True)
        assert all(reason.expected for reason in found.reasons if reason.reason == "clock_jumped")
        house.stand.time.jump(-400 * 86_400 * 1_000_000)
        client.confirm_clock("the host's clock was set right")
        assert client.readiness().ready


def test_identity_has_the_tokens_role_domain_and_name(house: House) -> None:
    with house.client(Role.PRODUCER, "sales", "job-7") as client:
        found = client.identity()
    assert (found.role, found.domain, found.name, found.attempt_id) == (Role.PRODUCER, "sales", "job-7", None)


def test_a_wrong_role_and_an_unknown_token_are_refused(house: House) -> None:
    with house.client(Role.PRODUCER, "sales") as client:
        assert refusal(client.epochs) == (NotAllowedError, "role_wrong")
        with client.with_token("pvdm_nobody") as nobody:
            assert refusal(nobody.info) == (NotAllowedError, "token_unknown")


def test_an_error_has_the_stewards_reason_and_the_request_id(house: House) -> None:
    with house.client() as client, pytest.raises(InputError) as caught:
        client.proof(NO_SUCH_PROOF)
    assert caught.value.reason == "proof_unknown"
    assert len(str(caught.value.details["request_id"])) == 32


def test_an_epoch_is_created_named_in_the_next_trust_root_and_activated(house: House) -> None:
    with house.client() as client:
        first = client.trust_root()
        assert (first.version, len(first.chain)) == (1, 1)
        changes = client.create_epoch("yearly rotation")
        assert [(change.epoch, change.before, change.after) for change in changes] == [(2, None, EpochStage.CREATED)]
        assert refusal(lambda: client.activate_epoch(2, "too early"))[0] is VerificationError
        envelope = signed_root(root_naming(*house.stand.notary.epochs.book().epochs, version=2, previous=first.sha256))
        assert client.submit_trust_root(envelope).version == 2
        assert client.submit_trust_root(envelope).version == 2
        assert client.trust_root().chain[1] == envelope
        client.activate_epoch(2, "yearly rotation")
        client.revoke_epoch(1, "its keys are gone")
        assert [epoch.state for epoch in client.epochs()] == [EpochStage.REVOKED, EpochStage.ACTIVE]


def test_workloads_and_attempts_are_shown_only_to_their_domain(house: House) -> None:
    core = house.stand.verifying("one", domain="sales")
    house.stand.verifying("two", domain="risk")
    with house.client(Role.PRODUCER, "sales") as client:
        assert [each.workload_id for each in client.workloads()] == ["work-one"]
        found = client.workload("work-one")
        assert (found.workload.state, found.chunk_ids) == (WorkloadState.OPEN, (core.attempt.chunk_id,))
        assert [each.attempt_id for each in found.attempts] == [core.attempt.attempt_id]
        assert client.attempt(core.attempt.attempt_id).staged_snapshot_id == core.staged.snapshot_id
        assert refusal(lambda: client.workload("work-two")) == (NotAllowedError, "domain_wrong")


def test_pages_of_workloads_follow_one_another(house: House) -> None:
    for name in ("a", "b", "c"):
        house.stand.verifying(name)
    with house.client() as client:
        assert [each.workload_id for each in client.workloads(limit=2)] == ["work-a", "work-b"]
        assert [each.workload_id for each in client.workloads(after="work-b", limit=2)] == ["work-c"]


def test_an_attempts_token_is_valid_for_that_attempt_only(house: House) -> None:
    core, other = house.stand.staging("one"), house.stand.staging("two")
    with house.client(Role.PRODUCER, "sales") as client:
        issued = client.attempt_token(core.attempt.attempt_id)
    assert issued.identity.attempt_id == core.attempt.attempt_id
    with StewardClient(house.url, issued.token) as job:
        assert refusal(lambda: job.attempt(other.attempt.attempt_id))[0] is NotAllowedError
        ended = job.abort_attempt(core.attempt.attempt_id, "the job was stopped", 1)
        assert (ended.state, ended.reason) == (AttemptState.ROLLED_BACK, "the job was stopped")
        assert job.abort_attempt(core.attempt.attempt_id, "the job was stopped", 1) == ended


def test_a_proof_is_listed_fetched_and_checked_offline(house: House) -> None:
    recorded = house.stand.proved("one", passed=False)
    with house.client(Role.CONSUMER, "sales") as client:
        found = client.proof(recorded.statement_id)
        assert (found.verdict, found.classes) == (Outcome.FAIL, (FailureClass.MODIFIED,))
        assert client.proofs(workload_id="work-one") == (found,)
        assert client.proofs(attempt_id=found.attempt_id, after=found.log_index) == ()
        assert client.proof_envelope(found.proof_id) == recorded.envelope
        bundle, roots = client.proof_bundle(found.proof_id), client.trust_root()
    checked = check_proof(bundle, roots.chain, pin=roots.sha256, now=house.stand.time.wall)
    assert checked.proof.proof_ids == (found.proof_id,)


def test_an_auditor_gets_the_keys_of_an_ended_attempt(house: House) -> None:
    recorded = house.stand.proved("one", passed=False)
    core = core_of("one")

    def end(unit: Any) -> None:
        attempts.end(unit, core.attempt.attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL")

    house.stand.notary.ledger.transact(end, at_micros=house.stand.notary.clock.now_micros())
    with house.client(Role.AUDITOR, "*", "auditor-ann") as client:
        released = client.open_proof(recorded.statement_id, "the yearly audit")
        steps = [event for event in client.events(limit=1000) if event.kind == "proof_opened"]
    context = AttemptContext(
        released.context.epoch,
        released.context.workload_id,
        released.context.chunk_id,
        released.context.attempt_id,
        released.context.nonce,
        Mode(released.context.mode),
        tuple((name, bytes.fromhex(text)) for name, text in released.context.fingerprints.items()),
        bytes.fromhex(released.context.intent_root),
        bytes.fromhex(released.context.staged_root),
    )
    derived = release_keys(house.stand.notary.keys, context, ended=True)
    row_hash, commitment = dict(derived.row_hash), dict(derived.commitment)
    for name, pair in released.keys.items():
        assert pair.row_hash.reveal() == row_hash[name].reveal()
        assert pair.commitment.reveal() == commitment[name].reveal()
    assert set(released.keys) == {ProjectionName.CONTENT, ProjectionName.IDENTITY}
    assert [dict(step.new or ())["reason"] for step in steps] == ["the yearly audit"]


def test_an_override_is_handed_in_and_shown_wherever_its_proof_is(house: House) -> None:
    recorded = house.stand.proved("one", passed=False)
    override = override_of(recorded, failed(core_of("one")), house.stand.time.wall)
    with house.client() as client:
        submitted = client.submit_override(signed_override(override))
        assert client.submit_override(signed_override(override)) == submitted
        assert (submitted.operator, submitted.state, submitted.nonce) == (
            "operator-ruth",
            NonceState.RESERVED,
            override.nonce,
        )
        assert client.overrides() == (submitted,)
        assert client.proof(recorded.statement_id).override_id == submitted.override_id


def test_an_override_that_is_signed_with_the_wrong_key_is_refused(house: House) -> None:
    recorded = house.stand.proved("one", passed=False)
    override = override_of(recorded, failed(core_of("one")), house.stand.time.wall)
    with house.client() as client:
        assert refusal(lambda: client.submit_override(signed_override(override, "root-one")))[0] is NotAllowedError


def test_a_source_attests_and_a_repeated_challenge_has_the_same_keys(house: House) -> None:
    nonce, fingerprint = fixed("challenge", 16), ATTESTATION.schema_fingerprint
    with house.client(Role.ATTESTOR, "*", "source-payments") as client:
        request: dict[str, Any] = {
            "nonce": nonce,
            "catalog": ATTESTATION.table.catalog,
            "table_uuid": ATTESTATION.table.uuid,
            "snapshot_id": ATTESTATION.snapshot_id,
            "mode": ATTESTATION.mode,
            "fingerprints": {ATTESTATION.projection: fingerprint},
        }
        first, again = client.challenge(**request), client.challenge(**request)
        keys = [each.keys[ATTESTATION.projection].row_hash.reveal() for each in (first, again)]
        assert keys[0] == keys[1]
        attestation = replace(ATTESTATION, nonce=nonce, epoch=first.epoch, issued_at=house.stand.time.wall)
        envelope = sign_statement(attestation, SIGNERS["source-payments"]).to_bytes()
        stored = client.submit_attestation(envelope)
        assert client.submit_attestation(envelope) == stored
        assert (stored.row_count, stored.snapshot_id) == (attestation.row_count, attestation.snapshot_id)
        assert client.attestations(table_uuid=attestation.table.uuid, snapshot_id=attestation.snapshot_id) == (stored,)
        assert client.attestations(snapshot_id=1) == ()


def test_the_log_is_read_through_the_client(house: House) -> None:
    house.stand.proved("one")
    log = house.stand.notary.log
    with house.client(Role.CONSUMER, "sales") as client:
        size = client.info().log_size
        assert client.log_checkpoint() == log.checkpoint()
        assert client.log_tile(f"0/000.p/{size}") == log.tile(f"tile/0/000.p/{size}")
        assert client.log_proof(1) == log.proof(1)
        hashes = client.log_consistency(2, size)
    assert ConsistencyProof(2, size, hashes) == log.consistency(2, size)


def test_a_long_lived_token_is_exchanged_for_a_short_one(house: House) -> None:
    text, grant = house.stand.token(Role.PRODUCER, "sales", "job")
    with StewardClient(house.url) as client:
        issued = client.exchange(grant.token_id, text)
        assert 0 < issued.expires_in <= 3_600
        with client.with_token(issued.access_token) as job:
            assert job.identity().domain == "sales"
        assert refusal(lambda: client.exchange(grant.token_id, "pvdm_x")) == (NotAllowedError, "token_exchange_refused")


def test_a_rate_limited_call_is_retried_until_it_succeeds(tmp_path: Path) -> None:
    slow, patient = limited(rate_per_second=5, burst=5), Retries(tries=20)
    with served(tmp_path, changed=slow) as steward, house_on(steward).client(retries=patient) as client:
        assert [client.identity().name for _ in range(12)] == ["operator-tom"] * 12


def test_a_rate_limited_call_that_is_not_repeatable_is_not_retried(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(rate_per_second=1, burst=3)) as steward, house_on(steward).client() as client:
        reasons = [refusal(lambda: client.retire_epoch(99, "r"))[1] for _ in range(8)]
    assert "rate_limited" in reasons


def test_one_client_serves_many_threads(house: House) -> None:
    found: list[str] = []
    with house.client() as client:
        threads = [
            threading.Thread(target=lambda: found.extend(client.identity().name for _ in range(5))) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["operator-tom"] * 80
