"""Checks the proofs and the override of a receipt, as far as no snapshot is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pvdm.metadata.audit import checks
from pvdm.metadata.audit.evidence import Evidence
from pvdm.metadata.audit.protection import ProtectionHistory
from pvdm.metadata.audit.report import Notes
from pvdm.metadata.audit.statements import ProvedChunk, Statements, UnverifiedStatement
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused


@dataclass(frozen=True, slots=True)
class PublicationProofs:
    """The verified proofs and the override of one publication."""

    chunks: tuple[ProvedChunk, ...] = ()
    override: BreakGlass | None = None

    @property
    def removed(self) -> set[str]:
        """Every path that the proofs remove."""
        return {path for chunk in self.chunks for path in chunk.proof.core.files.removed}


class Proofs:
    """Checks the proofs of receipts. Nonces, chunks and overrides must be used once over all of them."""

    def __init__(self, statements: Statements, protected: ProtectionHistory, evidence: Evidence) -> None:
        self._statements = statements
        self._protected = protected
        self._evidence = evidence
        self._used: dict[tuple[str, ...], int] = {}

    def judge(self, receipt: UnverifiedStatement[Receipt], notes: Notes) -> PublicationProofs:
        """The proofs of a valid receipt. Failed checks are noted."""
        content = receipt.predicate
        chunks: tuple[ProvedChunk, ...] = ()
        with notes.collect():
            chunks = self._statements.chunks(content.proof_ids)
        waived: BreakGlass | None = None
        if content.override_id is not None:
            with notes.collect():
                override, index = self._statements.override(content.override_id)
                waived = override.predicate
                checks.require_logged_before(index, receipt.logged.index)
                self._require_unused(content, "override", content.override_id)
        if chunks:
            with notes.collect():
                checks.require_workload(content, chunks)
            with notes.collect():
                checks.require_override_needed(chunks, waived)
        for chunk in chunks:
            self._judge_chunk(receipt, chunk, waived, notes)
        return PublicationProofs(chunks, waived)

    def _judge_chunk(
        self, receipt: UnverifiedStatement[Receipt], chunk: ProvedChunk, override: BreakGlass | None, notes: Notes
    ) -> None:
        core, content = chunk.proof.core, receipt.predicate
        in_force = self._protected.contracts(chunk.first_index, receipt.logged.index)
        tried: Sequence[Callable[[], None]] = (
            lambda: checks.require_target(core, self._evidence),
            lambda: checks.require_contract(core, in_force),
            lambda: checks.require_logged_before(chunk.last_index, receipt.logged.index),
            lambda: checks.require_verdict(core, override),
            # A nonce is used once, and a chunk is published once.
            lambda: self._require_unused(content, "nonce", core.attempt.nonce),
            lambda: self._require_unused(content, "chunk", core.attempt.workload_id, core.attempt.chunk_id),
        )
        for check in tried:
            with notes.collect():
                check()

    def _require_unused(self, content: Receipt, *key: str) -> None:
        other = self._used.setdefault(key, content.new_snapshot_id)
        if other != content.new_snapshot_id:
            raise refused(
                "audit_used_twice",
                f"one {key[0]} was used by two publications",
                f"{' '.join(key[1:])} once",
                f"in snapshot {other} too",
            )
