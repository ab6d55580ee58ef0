"""Hostile assets: wrong documents with the place that must refuse them and the error code, and helpers to make them.

A hostile asset is a good document of `tools.proof_kit` that was changed ("spoiled") in one way. `Spoil` functions make
such changes, in place, in the JSON of a document.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pvdm.model.canonical_json import dump
from pvdm.model.statements.proof import Proof
from pvdm.trust.envelope import STATEMENT_TYPE, Envelope, Signature, pae, sign_envelope
from pvdm.trust.statement import Predicate, payload_of
from tools.proof_kit import NOW, SIGNERS, ExampleSigner

# The JSON has no type, since changes may break every rule of the document.
Json = Any
Spoil = Callable[[Json], object]


@dataclass(frozen=True, slots=True)
class Case:
    """An asset and how it is submitted. `spoils` says in words what is wrong with it.

    `door` names where it is submitted: `publish` (the gate), `quorum` (several envelopes), `root`, `override`,
    `protection`, `migration`, `release`, `attestation` or `bundle`. `now` is the time of the submission. `used`: the
    nonce was used before. `seen`: the reader has seen version 2 of the trust root. `of_pass`: the override is for a
    PASS proof.
    """

    name: str
    door: str
    code: str
    spoils: str
    data: bytes
    now: int = NOW
    used: bool = False
    seen: bool = False
    of_pass: bool = False

    @property
    def facts(self) -> dict[str, object]:
        """The manifest's entry."""
        return {
            "door": self.door,
            "code": self.code,
            "spoils": self.spoils,
            "now": self.now,
            "used": self.used,
            "seen": self.seen,
            "of_pass": self.of_pass,
            "sha256": hashlib.sha256(self.data).hexdigest(),
        }


def spoil(predicate: Predicate, change: Spoil, *, resubject: bool = True) -> bytes:
    """The statement's bytes after a change of its predicate, with a subject that fits the changed predicate.

    Without `resubject`, `change` applies to the whole statement, and the subject is not computed again.
    """
    statement = copy.deepcopy(json.loads(payload_of(predicate)))
    change(statement["predicate"] if resubject else statement)
    if resubject:
        statement["subject"] = subject_of(predicate, statement)
    return dump(statement)


def subject_of(predicate: Predicate, statement: Json) -> Json:
    """The subject that a reader derives from the predicate, even if the predicate is wrong."""
    inner = statement["predicate"]
    if isinstance(predicate, Proof):
        files = inner["core"]["files"]["added"]
        core = {"name": "urn:pvdm:core", "digest": {"sha256": hashlib.sha256(dump(inner["core"])).hexdigest()}}
        return [
            core,
            *({"name": file["published_path"], "digest": {"sha256": file["published_sha256"]}} for file in files),
        ]
    if "fail_proof_id" in inner:
        named = inner["fail_proof_id"]
        return [{"name": f"urn:pvdm:proof:{named}", "digest": {"sha256": named}}]
    return [{"name": "urn:pvdm:predicate", "digest": {"sha256": hashlib.sha256(dump(inner)).hexdigest()}}]


def sign(payload: bytes, signer: str, *, payload_type: str = STATEMENT_TYPE) -> bytes:
    """The payload in an envelope, signed with one of the published test keys."""
    return sign_envelope(payload, SIGNERS[signer], payload_type=payload_type).to_bytes()


def wrap(payload: bytes, key_id: str, signature: bytes) -> bytes:
    """The payload in an envelope with this signature, right or wrong."""
    return Envelope(STATEMENT_TYPE, payload, (Signature(key_id, signature),)).to_bytes()


def raw_signature(payload: bytes, signer: ExampleSigner) -> bytes:
    """The signature over the payload in DSSE's encoding, without an envelope."""
    return signer.sign(pae(STATEMENT_TYPE, payload))


def put(*path: str | int, value: Json) -> Spoil:
    """The change that sets the value at this path."""

    def change(document: Json) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


def join_changes(*changes: Spoil) -> Spoil:
    """Several changes as one."""

    def apply_all(document: Json) -> None:
        for change in changes:
            change(document)

    return apply_all


def join_lines(*envelopes: bytes) -> bytes:
    """Several envelopes, one a line."""
    return b"\n".join(envelopes) + b"\n"


GZIP_OVER_BYTES: Final = 1_000_000
"""Larger assets are stored compressed."""
