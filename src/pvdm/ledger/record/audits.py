"""What an audit of one table asks the ledger for: which statements are about it, in the log's order."""

from __future__ import annotations

from typing import Final

from sqlalchemy import or_, select

from pvdm.ledger.schema.protection import protections, table_migrations
from pvdm.ledger.schema.work import receipts, statements
from pvdm.ledger.unit import Unit

AUDIT_APPROVALS_MAX: Final = 10_000


def approval_ids(unit: Unit, table_uuid: str, namespace_id: str) -> list[str]:
    """The protections and migrations of a table, and the protections of its namespace, oldest first."""
    said = select(protections.c.protection_id).where(
        or_(protections.c.table_uuid == table_uuid, protections.c.namespace_id == namespace_id)
    )
    moved = select(table_migrations.c.migration_id).where(table_migrations.c.table_uuid == table_uuid)
    own = statements.c.statement_id
    wanted = select(own).where(or_(own.in_(said), own.in_(moved))).order_by(statements.c.log_index)
    return [row["statement_id"] for row in unit.rows(wanted.limit(AUDIT_APPROVALS_MAX))]


def receipt_ids(unit: Unit, table_uuid: str, *, after: int | None, count: int) -> list[str]:
    """The table's next receipts behind a place in the log."""
    wanted = (
        select(receipts.c.receipt_id)
        .join(statements, statements.c.statement_id == receipts.c.receipt_id)
        .where(receipts.c.table_uuid == table_uuid)
        .order_by(statements.c.log_index)
        .limit(count)
    )
    if after is not None:
        wanted = wanted.where(statements.c.log_index > after)
    return [row["receipt_id"] for row in unit.rows(wanted)]
