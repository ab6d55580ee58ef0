"""What is protected now: live tables and namespaces under a contract, since when and by which protection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, RowMapping, and_, or_, select

from pvdm.ledger.catalog.namespaces import Levels, levels_key, levels_of_key
from pvdm.ledger.connection import Row
from pvdm.ledger.schema.catalog import namespaces, tables
from pvdm.ledger.schema.record import ActionWord, protections, statements
from pvdm.ledger.unit import Unit


@dataclass(frozen=True, slots=True)
class ProtectedObject:
    """A table (id: its UUID) or a namespace under its contract. Without a protection it was created protected."""

    levels: Levels
    name: str | None
    id: str
    contract_sha256: str
    since_micros: int
    protection_id: str | None


def list_tables(
    unit: Unit,
    *,
    domain: str | None = None,
    levels: Levels | None = None,
    name: str | None = None,
    after: tuple[Levels, str] | None = None,
    count: int,
) -> list[ProtectedObject]:
    """The live protected tables, by namespace and name; of one namespace, or one table, on request."""
    wanted = (
        select(tables, namespaces.c.levels)
        .join(namespaces, namespaces.c.namespace_id == tables.c.namespace_id)
        .where(tables.c.contract_hash.is_not(None), tables.c.dropped_micros.is_(None))
    )
    if domain is not None:
        wanted = wanted.where(tables.c.domain == domain)
    if levels is not None:
        wanted = wanted.where(namespaces.c.levels == levels_key(levels))
    if name is not None:
        wanted = wanted.where(tables.c.name == name)
    if after is not None:
        within, last_name = levels_key(after[0]), after[1]
        same = and_(namespaces.c.levels == within, tables.c.name > last_name)
        wanted = wanted.where(or_(namespaces.c.levels > within, same))
    rows = unit.rows(wanted.order_by(namespaces.c.levels, tables.c.name).limit(count))
    newest = _newest_protections(unit, protections.c.table_uuid, [row["table_uuid"] for row in rows])
    return [
        _protected_object(row, row["name"], row["table_uuid"], row["contract_hash"], newest.get(row["table_uuid"]))
        for row in rows
    ]


def list_namespaces(
    unit: Unit, *, domain: str | None = None, levels: Levels | None = None, after: Levels | None = None, count: int
) -> list[ProtectedObject]:
    """The live protected namespaces, by key; one of them on request."""
    wanted = select(namespaces).where(namespaces.c.protected_by.is_not(None), namespaces.c.dropped_micros.is_(None))
    if domain is not None:
        wanted = wanted.where(namespaces.c.domain == domain)
    if levels is not None:
        wanted = wanted.where(namespaces.c.levels == levels_key(levels))
    if after is not None:
        wanted = wanted.where(namespaces.c.levels > levels_key(after))
    rows = unit.rows(wanted.order_by(namespaces.c.levels).limit(count))
    newest = _newest_protections(unit, protections.c.namespace_id, [row["namespace_id"] for row in rows])
    return [
        _protected_object(row, None, row["namespace_id"], row["protected_by"], newest.get(row["namespace_id"]))
        for row in rows
    ]


def _newest_protections(unit: Unit, column: ColumnElement[str], wanted: Sequence[str]) -> dict[str, RowMapping]:
    """The newest protection of each id. What was created protected has none."""
    logged = (
        select(protections, column.label("about"), statements.c.at_micros.label("logged_micros"))
        .join(statements, statements.c.statement_id == protections.c.protection_id)
        .where(column.in_(wanted))
        .order_by(statements.c.log_index)
    )
    newest = {row["about"]: row for row in unit.rows(logged)}
    return {about: row for about, row in newest.items() if row["action"] == ActionWord.PROTECT}


def _protected_object(
    row: Row, name: str | None, object_id: str, contract: str, protection: Row | None
) -> ProtectedObject:
    # The time of the statement in the log: a restore writes the row again, and keeps the time of the statement.
    since = row["protected_micros"] if protection is None else protection["logged_micros"]
    protection_id = None if protection is None else protection["protection_id"]
    return ProtectedObject(levels_of_key(row["levels"]), name, object_id, contract, since, protection_id)
