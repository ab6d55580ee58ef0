"""Reads what auditors verify: a table's metadata, manifests, and signed statements with their inclusion proofs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.names import full_name
from pvdm.catalog.state import TableState
from pvdm.errors import Code
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import load_manifest_list, read_listed
from pvdm.lake.stores.stores import ConfiguredPath, Stores, location_of
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import events, protections, receipts, restores, statements
from pvdm.ledger.record.events import LedgerLog
from pvdm.ledger.record.statements import Statement
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant
from pvdm.metadata.audit.evidence import Evidence, LoggedStatement, MetadataFile
from pvdm.model import canonical_json
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.table import TableRef
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.entry import parse_entry
from pvdm.trust.statement import read_unchecked
from pvdm.verify.fetch import Files

AUDIT_PAGE_MAX_BYTES: Final = 33_554_432
# A receipt is signed shortly after its commit. An audit that begins in between waits for the receipt.
_RECEIPT_WAIT_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class _TableFiles:
    """Reads a table's files."""

    files: Files
    folders: tuple[Location, ...] | None  # where the files must lie; None: anywhere
    last: list[bytes]  # the bytes of the file that was read last

    def read(self, location: str, *, max_bytes: int) -> bytes:
        parsed = parse_location(location)
        if self.folders is not None and not any(parsed.is_under(folder) for folder in self.folders):
            message, hint = "the file is outside the table's folders", "an auditor of every domain may read it"
            expected = " or ".join(str(folder) for folder in self.folders)
            raise Code.LOCATION_OUTSIDE(message, expected=expected, got=str(parsed)[:200], hint=hint)
        self.last[:] = [self.files.read(location, max_bytes=max_bytes)]
        return self.last[0]


@dataclass(frozen=True, slots=True)
class AuditNotice:
    """An auditor's report of violations. `codes` are those of the findings."""

    domain: str
    table: str
    table_uuid: str
    codes: tuple[str, ...]
    violations: int
    auditor: str


class Audits:
    """Reads evidence about tables for auditors."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        require_covered: Callable[[int], None],
        catalog: Catalog,
        vault: ConfiguredPath,
        stores: Stores | None = None,
        on_report: Callable[[Unit, AuditNotice], None] = lambda _unit, _notice: None,
    ) -> None:
        """`require_covered` gets a log size, and returns once the outside checkpoint covers this size.

        `on_report` is called in the transaction that records an auditor's report.
        """
        self._on_report = on_report
        self._clock = clock
        self._ledger = ledger
        self._require_covered = require_covered
        self._catalog = catalog
        self._vault = location_of(vault)
        self._files = Files(stores)

    def read_evidence(self, grant: Grant, levels: Levels, name: str) -> Evidence:
        """The table's metadata, the newest checkpoint and the signed approvals, but no receipts (`read_receipts`)."""
        state = self._load_with_receipt(grant, levels, name)
        row = state.row
        with self._ledger.read() as unit:
            note = LedgerLog(unit).newest_checkpoint() or b""
            size = read_unverified(note).checkpoint.size
            wanted = protections.list_approval_ids(unit, row.table_uuid, row.namespace_id)
            wanted += _list_release_ids(unit, row.table_uuid)
            approvals = tuple(logged for _, logged in self._read_logged(unit, wanted, size, whole=True))
            released = tuple(restores.list_released(unit, target=row.table_uuid))
        self._require_covered(size)
        table = TableRef(self._catalog.name, row.table_uuid, full_name((*levels, name)))
        metadata = MetadataFile(row.pointer.location, state.metadata.to_bytes())
        return Evidence(table, row.contract_hash, metadata, note, approvals, released)

    def report(self, grant: Grant, levels: Levels, name: str, *, codes: Sequence[str], violations: int) -> None:
        """Record in the step log that an audit of the table found violations of these codes."""
        row = self._catalog.tables.load(grant, levels, name).row
        found, table = sorted(set(codes)), full_name((*levels, name))
        notice = AuditNotice(row.domain, table, row.table_uuid, tuple(found), violations, grant.name)

        def work(unit: Unit) -> None:
            event: dict[str, canonical_json.Value] = {
                "by": grant.name,
                "token_id": grant.token_id,
                "codes": found,
                "violations": violations,
            }
            events.note(unit, "violations_reported", "tables", row.table_id, event)
            self._on_report(unit, notice)

        self._ledger.transact(work, at_micros=self._clock.now_micros())

    def read_receipts(
        self, grant: Grant, levels: Levels, name: str, *, size: int, after: int | None, count: int
    ) -> tuple[LoggedStatement, ...]:
        """The table's receipts after log index `after`, with inclusion proofs for log size `size`; empty if no more."""
        row = self._catalog.tables.load(grant, levels, name).row
        with self._ledger.read() as unit:
            self._require_size(unit, size)
            wanted = receipts.list_ids_by_table(unit, row.table_uuid, after=after, count=count)
            found = tuple(logged for _, logged in self._read_logged(unit, wanted, size))
        self._require_covered(size)
        return found

    def read_statements(
        self, grant: Grant, levels: Levels, name: str, wanted: Sequence[str], *, size: int
    ) -> tuple[LoggedStatement, ...]:
        """Proofs and overrides of the table by id, in the order of the ids, up to `AUDIT_PAGE_MAX_BYTES`."""
        row = self._catalog.tables.load(grant, levels, name).row
        with self._ledger.read() as unit:
            self._require_size(unit, size)
            found = []
            for statement, logged in self._read_logged(unit, wanted, size):
                _require_about(statement, row)
                found.append(logged)
        self._require_covered(size)
        return tuple(found)

    def read_file(self, grant: Grant, levels: Levels, name: str, snapshot_id: int, manifest: str | None) -> bytes:
        """The manifest list of a snapshot (the head of `main` or an ancestor), or, if given, the `manifest` in it."""
        state = self._catalog.tables.load(grant, levels, name)
        metadata, head = state.metadata, state.metadata.current_snapshot_id
        main_history = () if head is None else metadata.ancestry(head)
        snapshot = next((each for each in main_history if each.snapshot_id == snapshot_id), None)
        if snapshot is None:
            raise Code.AUDIT_SNAPSHOT_UNKNOWN(got=str(snapshot_id))
        # An auditor of one domain reads only in the table's folders: metadata could name files of another domain.
        folders = (parse_location(state.row.location), self._vault.child(state.row.table_uuid))
        reader = _TableFiles(self._files, None if grant.domain == EVERY_DOMAIN else folders, [])
        listed = load_manifest_list(metadata, snapshot, reader)
        if manifest is None:
            return reader.last[0]
        found = next((each for each in listed.manifests if each.manifest_path == manifest), None)
        if found is None:
            raise Code.AUDIT_REQUEST_INVALID(reason="audit_manifest_unknown", got=ascii(manifest[:200]))
        read_listed(metadata, found, reader)
        return reader.last[0]

    def _load_with_receipt(self, grant: Grant, levels: Levels, name: str) -> TableState:
        """The table, once the head of `main` has a receipt, or after `_RECEIPT_WAIT_SECONDS` at the latest."""
        deadline = time.monotonic() + _RECEIPT_WAIT_SECONDS
        while True:
            state = self._catalog.tables.load(grant, levels, name)
            head, table_uuid = state.metadata.current_snapshot_id, state.row.table_uuid
            with self._ledger.read() as unit:
                has_receipt = head is None or receipts.find_by_snapshot(unit, table_uuid, str(head)) is not None
            if has_receipt or not state.row.protected or time.monotonic() >= deadline:
                return state
            time.sleep(_POLL_SECONDS)

    @staticmethod
    def _require_size(unit: Unit, size: int) -> None:
        """Raise if the log size is 0, or larger than the log."""
        log_size = LedgerLog(unit).size()
        if not 0 < size <= log_size:
            message, expected = "no proof can be made for a log of this size", f"1 to {log_size}"
            raise Code.LOG_REQUEST_INVALID(message, reason="log_sizes_invalid", expected=expected, got=str(size))

    @staticmethod
    def _read_logged(
        unit: Unit, wanted: Iterable[str], size: int, *, whole: bool = False
    ) -> Iterator[tuple[Statement, LoggedStatement]]:
        """Statements with inclusion proofs for log size `size`; statements that were logged later are left out.

        Ends before the statement that brings the size of all envelopes over `AUDIT_PAGE_MAX_BYTES`, unless it is the
        first statement. With `whole`, raises instead of ending.
        """
        log, total = LedgerLog(unit), 0
        for statement_id in wanted:
            found = statements.get(unit, statement_id)
            if found.log_index >= size:
                continue
            total += len(found.envelope)
            if total > AUDIT_PAGE_MAX_BYTES and total > len(found.envelope):
                if not whole:
                    return
                expected = f"at most {AUDIT_PAGE_MAX_BYTES:,} bytes of approvals"
                raise Code.AUDIT_FAILED(reason="audit_too_large", expected=expected, got="more")
            entry = parse_entry(log.read_entries(found.log_index, found.log_index + 1)[0])
            hashes = merkle.prove_inclusion(log, index=found.log_index, size=size).hashes
            yield found, LoggedStatement(found.kind, found.envelope, entry.time, found.log_index, tuple(hashes))


def _list_release_ids(unit: Unit, table_uuid: str) -> list[str]:
    """The ids of the claim releases that name the table. There are few claim releases, so all are read."""
    return [
        each.statement_id
        for each in statements.list_by_kind(unit, StatementKind.CLAIM_RELEASE)
        if read_unchecked(each.envelope, ClaimRelease).table.uuid == table_uuid
    ]


def _require_about(statement: Statement, row: TableRow) -> None:
    """Raise if the statement is no proof or override, or is about another table (perhaps of another domain)."""
    match statement.kind:
        case StatementKind.PROOF:
            about = read_unchecked(statement.envelope, Proof).core.target.table.uuid
        case StatementKind.BREAK_GLASS:
            about = read_unchecked(statement.envelope, BreakGlass).table.uuid
        case _:
            about = ""
    if about != row.table_uuid:
        raise Code.AUDIT_REQUEST_INVALID(reason="audit_statement_unknown", got=statement.statement_id)
