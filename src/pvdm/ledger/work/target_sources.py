"""Which table a target last published from, under each name that its contracts give to a source.

A table that is dropped, or gets another name, and is created again has another UUID: it is another source. Nothing of
it is published until an operator has signed a contract that names its UUID.
"""

from __future__ import annotations

from sqlalchemy import update

from pvdm.errors import NotAllowedError
from pvdm.ledger import ids
from pvdm.ledger.schema.work import target_sources
from pvdm.ledger.unit import Unit
from pvdm.model.contract import Source


def find(unit: Unit, target: str, name: str) -> str | None:
    """The UUID of the source that the target last published from under this name."""
    row = unit.found(target_sources, target=target, source_name=name)
    return None if row is None else str(row["source"])


def require_same(unit: Unit, target: str, named: Source, source: str) -> None:
    """Raise `source_replaced` unless the source is the approved one, or the one that was last published.

    The identity of a set of files is where its manifest lies. The contract names that, so nothing can replace it.
    """
    if named.table is None:
        return
    expected = named.uuid or find(unit, target, named.table)
    if expected is not None and expected != source:
        by = "the contract names" if named.uuid is not None else "was last published from"
        raise NotAllowedError(
            "source_replaced",
            f"{named.table} is another table than the one that {by}",
            expected=f"the table with UUID {expected}",
            got=f"UUID {source}",
            hint="nothing was published; an operator who has looked at the new table puts "
            f"`uuid: {source}` below boundary.source.table of the contract, and signs that: "
            "`pvdm migrate propose --contract FILE`",
            source_uuid=source,
        )


def note(unit: Unit, target: str, named: Source, source: str, *, workload_id: str) -> None:
    """The target has published from this source. The caller holds the lock of the target's claims."""
    if named.table is None or find(unit, target, named.table) == source:
        return
    key = {"target": ids.name(target, "target"), "source_name": ids.name(named.table, "source name")}
    changed = {"source": ids.name(source, "source"), "workload_id": workload_id}
    if not unit.insert_new(target_sources, **key, **changed):
        c = target_sources.c
        wanted = update(target_sources).where(c.target == target, c.source_name == named.table)
        unit.execute(wanted.values(**changed, at_micros=unit.at_micros))
