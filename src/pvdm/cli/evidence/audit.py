"""`pvdm audit`: checks the history of a table's `main` against receipts and proofs, at a Steward or from a bundle."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pvdm.cli.common.commands import command
from pvdm.cli.common.files import read_file, require_json, require_new, write_new
from pvdm.cli.common.options import ParsedType, Service, path_option, service_options
from pvdm.cli.common.screen import Line, progress_bars, say_result
from pvdm.cli.common.trust_roots import TrustBasis, TrustOptions, trust_options
from pvdm.cli.evidence.audit_text import report_lines
from pvdm.cli.evidence.proof import UNPINNED
from pvdm.errors import Code, VerificationError, expect
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.s3_client import settings_from_environment
from pvdm.lake.stores.stores import Stores
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.evidence import (
    AUDIT_BUNDLE_MAX_BYTES,
    AuditBundle,
    Evidence,
    LoggedStatement,
    ManifestFiles,
    MetadataFile,
    RecordingFiles,
    is_audit_bundle,
    parse_audit_bundle,
    parse_table_metadata,
)
from pvdm.metadata.audit.gaps import GAP_ID_HEX_DIGITS
from pvdm.metadata.audit.report import AuditReport
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.trust.bundle import resolve_log_origin
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.statement import read_unchecked
from pvdm.verify.fetch import Files

if TYPE_CHECKING:
    from pvdm.api.proofs import LoggedView
    from pvdm.client import StewardClient


# Each try gathers the evidence again: a snapshot may expire after the evidence was gathered, before its files are read.
AUDIT_TRIES_MAX: Final = 3
_GAP_ID: Final = re.compile(rf"[0-9a-f]{{{GAP_ID_HEX_DIGITS}}}")


def _parse_gap_id(text: str) -> str:
    if not _GAP_ID.fullmatch(text):
        raise Code.USAGE(expected=f"{GAP_ID_HEX_DIGITS} lower-case hex digits", got=ascii(text)[:80])
    return text


@command("audit")
@click.argument("table", required=False, metavar="[TABLE]")
@path_option("--bundle", help="Audit an exported bundle instead, without a Steward.")
@path_option("--export", help="Write all the evidence to one bundle.")
@click.option("--rehash", is_flag=True, help="Read every live data file that a proof binds, and all manifests, again.")
@click.option(
    "--accept-gap",
    "accepted_gaps",
    type=ParsedType("id", _parse_gap_id),
    multiple=True,
    metavar="ID",
    help="Accept this gap in protection, by the id that the report gives it. May be repeated.",
)
@click.option(
    "--accept-lost",
    type=int,
    multiple=True,
    metavar="SNAPSHOT",
    help="Accept that main lacks this snapshot, which has a receipt; may be repeated.",
)
@click.option("--report", "tells", is_flag=True, help="Report a violation to the Steward, which alerts operators.")
@trust_options(required=False)
@service_options
def audit_command(
    *,
    table: str | None,
    bundle: Path | None,
    export: Path | None,
    rehash: bool,
    accepted_gaps: tuple[str, ...],
    accept_lost: tuple[int, ...],
    tells: bool,
    trust: TrustOptions,
    service: Service,
) -> int:
    """Check the history of TABLE's main. Every snapshot since the table was protected must have a valid receipt and
    valid proofs, and must add and remove exactly the files that the proofs bind. Older snapshots need none.

    Ends with 3 after a violation: a snapshot since the protection without valid receipt and proofs, changed bytes, a
    receipt whose snapshot main lacks and that is not accepted with --accept-lost, or a time without protection (a gap)
    that is not accepted with --accept-gap. What is accepted stays in the report. A break-glass publication is marked,
    and is no violation. --rehash reads the table's files, so it needs access to the lake.

    \b
    Examples:
      pvdm audit sales.orders --trust-root roots.json --root-sha256 HEX
      pvdm audit sales.orders --trust-root roots.json --root-sha256 HEX --rehash
      pvdm audit sales.orders --accept-gap 5c1e8f0a9b7d4e2f8a6c3b1d0e9f7a5c
      pvdm audit sales.orders --export orders.audit.json
      pvdm audit --bundle orders.audit.json --trust-root roots.json --root-sha256 HEX --json
    """
    if (table is None) == (bundle is None):
        raise click.UsageError("name a table, or a bundle with --bundle")
    if bundle is not None and (trust.root_file is None or export is not None):
        raise click.UsageError("--bundle needs --trust-root, and cannot be exported again")
    if bundle is not None and tells:
        raise click.UsageError("--report needs a Steward, so it cannot be used with --bundle")
    if export is not None:
        require_new(export)
    if bundle is not None:
        found = _read_bundle(bundle)
        basis = trust.resolve()
        lake_files = open_lake_files(None, found.evidence) if rehash else None
        report = _audit(found.evidence, found, basis, trust, lake_files, accepted_gaps, accept_lost)
    else:
        with service.connect() as client:
            for _ in range(AUDIT_TRIES_MAX):
                basis = trust.resolve(client)
                evidence = gather_evidence(client, expect(table, "table or bundle is given"))
                served = ServedFiles(client, evidence)
                files = RecordingFiles(served) if export is not None else served
                lake_files = open_lake_files(client, evidence) if rehash else None
                report = _audit(evidence, files, basis, trust, lake_files, accepted_gaps, accept_lost)
                if not _may_have_expired(report):
                    break
        if export is not None and isinstance(files, RecordingFiles):
            write_new(export, AuditBundle(evidence, files.read_files).to_bytes())
    _show(report, basis, export, has_own_root=trust.root_file is not None)
    if tells and not report.holds:
        codes = [finding.code for finding in report.all_findings]
        with service.connect() as client:
            client.report_audit(expect(table, "table or bundle is given"), codes, len(codes))
    return 0 if report.holds else VerificationError.exit_code


def _may_have_expired(report: AuditReport) -> bool:
    """Whether a snapshot of the evidence may have expired at the Steward before its files were read."""
    return any(finding.code == Code.AUDIT_SNAPSHOT_UNKNOWN for finding in report.all_findings)


def _read_bundle(path: Path) -> AuditBundle:
    data = read_file(path, size_max_bytes=AUDIT_BUNDLE_MAX_BYTES)
    require_json(path, data, "an audit bundle")
    if not is_audit_bundle(data):
        message, expected = f"{path} is not an audit bundle", "a file of `pvdm audit --export`"
        raise Code.INPUT_FILE_INVALID(message, reason="file_kind_wrong", expected=expected, got="another kind of file")
    return parse_audit_bundle(data)


def _audit(
    evidence: Evidence,
    files: ManifestFiles,
    basis: TrustBasis,
    trust: TrustOptions,
    lake_files: Files | None,
    accepted_gaps: Collection[str],
    accept_lost: Collection[int],
) -> AuditReport:
    audit_trust = AuditTrust(basis.root, resolve_log_origin(basis.root, trust.origin), basis.at)
    lost = frozenset(accept_lost)
    with progress_bars() as watch:
        report = audit(
            evidence, files, audit_trust, data_files=lake_files, accepted=accepted_gaps, accept_lost=lost, watch=watch
        )
    return report if basis.pin is not None else replace(report, not_proved=(UNPINNED, *report.not_proved))


def _show(report: AuditReport, basis: TrustBasis, export: Path | None, *, has_own_root: bool) -> None:
    facts: dict[str, object] = {"trust_root": {**basis.to_json(), "own": has_own_root}, "judged_at": basis.at}
    lines: list[Line | str] = [*report_lines(report)]
    if export is not None:
        lines.append(f"the evidence is in {export}; `pvdm audit --bundle {export}` needs the trust root only")
        if not has_own_root:
            lines.append("  `pvdm keys root fetch --out roots.json` writes it, and shows its hash for --root-sha256")
    say_result({**report.to_json(), **facts, "out": export}, lines)


def gather_evidence(client: StewardClient, table: str) -> Evidence:
    """The table's metadata, approvals, receipts, proofs and overrides."""
    audited = client.audit(table)
    approvals = [_logged_statement(view) for view in audited.statements]
    logged_receipts = list(_fetch_receipts(client, table, audited.log_size))
    receipts = [read_unchecked(logged.envelope, Receipt) for logged in logged_receipts]
    proof_ids = {proof_id for receipt in receipts for proof_id in receipt.proof_ids}
    override_ids = {receipt.override_id for receipt in receipts if receipt.override_id is not None}
    overrides = list(_fetch_statements(client, table, sorted(override_ids), audited.log_size))
    proof_ids.update(read_unchecked(logged.envelope, BreakGlass).fail_proof_id for logged in overrides)
    logged_releases = (logged for logged in approvals if logged.kind is StatementKind.CLAIM_RELEASE)
    releases = [read_unchecked(logged.envelope, ClaimRelease) for logged in logged_releases]
    proof_ids.update(release.publication_id for release in releases if release.receipt_id is None)
    proofs = list(_fetch_statements(client, table, sorted(proof_ids), audited.log_size))
    return Evidence(
        TableRef(audited.table.catalog, audited.table.uuid, audited.table.name),
        audited.contract_sha256,
        MetadataFile(audited.metadata.path, audited.metadata.text.encode()),
        audited.checkpoint.encode(),
        tuple(sorted((*approvals, *logged_receipts, *overrides, *proofs), key=lambda logged: logged.index)),
        audited.released_claims,
    )


def open_lake_files(client: StewardClient | None, evidence: Evidence) -> Files:
    """A reader of the table's files. Credentials for an object store come from `client`, or else the environment."""
    if parse_location(evidence.metadata.path).scheme == "file":
        return Files()
    if client is None:
        return Files(Stores(settings_from_environment()))
    # Imported late: the client is slow to load.
    from pvdm.client.table import TableClient, split_name

    return Files(Stores(TableClient(client, *split_name(evidence.table.name)).storage()))


class ServedFiles:
    """Manifest lists and manifests of the table, as the Steward serves them."""

    def __init__(self, client: StewardClient, evidence: Evidence) -> None:
        self._client = client
        self._table = evidence.table.name
        self._lists = frozenset(snapshot.manifest_list for snapshot in parse_table_metadata(evidence).snapshots)

    def read(self, snapshot_id: int, location: str, /, *, max_bytes: int) -> bytes:
        """The bytes of a manifest, or of the snapshot's manifest list. Raises for more than `max_bytes`."""
        manifest = None if location in self._lists else location
        data = self._client.audit_file(self._table, snapshot_id, manifest)
        if len(data) > max_bytes:
            expected = f"at most {max_bytes:,} bytes"
            raise Code.AUDIT_FAILED(reason="audit_file_too_large", expected=expected, got=location)
        return data


def _fetch_receipts(client: StewardClient, table: str, log_size: int) -> Iterator[LoggedStatement]:
    after = None
    while page := client.audit_receipts(table, size=log_size, after=after):
        yield from map(_logged_statement, page)
        after = page[-1].index


def _fetch_statements(
    client: StewardClient, table: str, ids: Sequence[str], log_size: int
) -> Iterator[LoggedStatement]:
    # Imported late: the API is slow to load, and bundles are audited without it.
    from pvdm.api.proofs import AUDIT_IDS_MAX

    remaining = list(ids)
    while requested := remaining[:AUDIT_IDS_MAX]:
        page = [_logged_statement(view) for view in client.audit_statements(table, requested, size=log_size)]
        yield from page
        received = {parse_envelope(logged.envelope).payload_sha256 for logged in page}
        if received.intersection(requested):
            # Statements that did not fit into the response are requested again.
            remaining = [each for each in remaining if each not in received]
        else:
            # The log of this size lacks all of them; the audit will report what is missing.
            remaining = remaining[AUDIT_IDS_MAX:]


def _logged_statement(view: LoggedView) -> LoggedStatement:
    return LoggedStatement(StatementKind(view.kind), view.envelope, view.logged_at, view.index, view.hashes)
