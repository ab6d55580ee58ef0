"""`pvdm quarantine` and `pvdm orphans`: files that attempts left behind, listed and removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.commands import command, command_group
from pvdm.cli.common.options import Service, service_options
from pvdm.cli.common.screen import Line, say_result
from pvdm.cli.common.times import DURATION_TYPE, utc
from pvdm.errors import PvdmError
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.printable import counted, view_json

if TYPE_CHECKING:
    from pvdm.api.work import QuarantinedView, QuarantineRemovalView
    from pvdm.client import StewardClient


@command_group("quarantine")
def quarantine() -> None:
    """Files of failed attempts, kept outside their tables as evidence.

    \b
    Examples:
      pvdm quarantine list sales.orders
      pvdm quarantine remove --older-than 90d --reason "kept for 90 days" --dry-run
    """


@quarantine.command("list", short_help="List failed attempts whose files are kept.")
@click.argument("table", metavar="[TABLE]", required=False)
@service_options
def quarantine_list(*, table: str | None, service: Service) -> None:
    """List failed attempts whose files are kept, oldest first, with the proof that says what failed.

    Without TABLE it lists those of every table that your token may see, dropped tables included. What may still be
    published is marked: it cannot be removed. Files of attempts that the ledger does not know, as after a restore from
    a backup, come last, with the time when they were written; `remove` removes them too.

    \b
    Examples:
      pvdm quarantine list
      pvdm quarantine list sales.orders --json | jq '.quarantine[] | select(.undecided == null) | .attempt_id'
    """
    with service.connect() as client:
        attempts = list(_fetch_quarantined(client, table))
    lines = [*(line for each in attempts for line in _attempt_lines(each)), _total_line(attempts, "in quarantine")]
    say_result({"quarantine": [view_json(each) for each in attempts]}, lines)


@quarantine.command("remove", short_help="Remove files of failed attempts for good.")
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--older-than", type=DURATION_TYPE, metavar="DURATION", help="Failed longer ago than this, such as 90d.")
@click.option("--attempt", "attempt_ids", multiple=True, metavar="ATTEMPT_ID", help="This attempt; may be repeated.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; the ledger keeps it with your name.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@service_options
def quarantine_remove(
    *,
    table: str | None,
    older_than: int | None,
    attempt_ids: tuple[str, ...],
    reason: str,
    dry_run: bool,
    service: Service,
) -> None:
    """Remove the files of failed attempts, by age or by id, as an operator. They cannot be brought back.

    Proofs, findings and the step log stay, with a record of the removal, your name and the reason. Files that may still
    be published (their workload is open, their chunk unpublished) are never removed. With --older-than they are kept
    and shown. If --attempt names such files, nothing is removed and the command ends with 5.

    \b
    Examples:
      pvdm quarantine remove --older-than 90d --reason "kept for 90 days" --dry-run
      pvdm quarantine remove sales.orders --older-than 90d --reason "kept for 90 days"
      pvdm quarantine remove --attempt 4f1c… --reason "holds personal data" --json | jq '.removed[].files'
    """
    if (older_than is not None) == bool(attempt_ids):  # both, or neither
        raise click.UsageError("name what to remove: --older-than DURATION, or --attempt ATTEMPT_ID")
    with service.connect() as client:
        selected = [
            each
            for each in _fetch_quarantined(client, table)
            if each.attempt_id in attempt_ids
            or (older_than is not None and each.age_seconds * MICROS_PER_SECOND > older_than)
        ]
        if table is not None and (others := set(attempt_ids) - {each.attempt_id for each in selected}):
            raise click.UsageError(f"no quarantined attempt of {table}: {min(others)}")
        removable = [each for each in selected if each.undecided is None]  # `undecided`: why it may still be published
        kept = [each for each in selected if each.undecided is not None]
        # The Steward refuses unknown ids, and attempts that may still be published. These ids are sent first: if the
        # Steward refuses one of them, nothing has been removed yet.
        removable_ids = [each.attempt_id for each in removable]
        ids = sorted(dict.fromkeys(attempt_ids), key=lambda each: each in removable_ids) or removable_ids
        removed = [] if dry_run else _remove(client, ids, reason)
    removed_json = [view_json(each) for each in (removable if dry_run else removed)]
    document = {"dry_run": dry_run, "removed": removed_json, "kept": [view_json(each) for each in kept]}
    done_ids = {each.attempt_id for each in removable} if dry_run else {each.attempt_id for each in removed}
    printed = [each for each in selected if each.undecided is not None or each.attempt_id in done_ids]
    total = _total_line(removable, "would be removed" if dry_run else "removed")
    say_result(document, [*(line for each in printed for line in _attempt_lines(each)), total])


def _fetch_quarantined(client: StewardClient, table: str | None) -> Iterator[QuarantinedView]:
    after = None
    while page := client.quarantine(table=table, after=after):
        yield from page
        after = page[-1].attempt_id


def _remove(client: StewardClient, ids: Sequence[str], reason: str) -> list[QuarantineRemovalView]:
    # Imported late: the API is slow to load.
    from pvdm.api.work import QUARANTINE_REMOVED_MAX

    removed: list[QuarantineRemovalView] = []
    for start in range(0, len(ids), QUARANTINE_REMOVED_MAX):
        try:
            removed += client.remove_quarantined(ids[start : start + QUARANTINE_REMOVED_MAX], reason)
        except PvdmError as error:
            if not removed:
                raise
            message = f"{error.message}; the files of {counted(len(removed), 'attempt')} were removed before"
            hint = "`pvdm quarantine list` shows what is left: name only these attempts when you repeat the command"
            raise error.with_context(message, hint=hint, removed=len(removed)) from None
    return removed


def _attempt_lines(attempt: QuarantinedView) -> Iterator[Line]:
    size = f"{counted(attempt.files, 'file')}, {counted(attempt.bytes, 'byte')}"
    table = attempt.table or attempt.table_uuid
    yield f"{attempt.attempt_id}  {utc(attempt.failed_at)}  {table}  {size}", "bold"
    if attempt.workload_id is None:
        yield "  the ledger has no record of this attempt, as after a restore from a backup", "yellow"
    else:
        verdict = attempt.verdict or "none"
        yield f"  workload {attempt.workload_id}, chunk {attempt.chunk_id}, verdict {verdict}", None
    if attempt.proof_id is not None:
        yield f"  proof {attempt.proof_id}", None
    if attempt.undecided is not None:
        yield f"  kept: {attempt.undecided}", "yellow"


def _total_line(attempts: Sequence[QuarantinedView], state: str) -> Line:
    files, size = sum(each.files for each in attempts), sum(each.bytes for each in attempts)
    return f"{counted(len(attempts), 'attempt')}, {counted(files, 'file')}, {counted(size, 'byte')} {state}", "bold"


@command("orphans")
@click.argument("table", metavar="TABLE")
@click.option("--remove", is_flag=True, help="Remove them.")
@service_options
def orphans(*, table: str, remove: bool, service: Service) -> None:
    """List files that jobs left behind and that no snapshot of any table refers to.

    These are files in the folders of ended attempts, such as a killed job leaves. After `pvdm publish` they are also
    the files of the job itself: the Steward published copies of them. Files that a running attempt or the evidence of a
    FAIL needs are not listed, nor are files of branches that were not given to `pvdm publish`.

    The Steward reads every manifest that could name one of the files, which may take minutes.

    \b
    Examples:
      pvdm orphans sales.orders
      pvdm orphans sales.orders --remove --json | jq '.orphans | length'
    """
    with service.connect() as client:
        files = client.remove_orphans(table) if remove else client.orphans(table)
    total = f"{counted(len(files), 'file')}, {counted(sum(each.size for each in files), 'byte')}"
    lines: list[Line | str] = [f"{each.size:>15,}  {each.location}" for each in files]
    lines.append((f"{total}{' removed' if remove else ''}", "bold"))
    if files and not remove:
        lines.append(f"hint: `pvdm orphans {table} --remove` removes them")
    say_result({"table": table, "removed": remove, "orphans": [view_json(each) for each in files]}, lines)
