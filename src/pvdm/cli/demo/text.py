"""The demo in lines for people: the same at every run, since ids, hashes, sizes and places are left out of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pvdm.cli.proof.text import Line
from pvdm.errors import comparison
from pvdm.model.printable import counted, printable

if TYPE_CHECKING:
    from pvdm.evaluation.orders import Sight
    from pvdm.evaluation.scenes import Played, Scene
    from pvdm.metadata.audit.report import AuditedSnapshot, AuditReport

MASK: Final = "…"
_CHANGING: Final = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # UUIDs
    r"|\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b"  # hashes and ids
    r"|(?:file:)?/\S+\.parquet\b"  # files
    r"|\b\d+(?= bytes\b)"
)
_WORKED: Final = "COMMITTED"


def begin_lines(rows: int) -> Iterator[Line]:
    """What is there before the first scene."""
    yield f"raw.orders in Iceberg: {rows:,} orders of two days from two shops, one file from each", None
    yield "sales.orders is protected: its contract appends a day, a chunk for each file, all of it or nothing", None


def scene_lines(number: int, scene: Scene) -> Iterator[Line]:
    """What was tried, what came of it, and what a consumer sees."""
    played = scene.played
    yield "", None
    yield f"{number}. {scene.title}", "bold"
    yield f"   {_outcome(played)}", "green" if played.outcome == _WORKED else "bold red"
    for line in _error(played, scene.names):
        yield f"   {line}", None
    yield f"   a consumer of {scene.table} sees {_seen(scene.seen)}", "cyan"


def audit_lines(report: AuditReport) -> Iterator[Line]:
    """Every snapshot of main, and whether its history holds."""
    yield "", None
    yield f"audit of {report.table.name}", "bold"
    for approval in report.approvals:
        yield f"   protected by {approval.operator}: {approval.reason}", None
    for each in report.snapshots:
        yield f"   {_snapshot(each)}", "green" if not each.findings else "bold red"
    if report.rehashed is not None:
        yield f"   {counted(report.rehashed.data_files, 'data file')} read again: the bytes that the proofs bind", None
    counts = ", ".join(f"{count} {name}" for name, count in report.counts.items() if count)
    found = (
        "no violations in the history of main:" if report.holds else "violations in the history of main; its snapshots:"
    )
    yield f"   {found} {counts}", "bold green" if report.holds else "bold red"


def end_lines(scenes: Sequence[Scene]) -> Iterator[Line]:
    """What the whole shows."""
    worked = sum(scene.played.outcome == _WORKED for scene in scenes)
    yield "", None
    yield f"{len(scenes)} tries, {worked} published; no proof, no snapshot", "bold"


def masked(text: str, names: Mapping[str, str]) -> str:
    """The text without what is another at every run; tables are named by their names, and not by their UUIDs."""

    def instead(found: re.Match[str]) -> str:
        return f"the UUID of {names[found[0]]}" if found[0] in names else MASK

    return _CHANGING.sub(instead, printable(text))


def _outcome(played: Played) -> str:
    if played.outcome == _WORKED:
        return f"{played.outcome}: {played.chunks} chunks staged by Spark, verified from their files, published at once"
    classes = f" ({', '.join(played.classes)})" if played.classes else ""
    return f"{played.outcome.upper()}{classes}"


def _error(played: Played, names: Mapping[str, str]) -> Iterator[str]:
    told = played.told
    if told is None:
        return
    at = "" if told.check is None else f", check {told.check} of the gate"
    yield masked(f"error: {told.message} ({told.code}{at})", names)
    if tail := comparison(told.expected, told.got):
        yield masked(f"  {tail}", names)
    if told.hint is not None:
        yield masked(f"hint: {told.hint}", names)


def _snapshot(each: AuditedSnapshot) -> str:
    proofs = len(each.proof_ids)
    return (
        f"+{counted(each.rows_added or 0, 'row')} in {counted(each.files_added or 0, 'file')} by {each.workload_id}:"
        f" {each.standing.value}, a receipt and {counted(proofs, 'proof')}"
    )


def _seen(sight: Sight) -> str:
    return f"{sight.rows:,} orders, {sight.amount:,} in all"
