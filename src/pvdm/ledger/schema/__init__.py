"""The ledger's tables and triggers as values, from which the SQL in `migrations/` is generated.

This module has the parts of which tables are defined: columns, checks and what may change, for both databases.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.schema import SchemaItem

from pvdm.model.states import Machine

metadata: Final = MetaData()


def big() -> BigInteger:
    """A 64-bit integer. SQLite's STRICT tables call it INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")


def word(name: str, *more: Any, **options: Any) -> Column[str]:
    """A text column, not nullable by default."""
    options.setdefault("nullable", False)
    return Column(name, Text(), *more, **options)


def exact(name: str) -> Column[str]:
    """A text column that both databases order byte by byte, so that a common prefix is a range."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=False)


def number(name: str, *more: Any, **options: Any) -> Column[int]:
    """A 64-bit integer column, not nullable by default."""
    options.setdefault("nullable", False)
    return Column(name, big(), *more, **options)


def binary(name: str, *, nullable: bool = False) -> Column[bytes]:
    """A column of bytes, not nullable by default."""
    return Column(name, LargeBinary(), nullable=nullable)


def time(name: str = "at_micros") -> Column[int]:
    """A time in microseconds. Every table has one: that of the unit that wrote the row."""
    return number(name, CheckConstraint(f"{name} >= 0", name=f"{name}_not_negative"))


def table(
    name: str,
    *items: SchemaItem,
    changes: tuple[str, ...] = (),
    unlogged: tuple[str, ...] | None = (),
    passing: bool = False,
    **options: Any,
) -> Table:
    """Define a table. `changes` are the columns that may change; `unlogged` those that events omit, None for no events.

    Rows of a `passing` table are not part of the record and may be deleted.
    """
    info = {"changes": changes, "unlogged": unlogged, "passing": passing}
    return Table(name, metadata, *items, sqlite_strict=True, info=info, **options)


def index_where(name: str, condition: str, *columns: Column[Any], unique: bool = False) -> Index:
    """An index over the rows for which the condition holds."""
    where = text(condition)
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    """The column holds one of these words."""
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def states(machine: Machine) -> tuple[SchemaItem, ...]:
    """The state column of a state machine."""
    return (word("state"), one_of("state", machine.states))


def hex_text(column: str, length: int) -> tuple[SchemaItem, SchemaItem]:
    """The column holds lower-case hexadecimal digits of one length, checked in each database's own syntax."""
    glob = CheckConstraint(f"length({column}) = {length} AND {column} NOT GLOB '*[^0-9a-f]*'", name=f"{column}_hex")
    regular = CheckConstraint(f"{column} ~ '^[0-9a-f]{{{length}}}$'", name=f"{column}_hex")
    return glob.ddl_if(dialect="sqlite"), regular.ddl_if(dialect="postgresql")
