"""What is protected now: live tables and namespaces under a contract, since when and by whose word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, RowMapping, and_, or_, select

from pvdm.ledger.catalog.namespaces import Levels, key, levels_of_key
from pvdm.ledger.connection import Row
from pvdm.ledger.schema.catalog import namespaces, tables
from pvdm.ledger.schema.protection import ActionWord, protections
from pvdm.ledger.schema.work import statements
from pvdm.ledger.unit import Unit


@dataclass(frozen=True, slots=True)
class Standing:
    """A table (id: its UUID) or a namespace under its contract; without a protection of its own it was born so."""

    levels: Levels
    name: str | None
    id: str
    contract_sha256: str
    since_micros: int
    protection_id: str | None


def tables_now(
    unit: Unit,
    *,
    domain: str | None = None,
    levels: Levels | None = None,
    name: str | None = None,
    after: tuple[Levels, str] | None = None,
    count: int,
) -> list[Standing]:
    """The protected tables that are there, by namespace and name: of one namespace, or one table, if so asked."""
    wanted = (
        select(tables, namespaces.c.levels)
        .join(namespaces, namespaces.c.namespace_id == tables.c.namespace_id)
        .where(tables.c.contract_hash.is_not(None), tables.c.dropped_micros.is_(None))
    )
    if domain is not None:
        wanted = wanted.where(tables.c.domain == domain)
    if levels is not None:
        wanted = wanted.where(namespaces.c.levels == key(levels))
    if name is not None:
        wanted = wanted.where(tables.c.name == name)
    if after is not None:
        within, last = key(after[0]), after[1]
        same = and_(namespaces.c.levels == within, tables.c.name > last)
        wanted = wanted.where(or_(namespaces.c.levels > within, same))
    rows = unit.rows(wanted.order_by(namespaces.c.levels, tables.c.name).limit(count))
    words = _words(unit, protections.c.table_uuid, [row["table_uuid"] for row in rows])
    return [
        _standing(row, row["name"], row["table_uuid"], row["contract_hash"], words.get(row["table_uuid"]))
        for row in rows
    ]


def namespaces_now(
    unit: Unit, *, domain: str | None = None, levels: Levels | None = None, after: Levels | None = None, count: int
) -> list[Standing]:
    """The protected namespaces that are there, by their keys; one of them if so asked."""
    wanted = select(namespaces).where(namespaces.c.protected_by.is_not(None), namespaces.c.dropped_micros.is_(None))
    if domain is not None:
        wanted = wanted.where(namespaces.c.domain == domain)
    if levels is not None:
        wanted = wanted.where(namespaces.c.levels == key(levels))
    if after is not None:
        wanted = wanted.where(namespaces.c.levels > key(after))
    rows = unit.rows(wanted.order_by(namespaces.c.levels).limit(count))
    words = _words(unit, protections.c.namespace_id, [row["namespace_id"] for row in rows])
    return [
        _standing(row, None, row["namespace_id"], row["protected_by"], words.get(row["namespace_id"])) for row in rows
    ]


def _words(unit: Unit, column: ColumnElement[str], wanted: Sequence[str]) -> dict[str, RowMapping]:
    """The newest protection about each; what was only ever born protected has none."""
    said = (
        select(protections, column.label("about"), statements.c.at_micros.label("logged_micros"))
        .join(statements, statements.c.statement_id == protections.c.protection_id)
        .where(column.in_(wanted))
        .order_by(statements.c.log_index)
    )
    newest = {row["about"]: row for row in unit.rows(said)}
    return {about: row for about, row in newest.items() if row["action"] == ActionWord.PROTECT}


def _standing(row: Row, name: str | None, own: str, contract: str, word: Row | None) -> Standing:
    # When the log took the protection in: a restore writes the row anew, and the statement under its old time.
    since = row["protected_micros"] if word is None else word["logged_micros"]
    found = None if word is None else word["protection_id"]
    return Standing(levels_of_key(row["levels"]), name, own, contract, since, found)
