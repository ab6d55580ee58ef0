"""Measures storage: free space of the local folders, and the files in the vault."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.lake.paths import parse_location
from pvdm.lake.stores.stores import Place, place_of
from pvdm.lake.vault import Vault, VaultKind
from pvdm.steward.config.steward import StewardConfig

VAULT_COUNTED_MAX_FILES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Free bytes, for the Steward's user, and size of a folder's file system."""

    free_bytes: int
    size_bytes: int


def local_folders(config: StewardConfig, ledger_file: Path | None) -> dict[str, Path]:
    """The Steward's folders on this machine, by purpose; object stores and database servers are left out."""
    places: dict[str, Place | None] = {
        "ledger": None if ledger_file is None else ledger_file.parent,
        "outside": config.outside_at or config.outside_path.parent,
        "archive": config.archive_at or config.archive,
        "temporary": Path(tempfile.gettempdir()),
        "warehouse": parse_location(config.catalog.warehouse),
        "metadata": config.catalog.metadata,
        "vault": config.catalog.vault,
    }
    found = {name: place_of(place) for name, place in places.items() if place is not None}
    return {name: place.local for name, place in found.items() if place.scheme == "file"}


def measure_disk_space(folders: Mapping[str, Path]) -> dict[str, DiskSpace]:
    """Measure the disk space of each existing folder; readiness reports missing ones."""
    found = {}
    for name, folder in folders.items():
        try:
            facts = os.statvfs(folder)
        except OSError:
            continue
        found[name] = DiskSpace(facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize)
    return found


@dataclass(frozen=True, slots=True)
class Usage:
    """One count: files and bytes of each kind, and when the oldest file was put into quarantine.

    A count that stopped at the limit is not `whole`. `counted` is the time of `clock` at its end.
    """

    files: Mapping[VaultKind, int]
    size_bytes: Mapping[VaultKind, int]
    oldest_seconds: float | None
    whole: bool
    counted: float


class VaultUsage:
    """Counts the files in the vault on request, and keeps the last count."""

    def __init__(
        self, vault: Vault, *, most: int = VAULT_COUNTED_MAX_FILES, clock: Callable[[], float] = time.time
    ) -> None:
        self._vault = vault
        self._most = most
        self._clock = clock
        self._last: Usage | None = None

    def last(self) -> Usage | None:
        """The last count; None before the first."""
        return self._last

    def count(self) -> Usage:
        """Count again, up to the limit of files. Raises UnavailableError where the vault cannot be read."""
        files, sizes = Counter[VaultKind](), Counter[VaultKind]()
        oldest, whole = None, True
        for kind, each in self._vault.walk():
            if files.total() == self._most:
                whole = False
                break
            files[kind] += 1
            sizes[kind] += each.size
            if kind is VaultKind.QUARANTINE:
                oldest = each.modified_seconds if oldest is None else min(oldest, each.modified_seconds)
        self._last = Usage(files, sizes, oldest, whole, self._clock())
        return self._last
