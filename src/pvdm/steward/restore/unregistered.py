"""Tables of a lost time that nothing was published to: no receipt brings them back, but their documents lie there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pvdm.lake.files import FoundFile, MetadataFiles, revision_of
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import tables
from pvdm.model.statements.migration import Migration, Protection, TableTarget
from pvdm.steward.restore.refill_check import Found
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed


@dataclass(frozen=True, slots=True)
class UnregisteredTable:
    """A table that the restored ledger lacks, and its newest document; `table` is None where no statement names it."""

    table_uuid: str
    metadata_path: str
    table: str | None


def find_unregistered(
    ledger: Ledger, files: MetadataFiles, found: Sequence[Found], *, but: Collection[str]
) -> list[UnregisteredTable]:
    """Find folders of documents whose table no row of the ledger has, dropped ones included; `but` are known."""
    with ledger.read() as unit:
        unknown = [uuid for uuid in files.folders() if uuid not in but and not tables.list_ids(unit, uuid)]
    names = _signed_names(found)
    unregistered = []
    for uuid in unknown:
        whole = (each for each in files.written(uuid) if not each.unfinished)
        newest = max(whole, key=_age, default=None)
        if newest is not None:
            unregistered.append(UnregisteredTable(uuid, newest.location, names.get(uuid)))
    return unregistered


def _age(file: FoundFile) -> tuple[int, float]:
    return revision_of(file.name) or 0, file.modified_seconds


def _signed_names(found: Sequence[Found]) -> dict[str, str]:
    """The last name of each table that a protection or a migration of the lost time is about."""
    names: dict[str, str] = {}
    for each in found:
        if each.envelope is None:
            continue
        if each.entry.kind is EntryKind.MIGRATION:
            moved = read_signed(each.envelope, Migration).table
            names[moved.uuid] = moved.name
        elif each.entry.kind is EntryKind.PROTECTION:
            target = read_signed(each.envelope, Protection).target
            if isinstance(target, TableTarget):
                names[target.table.uuid] = target.table.name
    return names
