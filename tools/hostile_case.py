"""One hostile asset: its bytes, the door it is brought to, and the code it must be refused with."""

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

# JSON that is about to be spoiled has, on purpose, no type.
Json = Any
Spoil = Callable[[Json], object]


@dataclass(frozen=True, slots=True)
class Case:
    """`now` is the time at the door; `used`, whether its nonce was used; `seen`, whether version 2 of the root was."""

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


def spoiled(predicate: Predicate, spoil: Spoil, *, resubject: bool = True) -> bytes:
    """The statement's bytes after the change; the subject follows the change unless it is what is spoiled."""
    statement = copy.deepcopy(json.loads(payload_of(predicate)))
    spoil(statement["predicate"] if resubject else statement)
    if resubject:
        statement["subject"] = subject_of(predicate, statement)
    return dump(statement)


def subject_of(predicate: Predicate, statement: Json) -> Json:
    """The subject that a reader derives, without asking whether the predicate makes sense."""
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


def signed(payload: bytes, signer: str, *, payload_type: str = STATEMENT_TYPE) -> bytes:
    """The payload in an envelope by one of the published test keys."""
    return sign_envelope(payload, SIGNERS[signer], payload_type=payload_type).to_bytes()


def signed_raw(payload: bytes, key_id: str, signature: bytes) -> bytes:
    """An envelope with any signature."""
    return Envelope(STATEMENT_TYPE, payload, (Signature(key_id, signature),)).to_bytes()


def raw_signature(payload: bytes, signer: ExampleSigner) -> bytes:
    """The signature over the payload's encoding, not judged."""
    return signer.sign(pae(STATEMENT_TYPE, payload))


def put(*path: str | int, value: Json) -> Spoil:
    """A change of one value."""

    def change(document: Json) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


def both(*changes: Spoil) -> Spoil:
    """Several changes."""

    def change(document: Json) -> None:
        for each in changes:
            each(document)

    return change


def lines(*envelopes: bytes) -> bytes:
    """Several envelopes, one a line."""
    return b"\n".join(envelopes) + b"\n"


GZIP_OVER_BYTES: Final = 1_000_000
