"""`pvdm audit`: holds the history of a table's `main` to receipts and proofs, at a Steward or from a bundle."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pvdm.cli.audit.service import ServedFiles, files_of, gather, own_files
from pvdm.cli.audit.text import report_lines
from pvdm.cli.common.files import read_file, require_json, require_new, write_new
from pvdm.cli.common.options import PlaceType, json_option
from pvdm.cli.common.screen import notice, say, say_json, watch_on_screen
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.common.times import now_micros
from pvdm.cli.common.trust_roots import (
    Judge,
    at_option,
    follow,
    judge_by,
    origin_option,
    pin_option,
    root_option,
    seen_option,
)
from pvdm.cli.proof.single_statement import UNPINNED
from pvdm.errors import Code, VerificationError
from pvdm.metadata.audit.audit import AuditJudge, audit
from pvdm.metadata.audit.evidence import (
    AUDIT_BUNDLE_MAX_BYTES,
    AuditBundle,
    Evidence,
    ManifestFiles,
    RecordingFiles,
    is_audit_bundle,
    parse_audit_bundle,
    table_document,
)
from pvdm.metadata.audit.gaps import GAP_ID_HEX_DIGITS
from pvdm.metadata.audit.report import AuditReport
from pvdm.trust.bundle import origin_of
from pvdm.verify.fetch import Files

if TYPE_CHECKING:
    from pvdm.client import StewardClient

# Each with evidence that is gathered anew: history may expire between an audit's evidence and its files.
AUDIT_TRIES_MAX: Final = 3
_GAP_ID: Final = re.compile(rf"[0-9a-f]{{{GAP_ID_HEX_DIGITS}}}")
ITS_OWN: Final = (
    "the trust root came from the Steward itself: this catches accidents, not a dishonest Steward."
    " Give a trust root of your own with --trust-root, and its hash with --root-sha256"
)


@dataclass(frozen=True, slots=True)
class JudgedBy:
    """What the command line says of the trust root, the log and the time."""

    root_file: Path | None
    pin: str | None
    origin: str | None
    at: int | None
    seen: Path | None

    def judge(self, client: StewardClient | None = None) -> Judge:
        """By the caller's trust root; else, said aloud, by the one that the Steward names."""
        if self.root_file is not None:
            return judge_by(self.root_file, pin=self.pin, at=self.at, seen=self.seen)
        if client is None or (self.seen is not None and self.pin is None):
            raise click.UsageError("--seen needs --root-sha256: an unpinned root is not worth remembering")
        now = now_micros() if self.at is None else self.at
        root = follow(client.trust_root().chain, pin=self.pin, at=now, seen=self.seen)
        if self.pin is None:
            notice(ITS_OWN)
        return Judge(root, self.pin, now)


def judge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--trust-root`, `--root-sha256`, `--origin`, `--at` and `--seen` as one `by`."""

    @functools.wraps(command)
    def called(
        *, root_file: Path | None, pin: str | None, origin: str | None, at: int | None, seen: Path | None, **others: Any
    ) -> Any:
        return command(by=JudgedBy(root_file, pin, origin, at, seen), **others)

    for option in (seen_option, at_option, origin_option, pin_option, root_option(required=False)):
        called = option(called)
    return called


class GapIdType(click.types.StringParamType):
    """The id of a gap, as a report gives it."""

    name = "id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, if it has the form of an id."""
        if not isinstance(value, str) or not _GAP_ID.fullmatch(value):
            self.fail(f"expected {GAP_ID_HEX_DIGITS} lower-case hex digits, got {ascii(value)[:80]}", param, ctx)
        return value


@click.command("audit", short_help="Hold a table's history to receipts and proofs.")
@json_option
@click.argument("table", required=False, metavar="[TABLE]")
@click.option("--bundle", type=PlaceType(), metavar="FILE", help="Audit an exported bundle instead; asks no Steward.")
@click.option("--export", type=PlaceType(), metavar="FILE", help="Keep all the evidence in one bundle.")
@click.option("--rehash", is_flag=True, help="Read every live data file that a proof binds, and all manifests, again.")
@click.option(
    "--accept-gap",
    "accepted",
    type=GapIdType(),
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
@judge_options
@service_options
def audit_command(
    *,
    as_json: bool,
    table: str | None,
    bundle: Path | None,
    export: Path | None,
    rehash: bool,
    accepted: tuple[str, ...],
    accept_lost: tuple[int, ...],
    by: JudgedBy,
    service: Service,
) -> int:
    """Walk the history of TABLE's main. Every snapshot since the table was protected must have a receipt and proofs
    that hold, and must add and remove exactly the files that the proofs bind. What lies before is listed as unproved.

    Ends with 3 if something does not hold: an unproved snapshot, changed bytes, a receipt whose snapshot main lacks and
    that is not accepted with --accept-lost, or a time without protection (a gap) that is not accepted with
    --accept-gap. What is accepted stays in the report. A break-glass publication is flagged and holds. --rehash reads
    files from where the table says they lie, so the lake must be reachable from here.

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
    if bundle is not None and (by.root_file is None or export is not None):
        raise click.UsageError("--bundle needs --trust-root, and cannot be exported again")
    if export is not None:
        require_new(export)
    if bundle is not None:
        found = _read_bundle(bundle)
        judge = by.judge()
        again = own_files(found.evidence) if rehash else None
        report = _audited(found.evidence, found, judge, by, again, accepted, accept_lost)
    else:
        with service.connect() as client:
            for _ in range(AUDIT_TRIES_MAX):
                judge = by.judge(client)
                evidence = gather(client, table or "")
                files = RecordingFiles(_served(client, evidence)) if export is not None else _served(client, evidence)
                again = files_of(client, evidence) if rehash else None
                report = _audited(evidence, files, judge, by, again, accepted, accept_lost)
                if not _has_moved(report):
                    break
        if export is not None and isinstance(files, RecordingFiles):
            write_new(export, AuditBundle(evidence, files.read_files).to_bytes())
    _tell(report, judge, export, own=by.root_file is not None, as_json=as_json)
    return 0 if report.holds else VerificationError.exit_code


def _has_moved(report: AuditReport) -> bool:
    """Whether a snapshot of the evidence may have expired at the Steward before its files were asked for."""
    found = (*report.findings, *(each for snapshot in report.snapshots for each in snapshot.findings))
    return any(each.code == Code.AUDIT_SNAPSHOT_UNKNOWN for each in found)


def _served(client: StewardClient, evidence: Evidence) -> ManifestFiles:
    lists = (snapshot.manifest_list for snapshot in table_document(evidence).snapshots)
    return ServedFiles(client, evidence.table.name, frozenset(each for each in lists if each is not None))


def _read_bundle(path: Path) -> AuditBundle:
    data = read_file(path, size_max_bytes=AUDIT_BUNDLE_MAX_BYTES)
    require_json(path, data, "an audit bundle")
    if not is_audit_bundle(data):
        raise Code.FILE_KIND_WRONG(
            f"{path} is not an audit bundle", expected="what `pvdm audit --export` wrote", got="another kind of file"
        )
    return parse_audit_bundle(data)


def _audited(
    evidence: Evidence,
    files: ManifestFiles,
    judge: Judge,
    by: JudgedBy,
    again: Files | None,
    accepted: Collection[str],
    accept_lost: Collection[int],
) -> AuditReport:
    judged = AuditJudge(judge.root, origin_of(judge.root, by.origin), judge.at)
    lost = frozenset(accept_lost)
    with watch_on_screen() as watch:
        report = audit(evidence, files, judged, again=again, accepted=accepted, accept_lost=lost, watch=watch)
    return report if judge.pin is not None else replace(report, not_shown=(UNPINNED, *report.not_shown))


def _tell(report: AuditReport, judge: Judge, export: Path | None, *, own: bool, as_json: bool) -> None:
    if as_json:
        facts: dict[str, object] = {"trust_root": {**judge.to_json(), "own": own}, "judged_at": judge.at}
        say_json({**report.to_json(), **facts, "out": None if export is None else str(export)})
        return
    for line, style in report_lines(report):
        say(line, style=style)
    if export is not None:
        say(f"all of it is in {export}; `pvdm audit --bundle {export}` needs the trust root only")
        if not own:
            say("  which `pvdm keys root fetch --out roots.json` writes, and its hash for --root-sha256 tells")
