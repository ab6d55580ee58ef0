"""`pvdm quarantine`: what failed and is kept, shown to operators and removed by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from pvdm.cli.common.options import json_option, require_command
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.common.times import SECOND, DurationType, utc
from pvdm.model.printable import counted, view_json

if TYPE_CHECKING:
    from pvdm.client import QuarantinedView, QuarantineRemovalView, StewardClient

_AT_ONCE: Final = 100


@click.group("quarantine", invoke_without_command=True, short_help="Files of failed attempts: list, remove.")
@click.pass_context
def quarantine(context: click.Context) -> None:
    """Files of attempts that failed, kept outside of their tables as evidence.

    \b
    Examples:
      pvdm quarantine list sales.orders
      pvdm quarantine remove --older-than 90d --reason "kept for 90 days" --dry-run
    """
    require_command(context)


@quarantine.command("list", short_help="What is kept, and whose it is.")
@json_option
@click.argument("table", metavar="[TABLE]", required=False)
@service_options
def listed(*, as_json: bool, table: str | None, service: Service) -> None:
    """List failed attempts whose files are kept, oldest first, with the proof that says what failed.

    Without TABLE those of every table that your token reaches, dropped tables included. What may still be published is
    marked: it cannot be removed. Files of attempts that the ledger does not know, as after a restore from a backup,
    come last, with the time when they were written; they are removed by the same command.

    \b
    Examples:
      pvdm quarantine list
      pvdm quarantine list sales.orders --json | jq '.quarantine[] | select(.undecided == null) | .attempt_id'
    """
    with service.connect() as client:
        found = list(_all(client, table))
    if as_json:
        say_json({"quarantine": [view_json(each) for each in found]})
        return
    for each in found:
        _say_kept(each)
    _say_total(found, "in quarantine")


@quarantine.command("remove", short_help="Remove files of failed attempts for good.")
@json_option
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--older-than", type=DurationType(), metavar="DURATION", help="What failed longer ago, such as 90d.")
@click.option("--attempt", "attempts", multiple=True, metavar="ATTEMPT_ID", help="This attempt; may be repeated.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it stays in the ledger with your name.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@service_options
def remove(
    *,
    as_json: bool,
    table: str | None,
    older_than: int | None,
    attempts: tuple[str, ...],
    reason: str,
    dry_run: bool,
    service: Service,
) -> None:
    """Remove the files of failed attempts, by age or by id, as an operator. They cannot be brought back.

    Proofs, findings and the step log stay, and a record of the removal with your name and the reason. What may still be
    published, since its workload is open and its chunk is not published, is never removed: with --older-than it is kept
    and shown, with --attempt nothing is removed and the command ends with 5.

    \b
    Examples:
      pvdm quarantine remove --older-than 90d --reason "kept for 90 days" --dry-run
      pvdm quarantine remove sales.orders --older-than 90d --reason "kept for 90 days"
      pvdm quarantine remove --attempt 4f1c… --reason "holds personal data" --json | jq '.removed[].files'
    """
    if (older_than is None) == (not attempts):
        raise click.UsageError("say what goes: --older-than DURATION, or --attempt ATTEMPT_ID")
    with service.connect() as client:
        found = [each for each in _all(client, table) if _is_meant(each, older_than, attempts)]
        goes = [each for each in found if each.undecided is None]
        kept = [each for each in found if each.undecided is not None]
        # By id the Steward is asked for each: it refuses what may not go, and what is not there.
        ids = list(attempts) if attempts and not dry_run else [each.attempt_id for each in goes]
        gone = [] if dry_run else list(_removed(client, ids, reason))
    if as_json:
        told = [view_json(each) for each in (goes if dry_run else gone)]
        say_json({"dry_run": dry_run, "removed": told, "kept": [view_json(each) for each in kept]})
        return
    removed = {each.attempt_id for each in gone}
    for each in found:
        if dry_run or each.undecided is not None or each.attempt_id in removed:
            _say_kept(each)
    _say_total(goes, "would be removed" if dry_run else "removed")


def _is_meant(each: QuarantinedView, older_than: int | None, attempts: Sequence[str]) -> bool:
    if older_than is None:
        return each.attempt_id in attempts
    return each.age_seconds * SECOND > older_than


def _all(client: StewardClient, table: str | None) -> Iterator[QuarantinedView]:
    after = None
    while page := client.quarantine(table=table, after=after):
        yield from page
        after = page[-1].attempt_id


def _removed(client: StewardClient, ids: Sequence[str], reason: str) -> Iterator[QuarantineRemovalView]:
    for start in range(0, len(ids), _AT_ONCE):
        yield from client.remove_quarantined(ids[start : start + _AT_ONCE], reason)


def _say_kept(each: QuarantinedView) -> None:
    what = f"{counted(each.files, 'file')}, {counted(each.bytes, 'byte')}"
    say(f"{each.attempt_id}  {utc(each.failed_at)}  {each.table or each.table_uuid}  {what}", style="bold")
    if each.workload_id is None:
        say("  of an unknown attempt: the ledger has no record of it, as after a restore from a backup", style="yellow")
    else:
        say(f"  workload {each.workload_id}, chunk {each.chunk_id}, verdict {each.verdict or 'none'}")
    if each.proof_id is not None:
        say(f"  proof {each.proof_id}")
    if each.undecided is not None:
        say(f"  kept: {each.undecided}", style="yellow")


def _say_total(found: Sequence[QuarantinedView], word: str) -> None:
    files, size = sum(each.files for each in found), sum(each.bytes for each in found)
    what = f"{counted(len(found), 'attempt')}, {counted(files, 'file')}, {counted(size, 'byte')}"
    say(f"{what} {word}", style="bold")
