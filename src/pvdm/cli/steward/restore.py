"""`pvdm steward restore` reconciles a ledger backup with the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pvdm.cli.common.commands import wants_json
from pvdm.cli.common.options import path_option
from pvdm.cli.common.screen import ALERT, require_yes, say, say_json
from pvdm.cli.common.times import utc
from pvdm.cli.keys.root_spec import read_public_key
from pvdm.cli.steward.steward import config_option, steward
from pvdm.model.printable import counted, view_json

if TYPE_CHECKING:
    from pvdm.steward.restore.restore import RestoreResult

_CONSEQUENCES = (
    ("a restore cannot be undone: it revokes every token and abandons open workloads. No workload opens", ALERT),
    ("until a trust root names the keys of the new epoch. Stop the service first.", None),
)
_WAS_PROTECTED_HINT = (
    "never drop it: it was protected once, and cannot be registered again; write its rows again, or protect it"
    " and publish them"
)
_NEVER_PROTECTED_HINT = "write its rows again; or drop it without a purge, and register the right metadata file"


@steward.command("restore", short_help="Reconcile a restored backup of the ledger.")
@config_option
@click.option("--operator", required=True, metavar="NAME", help="Who restores; it is logged.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is logged.")
@path_option("--archive", folder=True, help="The archive.  [default: steward.toml's]")
@path_option("--log-key", "log_keys", multiple=True, metavar="FILE.pub", help="A public log key that the backup lacks.")
@click.option("--lost-origin", metavar="LOG", help="The old log's name: accept the loss of what no archive has.")
@click.option("--accept-missing", is_flag=True, help="Continue without envelopes that the archive lacks; it is logged.")
@click.option("--accept-lost", is_flag=True, help="Continue without publications whose metadata or files are lost.")
@click.option("--accept-unreadable", is_flag=True, help="Continue; tables whose metadata is lost stay unreadable.")
@click.option("--again", is_flag=True, help="Restore again a ledger that was restored before and lacks nothing.")
@click.option("--confirm-clock", is_flag=True, help="Confirm that the clock is right after a long stop; it is logged.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def steward_restore(*, config: Path, log_keys: tuple[Path, ...], yes: bool, **options: Any) -> None:
    """After a backup of the ledger was put back: reconcile it with the log, and begin a new epoch.

    A restored ledger lacks everything after the backup. The log is refilled from the archive up to the outside
    checkpoint. Each table gets the newest metadata that a receipt binds, after its bytes are checked again.
    Protections, migrations, claim releases, verdicts and overrides are restored from their signed statements. Unused
    proofs are no longer valid, every token is revoked, and the restore itself is logged. If it is interrupted, run it
    again; until then the Steward does not start.

    A restore without an archive that has every entry is refused. With --lost-origin the log continues under the new
    origin of steward.toml, and its first entry there states what was lost. A publication whose metadata or files are
    lost stops the restore; with --accept-lost it is listed, and must be published again unless its line says otherwise.
    A table whose metadata is lost also stops the restore if no receipt binds newer metadata; with --accept-unreadable
    it is listed, and stays unreadable.

    \b
    Examples:
      pvdm steward restore --config steward.toml --operator ruth --reason "disk failed" --archive archive/
    """
    from pvdm.steward.config.resources import archive_folder
    from pvdm.steward.config.steward import load_config
    from pvdm.steward.restore.restore import RestoreRequest, restore

    log_keys_der = tuple(read_public_key(path).der for path in log_keys)
    loaded = load_config(config)
    if not yes:
        require_yes("restore this Steward?", _CONSEQUENCES)
    options["archive"] = options["archive"] or archive_folder(loaded)
    done = restore(loaded, RestoreRequest(**options, log_keys=log_keys_der))
    if wants_json():
        say_json(view_json(done))
    elif done.repeated:
        say("nothing to restore: this ledger was restored before, and its log lacks nothing. Nothing was changed.")
        say("hint: if another backup was put in its place since then, restore with --again: it revokes every token")
    else:
        _show(done)


def _show(done: RestoreResult) -> None:
    say(f"restored: the backup had {_entries(done.backup_size)}, the outside checkpoint {done.outside_size:,}")
    say(f"  refilled   {_entries(done.refilled)}, {done.missing:,} of them without their envelope")
    if done.lost:
        say(f"  *** LOST *** {_entries(done.lost)} that no archive has", style=ALERT)
    for table in done.advanced:
        created = ", which the backup lacked" if table.created else ""
        say(f"  advanced   {table.table}{created}: main shows snapshot {table.snapshot_id or 'none'}")
    for each in done.unreceipted:
        publication = f"{each.table}, snapshot {each.snapshot_id}, chunk {each.chunk_id} of workload {each.workload_id}"
        say(f"  unreceipted {publication}: main shows it without a receipt; do not publish it again", style="yellow")
    for lost in done.lost_publications:
        say(f"  *** LOST *** {lost.table}, snapshot {lost.snapshot_id} of workload {lost.workload_id}", style=ALERT)
        say(f"             {lost.code}: {lost.why}")
        if lost.file != lost.metadata_path:
            say(f"             metadata file {lost.metadata_path}")
    for unreadable in done.unreadable:
        next_step = "put its metadata file back, or restore a newer backup"
        say(f"  *** UNREADABLE *** {unreadable.table}: {next_step}", style=ALERT)
        say(f"             {unreadable.code}: {unreadable.why} ({unreadable.metadata_path})")
    for behind in done.behind:
        say(f"  behind     {behind.table}: not protected, and newer metadata files exist than the one that it shows")
        say(f"             {_WAS_PROTECTED_HINT if behind.was_protected else _NEVER_PROTECTED_HINT}")
    for unregistered in done.unregistered:
        name = unregistered.table or "a table whose name is in no metadata file"
        say(f"  unregistered {name}, UUID {unregistered.table_uuid}: the backup lacks it, and no receipt is about it")
        say(f"             register it if it is wanted: {unregistered.metadata_path}")
    for ended in done.unprotected:
        say(f"  unprotected {ended.table}: protection ended at {utc(ended.ended_at)}; drop it if it was dropped")
    names = f": {', '.join(done.abandoned)}" if done.abandoned else ""
    say(f"  abandoned  {counted(len(done.abandoned), 'open workload')}{names}")
    for workload_id in done.published:
        say(f"  published  workload {workload_id}, which the backup has open, at least in part: its id is used up")
        say(f"             chunks, and what to do for missing ones: pvdm status --workload-id {workload_id}")
    for workload_id in sorted({*done.spent} - {*done.published}):
        say(f"  spent      workload {workload_id}, not in the backup, published at least in part: its id is used up")
        say(f"             chunks, and what to do for missing ones: pvdm status --workload-id {workload_id}")
    say(f"  settled    {counted(len(done.settled), 'attempt')} by receipts")
    say(f"  revoked    {counted(done.tokens, 'token')}")
    say(f"  void       {counted(done.nonces, 'nonce')} of unused overrides and challenges")
    for blocked in done.blocked:
        say(f"  blocked    {blocked.table}: it is unknown which rows workload {blocked.workload_id} claimed")
        say(f"             compare it with its source, then: pvdm claims release {blocked.receipt_id} …")
    for protected in done.protected:
        target = f"{protected.kind} {protected.name}"
        say(f"  protected  {target}: again under contract {protected.contract_sha256}, as the log says")
    for remade in done.remade:
        say(f"  remade     {remade.table}: migration {remade.migration_id} is in force again")
    if done.unmigrated:
        say(f"  unmigrated {', '.join(done.unmigrated)}: the change is lost; propose it again", style="yellow")
    say(f"  epoch      {done.new_epoch} is the new one; name its keys in the trust root, then activate it")
    say(f"  log        {_entries(done.log_size)}")
    if done.lost_publications:
        say("hint: publish what is lost again, under its own workload id or another; audits report its receipts")
    say("hint: issue new tokens with `pvdm steward token issue`; those from before the restore are revoked")


def _entries(count: int) -> str:
    return counted(count, "entry", "entries")
