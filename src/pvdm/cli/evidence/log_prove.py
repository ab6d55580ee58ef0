"""`pvdm log prove`, `checkpoint` and `export`: log proofs, checkpoints, and tiles (files with entries and hashes)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.commands import wants_json
from pvdm.cli.common.files import read_file, require_folder, write_new
from pvdm.cli.common.options import Service, path_argument, path_option, service_options
from pvdm.cli.common.screen import notice, say, say_json, say_result
from pvdm.cli.evidence.log import (
    LogKeys,
    checkpoint_json,
    hashes_of_entries,
    log,
    log_key_options,
    open_note,
    read_checkpoint,
    require_one_history,
    tiles_folder_of,
)
from pvdm.cli.steward.steward import config_option, opened_notary
from pvdm.errors import Code, expect
from pvdm.model.printable import counted
from pvdm.trust.envelope import ENVELOPE_SIZE_MAX_BYTES
from pvdm.trust.log.checkpoint import SignedCheckpoint
from pvdm.trust.log.export import CHECKPOINT_FILE
from pvdm.trust.log.merkle import prove_inclusion
from pvdm.trust.log.proof import KnownLog, LogProof, parse_log_proof, verify_inclusion
from pvdm.trust.log.tiles import StaticTiles

_UNVERIFIED_CHECKPOINT: Final = (
    "no key of the log was given, so the checkpoint's signature was not checked (--vkey or --trust-root)"
)


@log.command("prove", short_help="Prove that an entry is in the log.")
@click.argument("index", type=click.IntRange(0), required=False)
@path_option("--envelope", help="Find the entry of this envelope: no index needed.")
@path_option("--folder", folder=True, help="An exported log, instead of the Steward.")
@log_key_options
@service_options
@path_option("--out", help="Where the log proof goes.  [default: standard output]")
def log_prove(
    *,
    index: int | None,
    envelope: Path | None,
    folder: Path | None,
    log_keys: LogKeys,
    service: Service,
    out: Path | None,
) -> None:
    """Make the log proof of one entry: index, hashes and checkpoint (C2SP `tlog-proof`).

    A proof from a folder is checked before it is written. The Steward's proof comes without the entry and is not
    checked here: that needs the envelope.

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
    known_log = log_keys.find_log()
    if folder is not None:
        require_folder(folder)
        proof, entry, signed = _prove_from(tiles_folder_of(folder), index, envelope, known_log)
    else:
        with service.connect() as client:
            proof = parse_log_proof(client.log_proof(expect(index, "--envelope needs --folder")))
        entry, signed = None, open_note(proof.note, known_log)
    if known_log is None:
        notice(_UNVERIFIED_CHECKPOINT)
    data = proof.to_bytes()
    if out is not None:
        write_new(out, data)
    if wants_json():
        document = {
            "index": proof.index,
            "entry": None if entry is None else entry.decode(),
            "proof": data.decode(),
            "checkpoint": checkpoint_json(signed),
            "signature_checked": known_log is not None,
            "out": out,
        }
        say_json(document)
    elif out is None:
        click.echo(data.decode(), nl=False)
    else:
        say(f"log proof of entry {proof.index:,} in {signed.checkpoint.size:,}: {out}")


def _prove_from(
    folder: Path, index: int | None, envelope: Path | None, known_log: KnownLog | None
) -> tuple[LogProof, bytes, SignedCheckpoint]:
    """Find the entry by index, or else by envelope; returns its log proof, the entry, and the folder's checkpoint."""
    signed = read_checkpoint(folder / CHECKPOINT_FILE, known_log)
    size, root = signed.checkpoint.size, signed.checkpoint.root
    tiles = StaticTiles(folder, size)
    if index is None:
        index = _find_entry(tiles, size, expect(envelope, "index or envelope is given"))
    proof = prove_inclusion(tiles, index=index, size=size)
    entry = tiles.read_entries(index, index + 1)[0]
    verify_inclusion(proof, entry=entry, size=size, root=root)
    return LogProof(index, proof.hashes, signed.note), entry, signed


def _find_entry(tiles: StaticTiles, size: int, envelope: Path) -> int:
    """The index of the entry with the SHA-256 of the envelope's file."""
    sha256 = hashlib.sha256(read_file(envelope, size_max_bytes=ENVELOPE_SIZE_MAX_BYTES)).hexdigest()
    for index, hash_of_entry in enumerate(hashes_of_entries(tiles, size)):
        if hash_of_entry == sha256:
            return index
    message = f"the log has no entry of {envelope}"
    raise Code.LOG_REQUEST_INVALID(message, reason="log_entry_unknown", expected=f"an entry with {sha256}", got="none")


@log.command("checkpoint", short_help="Get the newest checkpoint from a Steward.")
@service_options
@log_key_options
@path_option("--since", help="An earlier checkpoint, which the newest must contain.")
@path_option("--out", help="The new file for the checkpoint; an existing file is not overwritten.")
def log_checkpoint(*, service: Service, log_keys: LogKeys, since: Path | None, out: Path | None) -> None:
    """Get the newest checkpoint. With a key of the log its signature is verified; --since also compares an earlier one.

    By keeping checkpoints you detect a log that removes or changes entries.

    \b
    Examples:
      pvdm log checkpoint --url https://steward.example:8181 --vkey KEY --out monday.checkpoint
      pvdm log checkpoint --vkey KEY --since monday.checkpoint --out tuesday.checkpoint
    """
    known_log = log_keys.find_log()
    with service.connect() as client:
        signed = open_note(client.log_checkpoint(), known_log)
    if since is not None:
        older = read_checkpoint(since, known_log)
        if older.checkpoint.size > signed.checkpoint.size:
            message = "the Steward's newest checkpoint is of a shorter log than an earlier one"
            expected, got = f"at least {older.checkpoint.size} entries", str(signed.checkpoint.size)
            hint = "keep both checkpoints: together they are the evidence"
            raise Code.LOG_BEHIND_CHECKPOINT(message, expected=expected, got=got, hint=hint)
        require_one_history(older, signed, None, service)
    if known_log is None:
        notice(_UNVERIFIED_CHECKPOINT)
    if out is not None:
        write_new(out, signed.note)
    if wants_json():
        facts = {**checkpoint_json(signed), "signature_checked": known_log is not None, "note": signed.note.decode()}
        say_json({**facts, "contains": since, "out": out})
    else:
        click.echo(signed.note.decode(), nl=False)


@log.command("export", short_help="Write the log and its statements as files.")
@path_argument("folder", folder=True)
@config_option
@click.option("--verify", is_flag=True, help="Compare every file with the ledger, and write missing files again.")
def log_export(*, folder: Path, config: Path, verify: bool) -> None:
    """Bring FOLDER up to the newest checkpoint: tiles in FOLDER/log, every signed statement in FOLDER/statements.

    Runs on the Steward's host. It replaces the folder's checkpoint, and removes a partial tile when the full one
    exists; every other file stays. A folder with another history, or a tile that differs, is refused. Without --verify
    it compares only the last tiles, and no statements. `log fsck`, `prove` and `compare` read the folder, and `steward
    restore` refills a backup from it.

    \b
    Examples:
      pvdm log export archive/ --config steward.toml
      pvdm log export archive/ --config steward.toml --verify
      pvdm log fsck archive/ --trust-root roots.json --root-sha256 HEX
    """
    with opened_notary(config) as notary:
        archive = notary.archive_in(folder)
        progress = archive.follow()
        repair = archive.verify_and_repair() if verify else None
        origin = notary.config.origin
    document = {
        "origin": origin,
        "size": progress.size,
        "statements_written": progress.envelopes_written,
        "verified": verify,
        "mended": None if repair is None else {"tiles": repair.tiles, "statements": repair.envelopes},
        "out": folder,
    }
    entries = counted(progress.size, "entry", "entries")
    lines = [f"{folder} has the {entries} of {origin}; new statements: {progress.envelopes_written:,}"]
    if repair is not None:
        tiles, statements = counted(repair.tiles, "tile"), counted(repair.envelopes, "statement")
        lines.append(f"every file was compared; written again: {tiles}, {statements}")
    say_result(document, lines)
