"""The snapshots that `main` of an upstream's protected table may have; and who staged which branch or snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func, select

from pvdm.ledger import ids
from pvdm.ledger.schema.catalog import StagedKind, known_snapshots, staging_owners
from pvdm.ledger.unit import Unit

StagedItem = tuple[StagedKind, str]  # a branch and its name, or a snapshot and its id


def add_known(unit: Unit, table_uuid: str, hashes: Mapping[str, str], *, structure_sha256: str) -> None:
    """Store snapshots that `main` may have. `hashes` has the hash of the facts of each snapshot, by snapshot id."""
    known = list_known(unit, table_uuid)
    rows = [
        {
            "table_uuid": ids.require_name(table_uuid, "table UUID"),
            "snapshot_id": ids.require_snapshot_id(snapshot_id),
            "facts_sha256": ids.require_sha256(sha256, "hash of a snapshot"),
            "structure_sha256": ids.require_sha256(structure_sha256, "hash of the structure"),
        }
        for snapshot_id, sha256 in hashes.items()
        if (snapshot_id, sha256) not in known
    ]
    unit.insert_many(known_snapshots, rows)


def list_known(unit: Unit, table_uuid: str) -> dict[tuple[str, str], str]:
    """The stored snapshots. Key: snapshot id and hash of its facts. Value: `structure_sha256` given to `add_known`."""
    wanted = select(known_snapshots).where(known_snapshots.c.table_uuid == table_uuid)
    return {(row["snapshot_id"], row["facts_sha256"]): row["structure_sha256"] for row in unit.rows(wanted)}


def set_owner(unit: Unit, table_id: str, owner: str, items: Sequence[StagedItem]) -> None:
    """Note the producer who made these branches and snapshots. A name that is used again gets the new owner."""
    for kind, name in items:
        key = {"table_id": table_id, "kind": kind.value, "name": name}
        if not unit.insert_new(staging_owners, **key, owner=owner):
            unit.update(staging_owners, key, owner=owner)


def count_owned(unit: Unit, table_id: str, owner: str, kind: StagedKind, names: Collection[str]) -> int:
    """How many of these branches or snapshots (`kind`) belong to the owner."""
    wanted = select(func.count().label("owned")).where(
        staging_owners.c.table_id == table_id, staging_owners.c.kind == kind.value, staging_owners.c.owner == owner
    )
    return sum(int(row["owned"]) for row in unit.rows_with(wanted, staging_owners.c.name, sorted(names)))
