"""Protection at the Steward's side: an operator's word is verified, then logged and in force at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pvdm.api.protection import ProtectionView
from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import retry_moved
from pvdm.catalog.upstream.heads import record_history
from pvdm.errors import ConflictError, InputError, NotAllowedError, VerificationError
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.protectable import require_protectable
from pvdm.lake.read.entries import FileReader
from pvdm.lake.read.found_manifests import check_found
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, protected, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.protected import ProtectedObject
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import protections, statements
from pvdm.ledger.record.protections import ProtectionRecord
from pvdm.ledger.record.statements import Statement
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.record import ActionWord, StatementKind
from pvdm.metadata.gate.migration import require_state
from pvdm.model.statements.migration import NamespaceTarget, Protection, ProtectionAction, TableTarget
from pvdm.steward.access import require_domain, scope
from pvdm.steward.approval.approvals import Judged, accept_once, find_namespace, find_table, require_good, used_once
from pvdm.steward.record.recorder import Document, Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.contracts import (
    judge_doable,
    require_for_namespace,
    require_for_table,
    require_source_reached,
    require_target_fit,
)
from pvdm.steward.work.sources import Sources
from pvdm.trust.statement import read_signed
from pvdm.verify.extraction import Reach


class Protections:
    """The protections that this Steward has accepted."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        recorder: Recorder,
        trust: TrustRoots,
        catalog: Callable[[], Catalog],
        files: FileReader,
        sources: Sources,
        *,
        extracts: Reach | None,
    ) -> None:
        self._files = files
        self._sources = sources
        self._ledger = ledger
        self._clock = clock
        self._recorder = recorder
        self._trust = trust
        self._catalog = catalog
        self._extracts = extracts

    def submit(self, envelope: bytes, grant: Grant) -> ProtectionView:
        """Put a table or a namespace under a contract, or take it out; the same bytes again change nothing."""
        protection_id = accept_once(
            envelope, Protection, self._ledger, self._trust, self._clock, lambda judged: self._accept(judged, grant)
        )
        found = self.get(protection_id, grant)
        self._recorder.cover()
        return found

    def get(self, protection_id: str, grant: Grant) -> ProtectionView:
        """One protection of the bearer's domain."""
        with self._ledger.read() as unit:
            found = protections.find(unit, protection_id)
            if found is None:
                raise InputError("protection_unknown", "the ledger holds no such protection", got=protection_id[:80])
            require_domain(grant, found.domain)
            return _view(found, statements.get(unit, protection_id))

    def listed(self, grant: Grant) -> list[ProtectionView]:
        """Every protection of the bearer's domain, newest first."""
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
        """The tables of the bearer's domain that are protected now, by name."""
        with self._ledger.read() as unit:
            return protected.list_tables(unit, domain=scope(grant), levels=levels, name=name, after=after, count=count)

    def namespaces_now(
        self, grant: Grant, *, levels: Levels | None = None, after: Levels | None = None, count: int
    ) -> list[ProtectedObject]:
        """The namespaces of the bearer's domain that are protected now, by name."""
        with self._ledger.read() as unit:
            return protected.list_namespaces(unit, domain=scope(grant), levels=levels, after=after, count=count)

    def contract(self, sha256: str, grant: Grant) -> bytes:
        """The bytes of a contract under which something of the bearer's domain is, or was."""
        with self._ledger.read() as unit:
            body = protections.contract(unit, sha256)
            domains = protections.contract_domains(unit, sha256)
        if not any(grant.reaches(domain) for domain in domains):
            require_domain(grant, next(iter(domains), ""))
        return body

    def _accept(self, judged: Judged[Protection], grant: Grant) -> None:
        document = Document(StatementKind.PROTECTION, judged.approval.statement_id, judged.envelope)
        with used_once(judged):
            retry_moved(lambda: self._recorder.store([document], self._judged(judged, grant)))

    def _judged(self, judged: Judged[Protection], grant: Grant) -> Callable[[Unit, Sequence[int]], None]:
        match judged.said.target:
            case TableTarget() as target:
                return self._of_table(judged, target, grant)
            case target:
                return self._of_namespace(judged, target, grant)

    def _of_table(
        self, judged: Judged[Protection], target: TableTarget, grant: Grant
    ) -> Callable[[Unit, Sequence[int]], None]:
        catalog = self._catalog()
        with self._ledger.read() as unit:
            row, levels = find_table(unit, target.table, grant, catalog.name)
        metadata = catalog.states.of(row).metadata
        contract = None
        if judged.said.contract is not None:
            contract = judge_doable(judged.said.contract, extracts=self._extracts)
            require_for_table(contract, (*levels, row.name), row.domain)
            require_source_reached(self._ledger, contract, grant)
            require_target_fit(contract, metadata, self._extracts)
        after = require_step(judged.said, row.contract_hash)
        require_state(target.state, metadata, row.contract_hash or target.contract_sha256)
        require_shown(target.snapshot_id, metadata.current_snapshot_id)
        if contract is not None:
            self._sources.judge(contract, row.table_uuid)(to_model(metadata.current_schema))
        found_sha256 = None
        if after is not None:
            require_protectable(metadata)
            found_sha256 = find_manifests(metadata, self._files)
        record = _record(
            judged, table_uuid=row.table_uuid, name=target.table.name, domain=row.domain, found_sha256=found_sha256
        )

        def work(unit: Unit, places: Sequence[int]) -> None:
            require_good(unit, judged)
            tables.lock(unit, [row.table_uuid])
            # Compares the row, and with it the document that was judged: what has moved since is judged again.
            tables.protect(unit, row, after)
            if row.upstream is not None and after is not None:
                record_history(unit, row.table_uuid, metadata)
            _store(unit, judged, record, places[0])

        return work

    def _of_namespace(
        self, judged: Judged[Protection], target: NamespaceTarget, grant: Grant
    ) -> Callable[[Unit, Sequence[int]], None]:
        with self._ledger.read() as unit:
            found = find_namespace(unit, target.namespace, grant, self._catalog().name)
        contract = None
        if judged.said.contract is not None:
            contract = judge_doable(judged.said.contract, extracts=self._extracts)
            require_for_namespace(contract, found.levels, found.domain)
            require_source_reached(self._ledger, contract, grant)
        after = require_step(judged.said, found.protected_by)
        if contract is not None:
            self._sources.judge(contract, None)(None)
        record = _record(judged, namespace_id=found.namespace_id, name=target.namespace.name, domain=found.domain)

        def work(unit: Unit, places: Sequence[int]) -> None:
            require_good(unit, judged)
            namespaces.protect(unit, found, after)
            _store(unit, judged, record, places[0])

        return work


def require_step(said: Protection, standing: str | None) -> str | None:
    """The contract afterwards: what has none comes under one, and what is under this one leaves it."""
    if said.action is ProtectionAction.PROTECT:
        require_free(standing)
        return said.target.contract_sha256
    require_under(standing, said.target.contract_sha256)
    return None


def require_free(standing: str | None) -> None:
    """One contract at a time: another one comes by a migration, which says from which to which."""
    if standing is not None:
        raise NotAllowedError(
            "protected_already",
            "it is protected under a contract already",
            expected="no contract",
            got=standing,
            hint="nothing was changed; a table comes under another contract by `pvdm migrate propose --contract`",
        )


def require_under(standing: str | None, contract_sha256: str) -> None:
    """Out of exactly the contract that the operator saw it under."""
    if standing is None:
        raise NotAllowedError(
            "not_protected", "it is not protected", expected=contract_sha256, got="none", hint="nothing was changed"
        )
    if standing != contract_sha256:
        raise NotAllowedError(
            "approval_stale",
            "it is protected under another contract by now",
            expected=contract_sha256,
            got=standing,
            hint="nothing was changed; look at it as it is now, and sign again",
        )


def require_shown(approved: int | None, shown: int | None) -> None:
    """What `main` shows is what the operator saw: audits tell by it what has to be proved."""
    if approved != shown:
        raise ConflictError(
            "approval_main_moved",
            "main shows another snapshot than the one that was signed",
            expected=_snapshot(approved),
            got=_snapshot(shown),
            hint="nothing was changed; look at what main shows now, and sign again",
        )


def find_manifests(metadata: TableMetadata, reader: FileReader) -> str | None:
    """Read and check every manifest that `main` shows; the hash that binds them, None where it shows nothing."""
    head = metadata.current_snapshot
    if head is None:
        return None
    try:
        return check_found(metadata, head, reader)
    except (InputError, VerificationError) as error:
        raise NotAllowedError(
            error.code,
            f"what main shows cannot be protected: {error.message}",
            expected=error.expected,
            got=error.got,
            hint="nothing was changed; write the table's manifests anew (rewrite_manifests), and sign again",
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
