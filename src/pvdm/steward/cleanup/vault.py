"""Sweeps old manifests from the vault, counts the vault's files, and lists the Steward's local folders."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.cleanup import UNNAMED_AGE_MIN_SECONDS
from pvdm.catalog.references import References, UndecidedError
from pvdm.lake.files import FoundFile
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import FileReader
from pvdm.lake.stores.stores import ConfiguredPath, location_of
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import restores
from pvdm.ledger.work import announced, chunks, nonces, verified
from pvdm.model.states import NonceState
from pvdm.steward.config.steward import StewardConfig

VAULT_COUNTED_MAX_FILES: Final = 1_000_000

_SWEEP_INTERVAL_SECONDS: Final = 86_400  # one day
# The manifest list of a snapshot, or one of its manifests; the number is the snapshot's id.
_SNAPSHOT_FILE_NAME: Final = re.compile(r"(?:snap-([0-9]{1,19})|([0-9]{1,19})-[md][0-9]+)\.avro")
_VERIFIED_MANIFEST_NAME: Final = re.compile(r"verified-([0-9a-f]{32})-[0-9a-f]{16}\.avro")


def local_folders(config: StewardConfig, ledger_file: Path | None) -> dict[str, Path]:
    """The Steward's folders on this machine, by purpose; object stores and database servers are left out."""
    places: dict[str, ConfiguredPath | None] = {
        "ledger": None if ledger_file is None else ledger_file.parent,
        "outside": config.outside_store_location or config.outside_path.parent,
        "archive": config.archive_store_location or config.archive,
        "temporary": Path(tempfile.gettempdir()),
        "warehouse": parse_location(config.catalog.warehouse),
        "metadata": config.catalog.metadata,
        "vault": config.catalog.vault,
    }
    found = {name: location_of(place) for name, place in places.items() if place is not None}
    return {name: place.local for name, place in found.items() if place.scheme == "file"}


@dataclass(frozen=True, slots=True)
class Usage:
    """One count: files and bytes of each kind, and when the oldest file in quarantine was written.

    A count that stopped at the limit is not `whole`. `counted_at` is the time of its end. Times are seconds since 1970.
    """

    files: Mapping[VaultKind, int]
    size_bytes: Mapping[VaultKind, int]
    oldest_modified_at: float | None
    whole: bool
    counted_at: float


class VaultUsage:
    """Counts the files in the vault on request; `last` is the last count, None before the first."""

    def __init__(self, vault: Vault, *, most: int = VAULT_COUNTED_MAX_FILES) -> None:
        self._vault = vault
        self._max_files = most
        self.last: Usage | None = None

    def count(self) -> Usage:
        """Count again, up to the limit of files. Raises UnavailableError if the vault cannot be read."""
        files, sizes = Counter[VaultKind](), Counter[VaultKind]()
        oldest, whole = None, True
        for kind, each in self._vault.walk():
            if files.total() == self._max_files:
                whole = False
                break
            files[kind] += 1
            sizes[kind] += each.size
            if kind is VaultKind.QUARANTINE:
                oldest = each.modified_seconds if oldest is None else min(oldest, each.modified_seconds)
        self.last = Usage(files, sizes, oldest, whole, time.time())
        return self.last


class VaultSweep:
    """Sweeps the metadata folders of existing tables; every manifest that may still be referenced stays.

    The gate writes the manifests of a snapshot. They stay if the snapshot was ever published, or if any snapshot of any
    table lists them. Verification writes a verified manifest. It stays while its nonce is reserved, or if the ledger
    names it. Data files and quarantine are not touched. Other Stewards of the ledger may work meanwhile. So the gate's
    manifests are scheduled for deletion first, and the gate publishes no snapshot with such a file. Unfinished files
    and verified manifests need no schedule. After a restore nothing is swept, since lost entries may have named a file.
    """

    def __init__(self, ledger: Ledger, clock: LedgerClock, catalog: Catalog, vault: Vault, reader: FileReader) -> None:
        self._ledger = ledger
        self._clock = clock
        self._catalog = catalog
        self._vault = vault
        self._reader = reader
        self._swept_at = 0.0

    def sweep(self) -> int:
        """Remove old files, at most once a day; returns their number."""
        now = time.time()
        if now - self._swept_at < _SWEEP_INTERVAL_SECONDS:
            return 0
        with self._ledger.read() as unit:
            if restores.find_newest_micros(unit) is not None:
                return 0
        count = sum(self._sweep_table(table_uuid, now - UNNAMED_AGE_MIN_SECONDS) for table_uuid in self._vault.tables())
        self._swept_at = now
        return count

    def _sweep_table(self, table_uuid: str, modified_until: float) -> int:
        found = self._vault.files_of_kind(table_uuid, VaultKind.METADATA)
        old = [each for each in found if each.modified_seconds <= modified_until]
        with self._ledger.read() as unit:
            # Files of a dropped table stay, since it may be registered again.
            if not old or tables.find_by_uuid(unit, table_uuid) is None:
                return 0
            # If the writer of an unfinished file still runs, its write fails.
            removable = [each for each in old if each.unfinished] + _find_unused_verified(unit, old)
            unpublished = _find_unpublished(unit, old)
        removable += self._schedule_deletion(table_uuid, self._find_unlisted(table_uuid, unpublished))
        for each in removable:
            self._vault.remove(each.location)
        return len(removable)

    def _find_unlisted(self, table_uuid: str, files: Sequence[FoundFile]) -> list[FoundFile]:
        """The files that no snapshot lists; an empty list if that is undecided."""
        if not files:
            return []
        folder = self._vault.root.child(table_uuid, VaultKind.METADATA.value)
        references = References(self._ledger, self._catalog.states, self._reader)
        try:
            search = references.search_below([folder], after_event=0, older_snapshots={}, entries=False)
            referenced = search.look_through()
        except UndecidedError:
            return []
        return [each for each in files if parse_location(each.location) not in referenced]

    def _schedule_deletion(self, table_uuid: str, files: Sequence[FoundFile]) -> list[FoundFile]:
        """Schedule the files for deletion and return them, without files of publications that ended meanwhile."""
        if not files:
            return []

        def work(unit: Unit) -> list[FoundFile]:
            tables.lock(unit, [table_uuid])
            unpublished = _find_unpublished(unit, files)
            tables.schedule_deletes(unit, table_uuid, [each.name for each in unpublished])
            return unpublished

        return self._ledger.transact(work, at_micros=self._clock.now_micros())


def _find_unpublished(unit: Unit, files: Sequence[FoundFile]) -> list[FoundFile]:
    """Manifests and manifest lists of the gate's snapshots that were never published."""
    candidates = {each: match[1] or match[2] for each in files if (match := _SNAPSHOT_FILE_NAME.fullmatch(each.name))}
    ids = list(candidates.values())
    # A snapshot announced to an upstream may be published there.
    published = chunks.find_published_snapshots(unit, ids) | announced.find_open_snapshots(unit, ids)
    return [each for each, snapshot_id in candidates.items() if snapshot_id not in published]


def _find_unused_verified(unit: Unit, files: Sequence[FoundFile]) -> list[FoundFile]:
    """Verified manifests that no row of the ledger names and whose nonce is not reserved any more."""
    candidates = {each: match[1] for each in files if (match := _VERIFIED_MANIFEST_NAME.fullmatch(each.name))}
    recorded = verified.list_manifest_locations(unit, list(candidates.values()))
    unnamed = {each: nonce for each, nonce in candidates.items() if each.location not in recorded}
    found = {each: nonces.find(unit, nonce) for each, nonce in unnamed.items()}
    # An unknown nonce may be reserved later.
    return [each for each, nonce in found.items() if nonce is not None and nonce.state is not NonceState.RESERVED]
