"""Verifies signed approvals; logs each protection and applies it in one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias

from pvdm.api.protection import ProtectionView, TargetKind
from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import retry_if_row_changed
from pvdm.catalog.names import full_name
from pvdm.catalog.responses import list_main_history
from pvdm.catalog.upstream_commit import record_snapshots
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
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.metadata.gate.migration import require_state
from pvdm.model.contract import DataProductContract, parse_contract
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import Migration, NamespaceTarget, Protection, ProtectionAction, TableTarget
from pvdm.model.statements.table import NamespaceRef, TableRef
from pvdm.steward.access import visible_domain
from pvdm.steward.record.recorder import Document, Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work import contracts
from pvdm.steward.work.sources import Sources, levels_of
from pvdm.trust.approval import A, translate_refusals, verify_approval
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_statement, read_unchecked
from pvdm.trust.verify import VerifiedStatement
from pvdm.verify.spark.extracting import SparkExtraction


@dataclass(frozen=True, slots=True)
class VerifiedApproval(Generic[A]):
    """A verified approval, and the ids of all trust roots when it was verified."""

    statement: VerifiedStatement[A]
    envelope: bytes
    trust_root_ids: tuple[str, ...]

    @property
    def predicate(self) -> A:
        """The approval that the operator signed."""
        return self.statement.predicate


AnyVerifiedApproval: TypeAlias = (
    VerifiedApproval[Protection] | VerifiedApproval[Migration] | VerifiedApproval[ClaimRelease]
)


@dataclass(frozen=True, slots=True)
class Approvals:
    """Verifies the signatures of approvals by the trust root, and checks the contracts in them."""

    ledger: Ledger
    clock: LedgerClock
    recorder: Recorder
    trust: TrustRoots
    catalog: Catalog
    sources: Sources
    spark_extraction: SparkExtraction | None

    def accept_once(self, envelope: bytes, kind: type[A], accept: Callable[[VerifiedApproval[A]], None]) -> str:
        """Verify the approval and call `accept`, unless these bytes were accepted before; returns the approval's id."""
        with translate_refusals("approval"):
            parsed = parse_envelope(envelope)
            read_statement(parsed.payload, kind)
        statement_id = parsed.payload_sha256
        if not self._is_stored(statement_id, envelope):
            try:
                trust_root_ids = self.trust.ids()
                statement = verify_approval(envelope, self.trust.current(), kind, now=self.clock.now_micros())
                accept(VerifiedApproval(statement, envelope, trust_root_ids))
            except (NotAllowedError, ConflictError):
                # A concurrent call may have stored the same bytes first; then this call succeeds too.
                if not self._is_stored(statement_id, envelope):
                    raise
        return statement_id

    def check_table_contract(self, text: str, row: TableRow, levels: Levels, grant: Grant) -> DataProductContract:
        """Parse a contract. Raises unless it is for this table, can be served, and the caller may read its source."""
        contract = contracts.require_servable(text, self.spark_extraction)
        contracts.require_for_table(contract, (*levels, row.name), row.domain)
        contracts.require_source_reached(self.ledger, contract, grant)
        return contract

    def _is_stored(self, statement_id: str, envelope: bytes) -> bool:
        """Whether exactly these bytes were accepted before; an envelope with other signatures is a new approval."""
        with self.ledger.read() as unit:
            found = statements.find(unit, statement_id)
        return found is not None and found.envelope == envelope


def require_readable_contract(approval: Migration | Protection) -> None:
    """Raise if the contract in the approval is invalid."""
    if approval.contract is not None:
        parse_contract(approval.contract.encode())


def require_current(unit: Unit, approval: AnyVerifiedApproval) -> None:
    """Raise if a trust root was accepted since the verification, or the ledger was restored since the signature."""
    if statements.list_ids_by_kind(unit, StatementKind.TRUST_ROOT) != approval.trust_root_ids:
        raise Code.TRUST_ROOT_MOVED("a trust root was accepted meanwhile", hint="submit the approval again")
    restores.require_issued_after(unit, approval.predicate.issued_at, what="approval")


@contextlib.contextmanager
def refuse_replay(approval: AnyVerifiedApproval) -> Iterator[None]:
    """Turn the conflict over a used nonce into `approval_replayed`."""
    try:
        yield
    except ConflictError as error:
        if error.code != Code.NONCE_TAKEN:
            raise
        raise Code.APPROVAL_REFUSED(reason="approval_replayed", got=approval.predicate.nonce) from None


def find_table(unit: Unit, signed: TableRef, grant: Grant, catalog: str) -> tuple[TableRow, Levels]:
    """The row and the namespace of the approval's table. Raises if UUID, name, catalog or domain do not match."""
    _require_equal("approval_wrong_catalog", expected=catalog, got=signed.catalog)
    row = tables.find_by_uuid(unit, signed.uuid)
    if row is None:
        message, expected = "the approval is for a table that is not in this catalog", "a table of this catalog"
        raise Code.APPROVAL_REFUSED(message, reason="approval_wrong_table", expected=expected, got=signed.uuid)
    require_domain(grant, row.domain)
    levels = levels_of(unit, row)
    _require_equal("approval_wrong_name", expected=full_name((*levels, row.name)), got=signed.name)
    return row, levels


def find_namespace(unit: Unit, signed: NamespaceRef, grant: Grant, catalog: str) -> Namespace:
    """The approval's namespace. Raises if id, name, catalog or domain do not match."""
    _require_equal("approval_wrong_catalog", expected=catalog, got=signed.catalog)
    found = namespaces.find_by_id(unit, signed.id)
    if found is None:
        raise Code.APPROVAL_REFUSED(reason="approval_wrong_namespace", got=signed.id)
    require_domain(grant, found.domain)
    _require_equal("approval_wrong_name", expected=full_name(found.levels), got=signed.name)
    return found


def _require_equal(reason: str, *, expected: str, got: str) -> None:
    if expected != got:
        raise Code.APPROVAL_REFUSED(reason=reason, expected=expected, got=got)


class Protections:
    """Puts protections into force, and lists them."""

    def __init__(self, approvals: Approvals, files: FileReader) -> None:
        self._approvals = approvals
        self._files = files
        self._ledger = approvals.ledger
        self._recorder = approvals.recorder
        self._catalog = approvals.catalog

    def submit(self, envelope: bytes, grant: Grant) -> ProtectionView:
        """Put a table or a namespace under a contract, or end its protection; a repeated call changes nothing."""
        protection_id = self._approvals.accept_once(envelope, Protection, lambda signed: self._accept(signed, grant))
        found = self.get(protection_id, grant)
        self._recorder.cover()
        return found

    def get(self, protection_id: str, grant: Grant) -> ProtectionView:
        """One protection of the caller's domain. Raises if it is unknown or of another domain."""
        with self._ledger.read() as unit:
            found = protections.find(unit, protection_id)
            if found is None:
                raise Code.RECORD_UNKNOWN(reason="protection_unknown", got=protection_id[:80])
            require_domain(grant, found.domain)
            return _make_view(found, statements.get(unit, protection_id))

    def list_protections(self, grant: Grant) -> list[ProtectionView]:
        """The latest protections of the caller's domain, newest first."""
        with self._ledger.read() as unit:
            found = protections.list_newest(unit, domain=visible_domain(grant))
            return [_make_view(each, statements.get(unit, each.protection_id)) for each in found]

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
        """At most `count` protected objects of the caller's domain in order of name, after the name `after`.

        `levels` limits the list to one namespace or the tables of one namespace, and `name` to tables of that name.
        """
        domain = visible_domain(grant)
        with self._ledger.read() as unit:
            if kind == "namespace":
                return protections.list_protected_namespaces(
                    unit, domain=domain, levels=levels, after=after, count=count
                )
            last_table = None if after is None else (after[:-1], after[-1])
            return protections.list_protected_tables(
                unit, domain=domain, levels=levels, name=name, after=last_table, count=count
            )

    def get_contract(self, sha256: str, grant: Grant) -> bytes:
        """The bytes of a contract; raises unless a table or namespace of the caller's domain is or was under it."""
        with self._ledger.read() as unit:
            body = protections.get_contract(unit, sha256)
            domains = protections.list_contract_domains(unit, sha256)
        if not any(grant.reaches(domain) for domain in domains):
            require_domain(grant, next(iter(domains), ""))  # raises, since none of the domains is the caller's
        return body

    def _accept(self, approval: VerifiedApproval[Protection], grant: Grant) -> None:
        require_readable_contract(approval.predicate)
        document = Document(StatementKind.PROTECTION, approval.statement.statement_id, approval.envelope)
        target = approval.predicate.target

        def store() -> None:
            if isinstance(target, TableTarget):
                apply = self._prepare_table(approval, target, grant)
            else:
                apply = self._prepare_namespace(approval, target, grant)

            def work(unit: Unit, log_indexes: Sequence[int]) -> None:
                require_current(unit, approval)
                record, contract = apply(unit), approval.predicate.contract
                protections.put(unit, record, contract, approval.envelope, log_index=log_indexes[0])

            self._recorder.store([document], work)

        with refuse_replay(approval):
            retry_if_row_changed(store)

    def _prepare_table(
        self, approval: VerifiedApproval[Protection], target: TableTarget, grant: Grant
    ) -> Callable[[Unit], ProtectionRecord]:
        """Check the protection against the table as it is now; returns the function that puts it into force."""
        with self._ledger.read() as unit:
            row, levels = find_table(unit, target.table, grant, self._catalog.name)
        metadata = self._catalog.states.load(row).metadata
        contract = None
        if approval.predicate.contract is not None:
            contract = self._approvals.check_table_contract(approval.predicate.contract, row, levels, grant)
            contracts.require_target_fit(contract, metadata, self._approvals.spark_extraction)
        new_contract_sha256 = contract_after(approval.predicate, row.contract_hash)
        # The state includes a contract hash: of the contract in force, or of the approval's contract if the table is
        # not protected.
        require_state(target.state, metadata, row.contract_hash or target.contract_sha256)
        require_head(target.snapshot_id, metadata.current_snapshot_id)
        if contract is not None:
            require_source_fit = self._approvals.sources.start_source_check(contract, row.table_uuid)
            require_source_fit(to_model(metadata.current_schema))
        found_sha256 = None  # one hash over main's manifests, which the gate compares at the first publication
        if new_contract_sha256 is not None:
            require_protectable(metadata)
            found_sha256 = hash_manifests(metadata, self._files)
        record = protection_record(approval.statement.statement_id, approval.predicate, row.domain, found_sha256)

        def apply(unit: Unit) -> ProtectionRecord:
            tables.lock(unit, [row.table_uuid])
            # Raises if the row has changed since it was checked; then everything is checked again.
            tables.protect(unit, row, new_contract_sha256)
            if row.upstream is not None and new_contract_sha256 is not None:
                # The operator has signed for this history, so later checks accept its snapshots without proofs.
                record_snapshots(unit, row.table_uuid, metadata, list_main_history(metadata))
            return record

        return apply

    def _prepare_namespace(
        self, approval: VerifiedApproval[Protection], target: NamespaceTarget, grant: Grant
    ) -> Callable[[Unit], ProtectionRecord]:
        """As `_prepare_table`, for a namespace."""
        with self._ledger.read() as unit:
            found = find_namespace(unit, target.namespace, grant, self._catalog.name)
        contract = None
        if approval.predicate.contract is not None:
            contract = contracts.require_servable(approval.predicate.contract, self._approvals.spark_extraction)
            contracts.require_for_namespace(contract, found.levels, found.domain)
            contracts.require_source_reached(self._ledger, contract, grant)
        new_contract_sha256 = contract_after(approval.predicate, found.protected_by)
        if contract is not None:
            require_source_fit = self._approvals.sources.start_source_check(contract, None)
            require_source_fit(None)  # a namespace has no schema
        record = protection_record(approval.statement.statement_id, approval.predicate, found.domain)

        def apply(unit: Unit) -> ProtectionRecord:
            namespaces.protect(unit, found, new_contract_sha256)
            return record

        return apply


def protection_record(
    protection_id: str, protection: Protection, domain: str, found_sha256: str | None = None
) -> ProtectionRecord:
    """The ledger's row for a protection; `found_sha256` is the hash of `main`'s manifests when it was applied."""
    target = protection.target
    return ProtectionRecord(
        protection_id=protection_id,
        action=protection.action,
        table_uuid=target.table.uuid if isinstance(target, TableTarget) else None,
        namespace_id=target.namespace.id if isinstance(target, NamespaceTarget) else None,
        name=target.table.name if isinstance(target, TableTarget) else target.namespace.name,
        domain=domain,
        contract_sha256=target.contract_sha256,
        operator=protection.operator,
        nonce=protection.nonce,
        found_sha256=found_sha256,
    )


def contract_after(protection: Protection, current: str | None) -> str | None:
    """The hash of the contract after the approval; None if the approval ends protection.

    `current` is the hash of the contract in force. To protect, it must be None. To end protection, it must be the
    signed hash. Raises if it is not.
    """
    signed = protection.target.contract_sha256
    if protection.action is ProtectionAction.PROTECT:
        if current is not None:  # a migration changes the contract of a protected table
            raise Code.PROTECTED_ALREADY(got=current)
        return signed
    if current is None:
        raise Code.NOT_PROTECTED("the target is not protected", expected=signed, got="none", hint="nothing was changed")
    if current != signed:
        message = "the target is protected under another contract by now"
        hint = "nothing was changed; look at the new contract, and sign again"
        raise Code.APPROVAL_REFUSED(message, reason="approval_stale", expected=signed, got=current, hint=hint)
    return None


def require_head(approved: int | None, head: int | None) -> None:
    """Refuse if `main` is not at the approved snapshot, since audits require a proof for each later snapshot."""
    if approved != head:
        expected, got = ("no snapshot" if each is None else f"snapshot {each}" for each in (approved, head))
        raise Code.APPROVAL_MAIN_MOVED(expected=expected, got=got)


def hash_manifests(metadata: TableMetadata, reader: FileReader) -> str | None:
    """Check every manifest of `main`'s snapshot. Returns one hash over them; None if `main` has no snapshot."""
    head = metadata.current_snapshot
    if head is None:
        return None
    try:
        return check_found(metadata, head, reader)
    except (InputError, VerificationError) as error:
        message = f"the table cannot be protected with the manifests of main: {error.message}"
        hint = "nothing was changed; rewrite the table's manifests (rewrite_manifests), and sign again"
        raise error.as_not_allowed(message, hint) from None


def _make_view(record: ProtectionRecord, statement: Statement) -> ProtectionView:
    protection = read_unchecked(statement.envelope, Protection)
    table = protection.target if isinstance(protection.target, TableTarget) else None
    return ProtectionView(
        protection_id=record.protection_id,
        action=protection.action,
        table_uuid=record.table_uuid,
        namespace_id=record.namespace_id,
        name=record.name,
        contract_sha256=record.contract_sha256,
        schema_fingerprint=None if table is None else table.state.schema_fingerprint,
        structure_sha256=None if table is None else table.state.structure_sha256,
        snapshot_id=None if table is None else table.snapshot_id,
        operator=protection.operator,
        reason=protection.reason,
        issued_at=protection.issued_at,
        expires_at=protection.expires_at,
        log_index=statement.log_index,
    )
