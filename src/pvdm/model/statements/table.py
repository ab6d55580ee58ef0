"""Tables, namespaces and source snapshots as signed documents name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from pvdm.model.codec import DecimalText, Document, Random, Sha256, Text, Uuid, number_between

SOURCES_MAX: Final = 100
SpecId: TypeAlias = Annotated[int, number_between(0, 2**31 - 1)]
FormatVersion: TypeAlias = Annotated[int, number_between(1, 3)]


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
    snapshot_id: DecimalText
    freeze_root_sha256: Sha256
