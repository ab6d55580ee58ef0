"""`pvdm steward restore` and `release-claim`: a backup of the ledger comes back, and what it has forgotten is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pvdm.cli.common.confirm import require_yes
from pvdm.cli.common.options import PlaceType, json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.times import utc
from pvdm.cli.keys.root_spec import read_public
from pvdm.cli.proof.text import LOUD
from pvdm.cli.steward.steward import config_option, opened_notary, steward
from pvdm.ledger.record import restores
from pvdm.model.printable import counted, view_json

if TYPE_CHECKING:
    from pvdm.ledger import Unit
    from pvdm.steward.restore.restore import Restored

_RESTORE_MEANS = (
    ("a restore cannot be undone: every token is revoked, what is under way is given up, and no workload opens", LOUD),
    ("until a trust root names the keys of the new epoch. Stop the service first.", None),
)
_EVER_PROTECTED = (
    "never drop it: it was protected once, and nobody can register it again; write its rows again, or protect it"
    " and publish them"
)
_NEVER_PROTECTED = "write its rows again; or drop it without a purge, and register the right document"


@steward.command("restore", short_help="Bring a backup of the ledger back into service.")
@json_option
@config_option
@click.option("--operator", required=True, metavar="NAME", help="Who restores; it is logged.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is logged.")
@click.option("--archive", type=PlaceType(folder=True), metavar="DIR", help="The archive; else steward.toml's own.")
@click.option(
    "--log-key",
    "log_keys",
    type=PlaceType(),
    multiple=True,
    metavar="FILE.pub",
    help="A lost log key; may be repeated.",
)
@click.option("--lost-origin", metavar="LOG", help="Give up what no archive has: the old log's name.")
@click.option("--accept-missing", is_flag=True, help="Go on without envelopes that the archive lacks; it is logged.")
@click.option("--accept-lost", is_flag=True, help="Go on without publications whose documents or files are gone.")
@click.option(
    "--accept-unreadable", is_flag=True, help="Go on with tables that cannot be read: their document is gone."
)
@click.option("--again", is_flag=True, help="Restore though this ledger was restored before and lacks nothing.")
@click.option("--confirm-clock", is_flag=True, help="Say that the clock is right after a long rest; it is noted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def steward_restore(*, as_json: bool, config: Path, log_keys: tuple[Path, ...], yes: bool, **asked: Any) -> None:
    """After a backup of the ledger was put back: reconcile it with the log, and begin a new epoch.

    A restored ledger has forgotten what came after the backup. The log is refilled from the archive up to the
    checkpoint that is kept outside. Each table shows the newest document that a receipt binds, once its bytes were
    checked again. Protections, migrations, verdicts and overrides come back from their signed statements. Proofs that
    were outstanding die with their epoch; every token is revoked; the restore itself is logged. One that was
    interrupted is finished by running it again; until then nothing starts.

    Without an archive that has every entry it is refused. With --lost-origin the log goes on under the new origin of
    steward.toml, and its first entry there says what was lost. A publication whose document or files are gone stops
    the restore; with --accept-lost it is named, and is to be published again. So does a table whose document is gone,
    while no receipt binds a newer one; with --accept-unreadable it is named, and stays unreadable.

    \b
    Examples:
      pvdm steward restore --config steward.toml --operator ruth --reason "disk failed" --archive archive/
    """
    from pvdm.steward.config.resources import archive_folder
    from pvdm.steward.config.steward import load_config
    from pvdm.steward.restore.restore import Order, restore

    ders = tuple(read_public(path).der for path in log_keys)
    loaded = load_config(config)
    if not yes:
        require_yes("restore this Steward?", _RESTORE_MEANS)
    done = restore(loaded, Order(**{**asked, "archive": asked["archive"] or archive_folder(loaded)}, log_keys=ders))
    if as_json:
        say_json(view_json(done))
    elif done.repeated:
        say("nothing to restore: this ledger was restored before, and its log lacks nothing. Nothing was changed.")
        say("hint: if another backup was put in its place since then, restore with --again: it revokes every token")
    else:
        _tell(done)


def _tell(done: Restored) -> None:
    say(f"restored: the backup had {_entries(done.backup_size)}, the checkpoint outside {done.outside_size:,}")
    say(f"  refilled   {_entries(done.refilled)}, {done.missing:,} of them without their envelope")
    if done.lost:
        say(f"  *** LOST *** {_entries(done.lost)} that no archive has", style=LOUD)
    for table in done.advanced:
        made = ", which the backup lacked" if table.created else ""
        say(f"  advanced   {table.table}{made}: main shows snapshot {table.snapshot_id or 'none'}")
    for shown in done.unreceipted:
        of = f"{shown.table}, snapshot {shown.snapshot_id}, chunk {shown.chunk_id} of workload {shown.workload_id}"
        say(f"  unreceipted {of}: shown without a receipt; it is not to be published again", style="yellow")
    for lost in done.lost_publications:
        say(f"  *** LOST *** {lost.table}, snapshot {lost.snapshot_id} of workload {lost.workload_id}", style=LOUD)
        say(f"             {lost.code}: {lost.why}")
        if lost.file != lost.metadata_path:
            say(f"             document {lost.metadata_path}")
    for unreadable in done.unreadable:
        say(
            f"  *** UNREADABLE *** {unreadable.table}: bring its document back, or restore a younger backup", style=LOUD
        )
        say(f"             {unreadable.code}: {unreadable.why} ({unreadable.metadata_path})")
    for behind in done.behind:
        say(f"  behind     {behind.table}: not protected, and newer documents lie there than the one that it shows")
        say(f"             {_EVER_PROTECTED if behind.was_protected else _NEVER_PROTECTED}")
    for left in done.unregistered:
        named = left.table or "a table whose name is in no document"
        say(f"  unregistered {named}, UUID {left.table_uuid}: the backup lacks it, and no receipt is about it")
        say(f"             register it if it is wanted: {left.metadata_path}")
    for ended in done.unprotected:
        say(f"  unprotected {ended.table}: protection ended at {utc(ended.ended_at)}; drop it if it was dropped")
    say(f"  abandoned  {counted(len(done.abandoned), 'open workload')}{_listed(done.abandoned)}")
    for workload_id in done.published:
        say(f"  published  workload {workload_id}, which the backup has open: do not publish it again")
        say(f"             chunks and snapshots: pvdm status --workload-id {workload_id}")
    say(f"  settled    {counted(len(done.settled), 'attempt')} by receipts")
    say(f"  revoked    {counted(done.tokens, 'token')}")
    say(f"  void       {counted(done.nonces, 'nonce')} of overrides and challenges that waited")
    for blocked in done.blocked:
        say(f"  blocked    {blocked.table}: it is unknown which rows workload {blocked.workload_id} took")
        say(f"             compare it with its source, then: pvdm steward release-claim {blocked.receipt_id} …")
    for held in done.protected:
        say(f"  protected  {held.kind} {held.name}: under its contract of the log again, {held.contract_sha256}")
    for again in done.remade:
        say(f"  remade     {again.table}: migration {again.migration_id} is in force again")
    if done.migrated:
        say(f"  migrated   {', '.join(done.migrated)}: the change is lost; propose it again", style="yellow")
    say(f"  epoch      {done.new_epoch} is the new one; name its keys in the trust root, then activate it")
    say(f"  log        {_entries(done.log_size)}")
    if done.lost_publications:
        say("hint: publish what is lost again, under its own workload id or another; audits report its receipts")
    say("hint: issue new tokens with `pvdm steward token issue`; those of before the restore open nothing any more")


def _entries(count: int) -> str:
    return counted(count, "entry", "entries")


def _listed(names: Sequence[str]) -> str:
    return f": {', '.join(names)}" if names else ""


@steward.command("release-claim", short_help="Say that a table was compared after a restore.")
@json_option
@click.argument("receipt_id", metavar="RECEIPT_ID")
@config_option
@click.option("--operator", required=True, metavar="NAME", help="Who has compared; it goes into the step log.")
@click.option("--reason", required=True, metavar="TEXT", help="What was found; it goes into the step log.")
def steward_release_claim(*, as_json: bool, receipt_id: str, config: Path, operator: str, reason: str) -> None:
    """Let workloads claim rows of a table again whose claims a restore has lost (`claim_lost`).

    Compare the table with its source first: after this, rows that the receipt published can be published again.

    \b
    Examples:
      pvdm steward release-claim RECEIPT_ID --config steward.toml --operator ruth --reason "compared, day by day"
    """

    def work(unit: Unit) -> None:
        restores.release_lost_claim(unit, receipt_id, operator=operator, reason=reason)

    with opened_notary(config) as notary:
        notary.ledger.transact(work, at_micros=notary.clock.now_micros())
    if as_json:
        say_json({"receipt_id": receipt_id, "released_by": operator})
        return
    say(f"released: workloads may claim what receipt {receipt_id} published")
