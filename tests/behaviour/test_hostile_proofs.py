"""Every spoiled document is refused with its own code, by the one check for it: without this check it is accepted."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from pvdm.errors import NotAllowedError, PvdmError, VerificationError
from pvdm.model.statements.proof import Proof
from pvdm.trust import root as trust_root
from pvdm.trust.keys.public import PublicKey
from pvdm.trust.refusal import require_equal, require_same
from pvdm.trust.root import TrustedKey
from pvdm.trust.verify import sign_statement
from tests.support.for_each import for_each
from tests.support.gate.hostile_assets import Asset, manifest, submit_asset
from tools.hostile_case import join_lines
from tools.hostile_others import BUNDLE, FIRST, SECOND_ROOT
from tools.make_hostile_proofs import stale
from tools.proof_kit import (
    ATTESTATION,
    CLAIM_RELEASE,
    CORE,
    KEYS,
    MIGRATION,
    NAMESPACE_PROTECTION,
    OVERRIDE,
    PROOF,
    PROTECTION,
    SIGNERS,
    notary_part,
)

ASSETS: Final = {asset.name: asset for asset in manifest()}

# Codes whose check cannot be taken out: when it fails, there is no value that could go on to the next check.
STRUCTURAL: Final = {
    "json_malformed": "the decoder found no value",
    "json_truncated": "the decoder found no value; the check only names the reason",
    "json_not_utf8": "there is no text to decode",
    "document_key_missing": "the value that the key should carry does not exist",
    "envelope_unsigned": "there is no signature that could be checked",
    "override_unsigned": "there is no signature that could be checked",
    "approval_unsigned": "there is no signature that could be checked",
}


def _nothing(*_: object, **__: object) -> None:
    """Stands in for a check that was taken out."""


@dataclass(frozen=True, slots=True)
class Removal:
    """How to take out the check that refuses the asset.

    Without `check` and `also`, later checks that refuse it too, the asset is accepted; without `also` alone it is not.
    `check` is the dotted name under which it is called; `instead` replaces a check that also returns something.
    """

    asset: str
    check: str
    also: tuple[str, ...] = ()
    instead: Callable[..., Any] = _nothing


def _lenient_fields(self: Any, value: Any, what: str, keys: Any) -> None:
    self._what, self._found = what, value


def _lenient_base64(text: str, what: str) -> bytes:
    return base64.urlsafe_b64decode(text)


def _lenient_public(text: str) -> PublicKey:
    loaded = load_der_public_key(base64.b64decode(text))
    return PublicKey.from_der(loaded.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _trust_the_rogue_key(*_: object) -> TrustedKey:
    """Stands in for the look-up of a key: a key of nobody, trusted like notary-a's."""
    known = KEYS["notary-a"]
    return TrustedKey(
        SIGNERS["rogue"].public, "notary-a", known.roles, known.epochs, known.valid_from, known.valid_until
    )


def _without_code(function: Callable[..., None], code: str) -> Callable[..., None]:
    """The function without the one of its checks that raises `code`, which is among the arguments."""

    def rest(*arguments: Any) -> None:
        if code not in arguments:
            function(*arguments)

    return rest


_JSON: Final = "pvdm.trust.strict_json.require_"
_ENVELOPE: Final = "pvdm.trust.envelope.require_"
_VERIFY: Final = "pvdm.trust.verify.require_"
_ROOT: Final = "pvdm.trust.root.require_"
_STATEMENTS: Final = "pvdm.metadata.gate.checks_statements.require_"
_TABLE: Final = "pvdm.metadata.gate.checks_table.require_"
# This check also refuses every other genuine proof of the attempt: the verified manifest belongs to one core.
_OTHER_CORE: Final = f"{_TABLE}verified_core"
_APPROVAL: Final = "pvdm.trust.approval.require_"
_ATTEST: Final = "pvdm.trust.attestation.require_"
_FIELDS: Final = "pvdm.model.fields.Fields.__init__"

REMOVALS: Final = {
    "json_too_large": Removal("proof-oversized.json.gz", f"{_JSON}size", (f"{_JSON}end", f"{_JSON}canonical")),
    "json_trailing_bytes": Removal("proof-trailing-bytes.json", f"{_JSON}end", (f"{_JSON}canonical",)),
    "json_duplicate_key": Removal("proof-duplicate-key.json", f"{_JSON}distinct_keys", (f"{_JSON}canonical",)),
    "json_not_canonical": Removal("proof-white-space.json", f"{_JSON}canonical"),
    "json_too_deep": Removal("proof-too-deep.json", f"{_JSON}shallow", (f"{_JSON}canonical", _FIELDS)),
    "document_key_unknown": Removal("proof-names-algorithm.json", _FIELDS, instead=_lenient_fields),
    "document_value_invalid": Removal(
        "proof-attempt-zero.json", "pvdm.model.codec.require_fields", (_OTHER_CORE, f"{_STATEMENTS}same")
    ),
    "payload_type_wrong": Removal("proof-other-payload-type.json", f"{_ENVELOPE}payload_type"),
    "envelope_signatures_many": Removal("proof-two-signatures.json", f"{_ENVELOPE}not_more_signatures"),
    "envelope_key_repeated": Removal(
        "root-one-signer-twice.jsonl", f"{_ENVELOPE}distinct_keys", (f"{_ROOT}root_signers",)
    ),
    "envelope_base64_invalid": Removal(
        "proof-url-safe-base64.json",
        "pvdm.trust.envelope._decode_base64",
        (_OTHER_CORE, f"{_STATEMENTS}projections"),
        _lenient_base64,
    ),
    "signature_size": Removal(
        "proof-empty-signature.json",
        f"{_ENVELOPE}signature_size",
        ("pvdm.trust.envelope.require_signature_form", "pvdm.trust.envelope.require_signature_valid"),
    ),
    "signature_form_invalid": Removal("proof-second-spelling.json", "pvdm.trust.envelope.require_signature_form"),
    "signature_invalid": Removal("proof-flipped-verdict.json", "pvdm.trust.envelope.require_signature_valid"),
    "statement_type_wrong": Removal("proof-statement-v0.json", "pvdm.trust.statement.require_statement_type"),
    "predicate_type_wrong": Removal("proof-receipt-type.json", "pvdm.trust.statement.require_predicate_type"),
    "predicate_version_unknown": Removal("proof-version-2.json", "pvdm.trust.statement.require_predicate_version"),
    "subject_mismatch": Removal("proof-changed-file-digest.json", "pvdm.trust.statement.require_subject"),
    "verdict_invalid": Removal(
        "proof-pass-with-classes.json", "pvdm.model.statements.verdict.require_classes", (_OTHER_CORE,)
    ),
    "proof_counts_disagree": Removal(
        "proof-counts-disagree.json",
        "pvdm.model.statements.proof.require_equal_counts",
        (_OTHER_CORE, f"{_TABLE}listed"),
    ),
    "proof_commitments_disagree": Removal(
        "proof-commitments-disagree.json", "pvdm.model.statements.proof.require_equal_commitments"
    ),
    "proof_commitment_missing": Removal(
        "proof-commitment-missing.json", "pvdm.model.statements.proof.require_all_commitments"
    ),
    "proof_commitment_unknown": Removal(
        "proof-commitment-unknown.json",
        "pvdm.model.statements.proof.require_known_projections",
        (_OTHER_CORE, f"{_STATEMENTS}projections"),
    ),
    "proof_lifetime_invalid": Removal("proof-lifetime.json", "pvdm.model.statements.proof.require_lifetime"),
    "key_unknown": Removal("proof-unknown-key.json", f"{_VERIFY}known_key", instead=_trust_the_rogue_key),
    "key_is_break_glass": Removal("proof-break-glass-key.json", f"{_VERIFY}not_break_glass", (f"{_VERIFY}has_role",)),
    "key_role_wrong": Removal("proof-log-key.json", f"{_VERIFY}has_role"),
    "key_revoked": Removal("proof-revoked-key.json", f"{_VERIFY}not_revoked"),
    "key_expired": Removal("proof-expired-key.json", f"{_VERIFY}valid_at"),
    "key_not_yet_valid": Removal("proof-early-key.json", f"{_VERIFY}valid_at"),
    "key_epoch_wrong": Removal("proof-key-of-other-epoch.json", f"{_VERIFY}key_epoch", (f"{_STATEMENTS}epoch",)),
    "signer_name_wrong": Removal(
        "quorum-one-notary-two-names.jsonl",
        f"{_VERIFY}signer_name",
        (f"{_VERIFY}distinct_notaries", f"{_VERIFY}enough_notaries"),
    ),
    "statement_from_future": Removal("proof-future.json", f"{_VERIFY}not_from_future"),
    "envelope_count": Removal(
        "quorum-too-many.jsonl",
        f"{_STATEMENTS}envelope_count",
        (f"{_VERIFY}distinct_notaries", f"{_VERIFY}enough_notaries"),
    ),
    "notary_repeated": Removal(
        "quorum-duplicate-signer.jsonl", f"{_VERIFY}distinct_notaries", (f"{_VERIFY}enough_notaries",)
    ),
    "cores_differ": Removal("quorum-cores-differ-in-rows.jsonl", f"{_VERIFY}equal_cores"),
    "threshold_not_met": Removal("quorum-one-notary.jsonl", f"{_VERIFY}enough_notaries"),
    "trust_root_expired": Removal(
        "proof-expired-trust-root.json", f"{_STATEMENTS}root_current", (f"{_STATEMENTS}proofs_unexpired",)
    ),
    "verdict_not_pass": Removal("proof-fail-verdict.json", f"{_STATEMENTS}pass", (_OTHER_CORE,)),
    "proof_wrong_files": Removal("proof-wrong-staged-path.json", f"{_TABLE}entries", (_OTHER_CORE,)),
    "proof_wrong_removals": Removal(
        "proof-wrong-removals.json", f"{_TABLE}entries", (_OTHER_CORE, f"{_TABLE}boundary")
    ),
    "base_left_main": Removal(
        "proof-wrong-base-off-main.json", f"{_TABLE}branch_head", (_OTHER_CORE, f"{_TABLE}entries")
    ),
    "verified_of_other_proof": Removal("proof-wrong-staged-digest.json", _OTHER_CORE),
    "proof_expired": Removal("proof-expired.json", f"{_STATEMENTS}proofs_unexpired"),
    "proof_wrong_epoch": Removal("proof-other-epoch.json", f"{_STATEMENTS}epoch"),
    "nonce_reused": Removal("proof-reused-nonce.json", "tests.support.gate.example_gate.require_reserved"),
    "proof_wrong_base": Removal("proof-wrong-base.json", f"{_TABLE}branch_head", (_OTHER_CORE, f"{_TABLE}entries")),
    **{
        f"proof_wrong_{code}": Removal(
            f"proof-wrong-{asset}.json",
            f"{_STATEMENTS}same",
            (_OTHER_CORE, *behind),
            _without_code(require_same, f"proof_wrong_{code}"),
        )
        for code, asset, *behind in (
            ("contract", "contract"),
            ("workload", "workload"),
            ("plan", "plan"),
            ("chunk", "chunk"),
            ("attempt", "attempt"),
            ("catalog", "catalog"),
            ("table", "table"),
            ("branch", "branch"),
            ("partition", "partition", f"{_TABLE}boundary"),
            ("operation", "operation", f"{_TABLE}entries", f"{_TABLE}boundary"),
        )
    },
    **{
        f"proof_wrong_{code}": Removal(
            f"proof-wrong-{asset}.json",
            f"{_TABLE}same",
            (_OTHER_CORE, *behind),
            _without_code(require_same, f"proof_wrong_{code}"),
        )
        for code, asset, *behind in (
            ("schema", "schema"),
            ("spec", "spec"),
            ("format", "format"),
            ("staging", "staging-branch", f"{_TABLE}branch_head"),
            ("staged", "staged-snapshot", f"{_TABLE}branch_head", f"{_TABLE}entries"),
        )
    },
    "trust_root_rolled_back": Removal("root-rolled-back.jsonl", f"{_ROOT}not_rolled_back"),
    "trust_root_forked": Removal("root-forked.jsonl", f"{_ROOT}not_forked"),
    "trust_root_gap": Removal(
        "root-gap.jsonl", f"{_ROOT}equal", instead=_without_code(require_equal, "trust_root_gap")
    ),
    "trust_root_not_successor": Removal(
        "root-other-predecessor.jsonl",
        f"{_ROOT}equal",
        instead=_without_code(require_equal, "trust_root_not_successor"),
    ),
    "trust_root_unsigned": Removal(
        "root-usurped.jsonl",
        f"{_ROOT}root_signers",
        instead=_without_code(trust_root.require_root_signers, "trust_root_unsigned"),
    ),
    "trust_root_self_unsigned": Removal(
        "root-new-signers-silent.jsonl",
        f"{_ROOT}root_signers",
        instead=_without_code(trust_root.require_root_signers, "trust_root_self_unsigned"),
    ),
    "trust_root_not_pinned": Removal("root-not-pinned.jsonl", f"{_ROOT}pinned"),
    "trust_root_key_repeated": Removal("root-one-key-two-names.jsonl", f"{_ROOT}keys_once"),
    "public_key_malformed": Removal(
        "root-compressed-alias.jsonl",
        "pvdm.trust.root._parse_public_key",
        (f"{_ROOT}key_id", f"{_ROOT}keys_once", f"{_ROOT}key_order"),
        _lenient_public,
    ),
    "trust_root_key_algorithm": Removal("root-algorithm-swapped.jsonl", f"{_ROOT}algorithm"),
    "trust_root_key_id": Removal("root-chosen-key-id.jsonl", f"{_ROOT}key_id", (f"{_ROOT}key_order",)),
    "trust_root_role_shared": Removal(
        "root-break-glass-shared.jsonl", f"{_ROOT}role_alone", (f"{_ROOT}identities_apart",)
    ),
    "trust_root_identity_shared": Removal("root-steward-breaks-glass.jsonl", f"{_ROOT}identities_apart"),
    "trust_root_threshold": Removal("root-threshold-zero.jsonl", f"{_ROOT}reachable"),
    "override_signed_by_steward": Removal(
        "override-by-notary-a.json", f"{_APPROVAL}not_steward", (f"{_VERIFY}has_role",)
    ),
    "override_of_pass": Removal("override-of-pass.json", f"{_APPROVAL}failed"),
    "override_wrong_table": Removal("override-wrong-table.json", f"{_APPROVAL}table"),
    "override_wrong_base": Removal("override-wrong-base.json", f"{_APPROVAL}equal"),
    "override_wrong_proof": Removal("override-wrong-proof.json", f"{_APPROVAL}proof"),
    "override_wrong_files": Removal("override-wrong-files.json", f"{_APPROVAL}files"),
    "override_expired": Removal("override-expired.json", f"{_APPROVAL}unexpired"),
    "override_replayed": Removal("override-replayed.json", f"{_APPROVAL}unused"),
    "override_lifetime_invalid": Removal(
        "override-lifetime.json", "pvdm.model.statements.break_glass.require_lifetime"
    ),
    "approval_signed_by_steward": Removal(
        "protection-by-notary-a.json", f"{_APPROVAL}not_steward", (f"{_VERIFY}has_role",)
    ),
    "approval_expired": Removal("migration-expired.json", f"{_APPROVAL}unexpired"),
    "approval_lifetime_invalid": Removal("migration-lifetime.json", "pvdm.model.statements.migration.require_lifetime"),
    "contract_mismatch": Removal("protection-other-contract.json", "pvdm.model.statements.migration.require_contract"),
    "attestor_not_registered": Removal("attestation-not-registered.json", f"{_ATTEST}registered"),
    **{
        f"attestation_wrong_{what}": Removal(
            f"attestation-wrong-{what}.json",
            f"{_ATTEST}equal",
            instead=_without_code(require_equal, f"attestation_wrong_{what}"),
        )
        for what in ("source", "snapshot", "nonce", "epoch")
    },
    "attestation_stale": Removal("attestation-stale.json", f"{_ATTEST}fresh"),
    "bundle_envelope_mismatch": Removal("bundle-other-envelope.json", "pvdm.trust.bundle.require_equal"),
    "bundle_logged_in_future": Removal("bundle-from-future.json", "pvdm.trust.bundle.require_logged_before"),
}


def refusal_of(asset: Asset) -> PvdmError:
    with pytest.raises(PvdmError) as caught:
        submit_asset(asset, asset.data)
    return caught.value


@for_each("name", sorted(ASSETS))
def test_a_hostile_asset_is_refused_with_its_own_code(name: str) -> None:
    assert refusal_of(ASSETS[name]).reason == ASSETS[name].code


@for_each("name", sorted(ASSETS))
def test_refused_statements_of_operators_are_not_allowed_and_others_fail_verification(name: str) -> None:
    signed_by_operators = ("override", "protection", "migration", "release")
    expected = NotAllowedError if ASSETS[name].door in signed_by_operators else VerificationError
    assert type(refusal_of(ASSETS[name])) is expected


@for_each("name", sorted(name for name, asset in ASSETS.items() if asset.door in ("publish", "quorum")))
def test_a_refusal_of_the_gate_carries_the_number_of_its_check(name: str) -> None:
    error = refusal_of(ASSETS[name])
    assert error.check in range(1, 13)
    assert error.to_json()["details"]["check"] == error.check  # type: ignore[index]


def test_every_code_has_a_check_to_take_out_or_a_reason_why_not() -> None:
    assert {asset.code for asset in ASSETS.values()} == {*REMOVALS, *STRUCTURAL}


@for_each("code", sorted(REMOVALS))
def test_without_its_check_the_asset_gets_through(code: str) -> None:
    # First the later checks are taken out, and the asset must still be refused, by this check and with this code.
    # Then the check itself is taken out, and the very same bytes must be accepted.
    removal = REMOVALS[code]
    asset = ASSETS[removal.asset]
    assert asset.code == code
    with pytest.MonkeyPatch.context() as patch:
        for later in removal.also:
            if later != _FIELDS:
                patch.setattr(later, _nothing)
        assert refusal_of(asset).reason == code
        if _FIELDS in removal.also:
            patch.setattr(_FIELDS, _lenient_fields)
        patch.setattr(removal.check, removal.instead)
        submit_asset(asset, asset.data)


def test_without_its_check_a_snapshot_of_64_bits_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    asset = ASSETS["protection-snapshot-too-large.json"]
    assert refusal_of(asset).reason == "document_value_invalid"
    monkeypatch.setattr("pvdm.model.codec.require_fields", _nothing)
    submit_asset(asset, asset.data)


@for_each(
    ("door", "data"),
    [
        ("publish", sign_statement(PROOF, SIGNERS["notary-a"]).to_bytes()),
        ("publish", sign_statement(Proof(CORE, notary_part("notary-b")), SIGNERS["notary-b"]).to_bytes()),
        (
            "quorum",
            join_lines(
                sign_statement(PROOF, SIGNERS["notary-a"]).to_bytes(),
                sign_statement(Proof(CORE, notary_part("notary-b")), SIGNERS["notary-b"]).to_bytes(),
            ),
        ),
        ("root", join_lines(FIRST)),
        ("root", join_lines(FIRST, SECOND_ROOT)),
        ("override", sign_statement(OVERRIDE, SIGNERS["operator-ruth"]).to_bytes()),
        ("protection", sign_statement(PROTECTION, SIGNERS["operator-tom"]).to_bytes()),
        ("protection", sign_statement(NAMESPACE_PROTECTION, SIGNERS["operator-tom"]).to_bytes()),
        ("migration", sign_statement(MIGRATION, SIGNERS["operator-tom"]).to_bytes()),
        ("release", sign_statement(CLAIM_RELEASE, SIGNERS["operator-tom"]).to_bytes()),
        ("attestation", sign_statement(ATTESTATION, SIGNERS["source-payments"]).to_bytes()),
        ("bundle", BUNDLE),
    ],
    ids=[
        "Ed25519",
        "P-256",
        "two notaries",
        "first root",
        "second root",
        "override",
        "protection",
        "protection of a namespace",
        "migration",
        "claim release",
        "attestation",
        "bundle",
    ],
)
def test_the_good_document_that_the_assets_are_made_from_is_accepted(door: str, data: bytes) -> None:
    submit_asset(Asset("good", door, "none"), data)


def test_the_assets_are_what_the_tool_writes() -> None:
    assert list(stale()) == []


def test_there_are_at_least_50_assets() -> None:
    assert len(ASSETS) >= 50
