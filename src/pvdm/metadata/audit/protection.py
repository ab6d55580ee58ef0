"""Reads a table's approvals (protections, their ends, migrations): when it was protected, and its approved state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.metadata.audit.evidence import Evidence
from pvdm.metadata.audit.report import ApprovalEntry, Notes
from pvdm.metadata.audit.statements import Statements, UnverifiedApproval
from pvdm.metadata.gate.state import join_changed_names, state_changes, state_of
from pvdm.model.statements.migration import (
    Migration,
    NamespaceTarget,
    Protection,
    ProtectionAction,
    TableState,
    TableTarget,
)
from pvdm.trust.refusal import refused

# Below and above every log index and every position. The oldest snapshot in the history of `main` has position 0.
BEFORE_ALL = -1
_AFTER_ALL = 2**63


@dataclass(frozen=True, slots=True)
class Edge:
    """The begin or end of a protection, at a log index. `snapshot_id` is the head of `main` then; None if empty."""

    index: int
    begins: bool
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Past:
    """The history of `main`: the positions of its snapshots by id, and the ids of expired snapshots (`older`).

    `first_without_receipt` is the newest expired snapshot without a receipt; nothing is known of older ones. It is None
    if every expired snapshot has a receipt.
    """

    positions: Mapping[int, int]
    older: AbstractSet[int]
    first_without_receipt: int | None

    def position(self, snapshot_id: int | None) -> int | None:
        """The snapshot's position: `BEFORE_ALL` for None and expired snapshots, None if it is not in the history."""
        if snapshot_id is None or snapshot_id in self.older:
            return BEFORE_ALL
        return self.positions.get(snapshot_id)


@dataclass(frozen=True, slots=True)
class RequiredSpans:
    """Spans of positions whose snapshots must be proved. A span (begin, end) includes `end`, but not `begin`.

    `last_untraceable` is the last log index at which the head is unknown because it has expired, or -1. The snapshots
    of receipts up to this index may have expired too.
    """

    spans: tuple[tuple[int, int], ...]
    last_untraceable: int

    def covers(self, position: int) -> bool:
        """Whether the snapshot at this position must be proved."""
        return any(begin < position <= end for begin, end in self.spans)


def find_required_spans(edges: Sequence[Edge], past: Past, notes: Notes) -> RequiredSpans:
    """The spans between the edges. An edge whose head is neither known nor expired is noted and exempts no snapshot."""
    spans: list[tuple[int, int]] = []
    begin: int | None = None
    last_untraceable = BEFORE_ALL
    for at, edge in enumerate(edges):
        position = past.position(edge.snapshot_id)
        if position is None:
            with notes.collect():
                require_expired(edges, at, past)
                position = BEFORE_ALL
                last_untraceable = edge.index
        if edge.begins and begin is None:
            notes.check(require_receipts_to_beginning, edges, at, past)
            begin = BEFORE_ALL if position is None else position
        elif not edge.begins and begin is not None and position is not None:
            spans.append((begin, position))
            begin = None
    if begin is not None:
        spans.append((begin, _AFTER_ALL))
    return RequiredSpans(tuple(spans), last_untraceable)


def require_receipts_to_beginning(edges: Sequence[Edge], at: int, past: Past) -> None:
    """If the table was empty when this protection began, receipts lead back to the table's beginning.

    This is not required if protection ended before the first snapshot, or if the head at its end is not known.
    """
    if edges[at].snapshot_id is not None or past.first_without_receipt is None:
        return
    ended = next((each for each in edges[at:] if not each.begins), None)
    if ended is None or (ended.snapshot_id is not None and past.position(ended.snapshot_id) is not None):
        raise refused("audit_receipt_missing", f"a receipt of snapshot {past.first_without_receipt}", "no valid one")


def require_expired(edges: Sequence[Edge], at: int, past: Past) -> None:
    """A head that is not in the history of `main` must have expired; otherwise `main` does not descend from it.

    Receipts lead from the end of a protection back to its begin. So the head at the begin is unknown only if the
    head at the end is unknown too. If an older head is known, nothing newer has expired.
    """
    older_is_known = any(
        each.snapshot_id is not None and past.position(each.snapshot_id) is not None for each in edges[:at]
    )
    end_is_unknown = any(not each.begins and past.position(each.snapshot_id) is None for each in edges[at:])
    if past.first_without_receipt is None or older_is_known or not end_is_unknown:
        side = "begin" if edges[at].begins else "end"
        message = f"main does not descend from its head at the {side} of the protection"
        expected = f"snapshot {edges[at].snapshot_id} in the history of main"
        raise refused("audit_head_not_shown", expected, "none", message=message)


@dataclass(frozen=True, slots=True)
class _ContractStep:
    """From this log index on the table is under this contract; None: under no contract."""

    index: int
    contract_sha256: str | None


@dataclass(frozen=True, slots=True)
class ProtectionHistory:
    """The contracts of a table along the log, from its creation, and the edges where protection began and ended."""

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
        """Every contract that was in force between two log indexes; None stands for a time without protection."""
        current = max((step for step in self.steps if step.index <= after), key=lambda step: step.index)
        between = {step.contract_sha256 for step in self.steps if after < step.index < before}
        return {current.contract_sha256, *between}


def read_protection(
    evidence: Evidence, metadata: TableMetadata, statements: Statements, notes: Notes
) -> tuple[ProtectionHistory, tuple[ApprovalEntry, ...]]:
    """The protection history and its approvals, in the log's order. An invalid approval is noted and ignored."""
    own = _verify_own_approvals(evidence, statements, notes)
    steps = [_ContractStep(BEFORE_ALL, _find_creation_contract(own, evidence, statements, notes))]
    # A table that was created protected began with no snapshot, so that every snapshot must be proved.
    edges = [] if steps[0].contract_sha256 is None else [Edge(BEFORE_ALL, begins=True, snapshot_id=None)]
    entries: list[ApprovalEntry] = []
    state: TableState | None = None
    for approval in own:
        predicate, index = approval.predicate, approval.logged.index
        before, after = _read_states(predicate)
        notes.check(_require_follows, before, state)
        steps.append(_ContractStep(index, None if after is None else after.contract_sha256))
        if isinstance(predicate, Protection) and isinstance(predicate.target, TableTarget):
            edges.append(Edge(index, predicate.action is ProtectionAction.PROTECT, predicate.target.snapshot_id))
        entries.append(_describe_approval(approval))
        state = after
    notes.check(require_ever_protected, steps)
    if state is not None and steps[-1].contract_sha256 is not None:
        notes.check(require_approved_state, state, metadata, steps[-1].contract_sha256)
    return ProtectionHistory(tuple(steps), tuple(edges)), tuple(entries)


def _verify_own_approvals(evidence: Evidence, statements: Statements, notes: Notes) -> list[UnverifiedApproval]:
    """The valid approvals of this table, in the log's order."""
    uuid = evidence.table.uuid
    approvals: list[UnverifiedApproval] = [
        approval
        for approval in statements.protections
        if isinstance(approval.predicate.target, TableTarget) and approval.predicate.target.table.uuid == uuid
    ]
    approvals += [approval for approval in statements.migrations if approval.predicate.table.uuid == uuid]
    valid = []
    for approval in sorted(approvals, key=lambda each: each.logged.index):
        with notes.collect():
            statements.verify_approval(approval)
            valid.append(approval)
    return valid


def _find_creation_contract(
    own: Sequence[UnverifiedApproval], evidence: Evidence, statements: Statements, notes: Notes
) -> str | None:
    """The contract of the protected namespace in which the table was created; None if the namespace was not protected.

    If the table's first approval is no protection, the contract that it names was already in force at the creation.
    """
    contract = evidence.contract_sha256
    if own:
        first = own[0].predicate
        if isinstance(first, Protection) and first.action is ProtectionAction.PROTECT:
            return None
        contract = first.before.contract_sha256 if isinstance(first, Migration) else first.target.contract_sha256
    if contract is None:
        return None
    with notes.collect():
        for approval in statements.protections:
            if _protects_namespace(approval.predicate, evidence, contract):
                statements.verify_approval(approval)
                return contract
        expected = f"a protection of {evidence.table.name}, or of its namespace, under {contract}"
        raise refused("audit_protection_missing", expected, "none")
    return contract


def _protects_namespace(approval: Protection, evidence: Evidence, contract_sha256: str) -> bool:
    """Whether the approval protects the table's namespace under this contract."""
    target = approval.target
    if not isinstance(target, NamespaceTarget) or approval.action is not ProtectionAction.PROTECT:
        return False
    expected = (evidence.table.catalog, _split_name(evidence.table.name)[:-1], contract_sha256)
    return (target.namespace.catalog, _split_name(target.namespace.name), target.contract_sha256) == expected


def _split_name(name: str) -> list[str]:
    """The parts of a name, which is dotted, or a JSON array if one of the parts has a dot."""
    parts = json.loads(name) if name.startswith("[") else name.split(".")
    return parts if isinstance(parts, list) else [name]


def _read_states(approval: Protection | Migration) -> tuple[TableState | None, TableState | None]:
    """The states before and after the approval. The end of a protection leaves no approved state (None)."""
    if isinstance(approval, Migration):
        return approval.before, approval.after
    if not isinstance(approval.target, TableTarget):
        return None, None
    return approval.target.state, approval.target.state if approval.action is ProtectionAction.PROTECT else None


def _require_follows(before: TableState | None, previous: TableState | None) -> None:
    """The state before an approval is the state after the previous approval, if there is one."""
    if before is not None and previous is not None and before != previous:
        got = f"other {join_changed_names(previous, before)}"
        raise refused("audit_state_gap", "the state after the previous approval", got)


def require_ever_protected(steps: Sequence[_ContractStep]) -> None:
    """The table was protected at some time."""
    if all(step.contract_sha256 is None for step in steps):
        raise refused("audit_not_protected", "a protection", "none")


def require_approved_state(state: TableState, metadata: TableMetadata, contract_sha256: str) -> None:
    """The table still has the state after the last approval."""
    found = state_of(metadata, contract_sha256)
    if found != state:
        got = f"other {join_changed_names(state, found)}"
        raise refused("audit_structure_unexplained", f"structure {state.structure_sha256}", got)


def _describe_approval(approval: UnverifiedApproval) -> ApprovalEntry:
    signed = approval.predicate
    if isinstance(signed, Migration):
        kind, contract, head = "migration", signed.after.contract_sha256, None
        changes = tuple(f"{name} {old} → {new}" for name, old, new in state_changes(signed.before, signed.after))
    else:
        kind, contract, changes = signed.action.value, signed.target.contract_sha256, ()
        head = signed.target.snapshot_id if isinstance(signed.target, TableTarget) else None
    log = approval.logged
    return ApprovalEntry(
        kind, approval.statement_id, log.logged_at, log.index, signed.operator, signed.reason, contract, head, changes
    )
