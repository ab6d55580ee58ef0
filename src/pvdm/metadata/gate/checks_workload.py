"""What a publication holds as a whole: one chunk, or every chunk of the plan under a signed workload statement."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.metadata.gate.checks_proof import check_1_envelope, check_2_signature
from pvdm.metadata.gate.proposal import Proposal
from pvdm.model.clock import shown_time
from pvdm.model.contract import Atomicity
from pvdm.model.statements.workload import ChunkProofs, WorkloadStatement
from pvdm.trust.refusal import refused
from pvdm.trust.root import TrustRoot
from pvdm.trust.statement import read_statement
from pvdm.trust.verify import Verified, VerifiedProof, require_own_word


def require_whole(proposal: Proposal) -> None:
    """As the contract's atomicity has it: one chunk of the plan, or all of them, each once."""
    asked = [part.attempt.chunk_id for part in proposal.parts]
    whole = proposal.bound.contract.atomicity is Atomicity.WORKLOAD
    complete = frozenset(asked) == proposal.chunk_ids if whole else len(asked) == 1
    if not complete or len(set(asked)) != len(asked) or not proposal.chunk_ids.issuperset(asked):
        raise refused(
            "publication_not_whole",
            "these chunks are not published together",
            f"all {len(proposal.chunk_ids)} chunks of the plan" if whole else "one chunk of the plan",
            f"{len(asked)} chunks",
        )
    if whole != (proposal.statement is not None):
        raise refused(
            "workload_statement_missing" if whole else "workload_statement_needless",
            "a workload statement binds all chunks of a plan that are published at once",
            "one" if whole else "none",
            "none" if whole else "one",
        )


def judge_statement(
    proposal: Proposal, proofs: Sequence[VerifiedProof], root: TrustRoot, *, now: int
) -> Verified[WorkloadStatement] | None:
    """The statement that binds the plan and these very proofs, signed by a notary; none where one chunk goes alone."""
    if proposal.statement is None:
        return None
    envelope = check_1_envelope(proposal.statement.envelope)
    key = check_2_signature(envelope, root, now=now)
    said = read_statement(envelope.payload, WorkloadStatement)
    require_own_word(said, key, now)
    require_bound(said, proposal, proofs)
    require_statement_current(said, now)
    return Verified(said, envelope.payload_sha256, envelope, key)


def require_bound(said: WorkloadStatement, proposal: Proposal, proofs: Sequence[VerifiedProof]) -> None:
    """This workload, contract, plan and table, and for each chunk this attempt, nonce and set of proofs."""
    workload = proposal.workload
    first = proofs[0].core.target.table
    bound = sorted((_chunk(proof) for proof in proofs), key=lambda chunk: chunk.chunk_id)
    for what, expected, got in (
        ("workload", workload.opening.workload_id, said.workload_id),
        ("contract", workload.opening.contract_hash, said.contract_sha256),
        ("chunk plan", workload.plan_hash, said.plan_sha256),
        ("epoch", workload.epoch, said.epoch),
        ("table", first.uuid, said.table.uuid),
        ("set of proofs", tuple(bound), said.chunks),
    ):
        if expected != got:
            raise refused(
                "workload_statement_differs",
                f"the workload statement is for another {what}",
                f"the {what} of the proofs",
                "another",
            )


def require_statement_current(said: WorkloadStatement, now: int) -> None:
    """It runs out no later than the first of its proofs would."""
    if said.expires_at <= now:
        raise refused(
            "proof_expired",
            "the workload statement has expired",
            f"before {shown_time(said.expires_at)}",
            shown_time(now),
        )


def _chunk(proof: VerifiedProof) -> ChunkProofs:
    said = proof.core.attempt
    return ChunkProofs(said.chunk_id, said.attempt_id, said.nonce, proof.proof_ids)
