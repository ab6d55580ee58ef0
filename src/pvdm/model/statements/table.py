"""Tables, namespaces and source snapshots as signed documents name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pvdm.model.codec import Document, Long, Random, Sha256, Text, Uuid

SOURCES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class TableRef(Document, title="a table"):
    """A table, identified by its UUID. Catalog and name say where it is found."""

    catalog: Text
    uuid: Uuid
    name: Text


@dataclass(frozen=True, slots=True)
class NamespaceRef(Document, title="a namespace"):
    """A namespace, identified by its id. Catalog and name say where it is found."""

    catalog: Text
    id: Random
    name: Text


@dataclass(frozen=True, slots=True)
class SourceSnapshot(Document, title="a source"):
    """The pinned snapshot of a source, and the freeze root: a hash over path, size and SHA-256 of its files."""

    table: TableRef
    snapshot_id: Long
    freeze_root_sha256: Sha256
