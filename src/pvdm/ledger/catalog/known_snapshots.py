"""What the history of an upstream's protected table may show: snapshots as they were signed for, or sent by the gate.

Facts of a snapshot are told by their hash; an id alone is nobody's word.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from pvdm.ledger import ids
from pvdm.ledger.schema.upstream import vouched
from pvdm.ledger.unit import Unit


def vouch(unit: Unit, table_uuid: str, facts: Mapping[str, str], *, structure_sha256: str) -> None:
    """These snapshots, by their ids and the hashes of their facts, belong to the table when it is built like that."""
    known = of_table(unit, table_uuid)
    rows = [
        {
            "table_uuid": ids.name(table_uuid, "table UUID"),
            "snapshot_id": ids.snapshot_id(snapshot_id),
            "facts_sha256": ids.sha256(sha256, "hash of a snapshot"),
            "structure_sha256": ids.sha256(structure_sha256, "hash of the structure"),
        }
        for snapshot_id, sha256 in facts.items()
        if (snapshot_id, sha256) not in known
    ]
    unit.insert_many(vouched, rows)


def of_table(unit: Unit, table_uuid: str) -> dict[tuple[str, str], str]:
    """All that is vouched for at the table: the structure that it was built by, for each snapshot and its facts."""
    wanted = select(vouched).where(vouched.c.table_uuid == table_uuid)
    return {(row["snapshot_id"], row["facts_sha256"]): row["structure_sha256"] for row in unit.rows(wanted)}
