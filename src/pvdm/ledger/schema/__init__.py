"""The ledger's tables as values, from which `tools/ledger_sql.py` generates the SQL in `migrations/`.

This module has the functions that define a table: its columns, indexes and checks, and which columns may change.
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


def big_integer() -> BigInteger:
    """A 64-bit integer. SQLite's STRICT tables call it INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")


def text_column(name: str, *items: Any, nullable: bool = False, changes: bool = False, **options: Any) -> Column[str]:
    """A text column. With `changes`, its value may change after the row was inserted."""
    return Column(name, Text(), *items, nullable=nullable, info={"changes": changes}, **options)


def text_columns(*names: str, **options: bool) -> list[Column[str]]:
    """Text columns with the same options."""
    return [text_column(name, **options) for name in names]


def number_column(name: str, *items: Any, nullable: bool = False, changes: bool = False, **options: Any) -> Column[int]:
    """A 64-bit integer column. With `changes`, its value may change after the row was inserted."""
    return Column(name, big_integer(), *items, nullable=nullable, info={"changes": changes}, **options)


def bytes_column(name: str, *, nullable: bool = False, changes: bool = False) -> Column[bytes]:
    """A column of bytes, not nullable by default. With `changes`, its value may change after the row was inserted."""
    return Column(name, LargeBinary(), nullable=nullable, info={"changes": changes})


def time_column() -> Column[int]:
    """The column `at_micros`: when the row was last written. The tables of the transparency log do not have it."""
    return number_column("at_micros", CheckConstraint("at_micros >= 0", name="at_micros_not_negative"))


def table(
    name: str,
    *items: SchemaItem,
    in_step_log: bool = True,
    not_in_step_log: tuple[str, ...] = (),
    deletable: bool = False,
    **options: Any,
) -> Table:
    """Define a table. With `in_step_log`, triggers log its changes in the table `events`, which is the step log.

    The log leaves out the columns in `not_in_step_log`. Other triggers refuse to change a column that was defined
    without `changes`, and to delete a row unless the table is `deletable`.
    """
    changes = tuple(item.name for item in items if isinstance(item, Column) and item.info.get("changes"))
    info = {
        "changes": (*changes, "at_micros") if changes else (),  # a row that changes gets the time of the change
        "unlogged": not_in_step_log if in_step_log else None,  # columns; None: no change of the table is logged
        "deletable": deletable,
    }
    return Table(name, metadata, *items, sqlite_strict=True, info=info, **options)


def index_where(name: str, condition: str, *columns: Column[Any], unique: bool = False) -> Index:
    """An index over the rows for which the condition holds."""
    where = text(condition)
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def one_of_check(column: str, words: type[StrEnum]) -> CheckConstraint:
    """The check that the column holds one of these words."""
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def state_column(machine: Machine) -> tuple[SchemaItem, SchemaItem]:
    """The state column of a state machine, and its check."""
    return (text_column("state", changes=True), one_of_check("state", machine.states))


def hex_checks(length: int, *columns: str) -> Iterator[SchemaItem]:
    """The checks that the columns hold `length` lower-case hexadecimal digits, for each database in its syntax."""
    for column in columns:
        glob = f"length({column}) = {length} AND {column} NOT GLOB '*[^0-9a-f]*'"
        yield CheckConstraint(glob, name=f"{column}_hex").ddl_if(dialect="sqlite")
        regex = f"{column} ~ '^[0-9a-f]{{{length}}}$'"
        yield CheckConstraint(regex, name=f"{column}_hex").ddl_if(dialect="postgresql")
