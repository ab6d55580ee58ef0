"""Files that attempts left behind, for those of the table's domain: looked for, and removed."""

from __future__ import annotations

from collections.abc import Callable

from pvdm.catalog.desks import Catalog
from pvdm.catalog.names import parse_full_name
from pvdm.steward.access import require_attempt
from pvdm.steward.disposal import Disposal, Orphan
from pvdm.store.tables import TableRow
from pvdm.store.tokens import Grant


class Leftovers:
    """Asks the desk that cleans up after attempts, for one table at a time."""

    def __init__(self, catalog: Callable[[], Catalog], disposal: Disposal | None) -> None:
        self._catalog = catalog
        self._disposal = disposal

    def orphans(self, grant: Grant, table: str) -> list[Orphan]:
        """What ended attempts left in their own places, and nothing refers to."""
        row, disposal = self._found(grant, table)
        return disposal.orphans(row)

    def remove(self, grant: Grant, table: str) -> list[Orphan]:
        """Remove them; those that are gone."""
        row, disposal = self._found(grant, table)
        return disposal.remove_orphans(row)

    def _found(self, grant: Grant, table: str) -> tuple[TableRow, Disposal]:
        require_attempt(grant, None)
        *levels, name = parse_full_name(table)
        row = self._catalog().tables.load(grant, tuple(levels), name).row
        if self._disposal is None:
            raise AssertionError("who has a catalog cleans up in it")
        return row, self._disposal
