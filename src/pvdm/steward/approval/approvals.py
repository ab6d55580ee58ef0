"""Accepts signed approvals: the part that protections and migrations share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.names import full_name
from pvdm.errors import Code, ConflictError, NotAllowedError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import restores, statements
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.record import StatementKind
from pvdm.model.contract import DataProductContract
from pvdm.model.statements.migration import Migration, Protection
from pvdm.model.statements.table import NamespaceRef, TableRef
from pvdm.steward.access import require_domain
from pvdm.steward.record.recorder import Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.contracts import judge_contract, judge_doable, require_for_table, require_source_reached
from pvdm.steward.work.sources import Sources
from pvdm.trust.approval import A, raise_not_allowed, verify_approval
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_statement
from pvdm.trust.verify import Verified
from pvdm.verify.fit import Reach


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
    extracts: Reach | None

    def accept_once(self, envelope: bytes, kind: type[A], accept: Callable[[Judged[A]], None]) -> str:
        """Verify and accept the approval, unless exactly these bytes were accepted before; returns its id."""
        with raise_not_allowed("approval"):
            parsed = parse_envelope(envelope)
            read_statement(parsed.payload, kind)
        statement_id = parsed.payload_sha256
        if not self._is_stored(statement_id, envelope):
            try:
                accept(self._judge(envelope, kind))
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

    def _judge(self, envelope: bytes, kind: type[A]) -> Judged[A]:
        judged_by = self.trust.ids()
        approval = verify_approval(envelope, self.trust.current(), kind, now=self.clock.now_micros())
        if approval.predicate.contract is not None:
            judge_contract(approval.predicate.contract)
        return Judged(approval, envelope, judged_by)

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
    namespace = namespaces.find_by_id(unit, row.namespace_id)
    if namespace is None:
        raise AssertionError("a table that is there is in a namespace that is there")
    require_name(named.name, full_name((*namespace.levels, row.name)))
    return row, namespace.levels


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
