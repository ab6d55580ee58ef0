"""Accepts signed approvals, and puts protections into force: verified, logged and applied in one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from pvdm.api.protection import ProtectionView, TargetKind
from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import retry_if_row_changed
from pvdm.catalog.names import full_name
from pvdm.catalog.upstream_commit import record_history
from pvdm.errors import Code, ConflictError, InputError, NotAllowedError, VerificationError
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.protectable import require_protectable
from pvdm.lake.read.entries import FileReader
from pvdm.lake.read.found_manifests import check_found
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import protections, restores, statements
from pvdm.ledger.record.protections import ProtectedObject, ProtectionRecord
from pvdm.ledger.record.statements import Statement
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.record import ActionWord, StatementKind
from pvdm.metadata.gate.migration import require_state
from pvdm.model.contract import DataProductContract, parse_contract
from pvdm.model.statements.migration import Migration, NamespaceTarget, Protection, ProtectionAction, TableTarget
from pvdm.model.statements.table import NamespaceRef, TableRef
from pvdm.steward.access import require_domain, scope
from pvdm.steward.record.recorder import Document, Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.contracts import (
    judge_doable,
    require_for_namespace,
    require_for_table,
    require_source_reached,
    require_target_fit,
)
from pvdm.steward.work.sources import Sources, levels_of
from pvdm.trust.approval import A, raise_not_allowed, verify_approval
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_signed, read_statement
from pvdm.trust.verify import Verified
from pvdm.verify.spark.extracting import SparkExtraction


@dataclass(frozen=True, slots=True)
class Judged(Generic[A]):
    """A verified approval with its bytes, and the ids of the trust roots that it was verified against."""

    approval: Verified[A]
    envelope: bytes
    judged_by: tuple[str, ...]

    @property
    def said(self) -> A:
        """The approved statement."""
        return self.approval.predicate


@dataclass(frozen=True, slots=True)
class Approvals:
    """Verifies approvals by the trust root, and the contracts that they bring."""

    ledger: Ledger
    clock: LedgerClock
    recorder: Recorder
    trust: TrustRoots
    catalog: Catalog
    sources: Sources
    extracts: SparkExtraction | None

    def accept_once(self, envelope: bytes, kind: type[A], accept: Callable[[Judged[A]], None]) -> str:
        """Verify and accept the approval, unless exactly these bytes were accepted before; returns its id."""
        with raise_not_allowed("approval"):
            parsed = parse_envelope(envelope)
            read_statement(parsed.payload, kind)
        statement_id = parsed.payload_sha256
        if not self._is_stored(statement_id, envelope):
            try:
                judged_by = self.trust.ids()
                approval = verify_approval(envelope, self.trust.current(), kind, now=self.clock.now_micros())
                if approval.predicate.contract is not None:
                    parse_contract(approval.predicate.contract.encode())
                accept(Judged(approval, envelope, judged_by))
            except (NotAllowedError, ConflictError):
                # A concurrent call with the same bytes may have been first; that is no replay.
                if not self._is_stored(statement_id, envelope):
                    raise
        return statement_id

    def judge_table_contract(self, text: str, row: TableRow, levels: Levels, grant: Grant) -> DataProductContract:
        """Read a contract, and require that it is for this table and that the caller reaches its source."""
        contract = judge_doable(text, extracts=self.extracts)
        require_for_table(contract, (*levels, row.name), row.domain)
        require_source_reached(self.ledger, contract, grant)
        return contract

    def _is_stored(self, statement_id: str, envelope: bytes) -> bool:
        """Whether exactly these bytes were accepted before; other signatures are a new approval."""
        with self.ledger.read() as unit:
            found = statements.find(unit, statement_id)
        return found is not None and found.envelope == envelope


def require_current(unit: Unit, judged: Judged[Migration] | Judged[Protection]) -> None:
    """In the transaction that applies it: the trust root is still the same, and no restore came after the signature."""
    if statements.ids_of_kind(unit, StatementKind.TRUST_ROOT) != judged.judged_by:
        raise Code.TRUST_ROOT_MOVED("a trust root was accepted meanwhile", hint="hand it in again")
    restores.require_issued_after(unit, judged.said.issued_at, what="approval")


@contextlib.contextmanager
def refuse_replay(judged: Judged[Migration] | Judged[Protection]) -> Iterator[None]:
    """Turn the conflict over a used nonce into `approval_replayed`."""
    try:
        yield
    except ConflictError as error:
        if error.code != Code.NONCE_TAKEN:
            raise
        raise Code.APPROVAL_REFUSED(reason="approval_replayed", got=judged.said.nonce) from None


def find_table(unit: Unit, named: TableRef, grant: Grant, catalog: str) -> tuple[TableRow, Levels]:
    """The table that the approval names; UUID, name, catalog and the caller's domain must fit."""
    require_catalog(named.catalog, catalog)
    row = tables.find_by_uuid(unit, named.uuid)
    if row is None:
        raise Code.APPROVAL_REFUSED(
            "the approval is for a table that is not here",
            reason="approval_wrong_table",
            expected="a table of this catalog",
            got=named.uuid,
        )
    require_domain(grant, row.domain)
    levels = levels_of(unit, row)
    require_name(named.name, full_name((*levels, row.name)))
    return row, levels


def find_namespace(unit: Unit, named: NamespaceRef, grant: Grant, catalog: str) -> Namespace:
    """The namespace that the approval names; id, name, catalog and the caller's domain must fit."""
    require_catalog(named.catalog, catalog)
    found = namespaces.find_by_id(unit, named.id)
    if found is None:
        raise Code.APPROVAL_REFUSED(reason="approval_wrong_namespace", got=named.id)
    require_domain(grant, found.domain)
    require_name(named.name, full_name(found.levels))
    return found


def require_catalog(named: str, catalog: str) -> None:
    """Refuse an approval for another catalog, where the same UUID may be another table."""
    if named != catalog:
        raise Code.APPROVAL_REFUSED(reason="approval_wrong_catalog", expected=catalog, got=named)


def require_name(named: str, found: str) -> None:
    """Refuse an approval that names the table or namespace otherwise: the operator read that name when signing."""
    if named != found:
        raise Code.APPROVAL_REFUSED(reason="approval_wrong_name", expected=found, got=named)


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

    def list_protected(
        self,
        grant: Grant,
        kind: TargetKind,
        *,
        levels: Levels | None = None,
        name: str | None = None,
        after: Levels | None = None,
        count: int,
    ) -> list[ProtectedObject]:
        """The tables or namespaces of the caller's domain that are protected now, by name."""
        domain = scope(grant)
        with self._ledger.read() as unit:
            if kind == "namespace":
                return protections.list_protected_namespaces(
                    unit, domain=domain, levels=levels, after=after, count=count
                )
            last = None if after is None else (after[:-1], after[-1])
            return protections.list_protected_tables(
                unit, domain=domain, levels=levels, name=name, after=last, count=count
            )

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
        target = judged.said.target

        def store() -> None:
            if isinstance(target, TableTarget):
                work = self._prepare_table(judged, target, grant)
            else:
                work = self._prepare_namespace(judged, target, grant)
            self._recorder.store([document], work)

        with refuse_replay(judged):
            retry_if_row_changed(store)

    def _prepare_table(
        self, judged: Judged[Protection], target: TableTarget, grant: Grant
    ) -> Callable[[Unit, Sequence[int]], None]:
        """Check the protection against the ledger now; returns the function that stores it."""
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
        record = protection_record(judged.approval.statement_id, judged.said, row.domain, found_sha256)

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
        record = protection_record(judged.approval.statement_id, judged.said, found.domain)

        def work(unit: Unit, places: Sequence[int]) -> None:
            require_current(unit, judged)
            namespaces.protect(unit, found, after)
            _store(unit, judged, record, places[0])

        return work


def protection_record(
    protection_id: str, said: Protection, domain: str, found_sha256: str | None = None
) -> ProtectionRecord:
    """What the ledger indexes of a protection; `found_sha256` is the hash of the manifests that it found."""
    table_uuid = namespace_id = None
    if isinstance(said.target, NamespaceTarget):
        name, namespace_id = said.target.namespace.name, said.target.namespace.id
    else:
        name, table_uuid = said.target.table.name, said.target.table.uuid
    word, contract, signed = ActionWord(said.action.value), said.target.contract_sha256, (said.operator, said.nonce)
    return ProtectionRecord(
        protection_id, word, table_uuid, namespace_id, name, domain, contract, *signed, found_sha256
    )


def require_step(said: Protection, current: str | None) -> str | None:
    """The contract after the step; protecting needs no contract before it, unprotecting needs exactly this one."""
    signed = said.target.contract_sha256
    if said.action is ProtectionAction.PROTECT:
        if current is not None:  # a migration changes the contract of a protected table
            raise Code.PROTECTED_ALREADY(got=current)
        return signed
    if current is None:
        raise Code.NOT_PROTECTED("it is not protected", expected=signed, got="none", hint="nothing was changed")
    if current != signed:
        raise Code.APPROVAL_REFUSED(
            "it is protected under another contract by now",
            reason="approval_stale",
            expected=signed,
            got=current,
            hint="nothing was changed; look at it as it is now, and sign again",
        )
    return None


def require_shown(approved: int | None, shown: int | None) -> None:
    """Refuse if `main` has moved since the signature: audits require proofs for everything after that snapshot."""
    if approved != shown:
        names = ["no snapshot" if each is None else f"snapshot {each}" for each in (approved, shown)]
        raise Code.APPROVAL_MAIN_MOVED(expected=names[0], got=names[1])


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
