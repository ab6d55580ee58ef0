"""Hostile proofs: each spoils one good proof, or one good set of proofs, in one way."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Final

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from pvdm.model.canonical_json import dump
from pvdm.model.statements.proof import PROOF_LIFETIME_MAX_MICROS, Proof
from pvdm.trust.envelope import ENVELOPE_SIZE_MAX_BYTES, Envelope, Signature, pae
from pvdm.trust.statement import payload_of
from pvdm.trust.verify import NOTARY_ENVELOPES_MAX, sign_statement
from tools.hostile_case import Case, Json, Spoil, join_changes, join_lines, put, raw_signature, sign, spoil, wrap
from tools.proof_kit import (
    CORE,
    DAY,
    EPOCH,
    EXPIRES,
    FAIL_PROOF,
    ISSUED,
    NEWER_SNAPSHOT_ID,
    NOW,
    ORIGIN,
    PROOF,
    SECOND,
    SIGNERS,
    fixed,
    notary_part,
)

_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_SIGNER: Final = SIGNERS["notary-a"]
# The good proof: its payload, its envelope, and the envelope's bytes.
_PAYLOAD: Final = payload_of(PROOF)
_ENVELOPE: Final = sign_statement(PROOF, _SIGNER)
_BYTES: Final = _ENVELOPE.to_bytes()


def _case(name: str, code: str, spoils: str, data: bytes, **facts: bool | int) -> Case:
    return Case(f"proof-{name}.json", "publish", code, spoils, data, **facts)  # type: ignore[arg-type]


def _change(name: str, code: str, spoils: str, change: Spoil) -> Case:
    """The good proof with a change, signed again by its notary."""
    return _case(name, code, spoils, sign(spoil(PROOF, change), "notary-a"))


def verdicts() -> Iterator[Case]:
    """Proofs whose verdict is not what it looks like."""
    stale = sign_statement(FAIL_PROOF, _SIGNER).signature
    yield _case(
        "flipped-verdict",
        "signature_invalid",
        "FAIL was turned into PASS, commitments too; the signature is still that over FAIL",
        wrap(_PAYLOAD, stale.key_id, stale.value),
    )
    fail = sign_statement(FAIL_PROOF, _SIGNER).to_bytes()
    yield _case("fail-verdict", "verdict_not_pass", "a genuine FAIL proof is brought to publish", fail)
    yield _change(
        "pass-with-classes",
        "verdict_invalid",
        "PASS that names a failure",
        put("core", "verdict", "classes", value=["missing"]),
    )
    yield _change(
        "fail-without-classes",
        "verdict_invalid",
        "FAIL that names none",
        put("core", "verdict", "outcome", value="FAIL"),
    )
    yield _change(
        "counts-disagree",
        "proof_counts_disagree",
        "PASS with six rows missing",
        put("core", "rows", "staged", value="48204"),
    )
    yield _change(
        "counts-unknown",
        "proof_counts_disagree",
        "PASS without a row count",
        put("core", "rows", value={"intent": None, "staged": None}),
    )
    yield _change(
        "commitments-disagree",
        "proof_commitments_disagree",
        "PASS over two different digests",
        put("notary", "commitments", 0, "staged", value=fixed("other")),
    )
    yield _change(
        "commitment-missing",
        "proof_commitment_missing",
        "PASS without the content digest",
        lambda predicate: predicate["notary"]["commitments"].pop(0),
    )
    yield _change(
        "commitment-unknown",
        "proof_commitment_unknown",
        "a commitment to a projection that the core does not describe",
        lambda predicate: predicate["core"]["projections"].pop(1),
    )


def targets() -> Iterator[Case]:
    """Genuine proofs of something else."""
    for name, code, path, value in (
        ("contract", "proof_wrong_contract", ("attempt", "contract_sha256"), fixed("other contract")),
        ("workload", "proof_wrong_workload", ("attempt", "workload_id"), "orders-2026-11-13"),
        ("plan", "proof_wrong_plan", ("attempt", "plan_sha256"), fixed("other plan")),
        ("chunk", "proof_wrong_chunk", ("attempt", "chunk_id"), "2026-11-13"),
        ("attempt", "proof_wrong_attempt", ("attempt", "attempt_id"), fixed("other attempt", 16)),
        ("catalog", "proof_wrong_catalog", ("target", "table", "catalog"), "staging-lake"),
        ("table", "proof_wrong_table", ("target", "table", "uuid"), "11111111-2222-4333-8444-555555555555"),
        ("branch", "proof_wrong_branch", ("target", "branch"), "audit"),
        ("partition", "proof_wrong_partition", ("target", "partition"), {"order_day": "2026-11-13"}),
        ("schema", "proof_wrong_schema", ("target", "schema_fingerprint"), fixed("other fingerprint")),
        ("spec", "proof_wrong_spec", ("target", "spec_id"), 2),
        ("format", "proof_wrong_format", ("target", "format_version"), 3),
        ("base", "proof_wrong_base", ("target", "base_snapshot_id"), str(NEWER_SNAPSHOT_ID)),
        ("base-off-main", "base_left_main", ("target", "base_snapshot_id"), "1"),
        ("base-none", "proof_wrong_removals", ("target", "base_snapshot_id"), None),
        ("staging-branch", "proof_wrong_staging", ("staged", "branch"), "pvdm-other"),
        ("staged-snapshot", "proof_wrong_staged", ("staged", "snapshot_id"), "2"),
        ("removals", "proof_wrong_removals", ("files", "removed"), []),
        ("staged-size", "verified_of_other_proof", ("files", "added", 0, "staged_size_bytes"), "2097152"),
        ("staged-digest", "verified_of_other_proof", ("files", "added", 0, "staged_sha256"), fixed("other bytes")),
        ("file-size", "proof_wrong_files", ("files", "added", 0, "published_size_bytes"), "2097152"),
        ("file-digest", "verified_of_other_proof", ("files", "added", 0, "published_sha256"), fixed("other bytes")),
        (
            "staged-path",
            "proof_wrong_files",
            ("files", "added", 0, "staged_path"),
            "s3://lake/elsewhere/part-0.parquet",
        ),
    ):
        change = put("core", *path, value=value)
        yield _change(f"wrong-{name}", code, f"a genuine proof of another {name}", change)
    append = join_changes(put("core", "target", "operation", value="append"), put("core", "files", "removed", value=[]))
    yield _change("wrong-operation", "proof_wrong_operation", "a genuine proof of an append", append)
    yield _change(
        "dropped-file",
        "proof_wrong_files",
        "a genuine proof of two of the three files",
        lambda predicate: predicate["core"]["files"]["added"].pop(),
    )
    changed = spoil(PROOF, put("subject", 1, "digest", "sha256", value=fixed("other bytes")), resubject=False)
    yield _case(
        "changed-file-digest",
        "subject_mismatch",
        "the subject names other bytes for a file than the core",
        sign(changed, "notary-a"),
    )
    changed = spoil(PROOF, put("core", "files", "added", 0, "published_sha256", value=fixed("other bytes")))
    yield _case(
        "changed-file-digest-unsigned",
        "signature_invalid",
        "core and subject name other bytes; the signature is the old one",
        wrap(changed, _SIGNER.public.key_id, _ENVELOPE.signature.value),
    )
    yield _case(
        "subject-file-missing",
        "subject_mismatch",
        "a file of the core is not in the subject",
        sign(spoil(PROOF, lambda statement: statement["subject"].pop(), resubject=False), "notary-a"),
    )


def times() -> Iterator[Case]:
    """Proofs at the wrong time, nonce or epoch."""
    yield _case("reused-nonce", "nonce_reused", "the good proof again, after it published", _BYTES, used=True)
    yield _case("expired", "proof_expired", "the good proof at the microsecond of its expiry", _BYTES, now=EXPIRES)
    issued = put("notary", "issued_at", value=NOW + 120 * SECOND)
    later = join_changes(issued, put("notary", "expires_at", value=NOW + DAY))
    yield _change("future", "statement_from_future", "issued two minutes from now", later)
    long = put("notary", "expires_at", value=ISSUED + PROOF_LIFETIME_MAX_MICROS + 1)
    yield _change("lifetime", "proof_lifetime_invalid", "good for more than a week", long)
    backwards = put("notary", "expires_at", value=ISSUED - 1)
    yield _change("expires-before-issue", "proof_lifetime_invalid", "expires before it was issued", backwards)
    yield _change(
        "other-epoch", "proof_wrong_epoch", "of the epoch before", put("notary", "epoch", value=str(EPOCH - 1))
    )
    yield _change(
        "key-of-other-epoch", "key_epoch_wrong", "of an epoch that is not the key's", put("notary", "epoch", value="99")
    )
    late = NOW + 61 * DAY
    yield _case("expired-trust-root", "trust_root_expired", "the trust root was not renewed", _BYTES, now=late)


def signers() -> Iterator[Case]:
    """Proofs signed with a wrong key, or with a wrong signature."""
    for name, signer, identity, code, spoils in (
        ("unknown-key", "rogue", "notary-a", "key_unknown", "signed with a key that nobody trusts"),
        ("revoked-key", "notary-revoked", "notary-revoked", "key_revoked", "signed with a revoked key"),
        ("expired-key", "notary-expired", "notary-expired", "key_expired", "signed with a key that has expired"),
        ("early-key", "notary-early", "notary-early", "key_not_yet_valid", "signed with a key that is not valid yet"),
        ("break-glass-key", "operator-ruth", "operator-ruth", "key_is_break_glass", "signed with the break-glass key"),
        ("log-key", "log-keeper", ORIGIN, "key_role_wrong", "signed with the log's key"),
        ("attestor-key", "source-other", "source-other", "key_role_wrong", "signed with an attestor's key"),
        ("root-key", "root-one", "root-one", "key_role_wrong", "signed with a root signer's key"),
        ("other-name", "notary-a", "notary-b", "signer_name_wrong", "signed by notary-a in the name of notary-b"),
    ):
        data = sign(spoil(PROOF, put("notary", "notary", value=identity)), signer)
        yield _case(name, code, spoils, data)
    by_b = payload_of(Proof(CORE, notary_part("notary-b")))
    ecdsa = raw_signature(by_b, SIGNERS["notary-b"])
    r, s = decode_dss_signature(ecdsa)
    high = encode_dss_signature(r, max(s, _P256_ORDER - s))
    yield _case(
        "algorithm-swapped",
        "signature_form_invalid",
        "an ECDSA signature under the id of an Ed25519 key",
        wrap(_PAYLOAD, _SIGNER.public.key_id, raw_signature(_PAYLOAD, SIGNERS["notary-b"])),
    )
    yield _case(
        "second-spelling",
        "signature_form_invalid",
        "the ECDSA signature with n - s, which a stranger can make",
        wrap(by_b, SIGNERS["notary-b"].public.key_id, high),
    )
    yield _case(
        "other-hand",
        "signature_invalid",
        "another key's signature under notary-a's key id",
        wrap(_PAYLOAD, _SIGNER.public.key_id, raw_signature(_PAYLOAD, SIGNERS["rogue"])),
    )
    yield _case(
        "without-encoding",
        "signature_invalid",
        "signed over the bare payload, without type and length",
        wrap(_PAYLOAD, _SIGNER.public.key_id, _SIGNER.sign(_PAYLOAD)),
    )
    flipped = bytes([_ENVELOPE.signature.value[0] ^ 1]) + _ENVELOPE.signature.value[1:]
    yield _case(
        "flipped-bit", "signature_invalid", "one bit of the signature", wrap(_PAYLOAD, _SIGNER.public.key_id, flipped)
    )


def envelopes() -> Iterator[Case]:
    """Envelopes whose bytes are not one canonical JSON document."""
    whole = json.loads(_BYTES)
    yield _case("truncated", "json_truncated", "cut off in the middle", _BYTES[: len(_BYTES) // 2])
    yield _case("oversized", "json_too_large", "padded over the limit", _BYTES + b" " * ENVELOPE_SIZE_MAX_BYTES)
    yield _case("trailing-bytes", "json_trailing_bytes", "a second object behind it", _BYTES + b"{}")
    yield _case("trailing-newline", "json_trailing_bytes", "a newline behind it", _BYTES + b"\n")
    yield _case("not-json", "json_malformed", "single quotes", _BYTES.replace(b'"', b"'"))
    yield _case("not-utf8", "json_not_utf8", "a byte that is no text", _BYTES[:20] + b"\xff" + _BYTES[21:])
    spaced = json.dumps(whole).encode()
    yield _case("white-space", "json_not_canonical", "the same value with spaces", spaced)
    yield _case("float", "json_not_canonical", "a floating-point number", _BYTES[:-1] + b',"x":1.5}')
    twice = b'{"payload":"e30=",' + _BYTES[1:]
    yield _case("duplicate-key", "json_duplicate_key", "two payloads; readers differ on which one counts", twice)
    deep: object = []
    for _ in range(40):
        deep = [deep]
    nested = json.dumps({**whole, "x": deep}, separators=(",", ":"), sort_keys=True).encode()
    yield _case("too-deep", "json_too_deep", "forty arrays inside one another", nested)
    yield _case("recursion-bomb", "json_too_deep", "a hundred thousand arrays", b"[" * 100_000)


def envelope_parts() -> Iterator[Case]:
    """Envelopes in canonical JSON whose parts are not what they must be."""
    whole = json.loads(_BYTES)
    payload, signature = whole["payload"], whole["signatures"][0]
    url_safe_payload, url_safe_signature = _url_safe()
    text = Envelope(
        "text/plain", _PAYLOAD, (Signature(_SIGNER.public.key_id, _SIGNER.sign(pae("text/plain", _PAYLOAD))),)
    )
    yield _case("other-payload-type", "payload_type_wrong", "signed as text/plain", text.to_bytes())
    offered: list[tuple[str, str, str, Json]] = [
        ("unsigned", "envelope_unsigned", "no signature", {**whole, "signatures": []}),
        (
            "two-signatures",
            "envelope_signatures_many",
            "notary-b's too",
            {**whole, "signatures": [signature, _signature_by_b()]},
        ),
        ("names-algorithm", "document_key_unknown", "the envelope names an algorithm", {**whole, "alg": "none"}),
        (
            "signature-names-algorithm",
            "document_key_unknown",
            "the signature names an algorithm",
            {**whole, "signatures": [{**signature, "alg": "none"}]},
        ),
        (
            "without-type",
            "document_key_missing",
            "no payload type",
            {k: v for k, v in whole.items() if k != "payloadType"},
        ),
        ("array", "document_value_invalid", "an array instead of an object", [whole]),
        (
            "key-id-in-capitals",
            "document_value_invalid",
            "another spelling of the key id",
            _with_signature(keyid=signature["keyid"].upper()),
        ),
        ("empty-signature", "signature_size", "a signature of no bytes", _with_signature(sig="")),
        (
            "long-signature",
            "signature_size",
            "a signature of 300 bytes",
            _with_signature(sig=base64.b64encode(bytes(300)).decode()),
        ),
        (
            "url-safe-base64",
            "envelope_base64_invalid",
            "the URL's alphabet",
            {**whole, "payload": url_safe_payload, "signatures": [url_safe_signature]},
        ),
        (
            "base64-newline",
            "envelope_base64_invalid",
            "a newline inside",
            {**whole, "payload": payload[:4] + "\n" + payload[4:]},
        ),
        (
            "base64-loose-bits",
            "envelope_base64_invalid",
            "bits that belong to no byte",
            _with_signature(sig=_with_loose_bits(signature["sig"])),
        ),
    ]
    for name, code, spoils, value in offered:
        yield _case(name, code, spoils, dump(value))


def _signature_by_b() -> dict[str, str]:
    key_id = SIGNERS["notary-b"].public.key_id
    return {"keyid": key_id, "sig": base64.b64encode(raw_signature(_PAYLOAD, SIGNERS["notary-b"])).decode()}


def _with_signature(**changed: str) -> Json:
    """The good envelope with a changed signature."""
    whole = json.loads(_BYTES)
    return {**whole, "signatures": [{**whole["signatures"][0], **changed}]}


def _url_safe() -> tuple[str, dict[str, str]]:
    """Payload and signature in the URL-safe alphabet of base64."""
    # Tildes, question marks and angle brackets in the reason give + and / in base64, where the alphabets differ.
    payload = spoil(PROOF, put("core", "projections", 0, "excluded", 0, "reason", value="~~~???>>> set by the writer"))
    signature = raw_signature(payload, _SIGNER)
    text = base64.urlsafe_b64encode(payload).decode()
    return text, {"keyid": _SIGNER.public.key_id, "sig": base64.urlsafe_b64encode(signature).decode()}


def _with_loose_bits(text: str) -> str:
    """The base64 text with a bit set that belongs to no byte, in its last character."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = text.rstrip("=")[-1]
    return text.rstrip("=")[:-1] + alphabet[alphabet.index(last) | 1] + "=" * (len(text) - len(text.rstrip("=")))


def statements() -> Iterator[Case]:
    """Signed payloads that are no proof."""
    for name, code, spoils, change in (
        (
            "statement-v0",
            "statement_type_wrong",
            "in-toto's older statement",
            put("_type", value="https://in-toto.io/Statement/v0.1"),
        ),
        (
            "receipt-type",
            "predicate_type_wrong",
            "says that it is a receipt",
            put("predicateType", value="urn:pvdm:receipt:v1"),
        ),
        (
            "version-2",
            "predicate_version_unknown",
            "of a version to come",
            put("predicateType", value="urn:pvdm:proof:v2"),
        ),
        ("extra-statement-key", "document_key_unknown", "a key beside the predicate", put("note", value="trust me")),
    ):
        yield _case(name, code, spoils, sign(spoil(PROOF, change, resubject=False), "notary-a"))
    yield _change(
        "extra-core-key", "document_key_unknown", "a key that means nothing", put("core", "waived", value=True)
    )
    yield _change(
        "missing-plan",
        "document_key_missing",
        "no plan hash",
        lambda predicate: predicate["core"]["attempt"].pop("plan_sha256"),
    )
    yield _change(
        "attempt-zero",
        "document_value_invalid",
        "the attempt before the first",
        put("core", "attempt", "number", value=0),
    )
    yield _change(
        "snapshot-as-number",
        "document_value_invalid",
        "a 64-bit number as JSON number",
        put("core", "staged", "snapshot_id", value=2),
    )
    yield _change("file-twice", "document_value_invalid", "a file is listed twice", _list_file_twice)
    yield _change(
        "unsorted-files",
        "document_value_invalid",
        "the files in another order",
        lambda predicate: predicate["core"]["files"]["added"].reverse(),
    )
    yield _change(
        "append-that-removes",
        "document_value_invalid",
        "an append with removed files",
        put("core", "target", "operation", value="append"),
    )
    doubled = _PAYLOAD.replace(b'"verdict":{', b'"verdict":{"classes":["missing"],"outcome":"FAIL"},"verdict":{')
    yield _case("two-verdicts", "json_duplicate_key", "the core has two verdicts", sign(doubled, "notary-a"))
    yield _case(
        "payload-trailing", "json_trailing_bytes", "bytes behind the statement", sign(_PAYLOAD + b" ", "notary-a")
    )
    loose = json.dumps(json.loads(_PAYLOAD)).encode()
    yield _case("payload-white-space", "json_not_canonical", "the statement with spaces", sign(loose, "notary-a"))


def _list_file_twice(predicate: dict[str, dict[str, dict[str, list[object]]]]) -> None:
    added = predicate["core"]["files"]["added"]
    added.insert(0, added[0])


def quorums() -> Iterator[Case]:
    """Several envelopes for a threshold of two notaries, of which too few count."""
    b = SIGNERS["notary-b"]
    by_b = sign_statement(Proof(CORE, notary_part("notary-b")), b).to_bytes()
    second = sign(_PAYLOAD, "notary-a-second")

    def case(name: str, code: str, spoils: str, *offered: bytes) -> Case:
        return Case(f"quorum-{name}.jsonl", "quorum", code, spoils, join_lines(*offered))

    yield case("one-notary", "threshold_not_met", "one of two", _BYTES)
    yield case("duplicate-signer", "notary_repeated", "the same envelope twice", _BYTES, _BYTES)
    yield case("two-keys-one-notary", "notary_repeated", "one notary with two of its keys", _BYTES, second)
    other_name = sign(spoil(PROOF, put("notary", "notary", value="notary-b")), "notary-a-second")
    yield case("one-notary-two-names", "signer_name_wrong", "notary-a again, as notary-b", _BYTES, other_name)
    yield case(
        "too-many", "envelope_count", "more envelopes than notaries can be", *[_BYTES] * (NOTARY_ENVELOPES_MAX + 1)
    )
    for name, change in (
        ("rows", put("core", "rows", value={"intent": "48209", "staged": "48209"})),
        ("nonce", put("core", "attempt", "nonce", value=fixed("other nonce", 16))),
        ("checks", lambda predicate: predicate["core"]["checks"].pop()),
        ("file-digest", put("core", "files", "added", 2, "published_sha256", value=fixed("other bytes"))),
        ("source-snapshot", put("core", "sources", 0, "snapshot_id", value="1")),
        ("parameters", put("core", "attempt", "parameters", "business_date", value="2026-11-13")),
    ):
        differs = sign(spoil(Proof(CORE, notary_part("notary-b")), change), "notary-b")
        yield case(
            f"cores-differ-in-{name}", "cores_differ", f"notary-b says something else about {name}", _BYTES, differs
        )
    fail = sign_statement(Proof(FAIL_PROOF.core, notary_part("notary-b")), b).to_bytes()
    yield case("one-says-fail", "cores_differ", "notary-b says FAIL", _BYTES, fail)
    yield case("second-unsigned", "envelope_unsigned", "notary-b did not sign", _BYTES, _without_signatures(by_b))


def _without_signatures(data: bytes) -> bytes:
    return dump({**json.loads(data), "signatures": []})


def cases() -> Iterator[Case]:
    """All hostile proofs."""
    for group in (verdicts, targets, times, signers, envelopes, envelope_parts, statements, quorums):
        yield from group()
