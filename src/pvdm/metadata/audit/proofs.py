"""What a receipt rests on: its proofs and its override, held to everything that needs no snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pvdm.metadata.audit import checks
from pvdm.metadata.audit.evidence import Evidence
from pvdm.metadata.audit.protection import Protected
from pvdm.metadata.audit.report import Notes
from pvdm.metadata.audit.statements import ProvedChunk, Said, Statements
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused


@dataclass(frozen=True, slots=True)
class Rested:
    """The proofs and the override of one publication, as far as they are there."""

    chunks: tuple[ProvedChunk, ...] = ()
    override: BreakGlass | None = None

    @property
    def removed(self) -> set[str]:
        """Every path that the proofs remove."""
        return {path for chunk in self.chunks for path in chunk.proof.core.files.removed}


class Proofs:
    """Judges what receipts rest on, one after the other; what pays once is remembered over all of them."""

    def __init__(self, statements: Statements, protected: Protected, evidence: Evidence) -> None:
        self._statements = statements
        self._protected = protected
        self._evidence = evidence
        self._used: dict[tuple[str, ...], int] = {}

    def judge(self, receipt: Said[Receipt], notes: Notes) -> Rested:
        """The proofs of a receipt that holds; what does not hold is noted."""
        said = receipt.predicate
        chunks: tuple[ProvedChunk, ...] = ()
        with notes.held():
            chunks = self._statements.chunks(said.proof_ids)
        waived: BreakGlass | None = None
        if said.override_id is not None:
            with notes.held():
                override, index = self._statements.override(said.override_id)
                waived = override.predicate
                checks.require_logged_before(index, receipt.logged.index)
                self._require_unused(said, "override", said.override_id)
        if chunks:
            with notes.held():
                checks.require_workload(said, chunks)
            with notes.held():
                checks.require_override_needed(chunks, waived)
        for chunk in chunks:
            self._judge_chunk(receipt, chunk, waived, notes)
        return Rested(chunks, waived)

    def _judge_chunk(
        self, receipt: Said[Receipt], chunk: ProvedChunk, override: BreakGlass | None, notes: Notes
    ) -> None:
        core, said = chunk.proof.core, receipt.predicate
        standing = self._protected.contracts(chunk.first_index, receipt.logged.index)
        tried: Sequence[Callable[[], None]] = (
            lambda: checks.require_target(core, self._evidence),
            lambda: checks.require_contract(core, standing),
            lambda: checks.require_logged_before(chunk.last_index, receipt.logged.index),
            lambda: checks.require_verdict(core, override),
            # A nonce pays once, and a chunk is published once.
            lambda: self._require_unused(said, "nonce", core.attempt.nonce),
            lambda: self._require_unused(said, "chunk", core.attempt.workload_id, core.attempt.chunk_id),
        )
        for check in tried:
            with notes.held():
                check()

    def _require_unused(self, said: Receipt, *key: str) -> None:
        other = self._used.setdefault(key, said.new_snapshot_id)
        if other != said.new_snapshot_id:
            raise refused(
                "audit_used_twice",
                f"one {key[0]} was published with twice",
                f"{' '.join(key[1:])} once",
                f"in snapshot {other} too",
            )
