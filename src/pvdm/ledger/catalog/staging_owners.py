"""Who made which branch and which snapshot of a protected table, so that one producer cannot use up what all share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import func, select, update

from pvdm.ledger.schema.catalog import StagedKind, staging_makers
from pvdm.ledger.unit import Unit

_AT_ONCE: Final = 1_000

Made = tuple[StagedKind, str]
"""A branch by its name, or a snapshot by its id."""


def note(unit: Unit, table_id: str, maker: str, made: Sequence[Made]) -> None:
    """What a commit made is its maker's; a name that comes again belongs to who made it last."""
    for kind, name in made:
        if not unit.insert_new(staging_makers, table_id=table_id, kind=kind.value, name=name, maker=maker):
            unit.execute(
                update(staging_makers)
                .where(
                    staging_makers.c.table_id == table_id,
                    staging_makers.c.kind == kind.value,
                    staging_makers.c.name == name,
                )
                .values(maker=maker, at_micros=unit.at_micros)
            )


def count(unit: Unit, table_id: str, maker: str, kind: StagedKind, names: Collection[str]) -> int:
    """How many of these are the maker's; a look at each by its key, whatever was made before."""
    asked, found = sorted(names), 0
    for start in range(0, len(asked), _AT_ONCE):
        wanted = select(func.count().label("made")).where(
            staging_makers.c.table_id == table_id,
            staging_makers.c.kind == kind.value,
            staging_makers.c.name.in_(asked[start : start + _AT_ONCE]),
            staging_makers.c.maker == maker,
        )
        row = unit.row(wanted)
        found += 0 if row is None else int(row["made"])
    return found
