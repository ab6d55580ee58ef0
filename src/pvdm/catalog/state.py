"""A table as a commit judges it: its row, and the document that the row points to, byte for byte."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.upstream.tables import Upstreams
from pvdm.errors import InputError
from pvdm.lake.files import MetadataFiles, StoredFile
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import TableRow

DOCUMENTS_KEPT_MAX_BYTES: Final = 134_217_728
DOCUMENTS_OF_TABLE_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class TableState:
    """What is judged and what the swap compares are one and the same."""

    row: TableRow
    metadata: TableMetadata


class _Documents:
    """Parsed documents by the hash of their bytes: the newest few of each table, and what is used of these."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[TableMetadata, int]] = OrderedDict()
        self._of_table: dict[str, list[str]] = {}
        self._bytes = 0

    def find(self, sha256: str) -> TableMetadata | None:
        """The document of these bytes, if it is kept."""
        with self._lock:
            found = self._kept.get(sha256)
            if found is None:
                return None
            self._kept.move_to_end(sha256)
            return found[0]

    def keep(self, sha256: str, metadata: TableMetadata, size: int) -> None:
        """So many of them as their files' bytes allow; what was not asked for longest goes first."""
        table = str(metadata.table_uuid)
        with self._lock:
            self._remove(sha256)
            self._kept[sha256] = (metadata, size)
            self._bytes += size
            self._of_table.setdefault(table, []).append(sha256)
            while len(self._of_table[table]) > DOCUMENTS_OF_TABLE_MAX:
                # Each commit leaves one behind that hardly anybody asks for again.
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
    """Loads tables; parsed documents are kept in memory by the hash of their bytes."""

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

    def find(self, levels: Levels, name: str) -> TableState | None:
        """The table, if it is there; a namespace that is not there is an error."""
        with self._ledger.read() as unit:
            row = tables.find(unit, namespaces.get(unit, levels).namespace_id, name)
        return None if row is None else self.of(row)

    def get(self, levels: Levels, name: str) -> TableState:
        """The table; not being there, or its namespace not being there, is one error."""
        with self._ledger.read() as unit:
            namespace, row = tables.find_with_home(unit, levels, name)
        if namespace is not None and row is None:
            row = self.upstreams.noted(namespace, name)
        if row is None:
            raise unknown_table(levels, name)
        return self.of(row)

    def of(self, row: TableRow) -> TableState:
        """The document of a row; the file is read and hashed every time, and parsed once.

        Of an upstream's table it is what that shows now, and the row says which file that is.
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
        """The same, for whoever goes by what was staged: an older state than an upstream has shown is not taken."""
        state = self.of(row)
        self.upstreams.require_newest(row, state.metadata)
        return state

    def keep(self, sha256: str, metadata: TableMetadata) -> None:
        """Remember a document that was just written."""
        self._documents.keep(sha256, metadata, len(metadata.to_bytes()))

    def namespace(self, levels: Levels) -> Namespace:
        """The namespace; not being there is an error."""
        with self._ledger.read() as unit:
            return namespaces.get(unit, levels)


def find_row(unit: Unit, levels: Levels, name: str) -> TableRow | None:
    """The table's row, if namespace and table are there."""
    _, row = tables.find_with_home(unit, levels, name)
    return row


def unknown_table(levels: Levels, name: str) -> InputError:
    """For whoever asks for a table that is not there."""
    return InputError("table_unknown", f"Table does not exist: {namespaces.shown((*levels, name))}")
