"""`pvdm demo`: one good publication and seven refused ones, on real Spark and Iceberg."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pvdm.cli.common.commands import command, wants_json
from pvdm.cli.common.options import number_option, path_option, seed_option
from pvdm.cli.common.screen import Line, notice, say, say_json, say_lines
from pvdm.errors import Code, PvdmError, comparison
from pvdm.model.printable import counted, printable

if TYPE_CHECKING:
    from pvdm.evaluation.scenes import Scene, SceneResult
    from pvdm.evaluation.shop import DemoLake
    from pvdm.metadata.audit.report import AuditedSnapshot, AuditReport

ROWS: Final = 5_000
ROWS_MIN: Final = 100
ROWS_MAX: Final = 1_000_000
SEED: Final = 7
MASK: Final = "…"
_DIFFERS_BY_RUN: Final = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # UUIDs
    r"|\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b"  # hashes and ids
    r"|(?:file:)?/\S+\.parquet\b"  # files
    r"|\b\d+(?= bytes\b)"  # sizes
)
_PUBLISHED: Final = "COMMITTED"


@command()
@seed_option(SEED)
@number_option("--rows", ROWS, least=ROWS_MIN, most=ROWS_MAX, help_text="Orders to make.")
@path_option(
    "--keep", folder=True, help="Keep the Steward, its keys, the tables and the contracts in this new or empty folder."
)
@path_option("--store", help="A file with [catalog] and [s3] as in a steward.toml: tables in an object store.")
def demo(*, seed: int, rows: int, keep: Path | None, store: Path | None) -> None:
    """Run a Steward in this process, with real Spark and Iceberg. A clean backfill is published. Then rows are dropped,
    doubled and changed, bytes are swapped after their PASS, a proof is replayed, main is written directly, and an
    unsigned override is submitted.

    After each try the command shows the error and what a consumer sees through Spark, and at the end the audit of the
    table. If a try ends in another way than expected, the command ends with 1. Needs Java 17 and pvdm[spark].

    \b
    Examples:
      pvdm demo
      pvdm demo --rows 100000 --keep demo
      pvdm demo --store store.toml
      pvdm demo --json | jq '.scenes[] | {title, outcome, code: .error.code, consumer}'
    """
    show: Show = (lambda _: None) if wants_json() else say_lines
    with _open_folder(keep) as folder:
        notice("Spark and a Steward are started; this takes about a minute")
        scenes, report = play(folder, rows=rows, seed=seed, show=show, store=store)
    if wants_json():
        played = [scene.to_json() for scene in scenes]
        say_json({"rows": rows, "seed": seed, "kept": keep, "scenes": played, "audit": report.to_json()})
    elif keep is not None:
        config = keep / "steward" / "steward.toml"
        say(f"everything is in {keep}; its Steward is served by `pvdm steward serve --config {config}`")


Show = Callable[[Iterator[Line]], None]


def play(
    folder: Path, *, rows: int, seed: int, show: Show, store: Path | None = None
) -> tuple[list[Scene], AuditReport]:
    """Play all scenes (one try each) in the folder, audit the table, and show each result as soon as it is there."""
    # Imported late: the Steward is slow to load, and most commands work without it.
    from pvdm.evaluation import scenes
    from pvdm.evaluation.shop import open_demo_lake

    with open_demo_lake(folder, rows=rows, seed=seed, store=store) as lake:
        show(begin_lines(rows))
        played: list[Scene] = []
        for number, scene in enumerate(scenes.play(lake), 1):
            show(scene_lines(number, scene))
            played.append(scene)
        report = audit_orders(lake)
        show(audit_lines(report))
        show(end_lines(played))
    return played, report


def audit_orders(lake: DemoLake) -> AuditReport:
    """Audit the table and read every live file again, as `pvdm audit --rehash` does. Raises on an unexpected result."""
    from pvdm.cli.common.trust_roots import verify_trust
    from pvdm.cli.evidence.audit import ServedFiles, gather_evidence, open_lake_files
    from pvdm.evaluation.scenes import FIRST_WORKLOAD
    from pvdm.evaluation.shop import DOMAIN, ORDERS
    from pvdm.metadata.audit.audit import AuditTrust, audit
    from pvdm.model.role import Role
    from pvdm.trust.bundle import resolve_log_origin

    with lake.steward.as_role(Role.AUDITOR, DOMAIN) as client:
        basis = verify_trust(client.trust_root().chain, pin=lake.steward.pin, at=None)
        evidence = gather_evidence(client, ORDERS)
        trust = AuditTrust(basis.root, resolve_log_origin(basis.root, None), basis.at)
        report = audit(evidence, ServedFiles(client, evidence), trust, data_files=open_lake_files(client, evidence))
    workload_ids = [snapshot.workload_id for snapshot in report.snapshots]
    if not report.holds or workload_ids != [FIRST_WORKLOAD]:
        result = "holds" if report.holds else "does not hold"
        expected, got = f"[{FIRST_WORKLOAD!r}] holds", f"{workload_ids} {result}"
        raise Code.BUG("the audit is not what the demo expects", reason="demo_failed", expected=expected, got=got)
    return report


@contextlib.contextmanager
def _open_folder(keep: Path | None) -> Iterator[Path]:
    """A temporary folder, or `keep` itself: files cannot be moved there later, as tables name them by full paths."""
    try:
        if keep is None:
            # Spark's process may still be removing its files.
            with tempfile.TemporaryDirectory(prefix="pvdm-demo-", ignore_cleanup_errors=True) as folder:
                yield Path(folder)
            return
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Code.OUTPUT_REFUSED(f"{keep} is not empty", reason="folder_not_empty", got="a folder in use")
        yield keep.resolve()
    except OSError as error:
        message = f"{keep or 'the temporary folder'} cannot be used"
        hint = "name another folder with --keep"
        got = error.strerror or str(error)
        raise Code.OUTPUT_REFUSED(message, reason="folder_not_writable", got=got, hint=hint) from error


def begin_lines(rows: int) -> Iterator[Line]:
    """The tables before the first scene."""
    yield f"raw.orders in Iceberg: {rows:,} orders of two days from two shops, one file from each", None
    yield "sales.orders is protected: its contract appends a day, a chunk for each file, all of it or nothing", None


def scene_lines(number: int, scene: Scene) -> Iterator[Line]:
    """What was tried, its result, and what a consumer sees."""
    result = scene.result
    yield "", None
    yield f"{number}. {scene.title}", "bold"
    yield f"   {_outcome_text(result)}", "green" if result.outcome == _PUBLISHED else "bold red"
    if result.error is not None:
        for line in _error_lines(result.error):
            yield f"   {mask(line, scene.names)}", None
    yield f"   a consumer of {scene.table} sees {scene.seen}", "cyan"


def audit_lines(report: AuditReport) -> Iterator[Line]:
    """Every snapshot of main, and whether its history holds."""
    yield "", None
    yield f"audit of {report.table.name}", "bold"
    for approval in report.approvals:
        yield f"   protected by {approval.operator}, reason: {approval.reason}", None
    for snapshot in report.snapshots:
        yield f"   {_snapshot_text(snapshot)}", "green" if not snapshot.findings else "bold red"
    if report.rehashed is not None:
        yield f"   {counted(report.rehashed.data_files, 'data file')} read again and compared with the proofs", None
    counts = ", ".join(f"{count} {name}" for name, count in report.counts.items() if count)
    if report.holds:
        yield f"   no violations in the history of main: {counts}", "bold green"
    else:
        yield f"   violations in the history of main; its snapshots: {counts}", "bold red"


def end_lines(scenes: Sequence[Scene]) -> Iterator[Line]:
    """How many scenes published something."""
    published = sum(scene.result.outcome == _PUBLISHED for scene in scenes)
    yield "", None
    yield f"{len(scenes)} tries, {published} published; no proof, no snapshot", "bold"


def mask(text: str, names: Mapping[str, str]) -> str:
    """The text without what differs from run to run; UUIDs of tables are replaced by the tables' names."""

    def replacement(found: re.Match[str]) -> str:
        return f"the UUID of {names[found[0]]}" if found[0] in names else MASK

    return _DIFFERS_BY_RUN.sub(replacement, printable(text))


def _outcome_text(result: SceneResult) -> str:
    if result.outcome == _PUBLISHED:
        return f"{result.outcome}: {result.chunks} chunks staged by Spark, verified from their files, published at once"
    classes = f" ({', '.join(result.classes)})" if result.classes else ""
    return f"{result.outcome.upper()}{classes}"


def _error_lines(error: PvdmError) -> Iterator[str]:
    check = "" if error.check is None else f", check {error.check} of the gate"
    yield f"error: {error.message} ({error.reason}{check})"
    if tail := comparison(error.expected, error.got):
        yield f"  {tail}"
    if error.hint is not None:
        yield f"hint: {error.hint}"


def _snapshot_text(snapshot: AuditedSnapshot) -> str:
    rows, files = counted(snapshot.rows_added or 0, "row"), counted(snapshot.files_added or 0, "file")
    proofs = counted(len(snapshot.proof_ids), "proof")
    return f"+{rows} in {files} by {snapshot.workload_id}: {snapshot.standing.value}, a receipt and {proofs}"
