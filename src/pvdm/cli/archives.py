"""Holds a whole archive against the ledger it was written from, and writes again what is missing."""

from __future__ import annotations

import fcntl
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pvdm.cli.files import sha256_of
from pvdm.errors import VerificationError
from pvdm.trust.log.disk import make_folders, sync_folder, write_atomically
from pvdm.trust.log.export import export

if TYPE_CHECKING:
    from pvdm.steward.notary import Notary

_LOCK: Final = ".lock"  # as the archive's own writers hold it


@dataclass(frozen=True, slots=True)
class Mended:
    """How many files were missing, and are there again."""

    tiles: int
    statements: int

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {"tiles": self.tiles, "statements": self.statements}


def verify_archive(notary: Notary, folder: Path) -> Mended:
    """Compare every tile, bundle and statement; one that differs is refused, one that is missing is written again."""
    # Only here: the Steward's rooms are slow to load.
    from pvdm.steward.archive import log_folder
    from pvdm.steward.log_reader import PinnedLogReader

    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        log = PinnedLogReader(notary.ledger)
        statements = _mend_statements(notary, folder, log.size())
        return Mended(export(log, log_folder(folder), verify=True).files_written, statements)


def _mend_statements(notary: Notary, folder: Path, size: int) -> int:
    from pvdm.steward.archive import ARCHIVE_PAGE_ENTRIES, envelope_path
    from pvdm.store import statements

    written = 0
    for start in range(0, size, ARCHIVE_PAGE_ENTRIES):
        with notary.ledger.read() as unit:
            page = statements.between(unit, start, min(start + ARCHIVE_PAGE_ENTRIES, size))
        for statement in page:
            sha256 = hashlib.sha256(statement.envelope).hexdigest()
            path = envelope_path(folder, sha256)
            if not path.exists():
                make_folders(path.parent)
                write_atomically(path, statement.envelope)
                sync_folder(path.parent)
                written += 1
            elif sha256_of(path) != sha256:
                raise VerificationError(
                    "archive_damaged",
                    "a statement of the archive was changed",
                    expected=sha256,
                    got="another hash",
                    hint="keep the file as evidence, remove it from the archive, then run this again",
                    place=str(path.relative_to(folder)),
                )
    return written
