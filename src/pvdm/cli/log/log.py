"""`pvdm log`: checks an exported log and compares checkpoints."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from pvdm.cli.common.files import read_file, require_folder
from pvdm.cli.common.options import PlaceType, json_option, require_command
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.log.statements import check_statements
from pvdm.cli.log.verifier_keys import KnownLog, LogKeys, log_key_options
from pvdm.errors import Code, VerificationError
from pvdm.model.printable import counted, view_json
from pvdm.trust.log.checkpoint import SignedCheckpoint, open_checkpoint, read_unverified
from pvdm.trust.log.export import CHECKPOINT_FILE
from pvdm.trust.log.fsck import fsck
from pvdm.trust.log.merkle import ConsistencyProof
from pvdm.trust.log.note import NOTE_SIZE_MAX_BYTES
from pvdm.trust.log.proof import compare, verify_consistency
from pvdm.trust.log.tiles import StaticTiles


@click.group("log", short_help="Check, compare and prove the transparency log.", invoke_without_command=True)
@click.pass_context
def log(context: click.Context) -> None:
    """Check an exported transparency log, compare checkpoints, and prove what is in it.

    \b
    Examples:
      pvdm log fsck exported/ --trust-root roots.json --root-sha256 HEX
      pvdm log compare mine.checkpoint theirs.checkpoint --folder exported/ --vkey KEY
      pvdm log checkpoint --url https://steward.example:8181
    """
    require_command(context)


def tiles_of(folder: Path) -> Path:
    """The folder of the tiles; an archive has them beside its statements."""
    inside = folder / "log"
    return inside if (inside / CHECKPOINT_FILE).exists() and not (folder / CHECKPOINT_FILE).exists() else folder


def read_checkpoint(path: Path, known: KnownLog | None) -> SignedCheckpoint:
    """The checkpoint of a file, its signature checked where a key is known."""
    return opened(read_file(path, size_max_bytes=NOTE_SIZE_MAX_BYTES), known)


def opened(note: bytes, known: KnownLog | None) -> SignedCheckpoint:
    """The checkpoint of a note, its signature checked where a key is known."""
    if known is None:
        return read_unverified(note)
    return open_checkpoint(note, origin=known.origin, keys=known.keys)


def checkpoint_json(signed: SignedCheckpoint) -> dict[str, object]:
    """A checkpoint for programs."""
    checkpoint = signed.checkpoint
    return {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}


@log.command("fsck", short_help="Check every file of an exported log.")
@json_option
@click.argument("folder", type=PlaceType(folder=True), metavar="FOLDER")
@log_key_options
@click.option("--since", type=PlaceType(), metavar="FILE", help="A checkpoint seen earlier, which must still hold.")
@click.option("--allow-missing-statements", "allow_missing", is_flag=True, help="An archive may lack statements.")
def log_fsck(*, as_json: bool, folder: Path, log_keys: LogKeys, since: Path | None, allow_missing: bool) -> None:
    """Check every entry, hash and file of an exported log against its signed checkpoint. Asks nobody.

    Shares no code with what wrote the files. An archive's statements are compared with their hashes too, and every
    entry must have its own. Ends with 3 at the first thing that does not hold.

    \b
    Examples:
      pvdm log fsck exported/ --vkey log.example+0c4ee527+AX…
      pvdm log fsck exported/ --trust-root roots.json --root-sha256 HEX --since last.checkpoint
    """
    known = log_keys.known()
    require_folder(folder)
    earlier = None if since is None else read_file(since, size_max_bytes=NOTE_SIZE_MAX_BYTES)
    tiles = tiles_of(folder)
    report = fsck(tiles, known.vkeys, since=earlier)
    statements = check_statements(folder, tiles, report.size, allow_missing=allow_missing)
    if as_json:
        say_json(
            {
                "holds": True,
                "origin": report.origin,
                "size": report.size,
                "root": report.root,
                "files": report.files,
                "files_beyond_checkpoint": report.files_beyond_checkpoint,
                "begins_with": None if since is None else str(since),
                "statements": None if statements is None else view_json(statements),
            }
        )
        return
    say(f"the log holds: {report.origin}, {counted(report.size, 'entry', 'entries')}", style="green")
    say(f"  root        {report.root}")
    say(f"  files       {report.files:,} read")
    if report.files_beyond_checkpoint:
        say(f"  {report.files_beyond_checkpoint:,} files lie beyond the checkpoint: an export was cut short")
    if statements is not None:
        say(f"  statements  {statements.checked:,} unchanged; {statements.entries_without:,} entries have none here")
    if since is not None:
        say(f"  it begins with {since}: nothing that was seen then was taken away or changed")


@log.command("compare", short_help="Are these checkpoints of one history?")
@json_option
@click.argument("files", type=PlaceType(), nargs=-1, required=True, metavar="CHECKPOINT...")
@log_key_options
@click.option("--folder", type=PlaceType(folder=True), metavar="DIR", help="An exported log with all of them in it.")
@service_options
def log_compare(
    *, as_json: bool, files: tuple[Path, ...], log_keys: LogKeys, folder: Path | None, service: Service
) -> None:
    """Compare checkpoints of one log that came by different ways: one history, or a fork?

    Checkpoints of different sizes need the log itself: an exported folder, or else the Steward. Two signed checkpoints
    that contradict each other end it with 3 (`log_forked`); keep both, they are the evidence.

    \b
    Examples:
      pvdm log compare mine.checkpoint theirs.checkpoint --folder exported/ --vkey KEY
      pvdm log compare monday.checkpoint today.checkpoint --trust-root roots.json --url URL
    """
    if len(files) < 2:
        raise click.UsageError("name at least two checkpoints")
    known = log_keys.known()
    if folder is not None:
        require_folder(folder)
    ordered = sorted((read_checkpoint(path, known) for path in files), key=lambda one: one.checkpoint.size)
    for older, newer in itertools.pairwise(ordered):
        require_one_history(older, newer, folder, service)
    if as_json:
        say_json({"holds": True, "checkpoints": [checkpoint_json(each) for each in ordered]})
        return
    sizes = ", ".join(f"{each.checkpoint.size:,}" for each in ordered)
    say(f"one history: {known.origin} at {sizes} entries", style="green")


def require_one_history(
    older: SignedCheckpoint, newer: SignedCheckpoint, folder: Path | None, service: Service
) -> None:
    """The newer checkpoint contains the older one, by the tiles of a folder or by the Steward's hashes."""
    old, new = older.checkpoint, newer.checkpoint
    if folder is not None or old.size == new.size:
        compare(older, newer, StaticTiles(tiles_of(folder or Path()), new.size))
        return
    # Both roots are signed and already here, so the Steward cannot talk its way out.
    with service.connect() as client:
        proof = ConsistencyProof(old.size, new.size, client.log_consistency(old.size, new.size))
    try:
        verify_consistency(proof, old_size=old.size, old_root=old.root, new_size=new.size, new_root=new.root)
    except VerificationError as error:
        raise Code.LOG_NOT_CONSISTENT(
            expected=f"a proof from size {old.size} to {new.size}",
            got=str(error),
            older=older.note.decode(),
            newer=newer.note.decode(),
        ) from None
