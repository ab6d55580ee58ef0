"""Reads the approvals of a table: when it was protected, under which contract, and its approved state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.metadata.audit.evidence import Evidence
from pvdm.metadata.audit.heads import Edge
from pvdm.metadata.audit.report import ApprovalEntry, Notes
from pvdm.metadata.audit.statements import Statements, UnverifiedStatement
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
class _ContractStep:
    """From this log index on the table is under this contract, or under none."""

    index: int
    contract_sha256: str | None


@dataclass(frozen=True, slots=True)
class ProtectionHistory:
    """The contracts of a table along the log, from its creation, and where protection began and ended."""

    steps: tuple[_ContractStep, ...]
    edges: tuple[Edge, ...]

    @property
    def is_protected(self) -> bool:
        """Whether the table is under a contract now."""
        return self.steps[-1].contract_sha256 is not None

    @property
    def created_protected(self) -> bool:
        """Whether the table was created under a contract."""
        return self.steps[0].contract_sha256 is not None

    def contracts(self, after: int, before: int) -> set[str | None]:
        """Every contract that was in force between two log indexes. None means not protected."""
        current = max((step for step in self.steps if step.index <= after), key=lambda step: step.index)
        between = {step.contract_sha256 for step in self.steps if after < step.index < before}
        return {current.contract_sha256, *between}


def read_protection(
    evidence: Evidence, metadata: TableMetadata, statements: Statements, notes: Notes
) -> tuple[ProtectionHistory, tuple[ApprovalEntry, ...]]:
    """The protection history and its approvals, in the log's order. An invalid approval is noted and ignored."""
    own = _own_approvals(evidence, statements, notes)
    steps = [_ContractStep(_BEGINNING, _creation_contract(own, evidence, statements, notes))]
    # A table that was created protected began with no snapshot, so that every snapshot must be proved.
    edges = [] if steps[0].contract_sha256 is None else [Edge(_BEGINNING, begins=True, snapshot_id=None)]
    entries: list[ApprovalEntry] = []
    state: TableState | None = None
    for approval in own:
        contract, after = _result(approval.predicate)
        with notes.collect():
            _require_follows(approval.predicate, state)
        steps.append(_ContractStep(approval.logged.index, contract))
        edges += _edges(approval)
        entries.append(_describe(approval))
        state = after
    with notes.collect():
        require_protected(steps)
    if state is not None and steps[-1].contract_sha256 is not None:
        with notes.collect():
            require_explained(state, metadata, steps[-1].contract_sha256)
    return ProtectionHistory(tuple(steps), tuple(edges)), tuple(entries)


def _own_approvals(
    evidence: Evidence, statements: Statements, notes: Notes
) -> list[UnverifiedStatement[Protection] | UnverifiedStatement[Migration]]:
    """The valid approvals of this table."""
    uuid = evidence.table.uuid
    found: list[UnverifiedStatement[Protection] | UnverifiedStatement[Migration]] = [
        approval
        for approval in statements.protections
        if isinstance(approval.predicate.target, TableTarget) and approval.predicate.target.table.uuid == uuid
    ]
    found += [approval for approval in statements.migrations if approval.predicate.table.uuid == uuid]
    good = []
    for approval in sorted(found, key=lambda each: each.logged.index):
        with notes.collect():
            statements.approval(approval)
            good.append(approval)
    return good


def _creation_contract(
    own: Sequence[UnverifiedStatement[Protection] | UnverifiedStatement[Migration]],
    evidence: Evidence,
    statements: Statements,
    notes: Notes,
) -> str | None:
    """The contract under which the table was created, by the protection of its namespace.

    A table that is unprotected or migrated without an earlier protection was created under the contract.
    """
    wanted = evidence.contract_sha256
    if own:
        first = own[0].predicate
        if isinstance(first, Protection) and first.action is ProtectionAction.PROTECT:
            return None
        wanted = first.before.contract_sha256 if isinstance(first, Migration) else first.target.contract_sha256
    if wanted is None:
        return None
    with notes.collect():
        for approval in statements.protections:
            if _covers(approval.predicate, evidence, wanted):
                statements.approval(approval)
                return wanted
        raise refused(
            "audit_protection_missing",
            "no approval says that the table is under its contract",
            f"a protection of {evidence.table.name}, or of its namespace, under {wanted}",
            "none",
        )
    return wanted


def _covers(approval: Protection, evidence: Evidence, contract_sha256: str) -> bool:
    target = approval.target
    if not isinstance(target, NamespaceTarget) or approval.action is not ProtectionAction.PROTECT:
        return False
    wanted = (evidence.table.catalog, _parts(evidence.table.name)[:-1], contract_sha256)
    return (target.namespace.catalog, _parts(target.namespace.name), target.contract_sha256) == wanted


def _parts(name: str) -> list[str]:
    """The parts of a name: dotted, or a JSON array where one of them has dots."""
    found = json.loads(name) if name.startswith("[") else name.split(".")
    return found if isinstance(found, list) else [name]


def _result(approval: Protection | Migration) -> tuple[str | None, TableState | None]:
    """The contract and the state after the approval. Without protection there is no approved state."""
    if isinstance(approval, Migration):
        return approval.after.contract_sha256, approval.after
    if approval.action is ProtectionAction.UNPROTECT or not isinstance(approval.target, TableTarget):
        return None, None
    return approval.target.contract_sha256, approval.target.state


def _edges(approval: UnverifiedStatement[Protection] | UnverifiedStatement[Migration]) -> list[Edge]:
    """Where protection begins or ends with this approval. A migration does neither."""
    found = approval.predicate
    if isinstance(found, Migration) or not isinstance(found.target, TableTarget):
        return []
    return [Edge(approval.logged.index, found.action is ProtectionAction.PROTECT, found.target.snapshot_id)]


def _require_follows(approval: Protection | Migration, state: TableState | None) -> None:
    """The state before this approval is the one after the approval before it."""
    if state is None:
        return
    target = None if isinstance(approval, Migration) else approval.target
    seen = (
        approval.before
        if isinstance(approval, Migration)
        else target.state
        if isinstance(target, TableTarget)
        else state
    )
    if seen != state:
        raise refused(
            "audit_state_gap",
            "the table was changed between two approvals without a signature",
            "the state that the approval before led to",
            f"other {' and '.join(name for name, _, _ in state_changes(state, seen))}",
        )


def require_protected(steps: Sequence[_ContractStep]) -> None:
    """The table was protected at some time."""
    if all(step.contract_sha256 is None for step in steps):
        raise refused(
            "audit_not_protected",
            "the table was never protected, so that no snapshot needs a proof",
            "a protection",
            "none",
        )


def require_explained(state: TableState, metadata: TableMetadata, contract_sha256: str) -> None:
    """The table has the state after the last approval."""
    found = state_of(metadata, contract_sha256)
    if found != state:
        raise refused(
            "audit_structure_unexplained",
            "the table's structure is not the one after the last approval",
            f"structure {state.structure_sha256}",
            f"other {' and '.join(name for name, _, _ in state_changes(state, found))}",
        )


def _describe(approval: UnverifiedStatement[Protection] | UnverifiedStatement[Migration]) -> ApprovalEntry:
    found = approval.predicate
    if isinstance(found, Migration):
        kind, contract, shown = "migration", found.after.contract_sha256, None
        changes = tuple(f"{name} {old} → {new}" for name, old, new in state_changes(found.before, found.after))
    else:
        kind, contract, changes = found.action.value, found.target.contract_sha256, ()
        shown = found.target.snapshot_id if isinstance(found.target, TableTarget) else None
    logged = approval.logged
    return ApprovalEntry(
        kind,
        approval.statement_id,
        logged.logged_at,
        logged.index,
        found.operator,
        found.reason,
        contract,
        shown,
        changes,
    )
