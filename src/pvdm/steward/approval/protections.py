"""Accepts signed protections: verified, logged and put into force in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pvdm.api.protection import ProtectionView
from pvdm.catalog.commit import retry_moved
from pvdm.catalog.upstream.heads import record_history
from pvdm.errors import Code, InputError, NotAllowedError, VerificationError
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.protectable import require_protectable
from pvdm.lake.read.entries import FileReader
from pvdm.lake.read.found_manifests import check_found
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, protected, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.protected import ProtectedObject
from pvdm.ledger.record import protections, statements
from pvdm.ledger.record.protections import ProtectionRecord
from pvdm.ledger.record.statements import Statement
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.record import ActionWord, StatementKind
from pvdm.metadata.gate.migration import require_state
from pvdm.model.statements.migration import NamespaceTarget, Protection, ProtectionAction, TableTarget
from pvdm.steward.access import require_domain, scope
from pvdm.steward.approval.approvals import (
    Approvals,
    Judged,
    find_namespace,
    find_table,
    refuse_replay,
    require_current,
)
from pvdm.steward.record.recorder import Document
from pvdm.steward.work.contracts import (
    judge_doable,
    require_for_namespace,
    require_source_reached,
    require_target_fit,
)
from pvdm.trust.statement import read_signed


class Protections:
    """Accepts and lists protections."""

    def __init__(self, approvals: Approvals, files: FileReader) -> None:
        self._approvals = approvals
        self._files = files
        self._ledger = approvals.ledger
        self._recorder = approvals.recorder
        self._catalog = approvals.catalog

    def submit(self, envelope: bytes, grant: Grant) -> ProtectionView:
        """Protect a table or a namespace by a contract, or end that; the same bytes again change nothing."""
        protection_id = self._approvals.accept_once(envelope, Protection, lambda judged: self._accept(judged, grant))
        found = self.get(protection_id, grant)
        self._recorder.cover()
        return found

    def get(self, protection_id: str, grant: Grant) -> ProtectionView:
        """One protection of the caller's domain."""
        with self._ledger.read() as unit:
            found = protections.find(unit, protection_id)
            if found is None:
                raise Code.PROTECTION_UNKNOWN(got=protection_id[:80])
            require_domain(grant, found.domain)
            return _view(found, statements.get(unit, protection_id))

    def listed(self, grant: Grant) -> list[ProtectionView]:
        """Every protection of the caller's domain, newest first."""
        with self._ledger.read() as unit:
            found = protections.list_newest(unit, domain=scope(grant))
            return [_view(each, statements.get(unit, each.protection_id)) for each in found]

    def tables_now(
        self,
        grant: Grant,
        *,
        levels: Levels | None = None,
        name: str | None = None,
        after: tuple[Levels, str] | None = None,
        count: int,
    ) -> list[ProtectedObject]:
        """The tables of the caller's domain that are protected now, by name."""
        with self._ledger.read() as unit:
            return protected.list_tables(unit, domain=scope(grant), levels=levels, name=name, after=after, count=count)

    def namespaces_now(
        self, grant: Grant, *, levels: Levels | None = None, after: Levels | None = None, count: int
    ) -> list[ProtectedObject]:
        """The namespaces of the caller's domain that are protected now, by name."""
        with self._ledger.read() as unit:
            return protected.list_namespaces(unit, domain=scope(grant), levels=levels, after=after, count=count)

    def contract(self, sha256: str, grant: Grant) -> bytes:
        """The bytes of a contract under which something of the caller's domain is, or was."""
        with self._ledger.read() as unit:
            body = protections.contract(unit, sha256)
            domains = protections.contract_domains(unit, sha256)
        if not any(grant.reaches(domain) for domain in domains):
            require_domain(grant, next(iter(domains), ""))
        return body

    def _accept(self, judged: Judged[Protection], grant: Grant) -> None:
        document = Document(StatementKind.PROTECTION, judged.approval.statement_id, judged.envelope)
        with refuse_replay(judged):
            retry_moved(lambda: self._recorder.store([document], self._prepare(judged, grant)))

    def _prepare(self, judged: Judged[Protection], grant: Grant) -> Callable[[Unit, Sequence[int]], None]:
        """Check the protection against the ledger now; returns the function that stores it."""
        match judged.said.target:
            case TableTarget() as target:
                return self._prepare_table(judged, target, grant)
            case target:
                return self._prepare_namespace(judged, target, grant)

    def _prepare_table(
        self, judged: Judged[Protection], target: TableTarget, grant: Grant
    ) -> Callable[[Unit, Sequence[int]], None]:
        with self._ledger.read() as unit:
            row, levels = find_table(unit, target.table, grant, self._catalog.name)
        metadata = self._catalog.states.of(row).metadata
        contract = None
        if judged.said.contract is not None:
            contract = self._approvals.judge_table_contract(judged.said.contract, row, levels, grant)
            require_target_fit(contract, metadata, self._approvals.extracts)
        after = require_step(judged.said, row.contract_hash)
        require_state(target.state, metadata, row.contract_hash or target.contract_sha256)
        require_shown(target.snapshot_id, metadata.current_snapshot_id)
        if contract is not None:
            self._approvals.sources.judge(contract, row.table_uuid)(to_model(metadata.current_schema))
        found_sha256 = None
        if after is not None:
            require_protectable(metadata)
            found_sha256 = find_manifests(metadata, self._files)
        record = _record(
            judged, table_uuid=row.table_uuid, name=target.table.name, domain=row.domain, found_sha256=found_sha256
        )

        def work(unit: Unit, places: Sequence[int]) -> None:
            require_current(unit, judged)
            tables.lock(unit, [row.table_uuid])
            # Fails if the row has changed since it was checked; then everything is checked again.
            tables.protect(unit, row, after)
            if row.upstream is not None and after is not None:
                record_history(unit, row.table_uuid, metadata)
            _store(unit, judged, record, places[0])

        return work

    def _prepare_namespace(
        self, judged: Judged[Protection], target: NamespaceTarget, grant: Grant
    ) -> Callable[[Unit, Sequence[int]], None]:
        with self._ledger.read() as unit:
            found = find_namespace(unit, target.namespace, grant, self._catalog.name)
        contract = None
        if judged.said.contract is not None:
            contract = judge_doable(judged.said.contract, extracts=self._approvals.extracts)
            require_for_namespace(contract, found.levels, found.domain)
            require_source_reached(self._ledger, contract, grant)
        after = require_step(judged.said, found.protected_by)
        if contract is not None:
            self._approvals.sources.judge(contract, None)(None)
        record = _record(judged, namespace_id=found.namespace_id, name=target.namespace.name, domain=found.domain)

        def work(unit: Unit, places: Sequence[int]) -> None:
            require_current(unit, judged)
            namespaces.protect(unit, found, after)
            _store(unit, judged, record, places[0])

        return work


def require_step(said: Protection, current: str | None) -> str | None:
    """The contract after the step; protecting needs no contract before it, unprotecting needs exactly this one."""
    if said.action is ProtectionAction.PROTECT:
        require_unprotected(current)
        return said.target.contract_sha256
    require_under(current, said.target.contract_sha256)
    return None


def require_unprotected(current: str | None) -> None:
    """Refuse a second contract: a migration changes the contract of a protected table."""
    if current is not None:
        raise Code.PROTECTED_ALREADY(got=current)


def require_under(current: str | None, contract_sha256: str) -> None:
    """Refuse unless it is protected under exactly the contract that the operator signed."""
    if current is None:
        raise Code.NOT_PROTECTED(
            "it is not protected", expected=contract_sha256, got="none", hint="nothing was changed"
        )
    if current != contract_sha256:
        raise Code.APPROVAL_REFUSED(
            "it is protected under another contract by now",
            reason="approval_stale",
            expected=contract_sha256,
            got=current,
            hint="nothing was changed; look at it as it is now, and sign again",
        )


def require_shown(approved: int | None, shown: int | None) -> None:
    """Refuse if `main` has moved since the signature: audits require proofs for everything after that snapshot."""
    if approved != shown:
        raise Code.APPROVAL_MAIN_MOVED(expected=_snapshot(approved), got=_snapshot(shown))


def find_manifests(metadata: TableMetadata, reader: FileReader) -> str | None:
    """Check every manifest of `main`'s snapshot and return their hash; None where `main` has no snapshot."""
    head = metadata.current_snapshot
    if head is None:
        return None
    try:
        return check_found(metadata, head, reader)
    except (InputError, VerificationError) as error:
        raise NotAllowedError(
            error.reason,
            f"what main shows cannot be protected: {error.message}",
            expected=error.expected,
            got=error.got,
            hint="nothing was changed; rewrite the table's manifests (rewrite_manifests), and sign again",
            **error.details,
        ) from None


def _snapshot(snapshot_id: int | None) -> str:
    return "no snapshot" if snapshot_id is None else f"snapshot {snapshot_id}"


def _record(
    judged: Judged[Protection],
    *,
    name: str,
    domain: str,
    table_uuid: str | None = None,
    namespace_id: str | None = None,
    found_sha256: str | None = None,
) -> ProtectionRecord:
    said = judged.said
    return ProtectionRecord(
        judged.approval.statement_id,
        ActionWord(said.action.value),
        table_uuid,
        namespace_id,
        name,
        domain,
        said.target.contract_sha256,
        said.operator,
        said.nonce,
        found_sha256,
    )


def _store(unit: Unit, judged: Judged[Protection], record: ProtectionRecord, log_index: int) -> None:
    protections.put(unit, record, judged.envelope, log_index=log_index)
    if judged.said.contract is not None:
        protections.store_contract(unit, judged.said.contract.encode(), statement_id=record.protection_id)


def _view(record: ProtectionRecord, statement: Statement) -> ProtectionView:
    said = read_signed(statement.envelope, Protection)
    target = said.target if isinstance(said.target, TableTarget) else None
    return ProtectionView(
        protection_id=record.protection_id,
        action=said.action,
        table_uuid=record.table_uuid,
        namespace_id=record.namespace_id,
        name=record.name,
        contract_sha256=record.contract_sha256,
        schema_fingerprint=None if target is None else target.state.schema_fingerprint,
        structure_sha256=None if target is None else target.state.structure_sha256,
        snapshot_id=None if target is None else target.snapshot_id,
        operator=said.operator,
        reason=said.reason,
        issued_at=said.issued_at,
        expires_at=said.expires_at,
        log_index=statement.log_index,
    )
