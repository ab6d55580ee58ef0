"""Source attestations: a challenge gives keys, the signed attestation is logged once, and only its rows fit it."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from pvdm.api.proofs import AttestationView, Challenge
from pvdm.digest import Construction, Mode, Partial, Plan, digest, reference_engine
from pvdm.errors import PvdmError
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import nonces
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.role import Role
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.table import TableRef
from pvdm.steward.record.attestations import CHALLENGE_SECONDS, ChallengeRequest
from pvdm.trust.commitment import commit, require_commitment_to
from pvdm.trust.keys.context import SourceContext
from pvdm.trust.verify import sign_statement
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import Stand, root_naming, signed_root, stand_at
from tools.proof_kit import DAY, SECOND, SIGNERS, SOURCE, fixed

CONTENT, IDENTITY = ProjectionName.CONTENT, ProjectionName.IDENTITY
SCHEMA = Schema(
    (Field("payment_id", PrimitiveType(Kind.LONG), required=True), Field("amount", PrimitiveType(Kind.LONG)))
)
PLAN = Plan(SCHEMA, (identity(SCHEMA, ["payment_id"]), content(SCHEMA)), Mode.STORED, Construction.HMAC_SHA256)
FINGERPRINTS = tuple((name, PLAN.fingerprint(name)) for name in ProjectionName)
REQUEST = ChallengeRequest(
    nonce=fixed("challenge", 16),
    catalog=SOURCE.catalog,
    table_uuid=SOURCE.uuid,
    snapshot_id=1_206_533_119_840_177_310,
    mode=Mode.STORED,
    fingerprints=FINGERPRINTS,
)
ROWS = [(number, 100 * number) for number in range(50)]


def batch_of(rows: list[tuple[int, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "payment_id": pa.array([payment_id for payment_id, _ in rows], pa.int64()),
            "amount": pa.array([amount for _, amount in rows], pa.int64()),
        }
    )


@dataclass(frozen=True)
class Case:
    """A Steward and a source with its token."""

    stand: Stand
    grant: Grant

    def challenge(self, **changes: Any) -> Challenge:
        return self.stand.notary.attestations.challenge(self.grant, replace(REQUEST, **changes))

    def submit(
        self, attestation: SourceAttestation, *, signer: str = "source-payments", grant: Grant | None = None
    ) -> Any:
        envelope = sign_statement(attestation, SIGNERS[signer]).to_bytes()
        return self.submit_envelope(envelope, grant)

    def submit_envelope(self, envelope: bytes, grant: Grant | None = None) -> AttestationView:
        return self.stand.notary.attestations.submit(envelope, grant or self.grant)


@pytest.fixture
def case() -> Iterator[Case]:
    with memory_folder() as folder, stand_at(folder) as stand:
        yield Case(stand, stand.grant(Role.ATTESTOR, "payments", "source-payments"))


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def refusal_of(case: Case, call: Callable[[], object]) -> str:
    """The reason of the refusal, after which nothing is stored or logged."""
    before = case.stand.notary.log.size()
    reason = reason_of(call)
    assert (case.stand.notary.attestations.list_attestations(), case.stand.notary.log.size()) == ([], before)
    return reason


def key_bytes(challenge: Challenge) -> list[bytes]:
    return [key.reveal() for pair in challenge.keys.values() for key in (pair.row_hash, pair.commitment)]


def has_same_keys(one: Challenge, other: Challenge) -> bool:
    return all(hmac.compare_digest(*pair) for pair in zip(key_bytes(one), key_bytes(other), strict=True))


def content_digest(keys: Any, rows: list[tuple[int, int]] = ROWS) -> Partial:
    """The content digest of these rows under these keys, as either side computes it."""
    return digest(batch_of(rows), PLAN, dict(keys), engine=reference_engine())[CONTENT]


def attest(case: Case, challenge: Challenge, **changes: Any) -> SourceAttestation:
    """The attestation of an honest source about its rows, with these changes."""
    digested = content_digest({name: pair.row_hash for name, pair in challenge.keys.items()})
    attestation = SourceAttestation(
        attestor="source-payments",
        table=TableRef(SOURCE.catalog, SOURCE.uuid, "raw.payments"),
        snapshot_id=REQUEST.snapshot_id,
        row_count=digested.rows,
        projection=CONTENT,
        schema_fingerprint=digested.fingerprint.hex(),
        mode="stored",
        construction="hmac-sha256",
        epoch=challenge.epoch,
        nonce=challenge.nonce,
        commitment=commit(challenge.keys[CONTENT].commitment, digested),
        issued_at=case.stand.time.wall,
    )
    return replace(attestation, **changes)


def test_a_challenge_gives_the_keys_of_the_active_epoch_for_a_day(case: Case) -> None:
    challenge = case.challenge()
    assert (challenge.nonce, challenge.epoch) == (REQUEST.nonce, 1)
    assert challenge.expires_at == case.stand.time.wall + CHALLENGE_SECONDS * SECOND
    assert set(challenge.keys) == {CONTENT, IDENTITY}


def test_the_same_request_gives_the_same_keys(case: Case) -> None:
    first = case.challenge()
    case.stand.time.pass_by(SECOND)
    again = case.challenge()
    assert has_same_keys(first, again)
    assert (again.epoch, again.expires_at) == (first.epoch, first.expires_at)


def test_the_same_request_after_a_rotation_gives_the_same_keys(case: Case) -> None:
    first = case.challenge()
    notary = case.stand.notary
    notary.epochs.create("rotation")
    root = root_naming(*notary.epochs.book().epochs, version=2, previous=notary.trust.current().sha256)
    notary.trust.accept(signed_root(root))
    notary.epochs.activate(2, "rotation")
    again = case.challenge()
    assert (again.epoch, has_same_keys(first, again)) == (1, True)
    assert case.challenge(nonce=fixed("later", 16)).epoch == 2


def test_row_hash_and_commitment_keys_all_differ(case: Case) -> None:
    assert len(set(key_bytes(case.challenge()))) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot_id": 7},
        {"catalog": "other"},
        {"table_uuid": "00000000-0000-4000-8000-000000000000"},
        {"mode": Mode.PORTABLE},
        {"fingerprints": tuple((name, bytes(32)) for name in ProjectionName)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_table_snapshot_mode_or_schema_has_other_keys(case: Case, change: dict[str, Any]) -> None:
    first, other = case.challenge(), case.challenge(nonce=fixed("other", 16), **change)
    assert not set(key_bytes(first)) & set(key_bytes(other))
    assert reason_of(lambda: case.challenge(**change)) == "nonce_taken"


def test_another_attestor_has_other_keys(case: Case) -> None:
    first = case.challenge()
    other = case.stand.grant(Role.ATTESTOR, "payments", "source-other")
    challenge = case.stand.notary.attestations.challenge
    assert reason_of(lambda: challenge(other, REQUEST)) == "nonce_taken"
    second = challenge(other, replace(REQUEST, nonce=fixed("second", 16)))
    assert not set(key_bytes(first)) & set(key_bytes(second))


@pytest.mark.parametrize("name", ["operator-tom", "nobody", "steward-one"])
def test_keys_are_given_to_registered_attestors_only(case: Case, name: str) -> None:
    grant = case.stand.grant(Role.ATTESTOR, "payments", name)
    challenge = case.stand.notary.attestations.challenge
    assert reason_of(lambda: challenge(grant, REQUEST)) == "attestor_unregistered"
    with case.stand.notary.ledger.read() as unit:
        assert nonces.find(unit, REQUEST.nonce) is None


@pytest.mark.parametrize("change", ["revoked_at", "valid_until"])
def test_an_attestor_whose_key_is_revoked_or_expired_gets_no_keys(case: Case, change: str) -> None:
    trust, now = case.stand.notary.trust, case.stand.time.wall
    current = trust.current()
    keys = tuple(
        replace(key, **{change: now}) if key.identity == "source-payments" else key  # type: ignore[arg-type]
        for key in current.keys
    )
    trust.accept(signed_root(replace(current, version=2, previous_sha256=current.sha256, keys=keys)))
    assert reason_of(case.challenge) == "attestor_unregistered"


def test_no_keys_are_given_under_a_trust_root_that_has_expired(case: Case) -> None:
    case.stand.time.pass_by(200 * DAY)
    assert reason_of(case.challenge) == "trust_root_expired"


def test_a_request_without_fingerprints_reserves_no_nonce(case: Case) -> None:
    assert reason_of(lambda: case.challenge(fingerprints=())) == "context_invalid"
    with case.stand.notary.ledger.read() as unit:
        assert nonces.find(unit, REQUEST.nonce) is None


def test_a_challenge_under_a_revoked_epoch_gives_no_keys(case: Case) -> None:
    case.challenge()
    notary = case.stand.notary
    notary.epochs.create("rotation")
    root = root_naming(*notary.epochs.book().epochs, version=2, previous=notary.trust.current().sha256)
    notary.trust.accept(signed_root(root))
    notary.epochs.activate(2, "rotation")
    notary.epochs.revoke(1, "leaked")
    assert reason_of(case.challenge) == "epoch_revoked"


def test_an_attestation_is_accepted_logged_and_listed(case: Case) -> None:
    attestation = attest(case, case.challenge())
    view = case.submit(attestation)
    assert (view.attestor, view.catalog, view.table_uuid) == ("source-payments", SOURCE.catalog, SOURCE.uuid)
    assert (view.snapshot_id, view.row_count, view.projection) == (REQUEST.snapshot_id, 50, CONTENT)
    assert (view.issued_at, view.log_index) == (attestation.issued_at, case.stand.notary.log.size() - 1)
    assert json.loads(entry_of(case.stand.notary, view.log_index))["kind"] == "source-attestation"
    assert case.stand.config.outside_path.read_bytes() == case.stand.notary.log.checkpoint()
    list_attestations = case.stand.notary.attestations.list_attestations
    assert list_attestations() == list_attestations(attestor="source-payments", table_uuid=SOURCE.uuid) == [view]
    assert list_attestations(snapshot_id=REQUEST.snapshot_id) == [view]
    assert list_attestations(attestor="source-other") == list_attestations(snapshot_id=7) == []


def test_the_same_attestation_submitted_again_has_the_same_view(case: Case) -> None:
    envelope = sign_statement(attest(case, case.challenge()), SIGNERS["source-payments"]).to_bytes()
    first = case.submit_envelope(envelope)
    size = case.stand.notary.log.size()
    case.stand.time.pass_by(2 * DAY)
    assert (case.submit_envelope(envelope), case.stand.notary.log.size()) == (first, size)


def test_an_attestation_submitted_several_times_at_once_is_stored_once(case: Case) -> None:
    envelope = sign_statement(attest(case, case.challenge()), SIGNERS["source-payments"]).to_bytes()
    barrier = threading.Barrier(4)
    answers: list[object] = []

    def submit() -> None:
        barrier.wait()
        try:
            answers.append(case.submit_envelope(envelope))
        except PvdmError as error:
            answers.append(error.reason)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [answers[0]] * 4
    assert len(case.stand.notary.attestations.list_attestations()) == 1


def test_a_second_answer_to_one_challenge_is_refused(case: Case) -> None:
    attestation = attest(case, case.challenge())
    case.submit(attestation)
    assert reason_of(lambda: case.submit(replace(attestation, row_count=51))) == "nonce_not_reserved"
    assert len(case.stand.notary.attestations.list_attestations()) == 1


def test_an_answer_without_a_challenge_is_refused(case: Case) -> None:
    attestation = attest(case, case.challenge())
    other = replace(attestation, nonce=fixed("nobody asked", 16))
    assert refusal_of(case, lambda: case.submit(other)) == "challenge_unknown"


def test_an_answer_to_an_expired_challenge_is_refused(case: Case) -> None:
    challenge = case.challenge()
    case.stand.time.pass_by(CHALLENGE_SECONDS * SECOND)
    attestation = attest(case, challenge)
    assert refusal_of(case, lambda: case.submit(attestation)) == "challenge_expired"


def test_an_expired_challenge_gives_no_keys(case: Case) -> None:
    case.challenge()
    case.stand.time.pass_by(CHALLENGE_SECONDS * SECOND)
    assert reason_of(case.challenge) == "challenge_expired"


def test_an_answer_under_an_epoch_that_was_revoked_meanwhile_is_refused(case: Case) -> None:
    challenge = case.challenge()
    attestation = attest(case, challenge)
    notary = case.stand.notary
    notary.epochs.create("rotation")
    root = root_naming(*notary.epochs.book().epochs, version=2, previous=notary.trust.current().sha256)
    notary.trust.accept(signed_root(root))
    notary.epochs.activate(2, "rotation")
    notary.epochs.revoke(1, "leaked")
    assert refusal_of(case, lambda: case.submit(attestation)) == "epoch_revoked"


def test_an_attestation_submitted_with_another_attestors_token_is_refused(case: Case) -> None:
    attestation = attest(case, case.challenge())
    other = case.stand.grant(Role.ATTESTOR, "payments", "source-other")
    assert refusal_of(case, lambda: case.submit(attestation, grant=other)) == "attestor_differs"


def test_an_answer_to_another_attestors_challenge_is_refused(case: Case) -> None:
    attestation = attest(case, case.challenge(), attestor="source-other")
    other = case.stand.grant(Role.ATTESTOR, "payments", "source-other")
    reason = refusal_of(case, lambda: case.submit(attestation, signer="source-other", grant=other))
    assert reason == "attestor_not_registered"


@pytest.mark.parametrize(
    ("signer", "reason"),
    [("source-other", "signer_name_wrong"), ("rogue", "key_unknown"), ("operator-ruth", "key_is_break_glass")],
)
def test_an_attestation_signed_with_another_key_is_refused(case: Case, signer: str, reason: str) -> None:
    attestation = attest(case, case.challenge())
    assert refusal_of(case, lambda: case.submit(attestation, signer=signer)) == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"snapshot_id": 7}, "attestation_wrong_snapshot"),
        ({"table": replace(SOURCE, uuid="00000000-0000-4000-8000-000000000000")}, "attestation_wrong_source"),
        ({"epoch": 2}, "attestation_wrong_epoch"),
        ({"schema_fingerprint": fixed("another schema")}, "attestation_kind_differs"),
        ({"mode": "portable"}, "attestation_kind_differs"),
    ],
    ids=["snapshot", "table", "epoch", "fingerprint", "mode"],
)
def test_an_answer_about_another_snapshot_table_epoch_or_schema_is_refused(
    case: Case, change: dict[str, Any], reason: str
) -> None:
    attestation = attest(case, case.challenge(), **change)
    assert refusal_of(case, lambda: case.submit(attestation)) == reason


def test_an_answer_for_a_projection_that_was_not_asked_for_is_refused(case: Case) -> None:
    challenge = case.challenge(fingerprints=FINGERPRINTS[:1])
    both = case.challenge(nonce=fixed("both", 16))
    attestation = replace(attest(case, both), nonce=challenge.nonce)
    assert refusal_of(case, lambda: case.submit(attestation)) == "attestation_kind_differs"


def test_an_attestation_with_a_time_in_the_future_is_refused(case: Case) -> None:
    attestation = attest(case, case.challenge(), issued_at=case.stand.time.wall + 600 * SECOND)
    assert refusal_of(case, lambda: case.submit(attestation)) == "statement_from_future"


def test_an_old_attestation_does_not_answer_a_new_challenge(case: Case) -> None:
    attestation = attest(case, case.challenge(), issued_at=case.stand.time.wall - CHALLENGE_SECONDS * SECOND - 1)
    assert refusal_of(case, lambda: case.submit(attestation)) == "attestation_stale"


def source_context_of(attestation: SourceAttestation) -> SourceContext:
    """The context from which the Steward derives the same keys without the source."""
    return SourceContext(
        attestation.epoch,
        attestation.table.catalog,
        attestation.table.uuid,
        attestation.snapshot_id,
        attestation.attestor,
        attestation.nonce,
        Mode(attestation.mode),
        FINGERPRINTS,
    )


def test_the_rows_that_the_source_attested_open_its_commitment(case: Case) -> None:
    attestation = attest(case, case.challenge())
    case.submit(attestation)
    keys, context = case.stand.notary.keys, source_context_of(attestation)
    own_keys = {name: keys.row_hash_key(context, name) for name in ProjectionName}
    assert attestation.row_count == content_digest(own_keys).rows
    require_commitment_to(attestation.commitment, keys.commitment_key(context, CONTENT), content_digest(own_keys))


@pytest.mark.parametrize(
    "rows",
    [[(0, 1), *ROWS[1:]], ROWS[1:], [*ROWS[1:], ROWS[1]]],
    ids=["changed", "dropped", "swapped-for-a-copy"],
)
def test_other_rows_do_not_open_the_commitment_of_the_source(case: Case, rows: list[tuple[int, int]]) -> None:
    attestation = attest(case, case.challenge())
    case.submit(attestation)
    keys, context = case.stand.notary.keys, source_context_of(attestation)
    own_keys = {name: keys.row_hash_key(context, name) for name in ProjectionName}
    key, other_digest = keys.commitment_key(context, CONTENT), content_digest(own_keys, rows)
    reason = reason_of(lambda: require_commitment_to(attestation.commitment, key, other_digest))
    assert reason == "commitment_not_opened"
