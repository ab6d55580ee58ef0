"""In-toto statements: the payloads of all envelopes but the trust root's. The predicate determines the subject."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, cast

from pvdm.model.canonical_json import Value, dump
from pvdm.model.fields import Fields
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.epoch import EpochStatement, RestoreStatement
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import Migration, Protection
from pvdm.model.statements.proof import Proof, WorkloadStatement
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.refusal import refuse_input_errors, refused
from pvdm.trust.root import RootRole
from pvdm.trust.strict_json import parse_strict

PAYLOAD_SIZE_MAX_BYTES: Final = 24 * 1024 * 1024
_STATEMENT: Final = "https://in-toto.io/Statement/v1"

_NotaryPredicate: TypeAlias = Proof | Receipt | WorkloadStatement | EpochStatement | RestoreStatement
_PersonPredicate: TypeAlias = Migration | Protection | ClaimRelease | BreakGlass | SourceAttestation
Predicate: TypeAlias = _NotaryPredicate | _PersonPredicate
P = TypeVar("P", bound=Predicate)


@dataclass(frozen=True, slots=True)
class SigningRule:
    """How a kind of statement is signed. A path names a field of the predicate, with dots."""

    predicate_type: str
    role: RootRole  # of the signing key
    signer: str  # the path of the signer's name
    epoch: str | None = None  # the path of the epoch for which the key must be trusted; None: this is not required
    issued_at: str = "issued_at"  # the path of the time

    @property
    def kind(self) -> StatementKind:
        """The kind of the statement, as the log's entries name it."""
        return StatementKind(self.predicate_type.split(":")[2])  # urn:pvdm:KIND:VERSION


_NOTARY: Final = RootRole.NOTARY
SIGNING_RULES: Final[Mapping[type[Any], SigningRule]] = {
    Proof: SigningRule("urn:pvdm:proof:v1", _NOTARY, "notary.notary", "notary.epoch", "notary.issued_at"),
    Receipt: SigningRule("urn:pvdm:receipt:v1", _NOTARY, "notary", "epoch", "published_at"),
    WorkloadStatement: SigningRule("urn:pvdm:workload:v1", _NOTARY, "notary", "epoch"),
    EpochStatement: SigningRule("urn:pvdm:epoch:v1", _NOTARY, "notary"),
    RestoreStatement: SigningRule("urn:pvdm:restore:v1", _NOTARY, "notary"),
    Migration: SigningRule("urn:pvdm:migration:v1", RootRole.OPERATOR, "operator"),
    Protection: SigningRule("urn:pvdm:protection:v1", RootRole.OPERATOR, "operator"),
    ClaimRelease: SigningRule("urn:pvdm:claim-release:v1", RootRole.OPERATOR, "operator"),
    BreakGlass: SigningRule("urn:pvdm:break-glass:v1", RootRole.BREAK_GLASS, "operator"),
    SourceAttestation: SigningRule("urn:pvdm:source-attestation:v1", RootRole.ATTESTOR, "attestor"),
}


def payload_of(predicate: Predicate) -> bytes:
    """The payload to be signed: the canonical JSON of the in-toto statement with this predicate."""
    return dump(
        {
            "_type": _STATEMENT,
            "subject": _subject_of(predicate),
            "predicateType": SIGNING_RULES[type(predicate)].predicate_type,
            "predicate": predicate.to_json(),
        }
    )


def read_statement(payload: bytes, kind: type[P]) -> P:
    """The predicate of a statement of this kind. Raises unless form, type and subject are right."""
    value = parse_strict(payload, "the statement", size_max_bytes=PAYLOAD_SIZE_MAX_BYTES)
    with refuse_input_errors():
        fields = Fields(value, "the statement", ("_type", "subject", "predicateType", "predicate"))
        require_statement_type(fields.text("_type"))
        require_predicate_type(fields.text("predicateType"), SIGNING_RULES[kind].predicate_type)
        predicate = cast(P, kind.from_json(fields.value("predicate")))
    require_subject(fields.value("subject"), predicate)
    return predicate


def read_unchecked(envelope: bytes, kind: type[P]) -> P:
    """The predicate of an envelope, without a check of its signature."""
    return read_statement(parse_envelope(envelope).payload, kind)


def _subject_of(predicate: Predicate) -> list[Value]:
    """The subject: names and SHA-256 of what the statement is about."""
    match predicate:
        case Proof(core=core):
            files = [_digest_entry(file.published_path, file.published_sha256) for file in core.files.added]
            return [_digest_entry("urn:pvdm:core", hashlib.sha256(core.to_bytes()).hexdigest()), *files]
        case Receipt():
            return [
                _digest_entry(predicate.metadata_path, predicate.metadata_sha256),
                _digest_entry("urn:pvdm:manifest-list", predicate.manifest_list_sha256),
            ]
        case WorkloadStatement():
            ids = [proof_id for chunk in predicate.chunks for proof_id in chunk.proof_ids]
            return [_digest_entry(f"urn:pvdm:proof:{proof_id}", proof_id) for proof_id in ids]
        case BreakGlass():
            return [_digest_entry(f"urn:pvdm:proof:{predicate.fail_proof_id}", predicate.fail_proof_id)]
        case _:
            return [_digest_entry("urn:pvdm:predicate", hashlib.sha256(predicate.to_bytes()).hexdigest())]


def _digest_entry(name: str, sha256: str) -> dict[str, Value]:
    return {"name": name, "digest": {"sha256": sha256}}


def require_statement_type(got: str) -> None:
    """Raise unless the statement is an in-toto statement of version 1."""
    if got != _STATEMENT:
        raise refused("statement_type_wrong", _STATEMENT, repr(got[:80]))


def require_predicate_type(got: str, expected: str) -> None:
    """Raise unless the predicate is of the expected kind and version."""
    require_predicate_version(got, expected)
    if got.rpartition(":")[0] != expected.rpartition(":")[0]:
        raise refused("predicate_type_wrong", expected, repr(got[:80]))


def require_predicate_version(got: str, expected: str) -> None:
    """Raise if the kind is the expected one, and its version (the last part of the name) is another."""
    kind, _, version = got.rpartition(":")
    wanted, _, known = expected.rpartition(":")
    if kind == wanted and version != known:
        raise refused("predicate_version_unknown", expected, repr(got[:80]))


def require_subject(got: Value, predicate: Predicate) -> None:
    """Raise unless the subject agrees with the predicate. Some tools read the subject alone."""
    expected = _subject_of(predicate)
    if got != expected:
        raise refused("subject_mismatch", f"{len(expected)} entries that the predicate binds", "other names or digests")
