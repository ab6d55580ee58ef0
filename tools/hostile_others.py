"""Hostile trust roots, overrides, approvals, attestations and bundles: each is a good document, changed in one way."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from pvdm.model.canonical_json import dump
from pvdm.model.statements.break_glass import OVERRIDE_LIFETIME_MAX_MICROS
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import APPROVAL_LIFETIME_MAX_MICROS
from pvdm.model.statements.proof import Proof
from pvdm.trust.bundle import LoggedProof, ProofBundle
from pvdm.trust.envelope import TRUST_ROOT_TYPE, Envelope, Signature, sign_envelope
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.proof import LogProof
from pvdm.trust.root import RootRole, Thresholds, TrustRoot, sign_root
from pvdm.trust.statement import payload_of
from pvdm.trust.verify import sign_statement
from tests.support.ledger.log_storage import MemoryStorage, entry, open_log
from tools.hostile_case import Case, Spoil, join_changes, join_lines, put, sign, spoil
from tools.proof_kit import (
    ATTESTATION,
    CLAIM_RELEASE,
    DAY,
    EXPIRES,
    FAIL_PROOF,
    ISSUED,
    KEYS,
    MIGRATION,
    NEXT_ROOT,
    NOW,
    OVERRIDE,
    PROOF,
    PROOF_ID,
    PROTECTION,
    ROOT,
    SECOND,
    SIGNERS,
    fixed,
    root_of,
)

# The JSON has no type, since changes may break every rule of the document.
Json = Any

_ROOTS: Final = ("root-one", "root-two")  # the signers of both good roots
FIRST: Final = sign_root(ROOT, [SIGNERS[name] for name in _ROOTS]).to_bytes()
SECOND_ROOT: Final = sign_root(NEXT_ROOT, [SIGNERS[name] for name in _ROOTS]).to_bytes()


def _root(root: TrustRoot, *names: str) -> bytes:
    return sign_root(root, [SIGNERS[name] for name in names]).to_bytes()


def _spoiled_root(change: Spoil) -> bytes:
    """The second root with a change, signed as it should be."""
    value = copy.deepcopy(json.loads(NEXT_ROOT.to_bytes()))
    change(value)
    value["keys"].sort(key=lambda key: key["key_id"])
    return _sign_root_payload(dump(value))


def _sign_root_payload(payload: bytes) -> bytes:
    signatures = [sign_envelope(payload, SIGNERS[name], payload_type=TRUST_ROOT_TYPE).signature for name in _ROOTS]
    return Envelope(TRUST_ROOT_TYPE, payload, tuple(signatures)).to_bytes()


def _root_case(name: str, code: str, spoils: str, *chain: bytes, seen: bool = False, now: int = NOW) -> Case:
    return Case(f"root-{name}.jsonl", "root", code, spoils, join_lines(*chain), now=now, seen=seen)


def successions() -> Iterator[Case]:
    """Roots that do not follow from the pinned one."""
    keys = list(KEYS.values())
    yield _root_case("rolled-back", "trust_root_rolled_back", "version 1 after version 2 was seen", FIRST, seen=True)
    older = "version 1 again behind version 2"
    yield _root_case("rolled-back-in-chain", "trust_root_rolled_back", older, FIRST, SECOND_ROOT, FIRST)
    fork = replace(NEXT_ROOT, thresholds=Thresholds(2, 2))
    forked = "another version 2 than the one seen"
    yield _root_case("forked", "trust_root_forked", forked, FIRST, _root(fork, *_ROOTS), seen=True)
    third = root_of(keys, version=3, previous=ROOT.sha256)
    yield _root_case("gap", "trust_root_gap", "version 3 right after version 1", FIRST, _root(third, *_ROOTS))
    stranger = replace(NEXT_ROOT, previous_sha256=fixed("other root"))
    yield _root_case(
        "other-predecessor", "trust_root_not_successor", "follows another root", FIRST, _root(stranger, *_ROOTS)
    )
    usurped = _with_signers("root-three", "root-four")
    new = ("root-three", "root-four")
    yield _root_case(
        "usurped", "trust_root_unsigned", "signed by its own new signers only", FIRST, _root(usurped, *new)
    )
    yield _root_case("one-signer", "trust_root_unsigned", "one of two signers", FIRST, _root(NEXT_ROOT, "root-one"))
    by_notaries = _root(NEXT_ROOT, "notary-a", "notary-b")
    yield _root_case("signed-by-notaries", "trust_root_unsigned", "signed by two notaries", FIRST, by_notaries)
    unaccepted = _root(usurped, *_ROOTS)
    yield _root_case(
        "new-signers-silent", "trust_root_self_unsigned", "its new signers did not sign", FIRST, unaccepted
    )
    rogue = replace(ROOT, thresholds=Thresholds(2, 2))
    yield _root_case("not-pinned", "trust_root_not_pinned", "another first root", _root(rogue, *_ROOTS))
    yield _root_case("expired", "trust_root_expired", "nobody renewed it", FIRST, now=NOW + 61 * DAY)
    one = sign_envelope(NEXT_ROOT.to_bytes(), SIGNERS["root-one"], payload_type=TRUST_ROOT_TYPE).signature
    twice = Envelope(TRUST_ROOT_TYPE, NEXT_ROOT.to_bytes(), (one, one)).to_bytes()
    yield _root_case("one-signer-twice", "envelope_key_repeated", "one signer's signature twice", FIRST, twice)
    statement = sign(NEXT_ROOT.to_bytes(), "root-one")
    yield _root_case("as-statement", "payload_type_wrong", "signed as a statement", FIRST, statement)
    changed = Envelope(TRUST_ROOT_TYPE, NEXT_ROOT.to_bytes(), _stale_signatures()).to_bytes()
    yield _root_case("stale-signature", "signature_invalid", "the signatures are those of another root", FIRST, changed)


def _with_signers(*names: str) -> TrustRoot:
    kept = [key for key in NEXT_ROOT.keys if RootRole.ROOT not in key.roles]
    added = [replace(KEYS["root-one"], public=SIGNERS[name].public, identity=name) for name in names]
    return root_of([*kept, *added], version=2, previous=ROOT.sha256)


def _stale_signatures() -> tuple[Signature, ...]:
    payload = replace(NEXT_ROOT, thresholds=Thresholds(2, 2)).to_bytes()
    return tuple(sign_envelope(payload, SIGNERS[name], payload_type=TRUST_ROOT_TYPE).signature for name in _ROOTS)


def root_keys() -> Iterator[Case]:
    """Roots, signed as they should be, whose keys are not what they seem."""
    b = KEYS["notary-b"]

    def find(value: Json, key_id: str) -> Json:
        return next(key for key in value["keys"] if key["key_id"] == key_id)

    def repeat_key(value: Json) -> None:
        value["keys"].append({**find(value, b.key_id), "identity": "notary-c"})

    def add_alias(value: Json) -> None:
        loaded = load_der_public_key(b.public.der)
        assert isinstance(loaded, ec.EllipticCurvePublicKey)  # noqa: S101 - the kit's key is one
        point = loaded.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        # The DER header of a public key on P-256 whose point is compressed.
        der = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200") + point
        alias = {"key_id": hashlib.sha256(der).hexdigest(), "public_key": base64.b64encode(der).decode()}
        value["keys"].append({**find(value, b.key_id), **alias, "identity": "notary-c"})

    def swap_algorithm(value: Json) -> None:
        find(value, b.key_id)["algorithm"] = "ed25519"

    def change_key_id(value: Json) -> None:
        find(value, b.key_id)["key_id"] = fixed("chosen id")

    def share_key(value: Json) -> None:
        find(value, KEYS["operator-ruth"].key_id)["roles"] = ["break-glass", "notary"]

    def share_identity(value: Json) -> None:
        find(value, KEYS["operator-ruth"].key_id)["identity"] = "notary-a"

    for name, code, spoils, change in (
        ("steward-breaks-glass", "trust_root_identity_shared", "notary-a also breaks the glass", share_identity),
        ("one-key-two-names", "trust_root_key_repeated", "one notary's key under two names", repeat_key),
        (
            "compressed-alias",
            "public_key_malformed",
            "the same key again, its point compressed, under another name",
            add_alias,
        ),
        ("algorithm-swapped", "trust_root_key_algorithm", "says Ed25519 of an ECDSA key", swap_algorithm),
        ("chosen-key-id", "trust_root_key_id", "a key id that is not the key's", change_key_id),
        ("break-glass-shared", "trust_root_role_shared", "a break-glass key that may also sign verdicts", share_key),
        ("threshold-zero", "trust_root_threshold", "no notary needed", put("thresholds", "notary", value=0)),
        (
            "threshold-unreachable",
            "trust_root_threshold",
            "more notaries than there are",
            put("thresholds", "notary", value=9),
        ),
        ("extra-key", "document_key_unknown", "a key that means nothing", put("comment", value="hello")),
    ):
        yield _root_case(name, code, spoils, FIRST, _spoiled_root(change))


def overrides() -> Iterator[Case]:
    """Break-glass statements that waive nothing."""

    def case(name: str, code: str, spoils: str, data: bytes, **facts: bool | int) -> Case:
        return Case(f"override-{name}.json", "override", code, spoils, data, **facts)  # type: ignore[arg-type]

    good = sign_statement(OVERRIDE, SIGNERS["operator-ruth"]).to_bytes()
    unsigned = dump({**json.loads(good), "signatures": []})
    yield case("unsigned", "override_unsigned", "nobody signed it", unsigned)
    yield case("replayed", "override_replayed", "it was used before", good, used=True)
    yield case("expired", "override_expired", "at the microsecond of its expiry", good, now=EXPIRES)
    of_pass = spoil(OVERRIDE, put("fail_proof_id", value=PROOF_ID))
    yield case("of-pass", "override_of_pass", "for a proof that passed", sign(of_pass, "operator-ruth"), of_pass=True)
    for name, code, spoils, change in (
        (
            "wrong-table",
            "override_wrong_table",
            "of another table",
            put("table", "uuid", value="11111111-2222-4333-8444-555555555555"),
        ),
        ("wrong-base", "override_wrong_base", "of another base", put("base_snapshot_id", value="1")),
        ("wrong-proof", "override_wrong_proof", "of another proof", put("fail_proof_id", value=PROOF_ID)),
        ("wrong-files", "override_wrong_files", "of other bytes", put("file_hashes", value=[fixed("other bytes")])),
        (
            "file-left-out",
            "override_wrong_files",
            "of two of three files",
            lambda predicate: predicate["file_hashes"].pop(),
        ),
        ("future", "statement_from_future", "issued two minutes from now", put("issued_at", value=NOW + 120 * SECOND)),
        (
            "lifetime",
            "override_lifetime_invalid",
            "kept for later",
            put("expires_at", value=ISSUED + OVERRIDE_LIFETIME_MAX_MICROS + 1),
        ),
        ("other-operator", "signer_name_wrong", "in another operator's name", put("operator", value="operator-tom")),
        ("without-reason", "document_value_invalid", "no reason", put("reason", value=" ")),
    ):
        yield case(name, code, spoils, sign(spoil(OVERRIDE, change), "operator-ruth"))
    for signer, code, spoils in (
        ("notary-a", "override_signed_by_steward", "signed with the Steward's signing key"),
        ("log-keeper", "override_signed_by_steward", "signed with the Steward's log key"),
        ("operator-tom", "key_role_wrong", "signed with an operator's everyday key"),
        ("rogue", "key_unknown", "signed with a key that nobody trusts"),
    ):
        yield case(f"by-{signer}", code, spoils, sign(spoil(OVERRIDE, put("operator", value=signer)), signer))
    proof = sign(payload_of(FAIL_PROOF), "operator-ruth")
    yield case("is-a-proof", "predicate_type_wrong", "a proof signed with the break-glass key", proof)


def approvals() -> Iterator[Case]:
    """Approvals that are not validly signed by an operator, or contradict themselves."""

    def case(name: str, code: str, spoils: str, data: bytes, **facts: bool | int) -> Case:
        door = name.partition("-")[0]
        return Case(f"{name}.json", door, code, spoils, data, **facts)  # type: ignore[arg-type]

    for kind, good in (("protection", PROTECTION), ("migration", MIGRATION), ("release", CLAIM_RELEASE)):
        data = sign_statement(good, SIGNERS["operator-tom"]).to_bytes()
        unsigned = dump({**json.loads(data), "signatures": []})
        yield case(f"{kind}-unsigned", "approval_unsigned", "nobody signed it", unsigned)
        yield case(f"{kind}-expired", "approval_expired", "at the microsecond of its expiry", data, now=EXPIRES)
        late = put("expires_at", value=ISSUED + APPROVAL_LIFETIME_MAX_MICROS + 1)
        valid_too_long = sign(spoil(good, late), "operator-tom")
        yield case(f"{kind}-lifetime", "approval_lifetime_invalid", "kept for later", valid_too_long)
        for signer, code, spoils in (
            ("notary-a", "approval_signed_by_steward", "signed with the Steward's signing key"),
            ("log-keeper", "approval_signed_by_steward", "signed with the Steward's log key"),
            ("operator-ruth", "key_is_break_glass", "signed with a break-glass key"),
            ("source-payments", "key_role_wrong", "signed with a source's key"),
            ("rogue", "key_unknown", "signed with a key that nobody trusts"),
        ):
            by = sign(spoil(good, put("operator", value=signer)), signer)
            yield case(f"{kind}-by-{signer}", code, spoils, by)
        other = sign(spoil(good, put("operator", value="operator-ruth")), "operator-tom")
        yield case(f"{kind}-other-operator", "signer_name_wrong", "in another operator's name", other)
    changed = sign(spoil(PROTECTION, put("contract", value="product: other\n")), "operator-tom")
    yield case("protection-other-contract", "contract_mismatch", "another contract than the one it names", changed)
    without = sign(spoil(PROTECTION, put("contract", value=None)), "operator-tom")
    yield case("protection-without-contract", "document_value_invalid", "the contract is left out", without)
    unbound = sign(spoil(PROTECTION, lambda predicate: predicate["target"].pop("snapshot_id")), "operator-tom")
    yield case("protection-without-snapshot", "document_key_missing", "does not say what main showed", unbound)
    for name, spoils, value in (
        ("snapshot-below-zero", "main showed the snapshot -1, which is Iceberg's word for none", "-1"),
        ("snapshot-too-large", "main showed a snapshot of 64 bits", str(2**63)),
        ("snapshot-number", "the snapshot that main showed is a number, which loses digits elsewhere", 1),
    ):
        wrong = sign(spoil(PROTECTION, put("target", "snapshot_id", value=value)), "operator-tom")
        yield case(f"protection-{name}", "document_value_invalid", spoils, wrong)
    same = sign(spoil(MIGRATION, put("after", value=MIGRATION.before.to_json())), "operator-tom")
    yield case("migration-of-nothing", "document_value_invalid", "from a state to itself", same)
    swapped = sign(payload_of(PROTECTION), "operator-tom")
    yield case("migration-is-a-protection", "predicate_type_wrong", "a protection handed in as a migration", swapped)
    yield case("release-is-a-protection", "predicate_type_wrong", "a protection handed in as a claim release", swapped)
    unclear = join_changes(put("receipt_id", value=None), put("proof_ids", value=sorted([PROOF_ID, fixed("other")])))
    nameless = sign(spoil(CLAIM_RELEASE, unclear), "operator-tom")
    yield case("release-of-two-proofs", "document_value_invalid", "no receipt, and two proofs", nameless)
    proofless = sign(spoil(CLAIM_RELEASE, put("proof_ids", value=[])), "operator-tom")
    yield case("release-without-proof", "document_value_invalid", "the proofs are left out", proofless)


def attestations() -> Iterator[Case]:
    """Attestations that are not signed by the source, or not about the pinned snapshot."""

    def case(name: str, code: str, spoils: str, data: bytes, now: int = NOW) -> Case:
        return Case(f"attestation-{name}.json", "attestation", code, spoils, data, now=now)

    good = sign_statement(ATTESTATION, SIGNERS["source-payments"]).to_bytes()
    yield case("stale", "attestation_stale", "a day and a minute old", good, now=NOW + DAY)
    other = spoil(ATTESTATION, put("attestor", value="source-other"))
    yield case("not-registered", "attestor_not_registered", "another source's attestor", sign(other, "source-other"))
    by_notary = spoil(ATTESTATION, put("attestor", value="notary-a"))
    yield case("by-notary", "key_role_wrong", "signed by the Steward", sign(by_notary, "notary-a"))
    yield case("by-stranger", "key_unknown", "signed by the producer", sign(payload_of(ATTESTATION), "rogue"))
    for name, code, spoils, change in (
        ("other-name", "signer_name_wrong", "in another attestor's name", put("attestor", value="source-other")),
        (
            "wrong-source",
            "attestation_wrong_source",
            "of another table",
            put("table", "uuid", value="11111111-2222-4333-8444-555555555555"),
        ),
        ("wrong-snapshot", "attestation_wrong_snapshot", "of another snapshot", put("snapshot_id", value="1")),
        ("wrong-nonce", "attestation_wrong_nonce", "answers another challenge", put("nonce", value=fixed("other", 16))),
        ("wrong-epoch", "attestation_wrong_epoch", "of the epoch before", put("epoch", value="6")),
        ("future", "statement_from_future", "issued two minutes from now", put("issued_at", value=NOW + 120 * SECOND)),
    ):
        yield case(name, code, spoils, sign(spoil(ATTESTATION, change), "source-payments"))


def bundles() -> Iterator[Case]:
    """Bundles whose parts do not belong together."""

    def case(name: str, code: str, spoils: str, data: bytes, now: int = NOW) -> Case:
        return Case(f"bundle-{name}.json", "bundle", code, spoils, data, now=now)

    good = json.loads(BUNDLE)
    fail = json.loads(sign_statement(FAIL_PROOF, SIGNERS["notary-a"]).to_bytes())
    swapped = copy.deepcopy(good)
    swapped["proofs"][0]["envelope"] = fail
    yield case(
        "other-envelope", "bundle_envelope_mismatch", "a FAIL proof under the hash of the PASS proof", dump(swapped)
    )
    early = NOW - 60 * SECOND - 1
    yield case("from-future", "bundle_logged_in_future", "the log entry is later than now", BUNDLE, now=early)
    version = dump({**good, "format": "pvdm-bundle/v2"})
    yield case("other-format", "document_value_invalid", "a format to come", version)
    yield case("empty", "document_value_invalid", "no proof at all", dump({**good, "proofs": []}))


def _bundle(proof: Proof) -> bytes:
    """The bundle of the proof, which is the third of five entries of a real log."""
    envelope = sign_statement(proof, SIGNERS["notary-a"]).to_bytes()
    log = open_log(MemoryStorage(), SIGNERS["log-keeper"])
    proof_entry = LogEntry(StatementKind.PROOF, hashlib.sha256(envelope).hexdigest(), NOW)
    appended = log.append([entry(0), entry(1), proof_entry, entry(3), entry(4)])
    inclusion = log.prove_inclusion(2, appended.size)
    text = LogProof(2, inclusion.hashes, appended.checkpoint.note).to_bytes().decode()
    return ProofBundle((LoggedProof(envelope, NOW, text),)).to_bytes()


BUNDLE: Final = _bundle(PROOF)
FAIL_BUNDLE: Final = _bundle(FAIL_PROOF)


def cases() -> Iterator[Case]:
    """All hostile documents of this module."""
    for group in (successions, root_keys, overrides, approvals, attestations, bundles):
        yield from group()
