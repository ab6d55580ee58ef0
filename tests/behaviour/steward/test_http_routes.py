"""The routes of the Steward's HTTP API on a real Steward: what each returns, and in which form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pvdm
from pvdm.ledger.record import proofs
from pvdm.ledger.record.tokens import BearerToken
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import attempts, workloads
from pvdm.ledger.work.attempts import AttemptOpening
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.workloads import Opening, PinnedWorkload
from pvdm.model.contract import Atomicity
from pvdm.model.role import Role
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.core import Profile
from pvdm.model.states import AttemptState
from pvdm.steward.config.steward import CatalogConfig
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.verify import sign_statement
from tests.support.steward.http import REASON, Served, bearer, refusal, served
from tests.support.steward.notary import Stand, core_of, failed, override_of, root_naming, signed_override, signed_root
from tools.proof_kit import SIGNERS, fixed


@pytest.fixture
def steward(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


def end_attempt(stand: Stand, attempt_id: str) -> None:
    def work(unit: Unit) -> None:
        attempts.end(unit, attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL")

    stand.notary.ledger.transact(work, at_micros=stand.notary.clock.now_micros())


def get(steward: Served, path: str, role: Role = Role.OPERATOR, domain: str = "*") -> Any:
    response = steward.http.get(path, headers=steward.headers(role, domain))
    assert response.status_code == 200, response.text
    return response.json()


def test_identity_shows_role_domain_and_expiry_of_the_token(steward: Served) -> None:
    text, grant = steward.stand.token(Role.AUDITOR, "sales", "anna")
    assert steward.http.get("/v1/identity", headers=bearer(text)).json() == {
        "token_id": grant.token_id,
        "role": "auditor",
        "domain": "sales",
        "name": "anna",
        "expires_at": grant.expires_micros,
        "attempt_id": None,
    }


def test_the_steward_shows_its_identity_log_size_and_versions(steward: Served) -> None:
    assert get(steward, "/v1/steward", Role.CONSUMER) == {
        "notary": "steward-one",
        "origin": "steward-one.example/log",
        "isolation": "process",
        "version": pvdm.__version__,
        "active_epoch": "1",
        "log_size": str(steward.stand.notary.log.size()),
        "trust_root_version": 1,
        "catalog": {"name": "lake", "warehouse": steward.stand.config.catalog.warehouse},
        "outbox": [],
    }


def test_the_steward_names_the_catalog_that_it_serves(tmp_path: Path) -> None:
    catalog = CatalogConfig(f"file://{tmp_path}/warehouse", tmp_path / "catalog", "shop")
    with served(tmp_path / "steward", changed=lambda config: replace(config, catalog=catalog)) as steward:
        shown = get(steward, "/v1/steward", Role.CONSUMER)["catalog"]
    assert shown == {"name": "shop", "warehouse": f"file://{tmp_path}/warehouse"}


def test_a_steward_without_a_trust_root_reports_that_it_has_none(tmp_path: Path) -> None:
    with served(tmp_path, rooted=False) as steward:
        assert get(steward, "/v1/steward")["trust_root_version"] is None
        response = steward.http.get("/v1/trust-root", headers=steward.headers())
        assert refusal(response) == (503, "steward_without_root")


def test_the_first_trust_root_is_accepted_with_its_hash_only(tmp_path: Path) -> None:
    with served(tmp_path, rooted=False) as steward:
        active = steward.stand.notary.epochs.book().active
        assert active is not None
        root = root_naming(active)
        body = {"envelope": json.loads(signed_root(root))}
        headers = steward.headers()
        assert refusal(steward.http.post("/v1/trust-root", json=body, headers=headers)) == (
            400,
            "trust_root_pin_missing",
        )
        response = steward.http.post("/v1/trust-root", json={**body, "sha256": root.sha256}, headers=headers)
        assert response.json() == {"version": 1, "sha256": root.sha256}


def test_the_chain_of_trust_roots_is_shown_as_it_was_signed(steward: Served) -> None:
    answer = get(steward, "/v1/trust-root", Role.CONSUMER)
    assert (answer["version"], answer["sha256"]) == (1, steward.stand.notary.trust.current().sha256)
    assert answer["chain"] == [json.loads(envelope) for envelope in steward.stand.notary.trust.chain()]


def test_an_envelope_in_another_json_spelling_is_accepted_as_the_same(steward: Served) -> None:
    envelope = json.loads(steward.stand.notary.trust.chain()[0])
    spelled = json.dumps({"envelope": dict(reversed(envelope.items()))}, indent=3).encode()
    headers = {**steward.headers(), "content-type": "application/json"}
    assert steward.http.post("/v1/trust-root", content=spelled, headers=headers).json()["version"] == 1


def test_a_trust_root_with_an_invalid_signature_is_refused(steward: Served) -> None:
    current = steward.stand.notary.trust.current()
    root = root_naming(*steward.stand.notary.epochs.book().epochs, version=2, previous=current.sha256)
    envelope = json.loads(signed_root(root))
    envelope["signatures"][0]["sig"] = envelope["signatures"][1]["sig"]
    response = steward.http.post("/v1/trust-root", json={"envelope": envelope}, headers=steward.headers())
    assert response.status_code == 422
    assert steward.stand.notary.trust.current() == current


def test_an_epoch_is_created_activated_retired_and_revoked(steward: Served) -> None:
    headers = steward.headers()
    created = steward.http.post("/v1/epochs", json=REASON, headers=headers).json()["changes"]
    assert [(each["epoch"], each["before"], each["after"], each["reason"]) for each in created] == [
        ("2", None, "CREATED", REASON["reason"])
    ]
    book = steward.stand.notary.epochs.book()
    current = steward.stand.notary.trust.current()
    root = root_naming(*book.epochs, version=2, previous=current.sha256)
    body = {"envelope": json.loads(signed_root(root))}
    assert steward.http.post("/v1/trust-root", json=body, headers=headers).json()["version"] == 2
    active = steward.http.post("/v1/epochs/2/activate", json=REASON, headers=headers).json()["changes"]
    assert {(each["epoch"], each["after"]) for each in active} == {("1", "RETIRED"), ("2", "ACTIVE")}
    revoked = steward.http.post("/v1/epochs/1/revoke", json=REASON, headers=headers).json()["changes"]
    assert [(each["epoch"], each["after"]) for each in revoked] == [("1", "REVOKED")]
    assert (
        steward.http.post("/v1/epochs/2/retire", json=REASON, headers=headers).json()["changes"][0]["after"]
        == "RETIRED"
    )
    shown = get(steward, "/v1/epochs", Role.AUDITOR)["epochs"]
    assert [(each["number"], each["state"]) for each in shown] == [("1", "REVOKED"), ("2", "RETIRED")]
    assert set(shown[0]["key_ids"]) == {"signing", "log"}


def test_an_unknown_epoch_is_not_found(steward: Served) -> None:
    response = steward.http.post("/v1/epochs/77/retire", json=REASON, headers=steward.headers())
    assert refusal(response) == (404, "epoch_unknown")


def test_workloads_are_listed_page_by_page_within_the_domain(steward: Served) -> None:
    for name in ("a", "b", "c"):
        steward.stand.verifying(name)
    steward.stand.verifying("x", domain="other")
    first = get(steward, "/v1/workloads?limit=2", Role.PRODUCER, "sales")["workloads"]
    assert [each["workload_id"] for each in first] == ["work-a", "work-b"]
    rest = get(steward, "/v1/workloads?after=work-b", Role.PRODUCER, "sales")["workloads"]
    assert [each["workload_id"] for each in rest] == ["work-c"]


def test_a_workload_is_shown_with_its_plan_and_attempts(steward: Served) -> None:
    core = steward.stand.verifying()
    answer = get(steward, f"/v1/workloads/{core.attempt.workload_id}", Role.PUBLISHER, "sales")
    assert (answer["domain"], answer["state"], answer["epoch"], answer["source_snapshot_id"]) == (
        "sales",
        "OPEN",
        "1",
        "77",
    )
    assert answer["chunk_ids"] == [core.attempt.chunk_id]
    assert [each["attempt_id"] for each in answer["attempts"]] == [core.attempt.attempt_id]
    assert answer["published"] == []


def open_big_workload(stand: Stand, chunks: int, attempts_each: int) -> None:
    """Open the workload `big` with so many chunks, and at each chunk so many attempts, all rolled back."""
    core = core_of("big")

    def work(unit: Unit) -> None:
        opening = Opening(
            "big", core.attempt.contract_sha256, core.target.table.uuid, "raw", b"{}", Atomicity.CHUNK, "sales"
        )
        plan = [Chunk(f"chunk-{number}", b"{}") for number in range(chunks)]
        workloads.open_once(unit, opening, PinnedWorkload("7", core.attempt.plan_sha256, 1, plan))
        for number in range(chunks * attempts_each):
            name, chunk_id = f"{number:032x}", f"chunk-{number // attempts_each}"
            opened = AttemptOpening(name, "big", chunk_id, f"branch-{number}", f"prefix-{number}/", name, "planted")
            attempts.open_next(unit, opened)
            attempts.end(unit, name, AttemptState.ROLLED_BACK, reason="planted")

    stand.notary.ledger.transact(work, at_micros=stand.notary.clock.now_micros())


def test_a_large_plan_is_shown_page_by_page(steward: Served) -> None:
    open_big_workload(steward.stand, 7, 1)
    pages = [get(steward, f"/v1/workloads/big?chunks_after={after}&limit=3") for after in (0, 3, 6, 7)]
    assert [len(page["chunk_ids"]) for page in pages] == [3, 3, 1, 0]
    assert [name for page in pages for name in page["chunk_ids"]] == [f"chunk-{number}" for number in range(7)]
    assert [each["chunk_id"] for page in pages for each in page["attempts"]] == [f"chunk-{n}" for n in range(7)]
    assert {page["chunk_count"] for page in pages} == {7}


def test_a_page_with_many_attempts_has_fewer_chunks_and_nothing_is_left_out(
    steward: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "ATTEMPTS_PAGE_MAX_ROWS", 10)
    open_big_workload(steward.stand, 5, 4)
    chunk_ids: list[str] = []
    attempt_ids: list[str] = []
    while len(chunk_ids) < 5:
        page = get(steward, f"/v1/workloads/big?chunks_after={len(chunk_ids)}")
        assert 0 < len(page["attempts"]) <= 10
        chunk_ids += page["chunk_ids"]
        attempt_ids += [each["attempt_id"] for each in page["attempts"]]
    assert chunk_ids == [f"chunk-{number}" for number in range(5)]
    assert attempt_ids == [f"{number:032x}" for number in range(20)]


def test_an_override_without_a_signature_is_refused(steward: Served) -> None:
    core = failed(steward.stand.verifying("a"))
    override = override_of(steward.stand.record(core), core, steward.stand.time.wall)
    body = {"envelope": {**json.loads(signed_override(override)), "signatures": []}}
    response = steward.http.post("/v1/overrides", json=body, headers=steward.headers())
    assert (response.status_code, response.json()["error"]["reason"]) == (403, "override_unsigned")


def test_only_the_newest_overrides_are_listed(steward: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    override_ids = []
    for name in ("a", "b"):
        core = failed(steward.stand.verifying(name))
        override = override_of(steward.stand.record(core), core, steward.stand.time.wall)
        override = replace(override, nonce=fixed(f"override {name}", 16))
        body = {"envelope": json.loads(signed_override(override))}
        override_ids.append(
            steward.http.post("/v1/overrides", json=body, headers=steward.headers()).json()["override_id"]
        )
        steward.stand.time.pass_by(1_000)
    assert [each["override_id"] for each in get(steward, "/v1/overrides")["overrides"]] == override_ids[::-1]
    monkeypatch.setattr(proofs, "OVERRIDES_PAGE_MAX_ROWS", 1)
    assert [each["override_id"] for each in get(steward, "/v1/overrides")["overrides"]] == override_ids[1:]


def test_an_auditor_of_one_domain_cannot_list_attestations(steward: Served) -> None:
    one_domain = steward.headers(Role.AUDITOR, "sales")
    assert refusal(steward.http.get("/v1/attestations", headers=one_domain)) == (403, "domain_wrong")
    assert get(steward, "/v1/attestations", Role.ATTESTOR, "sales") == {"attestations": []}


def test_a_producer_aborts_an_attempt_with_the_attempts_token(steward: Served) -> None:
    core = steward.stand.staging()
    path = f"/v1/attempts/{core.attempt.attempt_id}"
    token, producer = BearerToken.draw(), steward.headers(Role.PRODUCER, "sales")
    issued = steward.http.post(f"{path}/tokens", json={"secret_sha256": token.sha256}, headers=producer).json()
    assert issued["identity"]["attempt_id"] == core.attempt.attempt_id
    response = steward.http.post(f"{path}/abort", json={**REASON, "lease_number": 1}, headers=bearer(token.reveal()))
    assert (response.json()["state"], response.json()["reason"]) == ("ROLLED_BACK", REASON["reason"])


def test_a_proof_is_listed_shown_and_returned_as_it_was_signed(steward: Served) -> None:
    recorded = steward.stand.proved()
    listed = get(steward, "/v1/proofs?workload_id=work-one", Role.CONSUMER, "sales")["proofs"]
    one = get(steward, f"/v1/proofs/{recorded.statement_id}", Role.CONSUMER, "sales")
    assert listed == [one]
    assert (one["verdict"], one["overridden"], one["override_id"]) == ("PASS", False, None)
    assert (one["rows_intent"], one["log_index"]) == ("48210", str(recorded.log_index))
    headers = steward.headers(Role.CONSUMER, "sales")
    assert (
        steward.http.get(f"/v1/proofs/{recorded.statement_id}/envelope", headers=headers).content == recorded.envelope
    )
    bundle = steward.http.get(f"/v1/proofs/{recorded.statement_id}/bundle", headers=headers)
    assert bundle.json()["format"] == "pvdm-bundle/v1"


def test_proofs_are_listed_backwards_from_a_log_index(steward: Served) -> None:
    indexes = [str(steward.stand.proved(name).log_index) for name in ("a", "b", "c")]
    newest = get(steward, "/v1/proofs?limit=2")["proofs"]
    assert [each["log_index"] for each in newest] == [indexes[2], indexes[1]]
    rest = get(steward, f"/v1/proofs?after={indexes[1]}")["proofs"]
    assert [each["log_index"] for each in rest] == [indexes[0]]


def test_another_domains_proof_is_refused(steward: Served) -> None:
    recorded = steward.stand.proved()
    response = steward.http.get(f"/v1/proofs/{recorded.statement_id}", headers=steward.headers(Role.CONSUMER, "other"))
    assert refusal(response) == (403, "domain_wrong")


def test_under_profile_t_a_producer_sees_no_row_counts(steward: Served) -> None:
    core = steward.stand.verifying()
    recorded = steward.stand.record(replace(core, method=replace(core.method, profile=Profile.T)))
    path = f"/v1/proofs/{recorded.statement_id}"
    assert get(steward, path, Role.PRODUCER, "sales")["rows_intent"] is None
    assert get(steward, path, Role.AUDITOR)["rows_intent"] == "48210"


def test_an_auditor_gets_the_keys_of_an_attempt_only_after_its_end(steward: Served) -> None:
    core = steward.stand.verifying()
    recorded = steward.stand.record(failed(core))
    path = f"/v1/proofs/{recorded.statement_id}/open"
    auditor = steward.headers(Role.AUDITOR, "sales", "anna")
    assert steward.http.post(path, json=REASON, headers=auditor).status_code in (403, 409)
    end_attempt(steward.stand, core.attempt.attempt_id)
    response = steward.http.post(path, json=REASON, headers=auditor)
    answer = response.json()
    assert response.headers["cache-control"] == "no-store"
    assert answer["context"]["attempt_id"] == core.attempt.attempt_id
    assert set(answer["keys"]) == {"identity", "content"}
    assert {len(key) for pair in answer["keys"].values() for key in pair.values()} == {64}
    events = get(steward, "/v1/events?limit=1000")["events"]
    recorded_openings = [event["new"] for event in events if event["kind"] == "proof_opened"]
    assert [(each["by"], each["reason"]) for each in recorded_openings] == [("anna", REASON["reason"])]


def test_an_override_is_submitted_listed_and_shown_with_its_proof(steward: Served) -> None:
    core = failed(steward.stand.verifying())
    recorded = steward.stand.record(core)
    override = override_of(recorded, core, steward.stand.time.wall)
    body = {"envelope": json.loads(signed_override(override))}
    submitted = steward.http.post("/v1/overrides", json=body, headers=steward.headers()).json()
    assert (submitted["operator"], submitted["state"], submitted["fail_proof_id"]) == (
        "operator-ruth",
        "RESERVED",
        recorded.statement_id,
    )
    assert get(steward, "/v1/overrides", Role.CONSUMER, "sales") == {"overrides": [submitted]}
    proof = get(steward, f"/v1/proofs/{recorded.statement_id}", Role.CONSUMER, "sales")
    assert (proof["overridden"], proof["override_id"]) == (True, submitted["override_id"])


def challenge_body(core: Any) -> dict[str, Any]:
    return {
        "nonce": fixed("challenge", 16),
        "catalog": core.target.table.catalog,
        "table_uuid": core.target.table.uuid,
        "snapshot_id": "77",
        "mode": "stored",
        "fingerprints": {"content": fixed("content schema")},
    }


def test_a_source_attests_its_snapshot_against_a_challenge(steward: Served) -> None:
    core = steward.stand.verifying()
    body = challenge_body(core)
    headers = steward.headers(Role.ATTESTOR, "*", "source-payments")
    first = steward.http.post("/v1/attestations/challenges", json=body, headers=headers)
    again = steward.http.post("/v1/attestations/challenges", json=body, headers=headers)
    assert first.status_code == 200, first.text
    assert first.json() == again.json()
    assert set(first.json()["keys"]) == {"content"}
    attestation = SourceAttestation(
        attestor="source-payments",
        table=core.target.table,
        snapshot_id=77,
        row_count=48_210,
        projection=next(each.projection.name for each in core.projections if each.projection.name.value == "content"),
        schema_fingerprint=body["fingerprints"]["content"],
        mode="stored",
        construction=core.method.construction,
        epoch=int(first.json()["epoch"]),
        nonce=body["nonce"],
        commitment=fixed("commitment"),
        issued_at=steward.stand.time.wall,
    )
    signed = {"envelope": json.loads(sign_statement(attestation, SIGNERS["source-payments"]).to_bytes())}
    submitted = steward.http.post("/v1/attestations", json=signed, headers=headers)
    assert submitted.status_code == 200, submitted.text
    assert (submitted.json()["snapshot_id"], submitted.json()["row_count"], submitted.json()["projection"]) == (
        "77",
        "48210",
        "content",
    )
    listed = get(steward, f"/v1/attestations?table_uuid={body['table_uuid']}&snapshot_id=77", Role.AUDITOR)
    assert listed == {"attestations": [submitted.json()]}
    other = steward.headers(Role.ATTESTOR, "*", "source-other")
    assert steward.http.get("/v1/attestations", headers=other).json() == {"attestations": []}


def test_a_challenge_without_any_fingerprint_is_refused(steward: Served) -> None:
    body = {**challenge_body(steward.stand.verifying()), "fingerprints": {}}
    headers = steward.headers(Role.ATTESTOR, "*", "source-payments")
    response = steward.http.post("/v1/attestations/challenges", json=body, headers=headers)
    assert response.status_code == 400


def test_a_snapshot_id_beyond_64_bits_is_refused(steward: Served) -> None:
    body = {**challenge_body(steward.stand.verifying()), "snapshot_id": "9999999999999999999"}
    headers = steward.headers(Role.ATTESTOR, "*", "source-payments")
    response = steward.http.post("/v1/attestations/challenges", json=body, headers=headers)
    assert refusal(response) == (400, "request_invalid")


def test_the_log_is_read_as_checkpoint_tiles_and_proofs(steward: Served) -> None:
    recorded = steward.stand.proved()
    headers = steward.headers(Role.CONSUMER, "sales")
    checkpoint = steward.http.get("/v1/log/checkpoint", headers=headers)
    size = read_unverified(checkpoint.content).checkpoint.size
    assert checkpoint.headers["content-type"] == "text/plain; charset=utf-8"
    tile = steward.http.get(f"/v1/log/tile/0/000.p/{size}", headers=headers)
    assert (len(tile.content), tile.headers["content-type"]) == (32 * size, "application/octet-stream")
    proof = steward.http.get(f"/v1/log/entries/{recorded.log_index}/proof", headers=headers)
    assert proof.text.startswith(f"c2sp.org/tlog-proof@v1\nindex {recorded.log_index}\n")
    hashes = steward.http.get(f"/v1/log/consistency?old=1&new={size}", headers=headers).json()["hashes"]
    assert [bytes.fromhex(each) for each in hashes] == list(steward.stand.notary.log.consistency(1, size).hashes)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/log/tile/0/001", (404, "tile_unknown")),
        ("/v1/log/tile/0/1", (400, "tile_path_invalid")),
        ("/v1/log/tile/../../etc/passwd", (404, "route_unknown")),
        ("/v1/log/tile/%2e%2e/%2e%2e/x", (400, "tile_path_invalid")),
        ("/v1/log/tile/" + "9" * 300, (400, "request_invalid")),
        ("/v1/log/entries/1000/proof", (404, "log_entry_unknown")),
        ("/v1/log/entries/-1/proof", (400, "request_invalid")),
        ("/v1/log/consistency?old=5&new=1", (400, "log_sizes_invalid")),
        ("/v1/log/consistency?old=1", (400, "request_invalid")),
    ],
)
def test_a_path_or_size_that_the_log_does_not_have_is_refused(
    steward: Served, path: str, expected: tuple[int, str]
) -> None:
    assert refusal(steward.http.get(path, headers=steward.headers())) == expected


def test_the_step_log_is_read_in_order_and_has_no_hash_of_a_token(steward: Served) -> None:
    first = get(steward, "/v1/events?limit=3")["events"]
    assert [each["event_id"] for each in first] == sorted((each["event_id"] for each in first), key=int)
    rest = get(steward, f"/v1/events?after={first[-1]['event_id']}&limit=1000")["events"]
    assert all(int(each["event_id"]) > int(first[-1]["event_id"]) for each in rest)
    assert "secret_sha256" not in json.dumps(rest)
    assert any(each["subject"] == "tokens" for each in rest)
