"""The pinned source, a snapshot of a table or a set of files that a manifest lists, and the errors of reading one."""

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
from pvdm.errors import Code, InputError, PvdmError, VerificationError
from pvdm.lake.format.json_document import JsonObject, Node, parse_json
from pvdm.lake.format.schema.document import parse_schema
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import parse_location
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.entries import FileReader
from pvdm.lake.read.found_manifests import UnchangingFiles
from pvdm.lake.read.resolve import initial_defaults
from pvdm.lake.read.scan import Scan, plan_scan, scan_batches, schema_of
from pvdm.model.canonical_json import dump
from pvdm.model.fields import require_sha256
from pvdm.model.schema import Schema
from pvdm.model.statements.table import TableRef
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.observed import failure_class_of

SOURCE_MANIFEST_MAX_BYTES: Final = 67_108_864
SOURCE_FILES_MAX: Final = 100_000
SOURCE_FILES_KIND: Final = "pvdm/source-files/v1"
_CATALOG: Final = "files"  # in place of a catalog's name


@dataclass(frozen=True, slots=True)
class PinnedSource:
    """The source of a workload: its table or set of files, the pinned snapshot, and the scan that reads it.

    `listing_sha256` is the hash of the manifests that list the source's files, and so of all that the scan was made of.
    """

    ref: TableRef
    snapshot_id: int
    scan: Scan
    listing_sha256: str
    metadata: TableMetadata | None = None
    """The table's metadata, for readers that plan a scan themselves; None for a set of files."""
    newer_columns: tuple[JsonObject, ...] = ()
    """Columns that the table got after the snapshot; the workload stores them, so that its intent stays the same."""

    def select(self, names: Iterable[str], *, stored: Iterable[str] = ()) -> PinnedSource:
        """This source with these columns only. The columns of `stored` may come as dictionaries or narrow decimals."""
        scan = self.scan.select(names)
        fields = scan.schema.select(set(stored)).fields
        ids = frozenset(field.field_id for field in fields if field.field_id is not None)
        return replace(self, scan=replace(scan, stored=ids))

    def batches(self, file: ScanFile, fetch: Callable[[str], bytes]) -> Iterator[pa.RecordBatch]:
        """The rows of one of the source's files, in the source's schema and without deleted rows."""
        kernel_engine()  # raises if the kernel is not installed
        return scan_batches(self.scan, file, fetch, read_batches)


def pin_table(ref: TableRef, metadata: TableMetadata, snapshot_id: int, reader: FileReader) -> PinnedSource:
    """Pin a snapshot of a table."""
    snapshot = _get_snapshot(ref, metadata, snapshot_id)
    manifests = UnchangingFiles(reader)
    scan = plan_scan(metadata, snapshot, manifests)
    return PinnedSource(ref, snapshot_id, scan, hashlib.sha256(dump(manifests.hashes)).hexdigest(), metadata)


def pinned_schema(ref: TableRef, metadata: TableMetadata, snapshot_id: int) -> Schema:
    """The columns of a pinned snapshot; no file is read."""
    return to_model(schema_of(metadata, _get_snapshot(ref, metadata, snapshot_id)))


def _get_snapshot(ref: TableRef, metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    snapshot = metadata.snapshot(snapshot_id)
    if snapshot is None:
        raise Code.SOURCE_SNAPSHOT_UNKNOWN(f"{ref.name} does not have the snapshot", got=str(snapshot_id))
    return snapshot


def pin_files(location: str, data: bytes) -> PinnedSource:
    """Pin the files that the manifest in `data` lists. The manifest's hash takes the place of a snapshot id."""
    try:
        return _parse_manifest(location, data)
    except InputError as error:
        hint = "docs/sources.md has the format; `pvdm source-files` writes a manifest"
        raise error.with_context(f"{location}: {error.message}", hint=hint, manifest=location) from None


def manifest_snapshot_id(manifest: bytes) -> int:
    """The number that a set of files has in place of a snapshot id: 63 bits of its manifest's hash."""
    return int.from_bytes(hashlib.sha256(manifest).digest()[:8], "big") >> 1


def _parse_manifest(location: str, data: bytes) -> PinnedSource:
    node = Node(parse_json(data, what="the manifest of source files", size_max_bytes=SOURCE_MANIFEST_MAX_BYTES), "$")
    if node.text("kind") != SOURCE_FILES_KIND:
        raise _invalid_error("$.kind", SOURCE_FILES_KIND, ascii(node.text("kind")[:80]))
    _require_keys(node, {"kind", "schema", "files"})
    table_schema = parse_schema(node.node("schema"))
    if (count := len(node.array("files"))) > SOURCE_FILES_MAX:
        raise _invalid_error("$.files", f"at most {SOURCE_FILES_MAX} files", str(count))
    listed = tuple(_parse_file(each) for each in node.nodes("files"))
    if len({parse_location(each.location) for each in listed}) != len(listed):
        raise _invalid_error("$.files", "each file once", "a file twice")
    ref = TableRef(_CATALOG, str(uuid.uuid5(uuid.NAMESPACE_URL, location)), location)
    schema = to_model(table_schema)
    # Columns of a set of files are never renamed, so a file without field ids is read by names (`named`).
    scan = Scan(schema, frozenset(), listed, initial_defaults(table_schema), named=schema)
    return PinnedSource(ref, manifest_snapshot_id(data), scan, hashlib.sha256(data).hexdigest())


def require_descends(metadata: TableMetadata, snapshot_id: int, last_published: int | None) -> None:
    """Require that the pinned snapshot is, or descends from, the last published one: an older one would undo rows."""
    if last_published is None:
        return
    for snapshot in metadata.ancestry(snapshot_id):
        # A snapshot still names its parent after the parent has expired.
        if last_published in (snapshot.snapshot_id, snapshot.parent_id):
            return
    expected = f"a descendant of {last_published}"
    raise Code.SOURCE_NOT_ALLOWED(reason="source_not_descended", expected=expected, got=str(snapshot_id))


def _parse_file(node: Node) -> ScanFile:
    _require_keys(node, {"path", "size", "sha256"})
    size = node.long("size")
    if size < 0:
        raise _invalid_error(node.at("size"), "a number of bytes", str(size))
    require_sha256(node.text("sha256"), "a source file's SHA-256")
    return ScanFile(node.text("path"), size, None, sha256=node.text("sha256"))


def _require_keys(node: Node, wanted: set[str]) -> None:
    """Require exactly these keys. An unknown key would have no effect."""
    found: set[str] = {str(key) for key in node.raw}
    if found != wanted:
        raise _invalid_error(node.place, ", ".join(sorted(wanted)), ascii(", ".join(sorted(found))[:200]))


def _invalid_error(place: str, expected: str, got: str) -> PvdmError:
    message = f"the manifest of source files is wrong at {place}"
    return Code.SOURCE_UNSUPPORTED(message, reason="source_manifest_invalid", expected=expected, got=got)


INT96_HINT: Final = (
    "Spark writes INT96 by default: write the files again with "
    "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS, or as an Iceberg table"
)
_CORRECT_SOURCE: Final = (
    "correct the source, or migrate the contract or the target; an open workload keeps its pinned source: "
    "an operator abandons it, and a new workload id pins the source as it is then"
)
# The pinned table or snapshot no longer exists.
_GONE_REASONS: Final = frozenset({"snapshot_schema_unknown", "source_gone", "source_snapshot_unknown"})


@contextlib.contextmanager
def translate_read_errors() -> Iterator[None]:
    """Translate errors of reading a source, so that none of them counts as a fault of the staged files.

    An error that may go away, such as a missing file, becomes `source_unreadable` and is retried. An error about
    columns or values of the pinned rows, or about a file above the limit, cannot go away: it becomes
    `source_unusable`, which ends the attempt.
    """
    try:
        yield
    except VerificationError as error:
        is_permanent = failure_class_of(error.reason) is FailureClass.SCHEMA
        is_permanent |= error.code == Code.VALUE_OUT_OF_RANGE or error.reason == "file_too_large"
        raise unusable_error(error) if is_permanent else _unreadable_error(error) from None
    except InputError as error:
        # The Steward's configuration can be corrected.
        raise _unreadable_error(error) if error.code == Code.STORE_NOT_CONFIGURED else unusable_error(error) from None


@contextlib.contextmanager
def translate_load_errors() -> Iterator[None]:
    """Translate errors of loading a pinned source again.

    A table or snapshot that no longer exists becomes `source_unusable`. A snapshot and its manifests never change, so
    any other error comes from the catalog, the store or the configuration: it becomes `source_unreadable`.
    """
    try:
        yield
    except (InputError, VerificationError) as error:
        raise unusable_error(error) if error.reason in _GONE_REASONS else _unreadable_error(error) from None


def _unreadable_error(error: PvdmError) -> PvdmError:
    message = f"the pinned source cannot be read: {error.message}"
    return Code.SOURCE_UNREADABLE(message, expected=error.expected, got=error.got, cause=error.reason)


def unusable_error(error: PvdmError, hint: str | None = None) -> InputError:
    """The error `source_unusable`: the pinned source can never be read as the contract describes it."""
    if error.code == Code.SOURCE_UNUSABLE and isinstance(error, InputError):
        return error
    has_nanoseconds = any(word in str(error.got) for word in ("[ns", "Nanosecond", "_ns"))
    is_int96 = error.reason == "cast_refused" and has_nanoseconds
    return InputError(
        Code.SOURCE_UNUSABLE,
        f"the source cannot be read as the contract says: {error.message}",
        expected=error.expected,
        got=error.got,
        hint=hint or error.hint or (f"{INT96_HINT}; {_CORRECT_SOURCE}" if is_int96 else _CORRECT_SOURCE),
        cause=error.reason,
        **{key: value for key, value in error.details.items() if key in ("file", "column")},
    )
