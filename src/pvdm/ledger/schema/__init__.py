"""The ledger's tables as values, from which `tools/ledger_sql.py` generates the SQL in `migrations/`.

This module has the parts of which tables are defined: columns, checks and what may change, for both databases.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.schema import SchemaItem

from pvdm.model.states import Machine

metadata: Final = MetaData()
# The SQLSTATE and the start of the message by which a trigger of the ledger refuses a change.
REFUSED_SQLSTATE: Final = "PV001"
REFUSED_PREFIX: Final = "pvdm rule: "


def big() -> BigInteger:
    """A 64-bit integer. SQLite's STRICT tables call it INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")


def word(
    name: str, *items: Any, nullable: bool = False, changes: bool = False, primary_key: bool = False
) -> Column[str]:
    """A text column. With `changes`, its value may change after the row was inserted."""
    return Column(name, Text(), *items, nullable=nullable, primary_key=primary_key, info={"changes": changes})


def words(*names: str, **options: bool) -> list[Column[str]]:
    """Text columns with the same options."""
    return [word(name, **options) for name in names]


def number(name: str, *items: Any, nullable: bool = False, changes: bool = False, **options: Any) -> Column[int]:
    """A 64-bit integer column. With `changes`, its value may change after the row was inserted."""
    return Column(name, big(), *items, nullable=nullable, info={"changes": changes}, **options)


def binary(name: str, *, nullable: bool = False) -> Column[bytes]:
    """A column of bytes, not nullable by default."""
    return Column(name, LargeBinary(), nullable=nullable)


def time() -> Column[int]:
    """The time in microseconds of the unit that last wrote the row. Only the log's own tables have none."""
    return number("at_micros", CheckConstraint("at_micros >= 0", name="at_micros_not_negative"))


def table(
    name: str, *items: SchemaItem, unlogged: tuple[str, ...] | None = (), deletable: bool = False, **options: Any
) -> Table:
    """Define a table. `unlogged` are the columns that events omit; None if the table has no events.

    Triggers refuse to delete a row of any table that is not `deletable`.
    """
    changes = tuple(item.name for item in items if isinstance(item, Column) and item.info.get("changes"))
    # A row that changes gets the time of the change.
    info = {"changes": (*changes, "at_micros") if changes else (), "unlogged": unlogged, "deletable": deletable}
    return Table(name, metadata, *items, sqlite_strict=True, info=info, **options)


def index_where(name: str, condition: str, *columns: Column[Any], unique: bool = False) -> Index:
    """An index over the rows for which the condition holds."""
    where = text(condition)
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    """The check that the column holds one of these words."""
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def state_column(machine: Machine) -> tuple[SchemaItem, SchemaItem]:
    """The state column of a state machine, and its check."""
    return (word("state", changes=True), one_of("state", machine.states))


def hex_text(length: int, *columns: str) -> Iterator[SchemaItem]:
    """The checks that each column holds `length` lower-case hexadecimal digits, in each database's own syntax."""
    for column in columns:
        glob = f"length({column}) = {length} AND {column} NOT GLOB '*[^0-9a-f]*'"
        yield CheckConstraint(glob, name=f"{column}_hex").ddl_if(dialect="sqlite")
        regex = f"{column} ~ '^[0-9a-f]{{{length}}}$'"
        yield CheckConstraint(regex, name=f"{column}_hex").ddl_if(dialect="postgresql")
