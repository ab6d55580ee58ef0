"""The statements of an archive, held against its log: none changed, and which entries lack theirs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.cli.common.files import sha256_of
from pvdm.errors import Code
from pvdm.trust.log.entry import parse_entry
from pvdm.trust.log.tiles import StaticTiles

_FOLDER: Final = "statements"
_ENTRIES_AT_ONCE: Final = 4_096


@dataclass(frozen=True, slots=True)
class Statements:
    """How many statements have the hash that they are named by, and how many entries have none."""

    checked: int
    entries_without: int


def check_statements(archive: Path, tiles: Path, size: int, *, allow_missing: bool) -> Statements | None:
    """None where the folder is a log alone; the log itself was checked before."""
    folder = archive / _FOLDER
    if not folder.is_dir():
        return None
    found = set()
    missing: list[str] = []
    for path in sorted(folder.glob("*/*.json")):
        if sha256_of(path) != path.stem:
            raise Code.ARCHIVE_DAMAGED(
                "a statement of the archive was changed",
                expected=path.stem,
                got="another hash",
                place=str(path.relative_to(archive)),
            )
        found.add(path.stem)
    log = StaticTiles(tiles, size)
    for start in range(0, size, _ENTRIES_AT_ONCE):
        page = log.read_entries(start, min(start + _ENTRIES_AT_ONCE, size))
        missing += [parse_entry(entry).sha256 for entry in page if parse_entry(entry).sha256 not in found]
    if missing and not allow_missing:
        raise Code.ARCHIVE_STATEMENTS_MISSING(
            expected=f"a statement for each of {size} entries", got=f"none for {len(missing)} of them", first=missing[0]
        )
    return Statements(len(found), len(missing))
