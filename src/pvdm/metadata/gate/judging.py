"""The gate's checks 1 to 11 in their order, before anybody has to wait for anything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import FileReader
from pvdm.lake.vault import VaultKind
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import nonces
from pvdm.metadata.gate import checks_ledger, checks_proof, checks_table
from pvdm.metadata.gate.checks_workload import judge_statement, require_whole
from pvdm.metadata.gate.context import Gate, about, check
from pvdm.metadata.gate.proposal import Logged, Part, Proposal, require_seen
from pvdm.metadata.gate.target import Base
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Storage
from pvdm.model.statements.workload import WorkloadStatement
from pvdm.model.states import NonceState
from pvdm.trust.inclusion import log_checker
from pvdm.trust.refusal import refused
from pvdm.trust.root import RootKey, TrustRoot
from pvdm.trust.verify import Verified, VerifiedProof

REHASH_THREADS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """A chunk whose proofs hold; `override` is what waived its FAIL, if that is what it is."""

    part: Part
    proof: VerifiedProof
    override: Verified[BreakGlass] | None

    @property
    def core(self) -> ProofCore:
        """What its notaries agree on."""
        return self.proof.core


@dataclass(frozen=True, slots=True)
class Judged:
    """A proposal whose words hold, and by which trust roots."""

    proposal: Proposal
    parts: tuple[JudgedPart, ...]
    statement: Verified[WorkloadStatement] | None
    root: TrustRoot
    judged_by: tuple[str, ...]

    @property
    def keys(self) -> tuple[RootKey, ...]:
        """The notaries' keys that all of it rests on."""
        own = () if self.statement is None else (self.statement.key,)
        return (*(said.key for each in self.parts for said in each.proof.statements), *own)

    @property
    def override(self) -> Verified[BreakGlass] | None:
        """The one override that is used, if one is."""
        return next((each.override for each in self.parts if each.override is not None), None)


def judge_words(proposal: Proposal, gate: Gate) -> Judged:
    """Checks 1 to 4 and 6: what was signed, by whom, and that it stands now."""
    judged_by, root, now = gate.trust.ids(), gate.trust.current(), gate.clock.now_micros()
    require_whole(proposal)
    parts = []
    for part in proposal.parts:
        with about(part):
            parts.append(_judged_part(part, proposal, root, gate, now))
    if sum(each.override is not None for each in parts) > 1:
        raise refused("overrides_many", "a publication is waived by one override at most", "one", "several")
    statement = judge_statement(proposal, [each.proof for each in parts], root, now=now)
    return Judged(proposal, tuple(parts), statement, root, judged_by)


def _judged_part(part: Part, proposal: Proposal, root: TrustRoot, gate: Gate, now: int) -> JudgedPart:
    threshold = max(proposal.bound.contract.governance.threshold, root.notary_threshold)
    proof = checks_proof.judge_proofs(part, root, threshold=threshold, epoch=proposal.workload.epoch, now=now)
    require_found(part, proof.core)

    def used(nonce: str) -> bool:
        with gate.ledger.read() as unit:
            found = nonces.find(unit, nonce)
        return found is None or found.state is not NonceState.RESERVED

    with check(4):
        override = checks_proof.check_4_verdict(proof, part.waiver, root, now=now, used=used)
    with check(6):
        checks_proof.check_6_expiry(proof, now=now)
    return JudgedPart(part, proof, override)


def require_found(part: Part, core: ProofCore) -> None:
    """The verified manifest was written for exactly this core, and the proofs are those of the attempt's own nonce."""
    if (part.nonce, part.core_sha256) != (core.attempt.nonce, hashlib.sha256(core.to_bytes()).hexdigest()):
        raise refused(
            "verified_of_other_proof", "what was verified belongs to another proof", core.attempt.nonce, part.nonce
        )


def judge_base(judged: Judged, base: Base, gate: Gate) -> None:
    """Checks 5 and 7 to 9, on exactly this base."""
    metadata = base.metadata
    vault = gate.vault.root.child(base.row.table_uuid, VaultKind.DATA.value)
    for each in judged.parts:
        with about(each.part):
            with check(5):
                check_target(judged, each, base, base.row)
            with check(7):
                checks_table.check_7_structure(each.core, metadata)
            with check(8):
                require_seen(metadata, each.core.staged.snapshot_id, upstream=base.row.upstream)
                checks_table.check_8_branch(each.core, each.part.attempt, metadata)
            with check(9):
                checks_table.check_9_files(each.part, each.core, metadata, gate.files, vault)
                checks_table.check_9_copies(each.proof, vault)
                checks_table.check_9_boundary(each.part, each.core, metadata, gate.files)
    with check(9):
        checks_table.check_9_apart([each.core for each in judged.parts])


def judge_boundary(judged: Judged, metadata: TableMetadata, reader: FileReader) -> None:
    """Check 9 of what is removed, once more, with this reader of the manifests of `main`."""
    for each in judged.parts:
        with about(each.part), check(9):
            checks_table.check_9_boundary(each.part, each.core, metadata, reader)


def check_target(judged: Judged, each: JudgedPart, base: Base, row: TableRow) -> None:
    """Check 5 of one chunk, with the table's row as it is where it is asked."""
    proposal = judged.proposal
    checks_table.check_5_target(each.proof, base.table, row, proposal.workload, each.part.attempt, proposal.bound)


def judge_bytes(judged: Judged, gate: Gate) -> None:
    """Check 10: every file is read and hashed once more; sealed ones must still be the versions that were.

    What a producer wrote need not be on the disk yet: it is synced before `main` shows it.
    """
    for each in judged.parts:
        with about(each.part), check(10):
            if all(said.predicate.notary.storage is Storage.SEALED for said in each.proof.statements):
                prefix = parse_location(each.part.attempt.prefix)
                checks_ledger.check_10_versions(each.core.files.added, prefix, gate.seals)
            else:
                checks_ledger.check_10_bytes(each.core.files.added, gate.files, threads=REHASH_THREADS_MAX)
                gate.files.make_durable([file.published_path for file in each.core.files.added])


def judge_log(judged: Judged, gate: Gate) -> None:
    """Check 11: every statement that is relied on is in the log."""
    checker = log_checker(judged.root, origin=gate.origin)
    for logged in _relied_on(judged.proposal):
        with check(11):
            checks_ledger.check_11_logged(logged, gate.log_proof, checker)


def _relied_on(proposal: Proposal) -> Iterator[Logged]:
    for part in proposal.parts:
        yield from part.proofs
        if part.waiver is not None:
            yield part.waiver.override
            yield from part.waiver.failed
    if proposal.statement is not None:
        yield proposal.statement


def judge_again(judged: Judged, unit: Unit, base: Base, row: TableRow, *, now: int) -> None:
    """Checks 2, 5 and 6 inside the transaction: what could have changed since they were judged."""
    with check(2):
        checks_proof.check_2_again(unit, judged.keys, judged.root, judged.judged_by, now=now)
    for each in judged.parts:
        with about(each.part):
            with check(5):
                check_target(judged, each, base, row)
            with check(6):
                checks_proof.check_6_expiry(each.proof, now=now)


def wanted_removals(parts: Sequence[JudgedPart]) -> frozenset[str]:
    """What the publication removes: the union over its chunks."""
    return frozenset(path for each in parts for path in each.core.files.removed)
