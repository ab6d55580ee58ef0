"""The pinned source: a snapshot of a table, or a set of Parquet files that a manifest lists with their hashes."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from pvdm.digest import kernel_engine
from pvdm.digest.parquet import read_batches
from pvdm.errors import Code, InputError
from pvdm.lake.format.json_document import Node, Raw, parse_json
from pvdm.lake.format.manifest.entry import IdMap
from pvdm.lake.format.schema.document import parse_schema
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import parse_location
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.entries import FileReader
from pvdm.lake.read.resolve import initial_defaults
from pvdm.lake.read.scan import Scan, plan_scan, scan_batches, schema_of
from pvdm.model.fields import require_sha256
from pvdm.model.schema import Schema
from pvdm.model.statements.table import TableRef

SOURCE_MANIFEST_MAX_BYTES: Final = 67_108_864
SOURCE_FILES_MAX: Final = 100_000
SOURCE_FILES_KIND: Final = "pvdm/source-files/v1"
_CATALOG: Final = "files"


@dataclass(frozen=True, slots=True)
class PinnedSource:
    """The source as a workload has it: which table or set of files, which state of it, and how it is read."""

    ref: TableRef
    snapshot_id: int
    scan: Scan
    metadata: TableMetadata | None = None
    """The table's own document, for readers that plan by themselves; a set of files has none."""
    newer_columns: tuple[Raw, ...] = ()
    """The table's columns that came after the snapshot: a workload keeps them, so that its intent stays the same."""

    def reading(self, names: Iterable[str], *, stored: Iterable[str] = ()) -> PinnedSource:
        """The same source, read for these columns only; those of `stored` may come as they are stored."""
        scan = self.scan.select(names)
        chosen = scan.schema.select(set(stored)).fields
        ids = frozenset(each.field_id for each in chosen if each.field_id is not None)
        return replace(self, scan=replace(scan, stored=ids))

    def batches(self, file: ScanFile, fetch: Callable[[str], bytes]) -> Iterator[pa.RecordBatch]:
        """The rows of one of its files, resolved and without what is deleted."""
        kernel_engine()  # nothing else reads files; where it is missing, this says how to get it
        return scan_batches(self.scan, file, fetch, read_batches)


def pin_table(ref: TableRef, metadata: TableMetadata, snapshot_id: int, reader: FileReader) -> PinnedSource:
    """A snapshot of a table."""
    return PinnedSource(ref, snapshot_id, plan_scan(metadata, _snapshot(ref, metadata, snapshot_id), reader), metadata)


def pinned_schema(ref: TableRef, metadata: TableMetadata, snapshot_id: int) -> Schema:
    """The columns of a snapshot that was pinned; none of its files is looked for."""
    return to_model(schema_of(metadata, _snapshot(ref, metadata, snapshot_id)))


def _snapshot(ref: TableRef, metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    snapshot = metadata.snapshot(snapshot_id)
    if snapshot is None:
        raise Code.SOURCE_SNAPSHOT_UNKNOWN(f"{ref.name} does not have the snapshot", got=str(snapshot_id))
    return snapshot


def pin_files(location: str, data: bytes) -> PinnedSource:
    """The files that the manifest at this location lists; the state of the set is the hash of the manifest."""
    with _of_manifest(location):
        return _pinned(location, data)


def state_of(manifest: bytes) -> int:
    """What stands for a snapshot id where the source is a set of files."""
    return int.from_bytes(hashlib.sha256(manifest).digest()[:8], "big") >> 1


def _pinned(location: str, data: bytes) -> PinnedSource:
    node = Node(parse_json(data, what="the manifest of source files", size_max_bytes=SOURCE_MANIFEST_MAX_BYTES), "$")
    if node.text("kind") != SOURCE_FILES_KIND:
        raise _invalid("$.kind", SOURCE_FILES_KIND, ascii(node.text("kind")[:80]))
    _require_keys(node, {"kind", "schema", "files"})
    table_schema = parse_schema(node.node("schema"))
    listed = tuple(_file(each) for each in _listed(node))
    places = {str(parse_location(each.location)) for each in listed}
    if len(places) != len(listed):
        raise _invalid("$.files", "each file once", "a file twice")
    ref = TableRef(_CATALOG, str(uuid.uuid5(uuid.NAMESPACE_URL, location)), location)
    schema = to_model(table_schema)
    # Nothing renames a column of such a set, so that names are as good as ids where a file has none.
    return PinnedSource(
        ref, state_of(data), Scan(schema, frozenset(), listed, initial_defaults(table_schema), named=schema)
    )


@contextlib.contextmanager
def _of_manifest(location: str) -> Iterator[None]:
    """What is wrong with a manifest is told with the place of the manifest."""
    try:
        yield
    except InputError as error:
        raise InputError(
            error.reason,
            f"{location}: {error.message}",
            expected=error.expected,
            got=error.got,
            hint=error.hint or "docs/sources.md has the format; `pvdm source-files` writes one",
            **{**error.details, "manifest": location},
        ) from None


def require_descends(metadata: TableMetadata, snapshot_id: int, last_published: int | None) -> None:
    """The pinned snapshot has what was published last behind it: an older or another line would undo it unseen."""
    if last_published is None:
        return
    for snapshot in metadata.ancestry(snapshot_id):
        # The parent may have expired and still be named.
        if last_published in (snapshot.snapshot_id, snapshot.parent_id):
            return
    raise Code.SOURCE_NOT_ALLOWED(
        reason="source_not_descended", expected=f"a descendant of {last_published}", got=str(snapshot_id)
    )


def _listed(node: Node) -> Iterator[Node]:
    if len(node.items("files")) > SOURCE_FILES_MAX:
        raise _invalid("$.files", f"at most {SOURCE_FILES_MAX} files", str(len(node.items("files"))))
    return node.nodes("files")


def _file(node: Node) -> ScanFile:
    _require_keys(node, {"path", "size", "sha256"})
    size = node.long("size")
    if size < 0:
        raise _invalid(node.at("size"), "a number of bytes", str(size))
    require_sha256(node.text("sha256"), "a source file's SHA-256")
    return ScanFile(
        location=node.text("path"),
        size=size,
        record_count=None,
        sequence_number=0,
        spec_id=0,
        partition=IdMap(),
        constants=IdMap(),
        sha256=node.text("sha256"),
    )


def _require_keys(node: Node, wanted: set[str]) -> None:
    """Nothing besides: what is not read would be believed to count."""
    found: set[str] = {str(key) for key in node.raw}
    if found != wanted:
        raise _invalid(node.place, ", ".join(sorted(wanted)), ascii(", ".join(sorted(found))[:200]))


def _invalid(place: str, expected: str, got: str) -> InputError:
    return InputError(
        "source_manifest_invalid", f"the manifest of source files is wrong at {place}", expected=expected, got=got
    )
