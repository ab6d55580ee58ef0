"""A FAIL about rows is located: both sides of the attempt are read again, and what is wrong is told by file and key."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from pvdm.digest import Plan
from pvdm.digest.parquet import FileRequest, read_batches
from pvdm.errors import PvdmError
from pvdm.lake.format.manifest.entry import DataFile, ManifestContent
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.entries import header_of
from pvdm.lake.read.resolve import every_id
from pvdm.model import canonical_json
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.located import ROW_CLASSES, Located, LocatedClass, SampleKey, most
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.intent import Fetch, Intent, files_of_chunk
from pvdm.verify.locate import Bounds, Locating, Rows
from pvdm.verify.sample_keys import Key, joined, keys_at, value_text, writable
from pvdm.verify.source import PinnedSource
from pvdm.verify.usable import source_readable

LOCATED_FILES_MAX: Final = 20
LOCATED_PARTITIONS_MAX: Final = 20
LOCATED_FIELDS_MAX: Final = 100
LOCATED_MAX_BYTES: Final = 1_048_576
_PROBLEM_CHARACTERS: Final = 400
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A staged file as it is told, its entry where it has one, and how its frozen bytes are had."""

    path: str
    entry: DataFile | None
    fetch: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Scope:
    """What one locating is about: whose rows, under which contract, and how both sides are read."""

    bound: BoundContract
    source: PinnedSource
    chunk: ChunkDefinition
    metadata: TableMetadata
    plan: Plan
    fetch_source: Fetch
    staged: tuple[StagedFile, ...]


def locate(scope: Scope, rows: Rows, *, threads: int, bounds: Bounds | None = None) -> Located:
    """What is wrong with the rows; or why that cannot be said, which never changes that they are wrong."""
    try:
        return fitted(_Telling(scope, threads, bounds or Bounds()).located(rows))
    except PvdmError as error:
        return Located.not_located(error.reason, writable(str(error)[:_PROBLEM_CHARACTERS]))
    except Exception as error:  # a bug here must not keep a FAIL from being told
        # Where it happened, and not its words: they may quote a row.
        _log.error("locating failed: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        return Located.not_located("locate_failed", f"a bug: {type(error).__name__}; the Steward's log has more")


def fitted(located: Located) -> Located:
    """What is kept has a limit, however long names and values are: fewer sample keys, and in the end none."""
    samples = max((len(each.samples) for each in located.classes), default=0)
    while len(canonical_json.dump(located.to_json())) > LOCATED_MAX_BYTES:
        if not samples:
            # Names of files and fields alone are too long.
            return located.without_values()
        samples //= 2
        classes = tuple(replace(each, samples=each.samples[:samples]) for each in located.classes)
        located = replace(located, classes=classes)
    return located


class _IntentFiles:
    """The intended rows, or the named columns of them, file by file."""

    def __init__(self, scope: Scope, columns: Sequence[str] | None = None) -> None:
        self._fetch = scope.fetch_source
        plan = scope.plan
        if columns is not None:
            plan = Plan(plan.schema, (plan.projection(ProjectionName.IDENTITY),), plan.mode, plan.construction)
        self._intent = Intent(scope.bound, scope.source, scope.chunk, plan, columns)
        self.files = files_of_chunk(scope.bound, scope.source, scope.chunk)

    def __len__(self) -> int:
        return len(self.files)

    def rows(self, file: int) -> Iterator[pa.RecordBatch]:
        with source_readable():
            yield from self._intent.rows(self.files[file], self._fetch)


class _StagedFiles:
    """The staged files, each fetched again and held to the freeze."""

    def __init__(self, scope: Scope) -> None:
        self._files = scope.staged
        self.request = FileRequest(scope.plan.schema)

    def __len__(self) -> int:
        return len(self._files)

    def data(self, file: int) -> bytes:
        return self._files[file].fetch()


class _Telling:
    """Brings what the kernel found, by numbers of files and rows, to names."""

    def __init__(self, scope: Scope, threads: int, bounds: Bounds) -> None:
        self._scope = scope
        self._identity = scope.plan.projected(ProjectionName.IDENTITY)
        # A contract's identity is a set; people know its columns in the table's order.
        self._key_columns = [field for field in scope.plan.schema.fields if field.name in self._identity.names]
        with source_readable():
            self._intent = _IntentFiles(scope)
        self._staged = _StagedFiles(scope)
        self._locating = Locating(scope.plan, self._intent, self._staged, threads=threads, bounds=bounds)
        header = header_of(scope.metadata, scope.metadata.default_spec_id, ManifestContent.DATA)
        self._staged_partitions = [_partition(header, each.entry) for each in scope.staged]
        self._source_partitions = [self._of_source(each) for each in self._intent.files]

    def located(self, rows: Rows) -> Located:
        found = self._locating.run(rows)
        keys = self._keys(found)
        classes = tuple(self._class(each, found[each.value], keys) for each in ROW_CLASSES if found[each.value]["rows"])
        differing, _ = most([(name, count) for name, count in found["fields"]], LOCATED_FIELDS_MAX)
        return Located(classes, differing, found["compared"])

    def _class(self, failure: FailureClass, found: Mapping[str, Any], keys: _Keys) -> LocatedClass:
        is_source = failure is FailureClass.MISSING
        partitions: Counter[str] = Counter()
        for file, rows in found["files"]:
            partition = self._partition_at(is_source, file)
            if partition is not None:
                partitions[partition] += rows
        named = [(self._file_at(is_source, file), rows) for file, rows in found["files"]]
        files, files_more = most(named, LOCATED_FILES_MAX)
        listed, listed_more = most(partitions.items(), LOCATED_PARTITIONS_MAX)
        samples = [self._sample(is_source, each, keys) for each in found["samples"]] if keys.told else []
        return LocatedClass(failure, found["rows"], files, files_more, listed, listed_more, tuple(samples))

    def _sample(self, is_source: bool, found: Mapping[str, Any], keys: _Keys) -> SampleKey:
        file, row = found["at"]
        fields = found["fields"]
        return SampleKey(
            keys.of(is_source, file, row),
            found["rows"],
            self._file_at(is_source, file),
            self._partition_at(is_source, file),
            None if fields is None else tuple(fields[:LOCATED_FIELDS_MAX]),
        )

    def _keys(self, found: Mapping[str, Any]) -> _Keys:
        """Where the contract lets nobody see keys, none is read."""
        keys = _Keys(bool(self._scope.bound.contract.governance.sample_keys))
        if not keys.told:
            return keys
        for is_source, wanted in _places(found).items():
            for file, rows in wanted.items():
                self._locating.require_time()
                keys.add(is_source, file, keys_at(self._narrow(is_source, file), rows, self._key_columns))
        return keys

    def _narrow(self, is_source: bool, file: int) -> Iterator[pa.RecordBatch]:
        """The identity of a file's rows, and nothing else of them."""
        if is_source:
            return _IntentFiles(self._scope, self._identity.names).rows(file)
        others = every_id(self._scope.plan.schema) - every_id(self._identity)
        return read_batches(self._staged.data(file), self._identity, others)

    def _file_at(self, is_source: bool, file: int) -> str:
        return self._intent.files[file].location if is_source else self._scope.staged[file].path

    def _partition_at(self, is_source: bool, file: int) -> str | None:
        return (self._source_partitions if is_source else self._staged_partitions)[file]

    def _of_source(self, file: ScanFile) -> str | None:
        """Of the source's files only identity partitions are known by name."""
        columns = {field.field_id: field for field in self._scope.source.scan.schema.fields}
        known = [(columns[at], value) for at, value in file.constants.items() if at in columns]
        return joined([(field.name, value_text(field.type, value)) for field, value in known]) if known else None


class _Keys:
    """The keys that were read, by side, file and row."""

    def __init__(self, told: bool) -> None:
        self.told = told
        self._found: dict[tuple[bool, int, int], Key] = {}

    def add(self, is_source: bool, file: int, keys: Mapping[int, Key]) -> None:
        self._found.update({(is_source, file, row): key for row, key in keys.items()})

    def of(self, is_source: bool, file: int, row: int) -> Key:
        return self._found[is_source, file, row]


def _places(found: Mapping[str, Any]) -> dict[bool, dict[int, list[int]]]:
    places: dict[bool, dict[int, list[int]]] = {True: {}, False: {}}
    for failure in ROW_CLASSES:
        for sample in found[failure.value]["samples"]:
            file, row = sample["at"]
            places[failure is FailureClass.MISSING].setdefault(file, []).append(row)
    return places


def _partition(header: ManifestHeader, entry: DataFile | None) -> str | None:
    fields = header.spec.fields
    if entry is None or not fields:
        return None
    typed = zip(fields, header.partition_types(), strict=True)
    return joined([(field.name, value_text(kind, entry.partition.get(field.field_id))) for field, kind in typed])
