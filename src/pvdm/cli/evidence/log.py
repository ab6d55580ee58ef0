"""`pvdm log`: checks an exported log and compares checkpoints. Tiles are files with entries and hashes of the log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.commands import command_group
from pvdm.cli.common.files import read_file, require_folder, sha256_of
from pvdm.cli.common.options import Service, option_group, path_argument, path_option, service_options
from pvdm.cli.common.screen import Line, say_result
from pvdm.cli.common.trust_roots import at_option, origin_option, pin_option, root_option, verify_trust
from pvdm.errors import Code, VerificationError
from pvdm.model.printable import counted, view_json
from pvdm.trust.bundle import log_checker, resolve_log_origin
from pvdm.trust.log.checkpoint import SignedCheckpoint, open_checkpoint, read_unverified
from pvdm.trust.log.entry import parse_entry
from pvdm.trust.log.export import CHECKPOINT_FILE
from pvdm.trust.log.fsck import fsck
from pvdm.trust.log.merkle import ConsistencyProof
from pvdm.trust.log.note import NOTE_SIZE_MAX_BYTES, parse_vkey
from pvdm.trust.log.proof import KnownLog, require_same_history, verify_consistency
from pvdm.trust.log.tiles import StaticTiles

_STATEMENTS_FOLDER: Final = "statements"
_ENTRIES_AT_ONCE: Final = 4_096


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The options about the log's keys: verifier keys as text, or a trust root that names them."""

    vkeys: tuple[str, ...]
    root_file: Path | None
    pin: str | None
    origin: str | None
    at: int | None

    def require_log(self) -> KnownLog:
        """The log. Raises if no key was given."""
        log = self.find_log()
        if log is None:
            raise Code.USAGE(reason="log_keys_missing", got="no --vkey and no --trust-root")
        return log

    def find_log(self) -> KnownLog | None:
        """The log, or None if no key was given."""
        if self.vkeys and self.root_file is not None:
            raise click.UsageError("give --vkey or --trust-root, not both")
        if self.root_file is not None:
            basis = verify_trust(self.root_file, pin=self.pin, at=self.at)
            return log_checker(basis.root, origin=resolve_log_origin(basis.root, self.origin))
        if self.pin is not None or self.at is not None:
            raise click.UsageError("--root-sha256 and --at need --trust-root")
        if not self.vkeys:
            return None
        keys = tuple(parse_vkey(text) for text in self.vkeys)
        names = sorted({key.name for key in keys})
        if len(names) > 1 or (self.origin is not None and names != [self.origin]):
            message, got = "the verifier keys belong to another log, or to several", ", ".join(names)
            raise Code.USAGE(message, reason="origin_ambiguous", expected=self.origin or "keys of one log", got=got)
        return KnownLog(names[0], keys)


log_key_options = option_group(
    "log_keys",
    LogKeys,
    click.option(
        "--vkey", "vkeys", multiple=True, metavar="KEY", help="A verifier key of the log: name+id+key. May be repeated."
    ),
    root_option(required=False),
    pin_option,
    origin_option,
    at_option,
)


@dataclass(frozen=True, slots=True)
class StatementCounts:
    """`checked` statement files have the SHA-256 that is their name; `entries_without` entries have no such file."""

    checked: int
    entries_without: int


def hashes_of_entries(tiles: StaticTiles, size: int) -> Iterator[str]:
    """The SHA-256 that each entry of the log names, in order."""
    for start in range(0, size, _ENTRIES_AT_ONCE):
        for entry in tiles.read_entries(start, min(start + _ENTRIES_AT_ONCE, size)):
            yield parse_entry(entry).sha256


def check_statements(archive: Path, tiles: Path, size: int, *, allow_missing: bool) -> StatementCounts | None:
    """Compare an archive's statements with its log, which was checked before; None for a folder without statements."""
    folder = archive / _STATEMENTS_FOLDER
    if not folder.is_dir():
        return None
    hashes = set()
    for path in sorted(folder.glob("*/*.json")):
        if sha256_of(path) != path.stem:
            raise Code.ARCHIVE_DAMAGED(expected=path.stem, got="another hash", place=str(path.relative_to(archive)))
        hashes.add(path.stem)
    missing = [sha256 for sha256 in hashes_of_entries(StaticTiles(tiles, size), size) if sha256 not in hashes]
    if missing and not allow_missing:
        expected, got = f"a statement for each of {size} entries", f"none for {len(missing)} of them"
        raise Code.ARCHIVE_STATEMENTS_MISSING(expected=expected, got=got, first=missing[0])
    return StatementCounts(len(hashes), len(missing))


@command_group("log")
def log() -> None:
    """Check an exported transparency log, compare checkpoints, and prove what is in it.

    \b
    Examples:
      pvdm log fsck exported/ --trust-root roots.json --root-sha256 HEX
      pvdm log compare mine.checkpoint theirs.checkpoint --folder exported/ --vkey KEY
      pvdm log checkpoint --url https://steward.example:8181
    """


def tiles_folder_of(folder: Path) -> Path:
    """The folder that has the tiles and the checkpoint: the folder `log` in an archive, else `folder` itself."""
    inside = folder / "log"
    return inside if (inside / CHECKPOINT_FILE).exists() and not (folder / CHECKPOINT_FILE).exists() else folder


def read_checkpoint(path: Path, known_log: KnownLog | None) -> SignedCheckpoint:
    """The checkpoint of a file; its signature is verified if the log's keys are known."""
    return open_note(read_file(path, size_max_bytes=NOTE_SIZE_MAX_BYTES), known_log)


def open_note(note: bytes, known_log: KnownLog | None) -> SignedCheckpoint:
    """The checkpoint of a note (a signed text); its signature is verified if the log's keys are known."""
    if known_log is None:
        return read_unverified(note)
    return open_checkpoint(note, origin=known_log.origin, keys=known_log.keys)


def checkpoint_json(signed: SignedCheckpoint) -> dict[str, object]:
    """A checkpoint in JSON."""
    checkpoint = signed.checkpoint
    return {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}


@log.command("fsck", short_help="Check every file of an exported log.")
@path_argument("folder", folder=True)
@log_key_options
@path_option("--since", help="An earlier checkpoint, which the log must contain.")
@click.option("--allow-missing-statements", "allow_missing", is_flag=True, help="Accept that statements are missing.")
def log_fsck(*, folder: Path, log_keys: LogKeys, since: Path | None, allow_missing: bool) -> None:
    """Check every entry, hash and file of an exported log against its signed checkpoint, offline.

    The checker shares no code with the writer of the files. It also compares an archive's statements with their hashes,
    and every entry must have its statement. Ends with 3 at the first violation.

    \b
    Examples:
      pvdm log fsck exported/ --vkey log.example+0c4ee527+AX…
      pvdm log fsck exported/ --trust-root roots.json --root-sha256 HEX --since last.checkpoint
    """
    known_log = log_keys.require_log()
    require_folder(folder)
    earlier = None if since is None else read_file(since, size_max_bytes=NOTE_SIZE_MAX_BYTES)
    tiles = tiles_folder_of(folder)
    report = fsck(tiles, [key.to_vkey() for key in known_log.keys], since=earlier)
    statements = check_statements(folder, tiles, report.size, allow_missing=allow_missing)
    document = {
        "holds": True,
        **asdict(report),
        "begins_with": since,
        "statements": None if statements is None else view_json(statements),
    }
    lines: list[Line | str] = [
        (f"the log holds: {report.origin}, {counted(report.size, 'entry', 'entries')}", "green"),
        f"  root        {report.root}",
        f"  files       {report.files:,} read",
    ]
    if report.files_beyond_checkpoint:
        lines.append(f"  {report.files_beyond_checkpoint:,} files are beyond the checkpoint: an export was interrupted")
    if statements is not None:
        counts = f"{statements.checked:,} unchanged; {statements.entries_without:,} entries have none here"
        lines.append(f"  statements  {counts}")
    if since is not None:
        lines.append(f"  it begins with the entries of {since}: none of them was removed or changed")
    say_result(document, lines)


@log.command("compare", short_help="Compare checkpoints of one log.")
@path_argument("files", nargs=-1, required=True, metavar="CHECKPOINT...")
@log_key_options
@path_option("--folder", folder=True, help="An exported log that contains the newest of them.")
@service_options
def log_compare(*, files: tuple[Path, ...], log_keys: LogKeys, folder: Path | None, service: Service) -> None:
    """Compare checkpoints of one log, such as yours and another reader's: one history, or is the log forked?

    Checkpoints of different sizes need the log itself: an exported folder, or else the Steward. If two signed
    checkpoints contradict each other, the command ends with 3 (`log_forked`); keep both as evidence.

    \b
    Examples:
      pvdm log compare mine.checkpoint theirs.checkpoint --folder exported/ --vkey KEY
      pvdm log compare monday.checkpoint today.checkpoint --trust-root roots.json --url URL
    """
    if len(files) < 2:
        raise click.UsageError("name at least two checkpoints")
    known_log = log_keys.require_log()
    if folder is not None:
        require_folder(folder)
    checkpoints = [read_checkpoint(path, known_log) for path in files]
    ordered = sorted(checkpoints, key=lambda signed: signed.checkpoint.size)
    for older, newer in itertools.pairwise(ordered):
        require_one_history(older, newer, folder, service)
    document = {"holds": True, "checkpoints": [checkpoint_json(each) for each in ordered]}
    sizes = ", ".join(f"{each.checkpoint.size:,}" for each in ordered)
    say_result(document, [(f"one history: {known_log.origin} at {sizes} entries", "green")])


def require_one_history(
    older: SignedCheckpoint, newer: SignedCheckpoint, folder: Path | None, service: Service
) -> None:
    """Raise unless the newer log begins with the older log's entries. Uses a folder's tiles or the Steward's hashes."""
    old, new = older.checkpoint, newer.checkpoint
    if folder is not None or old.size == new.size:
        # Checkpoints of one size are compared without tiles.
        require_same_history(older, newer, StaticTiles(tiles_folder_of(folder or Path()), new.size))
        return
    # Both roots are known without the Steward's response, so a wrong response is detected.
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
