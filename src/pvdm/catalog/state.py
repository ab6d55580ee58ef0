"""A table as a commit checks it: its row, and the document that the row points to."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.upstreams import Upstreams
from pvdm.errors import Code, PvdmError
from pvdm.lake.files import MetadataFiles, StoredFile
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.tables import TableRow

DOCUMENTS_KEPT_MAX_BYTES: Final = 134_217_728
DOCUMENTS_OF_TABLE_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class TableState:
    """The row that the swap compares, and its document."""

    row: TableRow
    metadata: TableMetadata


class _Documents:
    """A cache of parsed documents by the hash of their bytes: the newest few of each table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[TableMetadata, int]] = OrderedDict()
        self._of_table: dict[str, list[str]] = {}
        self._bytes = 0

    def find(self, sha256: str) -> TableMetadata | None:
        """The document of these bytes, or None."""
        with self._lock:
            found = self._kept.get(sha256)
            if found is None:
                return None
            self._kept.move_to_end(sha256)
            return found[0]

    def keep(self, sha256: str, metadata: TableMetadata, size: int) -> None:
        """Add a document. The least recently used are removed above the limit of bytes."""
        table = str(metadata.table_uuid)
        with self._lock:
            self._remove(sha256)
            self._kept[sha256] = (metadata, size)
            self._bytes += size
            self._of_table.setdefault(table, []).append(sha256)
            while len(self._of_table[table]) > DOCUMENTS_OF_TABLE_MAX:
                # Each commit leaves one behind that is rarely used again.
                self._remove(self._of_table[table][0])
            while self._bytes > DOCUMENTS_KEPT_MAX_BYTES:
                self._remove(next(iter(self._kept)))

    def _remove(self, sha256: str) -> None:
        found = self._kept.pop(sha256, None)
        if found is None:
            return
        metadata, size = found
        self._bytes -= size
        table = str(metadata.table_uuid)
        self._of_table[table].remove(sha256)
        if not self._of_table[table]:
            del self._of_table[table]


class States:
    """Loads tables. Parsed documents are cached by the hash of their bytes."""

    def __init__(
        self, ledger: Ledger, files: MetadataFiles, upstreams: Upstreams, documents: _Documents | None = None
    ) -> None:
        self._ledger = ledger
        self._files = files
        self.upstreams = upstreams
        self._documents = documents or _Documents()

    def on(self, ledger: Ledger) -> States:
        """The same files by another ledger's pointers, and upstreams by other connections.

        Every file is read and hashed again. Only the parsed form of bytes with the same hash is reused.
        """
        return States(ledger, self._files, self.upstreams.on(ledger), self._documents)

    def get(self, levels: Levels, name: str) -> TableState:
        """The table. Raises `table_unknown` if it or its namespace does not exist."""
        with self._ledger.read() as unit:
            namespace, row = tables.find_with_namespace(unit, levels, name)
        if namespace is not None and row is None:
            row = self.upstreams.add_from_upstream(namespace, name)
        if row is None:
            raise unknown_table(levels, name)
        return self.of(row)

    def of(self, row: TableRow) -> TableState:
        """The document of a row. The file is read and hashed every time, and parsed once.

        For an upstream's table it is the current document there, and the returned row has its pointer.
        """
        if row.upstream is not None:
            shown, seen = self.upstreams.load(row)
            return TableState(shown, seen.metadata)
        sha256 = row.pointer.sha256
        data = self._files.read(StoredFile(row.pointer.location, sha256))
        known = self._documents.find(sha256)
        if known is None:
            known = TableMetadata.parse(data)
            self._documents.keep(sha256, known, len(data))
        return TableState(row, known)

    def newest(self, row: TableRow) -> TableState:
        """The same, but raises if an upstream shows an older state than before."""
        state = self.of(row)
        self.upstreams.require_newest(row, state.metadata)
        return state

    def keep(self, sha256: str, metadata: TableMetadata) -> None:
        """Add a document that was just written to the cache."""
        self._documents.keep(sha256, metadata, len(metadata.to_bytes()))


def unknown_table(levels: Levels, name: str) -> PvdmError:
    """The error for a table that does not exist."""
    return Code.TABLE_UNKNOWN(f"Table does not exist: {namespaces.dotted_name((*levels, name))}")
