"""The proof, with the core that all notaries sign and each notary's part; and the statement of a whole workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from pvdm.model.codec import DecimalText, Document, Id, Identity, JsonNumber, Random, Sha256, Text, sorted_texts
from pvdm.model.fields import inconsistent, invalid, require_lifetime, require_sequence, require_sha256
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.table import TableRef

PROOF_LIFETIME_MAX_MICROS: Final = 7 * 24 * 3600 * 1_000_000
CHUNKS_MAX: Final = 10_000
NOTARIES_MAX: Final = 16


class Isolation(Enum):
    """How far the notary is from the producer: in its process, in a process of its own, or in another account."""

    EMBEDDED = "embedded"
    PROCESS = "process"
    ACCOUNT = "account"


class Storage(Enum):
    """Who can still write the bytes: the producer (open), the vault's writers (copied), the store's admins (sealed)."""

    OPEN = "open"
    COPIED = "copied"
    SEALED = "sealed"


@dataclass(frozen=True, slots=True)
class Commitments(Document, title="the commitments"):
    """Commitments to the digests of intended and staged rows in one projection; never the digests."""

    projection: ProjectionName
    intent: Sha256
    staged: Sha256


@dataclass(frozen=True, slots=True)
class NotaryPart(Document, title="the notary's part"):
    """What one notary states for itself. Commitments are keyed hashes of its secret digests. Times: microseconds."""

    notary: Identity
    epoch: DecimalText
    commitments: tuple[Commitments, ...]
    isolation: Isolation
    storage: Storage
    issued_at: JsonNumber
    expires_at: JsonNumber

    def require_consistent(self) -> None:
        """Each projection has at most one pair of commitments, and the proof's lifetime is within its limit."""
        names = [each.projection.value for each in self.commitments]
        if names != sorted(set(names)):
            raise invalid("the commitments", "each projection once, in order", ", ".join(names))
        lifetime = self.expires_at - self.issued_at
        require_lifetime(lifetime, PROOF_LIFETIME_MAX_MICROS, "proof_lifetime_invalid", "the proof")


@dataclass(frozen=True, slots=True)
class Proof(Document, title="the proof"):
    """One notary's statement of one attempt's verdict: the core, and the notary's own part."""

    core: ProofCore
    notary: NotaryPart

    def require_consistent(self) -> None:
        """Commitments are for the core's projections. A PASS needs equal row counts and equal commitments."""
        require_known_projections(self.core, self.notary)
        if self.core.verdict.passed:
            require_equal_counts(self.core)
            require_all_commitments(self.core, self.notary)
            require_equal_commitments(self.notary)


@dataclass(frozen=True, slots=True)
class ChunkProofs(Document, title="a chunk"):
    """One chunk of the plan: the attempt that is published, its nonce, and its proofs, one from each notary."""

    chunk_id: Text
    attempt_id: Random
    nonce: Random
    proof_ids: Annotated[tuple[str, ...], sorted_texts(1, NOTARIES_MAX, each=require_sha256)]


@dataclass(frozen=True, slots=True)
class WorkloadStatement(Document, title="the workload statement"):
    """All chunks of one plan, by chunk id, each with its proofs. Only contracts with atomicity `workload` use it."""

    notary: Identity
    epoch: DecimalText
    workload_id: Id
    contract_sha256: Sha256
    plan_sha256: Sha256
    table: TableRef
    chunks: tuple[ChunkProofs, ...]
    issued_at: JsonNumber
    expires_at: JsonNumber

    def require_consistent(self) -> None:
        """Chunks, proofs and nonces are distinct, and the statement's lifetime is within its limit."""
        require_sequence([chunk.chunk_id for chunk in self.chunks], "the chunks", least=1, most=CHUNKS_MAX)
        proofs = sorted(proof_id for chunk in self.chunks for proof_id in chunk.proof_ids)
        require_sequence(proofs, "the proofs of all chunks", least=1, most=CHUNKS_MAX * NOTARIES_MAX)
        nonces = sorted(chunk.nonce for chunk in self.chunks)
        require_sequence(nonces, "the nonces of all chunks", least=1, most=CHUNKS_MAX)
        lifetime = self.expires_at - self.issued_at
        require_lifetime(lifetime, PROOF_LIFETIME_MAX_MICROS, "proof_lifetime_invalid", "the workload statement")


def require_known_projections(core: ProofCore, notary: NotaryPart) -> None:
    """Every commitment is for a projection that the core describes."""
    described = {proved.projection.name for proved in core.projections}
    for each in notary.commitments:
        if each.projection not in described:
            expected = ", ".join(sorted(name.value for name in described))
            raise inconsistent("proof_commitment_unknown", expected, each.projection.value)


def require_equal_counts(core: ProofCore) -> None:
    """A PASS has as many staged rows as intended rows, and both counts are known."""
    if core.rows.staged is None or core.rows.intent != core.rows.staged:
        raise inconsistent("proof_counts_disagree", f"{core.rows.intent} rows", str(core.rows.staged))


def require_all_commitments(core: ProofCore, notary: NotaryPart) -> None:
    """A PASS has commitments for every projection that the core describes."""
    committed = {each.projection for each in notary.commitments}
    for proved in core.projections:
        if proved.projection.name not in committed:
            raise inconsistent("proof_commitment_missing", proved.projection.name.value, "none")


def require_equal_commitments(notary: NotaryPart) -> None:
    """A PASS has equal commitments, because equal digests have equal commitments under one attempt's key."""
    for each in notary.commitments:
        if each.intent != each.staged:
            got = f"two in the {each.projection.value} projection"
            raise inconsistent("proof_commitments_disagree", "one commitment for intent and staged", got)
