"""Files that attempts left behind, for those of the table's domain: looked for, and removed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.names import parse_full_name
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.access import require_attempt
from pvdm.steward.cleanup.orphan_search import Orphan, OrphanSearch


class Leftovers:
    """Searches for them, for one table at a time."""

    def __init__(self, catalog: Callable[[], Catalog], search: OrphanSearch | None) -> None:
        self._catalog = catalog
        self._search = search
        self._lock = threading.Lock()
        self._running: dict[str, Future[list[Orphan]]] = {}

    def orphans(self, grant: Grant, table: str) -> list[Orphan]:
        """What ended attempts and the jobs of published branches left, and nothing refers to.

        Who asks while the table is being searched waits for that search: it reads much, and is made once.
        """
        row, search = self._load_table(grant, table)
        with self._lock:
            running = self._running.get(row.table_uuid)
            if running is None:
                mine = self._running[row.table_uuid] = Future[list[Orphan]]()
        if running is not None:
            return running.result()
        try:
            mine.set_result(search.find(row))
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._running[row.table_uuid]
        return mine.result()

    def remove(self, grant: Grant, table: str) -> list[Orphan]:
        """Remove them; those that are gone."""
        row, search = self._load_table(grant, table)
        return search.remove(row)

    def _load_table(self, grant: Grant, table: str) -> tuple[TableRow, OrphanSearch]:
        require_attempt(grant, None)
        *levels, name = parse_full_name(table)
        row = self._catalog().tables.load(grant, tuple(levels), name).row
        if self._search is None:
            raise AssertionError("who has a catalog cleans up in it")
        return row, self._search
