"""Signing, trust roots, commitments and bundles: what the stored hostile documents do not test."""

from __future__ import annotations

import ast
import base64
import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_der_public_key
from securesystemslib import dsse
from securesystemslib.exceptions import VerificationError as OtherVerificationError
from securesystemslib.signer import Key, SSlibKey  # type: ignore[attr-defined]

from pvdm.digest.partial import Partial
from pvdm.digest.plan import Construction, Mode
from pvdm.errors import NotAllowedError, PvdmError, VerificationError
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import CommitmentKey
from pvdm.model.statements.epoch import EpochStage, EpochStatement
from pvdm.model.statements.proof import Isolation, Proof
from pvdm.trust.approval import verify_override
from pvdm.trust.bundle import LoggedProof, ProofBundle, check_bundle, log_checker, parse_bundle
from pvdm.trust.commitment import commit, require_commitment_to
from pvdm.trust.envelope import STATEMENT_TYPE, Envelope
from pvdm.trust.keys.public import PublicKey
from pvdm.trust.refusal import refused
from pvdm.trust.root import RootRole, SeenRoot, advance_root, follow_roots, pin_root, sign_root
from pvdm.trust.verify import sign_statement, verify_threshold
from tests.support.for_each import for_each
from tests.support.gate.hostile_assets import EveryLeaf, manifest, verified_fail
from tools.hostile_others import BUNDLE, FIRST, SECOND_ROOT
from tools.proof_kit import (
    CORE,
    DAY,
    EPOCH_STATEMENT,
    KEYS,
    NEXT_ROOT,
    NOW,
    ORIGIN,
    OVERRIDE,
    PROOF,
    ROOT,
    SIGNERS,
    ExampleSigner,
    notary_part,
    root_of,
)

TRUST = Path(__file__).parents[2] / "src" / "pvdm" / "trust"
TESTED_ELSEWHERE = {
    "commitment_not_opened",
    "commitment_epoch_mismatch",
    "threshold_too_low",
    "trust_root_missing",
    "log_key_missing",
    "origin_ambiguous",
}


def raises_reason(reason: str) -> pytest.RaisesExc[PvdmError]:
    return pytest.RaisesExc(PvdmError, check=lambda error: error.reason == reason)


def other_key(public: PublicKey) -> Key:
    key: Key = SSlibKey.from_crypto(load_der_public_key(public.der), keyid=public.key_id)
    return key


@pytest.mark.parametrize("name", ["notary-a", "notary-b"])
def test_an_independent_implementation_accepts_the_envelope(name: str) -> None:
    data = sign_statement(Proof(CORE, notary_part(name)), SIGNERS[name]).to_bytes()
    accepted = dsse.Envelope.from_dict(json.loads(data)).verify([other_key(SIGNERS[name].public)], 1)
    assert set(accepted) == {SIGNERS[name].public.key_id}


def test_an_independent_implementation_refuses_a_changed_payload() -> None:
    envelope = json.loads(sign_statement(PROOF, SIGNERS["notary-a"]).to_bytes())
    envelope["payload"] = base64.b64encode(base64.b64decode(envelope["payload"]).replace(b"PASS", b"FAIL")).decode()
    with pytest.raises(OtherVerificationError):
        dsse.Envelope.from_dict(envelope).verify([other_key(SIGNERS["notary-a"].public)], 1)


def test_an_independent_implementation_accepts_a_trust_root_by_its_two_signers() -> None:
    keys = [other_key(SIGNERS[name].public) for name in ("root-one", "root-two")]
    assert len(dsse.Envelope.from_dict(json.loads(FIRST)).verify(keys, 2)) == 2


def test_the_encoding_is_the_one_of_the_dsse_specification() -> None:
    envelope = Envelope("http://example.com/HelloWorld", b"hello world", ())
    assert envelope.message == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_a_signer_that_signs_something_else_is_refused_at_signing() -> None:
    false_signer = ExampleSigner(SIGNERS["notary-a"].public, lambda _: SIGNERS["notary-a"].sign(b"something else"))
    with raises_reason("signature_invalid"):
        sign_statement(PROOF, false_signer)


def test_every_refusal_of_the_package_trust_has_a_hostile_asset() -> None:
    modules = sorted(TRUST.glob("*.py"))
    raised = {
        str(node.args[0].value)
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"refused", "InputError", "VerificationError"}
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert raised - TESTED_ELSEWHERE - {asset.code for asset in manifest()} == set()


def test_a_threshold_below_that_of_the_trust_root_is_refused() -> None:
    strict = root_of(list(KEYS.values()), notaries=2)
    with raises_reason("threshold_too_low"):
        verify_threshold([sign_statement(PROOF, SIGNERS["notary-a"]).to_bytes()], strict, threshold=1, now=NOW)


def test_two_notaries_with_their_own_commitments_agree_on_one_core() -> None:
    envelopes = [
        sign_statement(Proof(CORE, notary_part(name)), SIGNERS[name]).to_bytes() for name in ("notary-a", "notary-b")
    ]
    verified = verify_threshold(envelopes, ROOT, threshold=2, now=NOW)
    assert (verified.core, len(set(verified.proof_ids))) == (CORE, 2)


def test_a_chain_without_a_root_is_refused() -> None:
    with raises_reason("trust_root_missing"):
        follow_roots([], sha256=ROOT.sha256, now=NOW)


def test_advancing_to_the_current_root_changes_nothing() -> None:
    assert advance_root(ROOT, FIRST, now=NOW) is ROOT


def test_a_successor_replaces_the_pinned_root() -> None:
    seen = SeenRoot(NEXT_ROOT.version, NEXT_ROOT.sha256)
    assert follow_roots([FIRST, SECOND_ROOT], sha256=ROOT.sha256, now=NOW, seen=seen) == NEXT_ROOT


def test_a_revoked_root_signer_does_not_count() -> None:
    revoked = replace(KEYS["root-two"], revoked_at=NOW - DAY)
    current = root_of([*(key for name, key in KEYS.items() if name != "root-two"), revoked])
    follower = replace(NEXT_ROOT, previous_sha256=current.sha256)
    data = sign_root(follower, [SIGNERS["root-one"], SIGNERS["root-two"]]).to_bytes()
    with raises_reason("trust_root_unsigned"):
        advance_root(current, data, now=NOW)


def test_root_signers_can_be_exchanged_when_old_and_new_ones_sign() -> None:
    other_keys = [key for key in NEXT_ROOT.keys if RootRole.ROOT not in key.roles]
    added = [
        replace(KEYS["root-one"], public=SIGNERS[name].public, identity=name) for name in ("root-three", "root-four")
    ]
    exchanged = root_of([*other_keys, *added], version=2, previous=ROOT.sha256)
    signers = [SIGNERS[name] for name in ("root-one", "root-two", "root-three", "root-four")]
    assert advance_root(ROOT, sign_root(exchanged, signers).to_bytes(), now=NOW) == exchanged


def test_the_first_root_must_be_signed_by_its_own_signers() -> None:
    with raises_reason("trust_root_self_unsigned"):
        pin_root(sign_root(ROOT, [SIGNERS["root-one"]]).to_bytes(), sha256=ROOT.sha256, now=NOW)


KEY = CommitmentKey(bytes(range(32)), epoch=1)
DIGEST = Partial(
    1, Construction.HMAC_SHA256, Mode.STORED, ProjectionName.CONTENT, bytes(32), bytes(16), rows=3, total=12345
)


def test_a_commitment_equals_that_of_the_specification() -> None:
    context = b"\x0bhmac-sha256\x06stored\x07content\x20" + bytes(32)
    message = b"pvdm/commitment/v1\0" + context + (3).to_bytes(8, "big") + (12345).to_bytes(32, "big")
    assert commit(KEY, DIGEST) == hmac.new(bytes(range(32)), message, hashlib.sha256).hexdigest()


def test_a_commitment_to_its_digest_is_accepted() -> None:
    require_commitment_to(commit(KEY, DIGEST), KEY, DIGEST)


@for_each(
    "other",
    [
        replace(DIGEST, rows=4),
        replace(DIGEST, total=12346),
        replace(DIGEST, fingerprint=b"\1" * 32),
        replace(DIGEST, projection=ProjectionName.IDENTITY),
        replace(DIGEST, mode=Mode.PORTABLE),
        replace(DIGEST, construction=Construction.BLAKE3),
    ],
    ids=["rows", "sum", "schema", "projection", "mode", "construction"],
)
def test_a_commitment_to_another_digest_is_refused(other: Partial) -> None:
    with raises_reason("commitment_not_opened"):
        require_commitment_to(commit(KEY, DIGEST), KEY, other)


def test_a_commitment_under_another_key_is_refused() -> None:
    with raises_reason("commitment_not_opened"):
        require_commitment_to(commit(CommitmentKey(bytes(32), epoch=1), DIGEST), KEY, DIGEST)


def test_committing_with_a_key_of_another_epoch_is_refused() -> None:
    with raises_reason("commitment_epoch_mismatch"):
        commit(CommitmentKey(bytes(32), epoch=2), DIGEST)


def test_a_refused_commitment_shows_neither_digest_nor_key() -> None:
    try:
        require_commitment_to(commit(KEY, DIGEST), KEY, replace(DIGEST, total=99))
    except VerificationError as error:
        shown = f"{error!r} {error} {error.to_json()}"
    assert [secret for secret in ("12345", bytes(range(32)).hex(), f"{12345:064x}") if secret in shown] == []


def test_a_bundle_is_accepted_by_the_log_that_the_trust_root_names() -> None:
    checked = check_bundle(BUNDLE, ROOT, log_checker(ROOT, origin=ORIGIN), threshold=1, now=NOW)
    assert checked.proof.core == CORE


def test_a_bundle_with_another_time_than_its_log_entrys_is_refused() -> None:
    logged = parse_bundle(BUNDLE).proofs[0]
    changed_bundle = ProofBundle((replace(logged, logged_at=NOW - 1),)).to_bytes()
    with raises_reason("inclusion_root"):
        check_bundle(changed_bundle, ROOT, log_checker(ROOT, origin=ORIGIN), threshold=1, now=NOW)


def test_a_checker_for_a_log_that_the_trust_root_does_not_name_is_refused() -> None:
    with raises_reason("log_key_missing"):
        log_checker(ROOT, origin="log.example/other")


def test_a_checker_for_a_log_with_a_revoked_key_is_refused() -> None:
    revoked = replace(KEYS["log-keeper"], revoked_at=NOW)
    root = root_of([*(key for name, key in KEYS.items() if name != "log-keeper"), revoked])
    with raises_reason("log_key_missing"):
        log_checker(root, origin=ORIGIN)


def test_a_bundle_is_read_back_as_it_was_written() -> None:
    assert parse_bundle(BUNDLE).to_bytes() == BUNDLE


def test_a_checked_bundle_says_that_only_the_notary_states_equality() -> None:
    checked = check_bundle(BUNDLE, ROOT, EveryLeaf(), threshold=1, now=NOW)
    assert "only the notary signed that" in " ".join(checked.not_proved)


def test_a_checked_bundle_of_an_embedded_notary_says_so() -> None:
    part = replace(notary_part(), isolation=Isolation.EMBEDDED)
    envelope = sign_statement(Proof(CORE, part), SIGNERS["notary-a"]).to_bytes()
    bundle = ProofBundle((LoggedProof(envelope, NOW, "x"),)).to_bytes()
    assert "embedded" in " ".join(check_bundle(bundle, ROOT, EveryLeaf(), threshold=1, now=NOW).not_proved)


def test_a_bundle_is_checked_at_the_time_of_its_log_entry() -> None:
    # Two years later the notary's key and the proof have expired; what was logged in time still counts.
    checked = check_bundle(BUNDLE, ROOT, EveryLeaf(), threshold=1, now=NOW + 730 * DAY)
    assert checked.logged_at == (NOW,)


def test_a_bundle_that_is_not_in_the_log_is_refused() -> None:
    class NoLeaf:
        def require_included(self, entry: bytes, proof_file: bytes) -> None:
            raise refused("inclusion_root", entry.hex(), proof_file.decode(), message="the entry is not in the tree")

    with raises_reason("inclusion_root"):
        check_bundle(BUNDLE, ROOT, NoLeaf(), threshold=1, now=NOW)


def test_an_override_that_names_a_proof_of_the_failed_attempt_is_accepted() -> None:
    override = sign_statement(OVERRIDE, SIGNERS["operator-ruth"]).to_bytes()
    verified = verify_override(override, ROOT, failed=verified_fail(), now=NOW, used=lambda _: False)
    assert verified.predicate.operator == "operator-ruth"


def test_a_refused_override_is_a_not_allowed_error() -> None:
    with pytest.raises(NotAllowedError) as caught:
        verify_override(b"{}", ROOT, failed=verified_fail(), now=NOW, used=lambda _: False)
    assert caught.value.exit_code == 5


def test_an_epoch_statement_that_goes_back_is_refused() -> None:
    with raises_reason("epoch_step_invalid"):
        replace(EPOCH_STATEMENT, before=EpochStage.RETIRED, after=EpochStage.ACTIVE)


def test_a_payload_type_is_part_of_what_is_signed() -> None:
    assert Envelope(STATEMENT_TYPE, b"x", ()).message != Envelope("text/plain", b"x", ()).message


def test_an_epoch_statement_is_read_back_as_it_was_written() -> None:
    assert EpochStatement.from_json(EPOCH_STATEMENT.to_json()) == EPOCH_STATEMENT


@for_each("reason", ["", " ", "a\nb", "\x1b[2J", "\ud800", "x" * 4097])
def test_a_reason_that_cannot_be_shown_is_refused(reason: str) -> None:
    with raises_reason("document_value_invalid"):
        replace(OVERRIDE, reason=reason)
