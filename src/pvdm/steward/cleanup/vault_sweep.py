"""Manifests in the vault that nothing names: what a crash before the gate's transaction leaves, removed once old."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.cleanup import ORPHAN_AGE_MAX_SECONDS
from pvdm.catalog.references import References, UndecidedError
from pvdm.lake.files import FoundFile
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import FileReader
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import restores
from pvdm.ledger.work import announced, chunks, nonces, verified
from pvdm.model.states import NonceState

_SWEEP_SECONDS: Final = 86_400
_OF_SNAPSHOT: Final = re.compile(r"(?:snap-([0-9]{1,19})|([0-9]{1,19})-[md][0-9]+)\.avro")
_OF_NONCE: Final = re.compile(r"verified-([0-9a-f]{32})-[0-9a-f]{16}\.avro")


class VaultSweep:
    """Sweeps the metadata folders of tables that are there; whatever may still be named is kept.

    A manifest of the gate's is named after its snapshot: one that was ever published stays, and so does one that any
    snapshot of any table lists. A verified manifest stays while its nonce is held, and for ever if the ledger names it.
    Data files and what is in quarantine are no concern of it. Safe beside other Stewards of the same ledger: a name is
    doomed before its file goes, and the gate swaps in no snapshot whose files are doomed. Once the ledger was restored
    nothing is swept, for what was lost may have named any of the files.
    """

    def __init__(
        self, ledger: Ledger, clock: LedgerClock, catalog: Callable[[], Catalog], vault: Vault, reader: FileReader
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._catalog = catalog
        self._vault = vault
        self._reader = reader
        self._swept_seconds = 0.0

    def sweep(self) -> int:
        """Remove what is old enough, at most once a day; says how many files that were."""
        now = time.time()
        if now - self._swept_seconds < _SWEEP_SECONDS:
            return 0
        with self._ledger.read() as unit:
            if restores.newest_micros(unit) is not None:
                return 0
        count = sum(self._swept(table_uuid, now - ORPHAN_AGE_MAX_SECONDS) for table_uuid in self._vault.tables())
        self._swept_seconds = now
        return count

    def _swept(self, table_uuid: str, latest: float) -> int:
        found = self._vault.found(table_uuid, VaultKind.METADATA)
        old = [each for each in found if each.modified_seconds <= latest]
        with self._ledger.read() as unit:
            # Somebody who dropped the table may bring it back.
            if not old or tables.find_by_uuid(unit, table_uuid) is None:
                return 0
            free = [*_unfinished(old), *_unverified(unit, old)]
            unpublished = _unpublished(unit, old)
        free += self._doom(table_uuid, self._unlisted(table_uuid, unpublished))
        for each in free:
            self._vault.remove(each.location)
        return len(free)

    def _unlisted(self, table_uuid: str, files: Sequence[FoundFile]) -> list[FoundFile]:
        """Those that no snapshot lists; where that cannot be told, none of them."""
        if not files:
            return []
        folder = self._vault.root.child(table_uuid, VaultKind.METADATA.value)
        references = References(self._ledger, self._catalog().states, self._reader)
        try:
            named = references.under([folder], after_event=0, known={}, entries=False).look_through()
        except UndecidedError:
            return []
        return [each for each in files if parse_location(each.location) not in named]

    def _doom(self, table_uuid: str, files: Sequence[FoundFile]) -> list[FoundFile]:
        """Those that no swap shows from now on: one that has begun is waited for, and what it shows stays."""
        if not files:
            return []

        def work(unit: Unit) -> list[FoundFile]:
            tables.lock(unit, [table_uuid])
            still = _unpublished(unit, files)
            tables.schedule_deletes(unit, table_uuid, [each.name for each in still])
            return still

        return self._ledger.transact(work, at_micros=self._clock.now_micros())


def _unfinished(files: Sequence[FoundFile]) -> list[FoundFile]:
    """Without it its writer fails, and nothing comes of it."""
    return [each for each in files if each.unfinished]


def _unpublished(unit: Unit, files: Sequence[FoundFile]) -> list[FoundFile]:
    """Manifests and lists of snapshots that the gate made and never published."""
    named = {each: match[1] or match[2] for each in files if (match := _OF_SNAPSHOT.fullmatch(each.name))}
    ids = list(named.values())
    # What is announced to an upstream may be shown there by now.
    shown = chunks.published_snapshots(unit, ids) | announced.snapshots(unit, ids)
    return [each for each, snapshot_id in named.items() if snapshot_id not in shown]


def _unverified(unit: Unit, files: Sequence[FoundFile]) -> list[FoundFile]:
    """Verified manifests that no row names, of nonces that nobody holds any more."""
    named = {each: match[1] for each in files if (match := _OF_NONCE.fullmatch(each.name))}
    kept = verified.manifest_locations(unit, list(named.values()))
    return [each for each, nonce in named.items() if each.location not in kept and _is_over(unit, nonce)]


def _is_over(unit: Unit, nonce: str) -> bool:
    """A nonce that the ledger does not know is nothing to judge by."""
    found = nonces.find(unit, nonce)
    return found is not None and found.state is not NonceState.RESERVED
