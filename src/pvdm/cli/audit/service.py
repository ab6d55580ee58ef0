"""The evidence of an audit as a Steward hands it out: page by page, and judged by nobody yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pvdm.client.table import TableClient, split_name
from pvdm.errors import Code
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.s3_client import own_settings
from pvdm.lake.stores.stores import Stores
from pvdm.metadata.audit.evidence import Evidence, LoggedStatement, MetadataFile
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed
from pvdm.verify.fetch import Files

if TYPE_CHECKING:
    from pvdm.client import LoggedView, StewardClient


def gather(client: StewardClient, table: str) -> Evidence:
    """The table's document, its approvals, every receipt of it, and what the receipts rest on."""
    head = client.audit(table)
    receipts = list(_receipts(client, table, head.log_size))
    proofs, overrides = _named(receipts)
    waived = list(_statements(client, table, sorted(overrides), head.log_size))
    proofs.update(read_signed(each.envelope, BreakGlass).fail_proof_id for each in waived)
    proved = list(_statements(client, table, sorted(proofs), head.log_size))
    approvals = [_logged(each) for each in head.statements]
    return Evidence(
        TableRef(head.table.catalog, head.table.uuid, head.table.name),
        head.contract_sha256,
        MetadataFile(head.metadata.path, head.metadata.text.encode()),
        head.checkpoint.encode(),
        tuple(sorted((*approvals, *receipts, *waived, *proved), key=lambda each: each.index)),
    )


def files_of(client: StewardClient, evidence: Evidence) -> Files:
    """The table's files where they lie; in an object store by what the Steward vends to the auditor, or one's own."""
    if parse_location(evidence.metadata.path).scheme == "file":
        return Files()
    return Files(Stores(TableClient(client, *split_name(evidence.table.name)).storage()))


def own_files(evidence: Evidence) -> Files:
    """The same without a Steward: in an object store by what AWS's own chain has for whoever audits."""
    return Files() if parse_location(evidence.metadata.path).scheme == "file" else Files(Stores(own_settings()))


@dataclass(frozen=True, slots=True)
class ServedFiles:
    """Manifest lists and manifests as the Steward reads them."""

    client: StewardClient
    table: str
    lists: frozenset[str]

    def read(self, snapshot_id: int, location: str, /, *, most: int) -> bytes:
        """The bytes; those of a list are named by their snapshot alone."""
        manifest = None if location in self.lists else location
        data = self.client.audit_file(self.table, snapshot_id, manifest)
        if len(data) > most:
            raise Code.AUDIT_FAILED(reason="audit_file_too_large", expected=str(most), got=location)
        return data


def _receipts(client: StewardClient, table: str, size: int) -> Iterator[LoggedStatement]:
    after = None
    while page := client.audit_receipts(table, size=size, after=after):
        yield from (_logged(each) for each in page)
        after = page[-1].index


def _named(receipts: Iterable[LoggedStatement]) -> tuple[set[str], set[str]]:
    """The proofs and overrides that receipts name; a receipt that cannot be read is judged by the audit."""
    proofs: set[str] = set()
    overrides: set[str] = set()
    for each in receipts:
        said = read_signed(each.envelope, Receipt)
        proofs.update(said.proof_ids)
        overrides.update(() if said.override_id is None else (said.override_id,))
    return proofs, overrides


def _statements(client: StewardClient, table: str, ids: Sequence[str], size: int) -> Iterator[LoggedStatement]:
    # Imported late: the API is slow to load, and bundles are audited without it.
    from pvdm.api.audit import AUDIT_IDS_MAX

    left = list(ids)
    while wanted := left[:AUDIT_IDS_MAX]:
        page = [_logged(each) for each in client.audit_statements(table, wanted, size=size)]
        yield from page
        got = {parse_envelope(each.envelope).payload_sha256 for each in page}
        # Those that did not fit are asked for again; those that the log of this size has not are not.
        left = [each for each in left if each not in got] if got.intersection(wanted) else left[AUDIT_IDS_MAX:]


def _logged(view: LoggedView) -> LoggedStatement:
    return LoggedStatement(EntryKind(view.kind), view.envelope, view.logged_at, view.index, view.hashes)
