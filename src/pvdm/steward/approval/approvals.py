"""What protections and migrations have in common at the Steward: whose word it is, what it is about, that it is new."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

from pvdm.catalog.names import full_name
from pvdm.errors import ConflictError, NotAllowedError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import restores, statements
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.schema.record import StatementKind
from pvdm.model.statements.migration import Migration, Protection
from pvdm.model.statements.table import NamespaceRef, TableRef
from pvdm.steward.access import require_domain
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.contracts import judge_contract
from pvdm.trust.approval import A, disallowing, verify_approval
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_statement
from pvdm.trust.verify import Verified


@dataclass(frozen=True, slots=True)
class Judged(Generic[A]):
    """A verified approval with its bytes, and the trust roots that it was judged by."""

    approval: Verified[A]
    envelope: bytes
    judged_by: tuple[str, ...]

    @property
    def said(self) -> A:
        """What was approved."""
        return self.approval.predicate


def read_approval(envelope: bytes, kind: type[A]) -> tuple[str, A]:
    """The approval's id and words, before anything about it is believed."""
    with disallowing():
        parsed = parse_envelope(envelope)
        return parsed.payload_sha256, read_statement(parsed.payload, kind)


def judge(envelope: bytes, kind: type[A], trust: TrustRoots, clock: LedgerClock) -> Judged[A]:
    """The approval, once it is an operator's good word, and the contract it brings, once that can be read."""
    judged_by = trust.ids()
    approval = verify_approval(envelope, trust.current(), kind, now=clock.now_micros())
    if approval.predicate.contract is not None:
        judge_contract(approval.predicate.contract)
    return Judged(approval, envelope, judged_by)


def require_good(unit: Unit, judged: Judged[Migration] | Judged[Protection]) -> None:
    """In the transaction that uses it: nobody took the key back meanwhile; inserting its nonce says if it is new."""
    if statements.ids_of_kind(unit, StatementKind.TRUST_ROOT) != judged.judged_by:
        raise ConflictError("trust_root_moved", "a trust root was accepted meanwhile", hint="hand it in again")
    restores.require_issued_after(unit, judged.said.issued_at, what="approval")


def accept_once(
    envelope: bytes,
    kind: type[A],
    ledger: Ledger,
    trust: TrustRoots,
    clock: LedgerClock,
    accept: Callable[[Judged[A]], None],
) -> str:
    """Accept the approval, unless exactly these bytes were accepted before; gives its id."""
    statement_id, _ = read_approval(envelope, kind)
    if not _is_stored(ledger, statement_id, envelope):
        try:
            accept(judge(envelope, kind, trust, clock))
        except (NotAllowedError, ConflictError):
            # Somebody was first; the same call at the same time is no replay.
            if not _is_stored(ledger, statement_id, envelope):
                raise
    return statement_id


@contextlib.contextmanager
def used_once(judged: Judged[Migration] | Judged[Protection]) -> Iterator[None]:
    """A nonce that was used, by this approval or by another one, is told as a replay."""
    try:
        yield
    except ConflictError as error:
        if error.code != "nonce_taken":
            raise
        raise NotAllowedError(
            "approval_replayed",
            "the approval was used before",
            expected="a new nonce",
            got=judged.said.nonce,
            hint="nothing was changed; sign a new one",
        ) from None


def _is_stored(ledger: Ledger, statement_id: str, envelope: bytes) -> bool:
    """Whether exactly these bytes were accepted before; another signature is another try."""
    with ledger.read() as unit:
        found = statements.find(unit, statement_id)
    return found is not None and found.envelope == envelope


def find_table(unit: Unit, named: TableRef, grant: Grant, catalog: str) -> tuple[TableRow, Levels]:
    """The table that the approval names: by its UUID, under its name, in this catalog, in the bearer's domain."""
    require_catalog(named.catalog, catalog)
    row = tables.find_by_uuid(unit, named.uuid)
    if row is None:
        raise NotAllowedError(
            "approval_wrong_table",
            "the approval is for a table that is not here",
            expected="a table of this catalog",
            got=named.uuid,
            hint="nothing was changed",
        )
    require_domain(grant, row.domain)
    namespace = namespaces.find_by_id(unit, row.namespace_id)
    if namespace is None:
        raise AssertionError("a table that is there is in a namespace that is there")
    require_name(named.name, full_name((*namespace.levels, row.name)))
    return row, namespace.levels


def find_namespace(unit: Unit, named: NamespaceRef, grant: Grant, catalog: str) -> Namespace:
    """The namespace that the approval names: by its id, under its name, in this catalog, in the bearer's domain."""
    require_catalog(named.catalog, catalog)
    found = namespaces.find_by_id(unit, named.id)
    if found is None:
        raise NotAllowedError(
            "approval_wrong_namespace",
            "the approval is for a namespace that is not here",
            expected="a namespace of this catalog",
            got=named.id,
            hint="nothing was changed",
        )
    require_domain(grant, found.domain)
    require_name(named.name, full_name(found.levels))
    return found


def require_catalog(named: str, catalog: str) -> None:
    """A table with the same UUID in another catalog is another one."""
    if named != catalog:
        raise NotAllowedError(
            "approval_wrong_catalog",
            "the approval is for another catalog",
            expected=catalog,
            got=named,
            hint="nothing was changed",
        )


def require_name(named: str, found: str) -> None:
    """The name is what the operator read when signing."""
    if named != found:
        raise NotAllowedError(
            "approval_wrong_name",
            "the approval names it otherwise",
            expected=found,
            got=named,
            hint="nothing was changed; it may have been renamed since: look, and sign again",
        )
