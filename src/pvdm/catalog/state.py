"""A table as a commit checks it: its row, and the metadata document that the row points to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.catalog.upstreams import Upstreams
from pvdm.errors import Code, PvdmError
from pvdm.lake.files import MetadataFiles
from pvdm.lake.format.manifest.cache import SizedCache
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.tables import TableRow

DOCUMENTS_KEPT_MAX_BYTES: Final = 134_217_728
DOCUMENTS_OF_TABLE_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class TableState:
    """A table's row, which a commit compares with the ledger's, and the document that the row points to."""

    row: TableRow
    metadata: TableMetadata


@dataclass(frozen=True, slots=True)
class _Document:
    """A parsed document, with the hash and the number of the bytes it was parsed from."""

    sha256: str
    metadata: TableMetadata
    size: int


_Documents = SizedCache[str, tuple[_Document, ...]]
"""The newest parsed documents of each table, by table UUID. Each commit adds one; older ones are rarely used again."""


class States:
    """Loads tables. Parsed documents are cached by the hash of their bytes."""

    def __init__(
        self, ledger: Ledger, files: MetadataFiles, upstreams: Upstreams, documents: _Documents | None = None
    ) -> None:
        self._ledger = ledger
        self._files = files
        self.upstreams = upstreams
        self._documents = _Documents(DOCUMENTS_KEPT_MAX_BYTES) if documents is None else documents

    def with_ledger(self, ledger: Ledger) -> States:
        """New `States` for the same files, with the pointers of another `Ledger`, and new connections to upstreams.

        Every file is read and hashed again. Only the parsed form of bytes with the same hash is reused.
        """
        return States(ledger, self._files, self.upstreams.with_ledger(ledger), self._documents)

    def get(self, levels: Levels, name: str) -> TableState:
        """The table. Raises `table_unknown` if it or its namespace does not exist."""
        with self._ledger.read() as unit:
            namespace, row = tables.find_with_namespace(unit, levels, name)
        if namespace is not None and row is None:
            row = self.upstreams.add_from_upstream(namespace, name)
        if row is None:
            raise unknown_table_error(levels, name)
        return self.load(row)

    def load(self, row: TableRow) -> TableState:
        """The state of a row. Its metadata file is read and hashed every time, and parsed if the cache lacks it.

        The document of an upstream's table is read from the upstream, and the returned row has the pointer seen there.
        """
        if row.upstream is not None:
            current_row, upstream_state = self.upstreams.load(row)
            return TableState(current_row, upstream_state.metadata)
        sha256 = row.pointer.sha256
        data = self._files.read(row.pointer)
        cached = self._documents.get(row.table_uuid) or ()
        metadata = next((each.metadata for each in cached if each.sha256 == sha256), None)
        if metadata is None:
            metadata = TableMetadata.parse(data)
            self._cache(_Document(sha256, metadata, len(data)))
        return TableState(row, metadata)

    def load_newest(self, row: TableRow) -> TableState:
        """Load a row. Raises `upstream_stale` if its upstream shows an older state than it did before."""
        state = self.load(row)
        self.upstreams.require_newest(row, state.metadata)
        return state

    def cache_document(self, sha256: str, metadata: TableMetadata) -> None:
        """Cache a document that was just written."""
        self._cache(_Document(sha256, metadata, len(metadata.to_bytes())))

    def _cache(self, document: _Document) -> None:
        """Cache the document, and as many others of its table as the limits allow."""
        table_uuid = str(document.metadata.table_uuid).lower()
        others = [each for each in self._documents.get(table_uuid) or () if each.sha256 != document.sha256]
        newest = [document, *others][:DOCUMENTS_OF_TABLE_MAX]
        while len(newest) > 1 and sum(each.size for each in newest) > DOCUMENTS_KEPT_MAX_BYTES:
            newest.pop()
        self._documents.put(table_uuid, tuple(newest), sum(each.size for each in newest))


def unknown_table_error(levels: Levels, name: str) -> PvdmError:
    """The error for a table that does not exist."""
    return Code.TABLE_UNKNOWN(f"Table does not exist: {namespaces.dotted_name((*levels, name))}")
