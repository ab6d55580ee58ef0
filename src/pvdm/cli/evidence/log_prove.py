"""`pvdm log prove`, `checkpoint` and `export`: log proofs, checkpoints and files of the log."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.files import read_file, require_folder, write_new
from pvdm.cli.common.options import NonEmptyPath, Service, json_option, service_options
from pvdm.cli.common.screen import notice, say, say_json, say_result
from pvdm.cli.evidence.log import (
    ENTRIES_AT_ONCE,
    KnownLog,
    LogKeys,
    checkpoint_json,
    log,
    log_key_options,
    open_note,
    read_checkpoint,
    require_one_history,
    tiles_of,
)
from pvdm.cli.steward.steward import config_option, opened_notary
from pvdm.errors import Code
from pvdm.model.printable import counted
from pvdm.trust.envelope import ENVELOPE_SIZE_MAX_BYTES
from pvdm.trust.log.checkpoint import SignedCheckpoint
from pvdm.trust.log.entry import parse_entry
from pvdm.trust.log.export import CHECKPOINT_FILE
from pvdm.trust.log.merkle import prove_inclusion
from pvdm.trust.log.proof import LogProof, parse_log_proof, verify_inclusion
from pvdm.trust.log.tiles import StaticTiles

UNSIGNED: Final = "no key of the log was given, so the checkpoint's signature was not checked (--vkey or --trust-root)"


@log.command("prove", short_help="Prove that an entry is in the log.")
@json_option
@click.argument("index", type=click.IntRange(0), required=False)
@click.option(
    "--envelope", type=NonEmptyPath(), metavar="FILE", help="Find the entry of this envelope: no index needed."
)
@click.option(
    "--folder", type=NonEmptyPath(folder=True), metavar="DIR", help="An exported log, instead of the Steward."
)
@log_key_options
@service_options
@click.option(
    "--out", type=NonEmptyPath(), metavar="FILE", help="Where the log proof goes.  [default: standard output]"
)
def log_prove(
    *,
    as_json: bool,
    index: int | None,
    envelope: Path | None,
    folder: Path | None,
    log_keys: LogKeys,
    service: Service,
    out: Path | None,
) -> None:
    """Make the log proof of one entry: index, hashes and checkpoint (C2SP `tlog-proof`).

    A proof from a folder is checked before it is written. The Steward's proof comes without the entry, so checking it
    needs the envelope.

    \b
    Examples:
      pvdm log prove 412 --folder exported/ --vkey KEY --out 412.tlog-proof
      pvdm log prove --envelope proof.json --folder exported/ --vkey KEY
      pvdm log prove 412 --url https://steward.example:8181
    """
    if (index is None) == (envelope is None):
        raise click.UsageError("name an index, or an envelope with --envelope")
    if envelope is not None and folder is None:
        raise click.UsageError("--envelope needs --folder: the Steward finds entries by index only")
    known = log_keys.maybe_known()
    if folder is not None:
        require_folder(folder)
        proof, entry, signed = _prove_from(tiles_of(folder), index, envelope, known)
    else:
        with service.connect() as client:
            proof = parse_log_proof(client.log_proof(index or 0))
        entry, signed = None, open_note(proof.note, known)
    if known is None:
        notice(UNSIGNED)
    data = proof.to_bytes()
    if out is not None:
        write_new(out, data)
    if as_json:
        facts: dict[str, object] = {
            "index": proof.index,
            "entry": None if entry is None else entry.decode(),
            "proof": data.decode(),
        }
        facts |= {"checkpoint": checkpoint_json(signed), "signature_checked": known is not None}
        say_json({**facts, "out": None if out is None else str(out)})
    elif out is None:
        click.echo(data.decode(), nl=False)
    else:
        say(f"log proof of entry {proof.index:,} in {signed.checkpoint.size:,}: {out}")


def _prove_from(
    folder: Path, index: int | None, envelope: Path | None, known: KnownLog | None
) -> tuple[LogProof, bytes, SignedCheckpoint]:
    signed = read_checkpoint(folder / CHECKPOINT_FILE, known)
    size, root = signed.checkpoint.size, signed.checkpoint.root
    tiles = StaticTiles(folder, size)
    at = _find(tiles, size, envelope) if index is None else index
    found = prove_inclusion(tiles, index=at, size=size)
    entry = tiles.read_entries(at, at + 1)[0]
    verify_inclusion(found, entry=entry, size=size, root=root)
    return LogProof(at, found.hashes, signed.note), entry, signed


def _find(tiles: StaticTiles, size: int, envelope: Path | None) -> int:
    data = b"" if envelope is None else read_file(envelope, size_max_bytes=ENVELOPE_SIZE_MAX_BYTES)
    sha256 = hashlib.sha256(data).hexdigest()
    for start in range(0, size, ENTRIES_AT_ONCE):
        for offset, entry in enumerate(tiles.read_entries(start, min(start + ENTRIES_AT_ONCE, size))):
            if parse_entry(entry).sha256 == sha256:
                return start + offset
    raise Code.LOG_ENTRY_UNKNOWN(f"the log has no entry of {envelope}", expected=f"an entry with {sha256}", got="none")


@log.command("checkpoint", short_help="Get the newest checkpoint from a Steward.")
@json_option
@service_options
@log_key_options
@click.option("--since", type=NonEmptyPath(), metavar="FILE", help="An earlier checkpoint, which it must contain.")
@click.option(
    "--out",
    type=NonEmptyPath(),
    metavar="FILE",
    help="The new file for the checkpoint; an existing file is not overwritten.",
)
def log_checkpoint(*, as_json: bool, service: Service, log_keys: LogKeys, since: Path | None, out: Path | None) -> None:
    """Get the newest checkpoint, and check its signature and that it contains an earlier one.

    By keeping checkpoints you detect a log that removes or changes entries.

    \b
    Examples:
      pvdm log checkpoint --url https://steward.example:8181 --vkey KEY --out monday.checkpoint
      pvdm log checkpoint --vkey KEY --since monday.checkpoint --out tuesday.checkpoint
    """
    known = log_keys.maybe_known()
    with service.connect() as client:
        signed = open_note(client.log_checkpoint(), known)
    if since is not None:
        older = read_checkpoint(since, known)
        if older.checkpoint.size > signed.checkpoint.size:
            raise Code.LOG_BEHIND_CHECKPOINT(
                "the Steward shows a shorter log than one that it signed",
                expected=f"at least {older.checkpoint.size} entries",
                got=str(signed.checkpoint.size),
                hint="keep both checkpoints: together they are the evidence",
            )
        require_one_history(older, signed, None, service)
    if known is None:
        notice(UNSIGNED)
    if out is not None:
        write_new(out, signed.note)
    if as_json:
        facts = {**checkpoint_json(signed), "signature_checked": known is not None, "note": signed.note.decode()}
        say_json({**facts, "contains": None if since is None else str(since), "out": None if out is None else str(out)})
    else:
        click.echo(signed.note.decode(), nl=False)


@log.command("export", short_help="Write the log and its statements as files.")
@json_option
@click.argument("folder", type=NonEmptyPath(folder=True), metavar="FOLDER")
@config_option
@click.option("--verify", is_flag=True, help="Compare every file with the ledger, and write missing files again.")
def log_export(*, as_json: bool, folder: Path, config: Path, verify: bool) -> None:
    """Bring FOLDER up to the newest checkpoint: tiles in FOLDER/log, every signed statement in FOLDER/statements.

    Runs on the Steward's host. Existing files stay; a folder with another history, or a file that differs, is refused.
    Without --verify only new files and the last tiles are compared. `log fsck`, `prove` and `compare` read the folder,
    and `steward restore` refills a backup from it.

    \b
    Examples:
      pvdm log export archive/ --config steward.toml
      pvdm log export archive/ --config steward.toml --verify
      pvdm log fsck archive/ --trust-root roots.json --root-sha256 HEX
    """
    with opened_notary(config) as notary:
        done = notary.archive(folder)
        rewritten = notary.verify_archive(folder) if verify else None
        origin = notary.config.origin
    facts: dict[str, object] = {"origin": origin, "size": done.size, "statements_written": done.envelopes_written}
    written = None if rewritten is None else {"tiles": rewritten.tiles, "statements": rewritten.statements}
    entries = counted(done.size, "entry", "entries")
    lines = [f"{folder} holds {origin} up to {entries}; new statements: {done.envelopes_written:,}"]
    if rewritten is not None:
        tiles, statements = counted(rewritten.tiles, "tile"), counted(rewritten.statements, "statement")
        lines.append(f"every file was compared; written again: {tiles}, {statements}")
    say_result(as_json, {**facts, "verified": verify, "mended": written, "out": str(folder)}, lines)
