"""The workload statement: the plan hash and the proofs of every chunk, published together or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.model.canonical_json import Value
from pvdm.model.fields import (
    Fields,
    decimal,
    require_form,
    require_long,
    require_number,
    require_random,
    require_sequence,
    require_sha256,
    require_text,
)
from pvdm.model.statements.proof import require_lifetime
from pvdm.model.statements.table import TableRef

CHUNKS_MAX: Final = 10_000
NOTARIES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class ChunkProofs:
    """One chunk of the plan: the attempt that passed, its nonce, and its proofs, one a notary."""

    chunk_id: str
    attempt_id: str
    nonce: str
    proof_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        require_text(self.chunk_id, "the chunk id")
        require_random(self.attempt_id, "the attempt id")
        require_random(self.nonce, "the nonce")
        require_sequence(self.proof_ids, "the proof ids", least=1, most=NOTARIES_MAX)
        for proof_id in self.proof_ids:
            require_sha256(proof_id, "a proof id")

    def to_json(self) -> dict[str, Value]:
        """The chunk in the statement."""
        return {
            "chunk_id": self.chunk_id,
            "attempt_id": self.attempt_id,
            "nonce": self.nonce,
            "proof_ids": list(self.proof_ids),
        }

    @classmethod
    def from_json(cls, value: Value) -> ChunkProofs:
        """What `to_json` wrote."""
        fields = Fields(value, "a chunk", cls.__slots__)
        return cls(fields.text("chunk_id"), fields.text("attempt_id"), fields.text("nonce"), fields.texts("proof_ids"))


@dataclass(frozen=True, slots=True)
class WorkloadStatement:
    """All chunks of one plan, in order of their ids, each with its proofs."""

    notary: str
    epoch: int
    workload_id: str
    contract_sha256: str
    plan_sha256: str
    table: TableRef
    chunks: tuple[ChunkProofs, ...]
    issued_at: int
    expires_at: int

    def __post_init__(self) -> None:
        require_form(self.notary, "identity", "the notary")
        require_long(self.epoch, "the epoch")
        require_form(self.workload_id, "id", "the workload id")
        require_sha256(self.contract_sha256, "the contract hash")
        require_sha256(self.plan_sha256, "the plan hash")
        require_sequence([chunk.chunk_id for chunk in self.chunks], "the chunks", least=1, most=CHUNKS_MAX)
        proofs = sorted(proof_id for chunk in self.chunks for proof_id in chunk.proof_ids)
        require_sequence(proofs, "the proofs of all chunks", least=1, most=CHUNKS_MAX * NOTARIES_MAX)
        nonces = sorted(chunk.nonce for chunk in self.chunks)
        require_sequence(nonces, "the nonces of all chunks", least=1, most=CHUNKS_MAX)
        require_number(self.issued_at, "the time of issue")
        require_number(self.expires_at, "the time of expiry")
        require_lifetime(self.issued_at, self.expires_at)

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {
            "notary": self.notary,
            "epoch": decimal(self.epoch),
            "workload_id": self.workload_id,
            "contract_sha256": self.contract_sha256,
            "plan_sha256": self.plan_sha256,
            "table": self.table.to_json(),
            "chunks": [chunk.to_json() for chunk in self.chunks],
            "issued_at": self.issued_at,
            "expires_at": self.expires_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> WorkloadStatement:
        """The statement that `to_json` wrote."""
        fields = Fields(value, "the workload statement", cls.__slots__)
        return cls(
            fields.text("notary"),
            fields.decimal("epoch"),
            fields.text("workload_id"),
            fields.text("contract_sha256"),
            fields.text("plan_sha256"),
            TableRef.from_json(fields.value("table")),
            tuple(ChunkProofs.from_json(chunk) for chunk in fields.items("chunks")),
            fields.number("issued_at"),
            fields.number("expires_at"),
        )
