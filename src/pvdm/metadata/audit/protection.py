"""Since when a table is protected, under which contract, and what explains how it is built now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.metadata.audit.evidence import Evidence
from pvdm.metadata.audit.heads import Edge
from pvdm.metadata.audit.report import Explained, Notes
from pvdm.metadata.audit.statements import Said, Statements
from pvdm.metadata.gate.state import state_changes, state_of
from pvdm.model.statements.migration import (
    Migration,
    NamespaceTarget,
    Protection,
    ProtectionAction,
    TableState,
    TableTarget,
)
from pvdm.trust.refusal import refused

_BEGINNING = -1


@dataclass(frozen=True, slots=True)
class _Step:
    """From this place of the log on the table is under this contract, or under none."""

    index: int
    contract_sha256: str | None


@dataclass(frozen=True, slots=True)
class Protected:
    """The contracts of a table along the log, whose first step is its beginning; where protection began and ended."""

    steps: tuple[_Step, ...]
    edges: tuple[Edge, ...]

    @property
    def stands(self) -> bool:
        """Whether the table is under a contract now."""
        return self.steps[-1].contract_sha256 is not None

    @property
    def born(self) -> bool:
        """Whether the table was created under a contract."""
        return self.steps[0].contract_sha256 is not None

    def contracts(self, after: int, before: int) -> set[str | None]:
        """Every contract that was in force somewhere between two places of the log; None is none."""
        standing = max((step for step in self.steps if step.index <= after), key=lambda step: step.index)
        between = {step.contract_sha256 for step in self.steps if after < step.index < before}
        return {standing.contract_sha256, *between}


def read_protection(
    evidence: Evidence, metadata: TableMetadata, statements: Statements, notes: Notes
) -> tuple[Protected, tuple[Explained, ...]]:
    """The steps that hold, in the log's order; one that does not hold is noted and changes nothing."""
    own = _own(evidence, statements, notes)
    steps = [_Step(_BEGINNING, _born(own, evidence, statements, notes))]
    # A table that was born protected began with no snapshot: every one has to be proved.
    edges = [] if steps[0].contract_sha256 is None else [Edge(_BEGINNING, begins=True, snapshot_id=None)]
    explained: list[Explained] = []
    state: TableState | None = None
    for said in own:
        contract, after = _result(said.predicate)
        with notes.held():
            _require_follows(said.predicate, state)
        steps.append(_Step(said.logged.index, contract))
        edges += _edges(said)
        explained.append(_explained(said))
        state = after
    with notes.held():
        require_protected(steps)
    if state is not None and steps[-1].contract_sha256 is not None:
        with notes.held():
            require_explained(state, metadata, steps[-1].contract_sha256)
    return Protected(tuple(steps), tuple(edges)), tuple(explained)


def _own(evidence: Evidence, statements: Statements, notes: Notes) -> list[Said[Protection] | Said[Migration]]:
    """The approvals about this very table that hold."""
    uuid = evidence.table.uuid
    found: list[Said[Protection] | Said[Migration]] = [
        said
        for said in statements.protections
        if isinstance(said.predicate.target, TableTarget) and said.predicate.target.table.uuid == uuid
    ]
    found += [said for said in statements.migrations if said.predicate.table.uuid == uuid]
    good = []
    for said in sorted(found, key=lambda each: each.logged.index):
        with notes.held():
            statements.approval(said)
            good.append(said)
    return good


def _born(
    own: Sequence[Said[Protection] | Said[Migration]], evidence: Evidence, statements: Statements, notes: Notes
) -> str | None:
    """The contract that the table was created under, as one in a protected namespace is; the namespace's word says so.

    A table that leaves a contract, or migrates, without ever having come under one was born under it.
    """
    wanted = evidence.contract_sha256
    if own:
        first = own[0].predicate
        if isinstance(first, Protection) and first.action is ProtectionAction.PROTECT:
            return None
        wanted = first.before.contract_sha256 if isinstance(first, Migration) else first.target.contract_sha256
    if wanted is None:
        return None
    with notes.held():
        for said in statements.protections:
            if _covers(said.predicate, evidence, wanted):
                statements.approval(said)
                return wanted
        raise refused(
            "audit_protection_missing",
            "no approval says that the table is under its contract",
            f"a protection of {evidence.table.name}, or of its namespace, under {wanted}",
            "none",
        )
    return wanted


def _covers(said: Protection, evidence: Evidence, contract_sha256: str) -> bool:
    target = said.target
    if not isinstance(target, NamespaceTarget) or said.action is not ProtectionAction.PROTECT:
        return False
    wanted = (evidence.table.catalog, _parts(evidence.table.name)[:-1], contract_sha256)
    return (target.namespace.catalog, _parts(target.namespace.name), target.contract_sha256) == wanted


def _parts(name: str) -> list[str]:
    """The parts of a name: dotted, or a JSON array where one of them has dots."""
    found = json.loads(name) if name.startswith("[") else name.split(".")
    return found if isinstance(found, list) else [name]


def _result(said: Protection | Migration) -> tuple[str | None, TableState | None]:
    """The contract and the state afterwards; without protection nobody answers for the state."""
    if isinstance(said, Migration):
        return said.after.contract_sha256, said.after
    if said.action is ProtectionAction.UNPROTECT or not isinstance(said.target, TableTarget):
        return None, None
    return said.target.contract_sha256, said.target.state


def _edges(said: Said[Protection] | Said[Migration]) -> list[Edge]:
    """A migration goes from contract to contract: protection neither begins nor ends with it."""
    found = said.predicate
    if isinstance(found, Migration) or not isinstance(found.target, TableTarget):
        return []
    return [Edge(said.logged.index, found.action is ProtectionAction.PROTECT, found.target.snapshot_id)]


def _require_follows(said: Protection | Migration, state: TableState | None) -> None:
    """What an operator saw is what the approval before left: nothing changed the table in between."""
    if state is None:
        return
    target = None if isinstance(said, Migration) else said.target
    seen = said.before if isinstance(said, Migration) else target.state if isinstance(target, TableTarget) else state
    if seen != state:
        raise refused(
            "audit_state_gap",
            "the table was changed between two approvals, and nobody signed it",
            "the state that the approval before led to",
            f"other {' and '.join(name for name, _, _ in state_changes(state, seen))}",
        )


def require_protected(steps: Sequence[_Step]) -> None:
    """There is something to audit by."""
    if all(step.contract_sha256 is None for step in steps):
        raise refused(
            "audit_not_protected", "the table was never protected: no snapshot has to be proved", "a protection", "none"
        )


def require_explained(state: TableState, metadata: TableMetadata, contract_sha256: str) -> None:
    """The table is built now as the last approval left it."""
    found = state_of(metadata, contract_sha256)
    if found != state:
        raise refused(
            "audit_structure_unexplained",
            "the table is built otherwise than the last approval left it",
            f"structure {state.structure_sha256}",
            f"other {' and '.join(name for name, _, _ in state_changes(state, found))}",
        )


def _explained(said: Said[Protection] | Said[Migration]) -> Explained:
    found = said.predicate
    if isinstance(found, Migration):
        kind, contract, shown = "migration", found.after.contract_sha256, None
        changes = tuple(f"{name} {old} → {new}" for name, old, new in state_changes(found.before, found.after))
    else:
        kind, contract, changes = found.action.value, found.target.contract_sha256, ()
        shown = found.target.snapshot_id if isinstance(found.target, TableTarget) else None
    logged = said.logged
    return Explained(
        kind, said.statement_id, logged.logged_at, logged.index, found.operator, found.reason, contract, shown, changes
    )
