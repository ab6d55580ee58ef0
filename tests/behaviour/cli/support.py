"""Shared by the tests of the command line: the result of a command, and bundles of proofs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Proof
from pvdm.trust.bundle import LoggedProof, ProofBundle
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.proof import LogProof
from pvdm.trust.verify import sign_statement
from tests.support.ledger.log_storage import MemoryStorage, entry, open_log
from tools.proof_kit import NOW, SIGNERS

EXAMPLES = Path(__file__).parents[3] / "spec" / "examples"
AT = "2026-11-14T12:00:00Z"  # two hours after the examples were made


@dataclass(frozen=True)
class CommandResult:
    """The result of one command: its exit code, and what it printed to standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The reason of the error that the command printed as JSON."""
        return str(self.json["error"]["reason"])


Run = Callable[..., CommandResult]


def bundle_of(*proofs: tuple[Proof, str]) -> bytes:
    """A bundle of proofs, each with the name of its signer, as entries of one real log."""
    return bundle_envelopes(*(sign_statement(proof, SIGNERS[name]).to_bytes() for proof, name in proofs))


def bundle_envelopes(*envelopes: bytes) -> bytes:
    """A bundle of any envelopes, as entries of one real log, with the log proof of each."""
    log = open_log(MemoryStorage(), SIGNERS["log-keeper"])
    logged = [LogEntry(StatementKind.PROOF, hashlib.sha256(envelope).hexdigest(), NOW) for envelope in envelopes]
    appended = log.append([entry(0), *logged, entry(9)])
    texts = [
        LogProof(at, log.prove_inclusion(at, appended.size).hashes, appended.checkpoint.note).to_bytes().decode()
        for at in range(1, 1 + len(logged))
    ]
    pairs = zip(envelopes, texts, strict=True)
    return ProofBundle(tuple(LoggedProof(envelope, NOW, text) for envelope, text in pairs)).to_bytes()
