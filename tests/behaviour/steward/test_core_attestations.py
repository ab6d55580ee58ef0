"""Source attestations: keys against a challenge, a signed answer that is logged once, and a digest that must agree."""

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


def rows_of(rows: list[tuple[int, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "payment_id": pa.array([one for one, _ in rows], pa.int64()),
            "amount": pa.array([two for _, two in rows], pa.int64()),
        }
    )


@dataclass(frozen=True)
class Case:
    """A Steward and a source with its token."""

    stand: Stand
    grant: Grant

    def challenge(self, **changes: Any) -> Challenge:
        return self.stand.notary.attestations.challenge(self.grant, replace(REQUEST, **changes))

    def submit(self, said: SourceAttestation, *, signer: str = "source-payments", grant: Grant | None = None) -> Any:
        envelope = sign_statement(said, SIGNERS[signer]).to_bytes()
        return self.hand_in(envelope, grant)

    def hand_in(self, envelope: bytes, grant: Grant | None = None) -> AttestationView:
        return self.stand.notary.attestations.submit(envelope, grant or self.grant)


@pytest.fixture
def case() -> Iterator[Case]:
    with memory_folder() as folder, stand_at(folder) as stand:
        yield Case(stand, stand.grant(Role.ATTESTOR, "payments", "source-payments"))


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def refused(case: Case, call: Callable[[], object]) -> str:
    """The code, once it is clear that nothing was kept."""
    before = case.stand.notary.log.size()
    code = code_of(call)
    assert (case.stand.notary.attestations.listed(), case.stand.notary.log.size()) == ([], before)
    return code


def material(challenge: Challenge) -> list[bytes]:
    return [key.reveal() for pair in challenge.keys.values() for key in (pair.row_hash, pair.commitment)]


def same(one: Challenge, other: Challenge) -> bool:
    return all(hmac.compare_digest(*pair) for pair in zip(material(one), material(other), strict=True))


def seen(keys: Any, rows: list[tuple[int, int]] = ROWS) -> Partial:
    """The content digest of these rows under these keys, as either side computes it."""
    return digest(rows_of(rows), PLAN, dict(keys), engine=reference_engine())[CONTENT]


def attested(case: Case, challenge: Challenge, **changes: Any) -> SourceAttestation:
    """What an honest source says of its rows, or nearly."""
    found = seen({name: pair.row_hash for name, pair in challenge.keys.items()})
    said = SourceAttestation(
        attestor="source-payments",
        table=TableRef(SOURCE.catalog, SOURCE.uuid, "raw.payments"),
        snapshot_id=REQUEST.snapshot_id,
        row_count=found.rows,
        projection=CONTENT,
        schema_fingerprint=found.fingerprint.hex(),
        mode="stored",
        construction="hmac-sha256",
        epoch=challenge.epoch,
        nonce=challenge.nonce,
        commitment=commit(challenge.keys[CONTENT].commitment, found),
        issued_at=case.stand.time.wall,
    )
    return replace(said, **changes)


def test_a_challenge_gives_the_keys_of_the_active_epoch_for_a_day(case: Case) -> None:
    challenge = case.challenge()
    assert (challenge.nonce, challenge.epoch) == (REQUEST.nonce, 1)
    assert challenge.expires_at == case.stand.time.wall + CHALLENGE_SECONDS * SECOND
    assert set(challenge.keys) == {CONTENT, IDENTITY}


def test_the_same_request_gives_the_same_keys(case: Case) -> None:
    first = case.challenge()
    case.stand.time.pass_by(SECOND)
    again = case.challenge()
    assert same(first, again)
    assert (again.epoch, again.expires_at) == (first.epoch, first.expires_at)


def test_the_same_request_after_a_rotation_gives_the_same_keys(case: Case) -> None:
    first = case.challenge()
    notary = case.stand.notary
    notary.epochs.create("rotation")
    root = root_naming(*notary.epochs.book().epochs, version=2, previous=notary.trust.current().sha256)
    notary.trust.accept(signed_root(root))
    notary.epochs.activate(2, "rotation")
    again = case.challenge()
    assert (again.epoch, same(first, again)) == (1, True)
    assert case.challenge(nonce=fixed("later", 16)).epoch == 2


def test_row_hash_and_commitment_keys_all_differ(case: Case) -> None:
    assert len(set(material(case.challenge()))) == 4


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
def test_another_source_snapshot_or_form_has_other_keys(case: Case, change: dict[str, Any]) -> None:
    first, other = case.challenge(), case.challenge(nonce=fixed("other", 16), **change)
    assert not set(material(first)) & set(material(other))
    assert code_of(lambda: case.challenge(**change)) == "nonce_taken"


def test_another_attestor_has_other_keys(case: Case) -> None:
    first = case.challenge()
    other = case.stand.grant(Role.ATTESTOR, "payments", "source-other")
    ask = case.stand.notary.attestations.challenge
    assert code_of(lambda: ask(other, REQUEST)) == "nonce_taken"
    second = ask(other, replace(REQUEST, nonce=fixed("second", 16)))
    assert not set(material(first)) & set(material(second))


@pytest.mark.parametrize("name", ["operator-tom", "nobody", "steward-one"])
def test_keys_are_given_to_registered_attestors_only(case: Case, name: str) -> None:
    grant = case.stand.grant(Role.ATTESTOR, "payments", name)
    ask = case.stand.notary.attestations.challenge
    assert code_of(lambda: ask(grant, REQUEST)) == "attestor_unregistered"
    with case.stand.notary.ledger.read() as unit:
        assert nonces.find(unit, REQUEST.nonce) is None


@pytest.mark.parametrize("change", ["revoked_at", "valid_until"])
def test_an_attestor_whose_key_is_revoked_or_over_is_given_no_keys(case: Case, change: str) -> None:
    trust, now = case.stand.notary.trust, case.stand.time.wall
    current = trust.current()
    keys = tuple(
        replace(key, **{change: now}) if key.identity == "source-payments" else key  # type: ignore[arg-type]
        for key in current.keys
    )
    trust.accept(signed_root(replace(current, version=2, previous_sha256=current.sha256, keys=keys)))
    assert code_of(case.challenge) == "attestor_unregistered"


def test_no_keys_are_given_under_a_trust_root_that_has_expired(case: Case) -> None:
    case.stand.time.pass_by(200 * DAY)
    assert code_of(case.challenge) == "trust_root_expired"


def test_a_request_that_cannot_be_bound_draws_nothing(case: Case) -> None:
    assert code_of(lambda: case.challenge(fingerprints=())) == "context_invalid"
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
    assert code_of(case.challenge) == "epoch_revoked"


def test_an_attestation_is_taken_logged_and_listed(case: Case) -> None:
    said = attested(case, case.challenge())
    view = case.submit(said)
    assert (view.attestor, view.catalog, view.table_uuid) == ("source-payments", SOURCE.catalog, SOURCE.uuid)
    assert (view.snapshot_id, view.row_count, view.projection) == (REQUEST.snapshot_id, 50, CONTENT)
    assert (view.issued_at, view.log_index) == (said.issued_at, case.stand.notary.log.size() - 1)
    assert json.loads(entry_of(case.stand.notary, view.log_index))["kind"] == "source-attestation"
    assert case.stand.config.outside_path.read_bytes() == case.stand.notary.log.checkpoint()
    listed = case.stand.notary.attestations.listed
    assert listed() == listed(attestor="source-payments", table_uuid=SOURCE.uuid) == [view]
    assert listed(snapshot_id=REQUEST.snapshot_id) == [view]
    assert listed(attestor="source-other") == listed(snapshot_id=7) == []


def test_the_same_attestation_again_is_the_same_view(case: Case) -> None:
    envelope = sign_statement(attested(case, case.challenge()), SIGNERS["source-payments"]).to_bytes()
    first = case.hand_in(envelope)
    size = case.stand.notary.log.size()
    case.stand.time.pass_by(2 * DAY)
    assert (case.hand_in(envelope), case.stand.notary.log.size()) == (first, size)


def test_of_the_same_attestation_several_times_at_once_all_get_one_view(case: Case) -> None:
    envelope = sign_statement(attested(case, case.challenge()), SIGNERS["source-payments"]).to_bytes()
    barrier = threading.Barrier(4)
    answers: list[object] = []

    def submit() -> None:
        barrier.wait()
        try:
            answers.append(case.hand_in(envelope))
        except PvdmError as error:
            answers.append(error.reason)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [answers[0]] * 4
    assert len(case.stand.notary.attestations.listed()) == 1


def test_a_second_answer_to_one_challenge_is_refused(case: Case) -> None:
    said = attested(case, case.challenge())
    case.submit(said)
    assert code_of(lambda: case.submit(replace(said, row_count=51))) == "nonce_not_reserved"
    assert len(case.stand.notary.attestations.listed()) == 1


def test_an_answer_without_a_challenge_is_refused(case: Case) -> None:
    said = attested(case, case.challenge())
    other = replace(said, nonce=fixed("nobody asked", 16))
    assert refused(case, lambda: case.submit(other)) == "challenge_unknown"


def test_an_answer_that_comes_too_late_is_refused(case: Case) -> None:
    challenge = case.challenge()
    case.stand.time.pass_by(CHALLENGE_SECONDS * SECOND)
    said = attested(case, challenge)
    assert refused(case, lambda: case.submit(said)) == "challenge_expired"


def test_an_expired_challenge_gives_its_keys_no_more(case: Case) -> None:
    case.challenge()
    case.stand.time.pass_by(CHALLENGE_SECONDS * SECOND)
    assert code_of(case.challenge) == "challenge_expired"


def test_an_answer_under_an_epoch_that_was_revoked_meanwhile_is_refused(case: Case) -> None:
    challenge = case.challenge()
    said = attested(case, challenge)
    notary = case.stand.notary
    notary.epochs.create("rotation")
    root = root_naming(*notary.epochs.book().epochs, version=2, previous=notary.trust.current().sha256)
    notary.trust.accept(signed_root(root))
    notary.epochs.activate(2, "rotation")
    notary.epochs.revoke(1, "leaked")
    assert refused(case, lambda: case.submit(said)) == "epoch_revoked"


def test_an_attestation_of_another_attestor_is_refused(case: Case) -> None:
    said = attested(case, case.challenge())
    other = case.stand.grant(Role.ATTESTOR, "payments", "source-other")
    assert refused(case, lambda: case.submit(said, grant=other)) == "attestor_differs"


def test_an_answer_to_another_attestors_challenge_is_refused(case: Case) -> None:
    said = attested(case, case.challenge(), attestor="source-other")
    other = case.stand.grant(Role.ATTESTOR, "payments", "source-other")
    assert refused(case, lambda: case.submit(said, signer="source-other", grant=other)) == "attestor_not_registered"


@pytest.mark.parametrize(
    ("signer", "code"),
    [("source-other", "signer_name_wrong"), ("rogue", "key_unknown"), ("operator-ruth", "key_is_break_glass")],
)
def test_an_answer_in_another_hand_is_refused(case: Case, signer: str, code: str) -> None:
    said = attested(case, case.challenge())
    assert refused(case, lambda: case.submit(said, signer=signer)) == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"snapshot_id": 7}, "attestation_wrong_snapshot"),
        ({"table": replace(SOURCE, uuid="00000000-0000-4000-8000-000000000000")}, "attestation_wrong_source"),
        ({"epoch": 2}, "attestation_wrong_epoch"),
        ({"schema_fingerprint": fixed("another schema")}, "attestation_kind_differs"),
        ({"mode": "portable"}, "attestation_kind_differs"),
    ],
    ids=["snapshot", "table", "epoch", "fingerprint", "mode"],
)
def test_an_answer_about_something_else_is_refused(case: Case, change: dict[str, Any], code: str) -> None:
    said = attested(case, case.challenge(), **change)
    assert refused(case, lambda: case.submit(said)) == code


def test_an_answer_for_a_projection_that_was_not_asked_for_is_refused(case: Case) -> None:
    challenge = case.challenge(fingerprints=FINGERPRINTS[:1])
    both = case.challenge(nonce=fixed("both", 16))
    said = replace(attested(case, both), nonce=challenge.nonce)
    assert refused(case, lambda: case.submit(said)) == "attestation_kind_differs"


def test_an_answer_that_was_made_before_its_time_is_refused(case: Case) -> None:
    said = attested(case, case.challenge(), issued_at=case.stand.time.wall + 600 * SECOND)
    assert refused(case, lambda: case.submit(said)) == "statement_from_future"


def test_an_old_attestation_does_not_answer_a_new_challenge(case: Case) -> None:
    said = attested(case, case.challenge(), issued_at=case.stand.time.wall - CHALLENGE_SECONDS * SECOND - 1)
    assert refused(case, lambda: case.submit(said)) == "attestation_stale"


def source_of(said: SourceAttestation) -> SourceContext:
    """What the Steward knows of the source without asking it."""
    return SourceContext(
        said.epoch,
        said.table.catalog,
        said.table.uuid,
        said.snapshot_id,
        said.attestor,
        said.nonce,
        Mode(said.mode),
        FINGERPRINTS,
    )


def test_what_the_source_attested_is_what_the_steward_reads(case: Case) -> None:
    said = attested(case, case.challenge())
    case.submit(said)
    keys, context = case.stand.notary.keys, source_of(said)
    own = {name: keys.row_hash_key(context, name) for name in ProjectionName}
    assert said.row_count == seen(own).rows
    require_commitment_to(said.commitment, keys.commitment_key(context, CONTENT), seen(own))


@pytest.mark.parametrize(
    "rows",
    [[(0, 1), *ROWS[1:]], ROWS[1:], [*ROWS[1:], ROWS[1]]],
    ids=["changed", "dropped", "swapped-for-a-copy"],
)
def test_other_rows_do_not_open_the_commitment_of_the_source(case: Case, rows: list[tuple[int, int]]) -> None:
    said = attested(case, case.challenge())
    case.submit(said)
    keys, context = case.stand.notary.keys, source_of(said)
    own = {name: keys.row_hash_key(context, name) for name in ProjectionName}
    commitment = keys.commitment_key(context, CONTENT)
    assert (
        code_of(lambda: require_commitment_to(said.commitment, commitment, seen(own, rows))) == "commitment_not_opened"
    )
