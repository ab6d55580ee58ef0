"""Files in quarantine of attempts that the ledger does not know, as after a restore from a backup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pvdm.lake.stores.store import Listed
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import tables
from pvdm.ledger.work import quarantine
from pvdm.steward.work.sources import table_name

_ATTEMPT_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class UnknownFolder:
    """The files that lie in quarantine under the id of an attempt of which the ledger has no row.

    Nothing can come of them: an attempt is in the ledger before its first file is put there.
    """

    attempt_id: str
    table_uuid: str
    table: str | None
    files: tuple[Listed, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(each.size for each in self.files)

    @property
    def written_micros(self) -> int:
        """When the newest of the files was written, by the clock of the store."""
        return int(max(each.modified_seconds for each in self.files) * 1_000_000)


def find_unknown(ledger: Ledger, vault: Vault, *, domain: str | None, table_uuid: str | None) -> list[UnknownFolder]:
    """Those of one table or of all, by the attempts' ids; of one domain those of its tables that are there.

    Whose a table was that is gone is told by its attempts alone: only who reaches every domain sees such files.
    """
    found: list[UnknownFolder] = []
    for uuid in vault.tables() if table_uuid is None else [table_uuid]:
        named = [each for each in vault.folders(uuid, VaultKind.QUARANTINE) if _ATTEMPT_ID.fullmatch(each)]
        if not named:
            continue
        with ledger.read() as unit:
            row = tables.find_by_uuid(unit, uuid)
            if domain is not None and (row is None or row.domain != domain):
                continue
            unknown, name = quarantine.unknown_among(unit, named), table_name(unit, uuid)
        for attempt_id in unknown:
            files = tuple(vault.files(uuid, VaultKind.QUARANTINE, attempt_id))
            if files:
                found.append(UnknownFolder(attempt_id, uuid, name, files))
    return sorted(found, key=lambda each: each.attempt_id)
