"""Locates the wrong rows of a FAIL, in two passes over both sides, with bounded memory.

Pass one puts rows into buckets by the hash of their identity. A bucket holds the sum of the intended rows' hashes less
that of the staged rows'. Pass two collects and sorts the rows of buckets whose sum is not zero, in memory or, if they
are many, in a spool file. So pass two finds the missing, added, duplicated and modified rows. All hashes use a random
key that is used once and never disclosed, because row hashes under an attempt's key would allow forgeries.
"""

from __future__ import annotations

import datetime
import logging
import math
import secrets
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from pvdm.digest import Plan
from pvdm.digest.file_facts import FileRequest
from pvdm.digest.parquet import read_batches
from pvdm.digest.sharing import share
from pvdm.errors import Code, PvdmError
from pvdm.lake.format.manifest.entry import DataFile, ManifestContent
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.entries import header_of
from pvdm.lake.read.resolve import every_id
from pvdm.model import canonical_json
from pvdm.model.located import ROW_CLASSES, LocatedClass, SampleKey, WrongRows, select_largest
from pvdm.model.printable import quoted
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import Field, Kind, PrimitiveType
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.chunk_files import files_of_chunk
from pvdm.verify.fetch import Files, Freeze, HashedFile, source_fetcher
from pvdm.verify.intent import Intent
from pvdm.verify.readers import JobInputs, ReadFile
from pvdm.verify.source import translate_read_errors

if TYPE_CHECKING:
    from pvdm.digest.kernel import BucketDifferences, DifferingRows

LOCATE_MEMORY_MAX_BYTES: Final = 268_435_456
LOCATE_SPOOL_MAX_BYTES: Final = 34_359_738_368
LOCATE_SECONDS_MAX: Final = 3_600
SAMPLE_KEYS_MAX: Final = 20
LOCATED_FILES_MAX: Final = 20
LOCATED_PARTITIONS_MAX: Final = 20
LOCATED_FIELDS_MAX: Final = 100
LOCATED_MAX_BYTES: Final = 1_048_576
SAMPLE_TEXT_MAX_CHARACTERS: Final = 200
_PROBLEM_MAX_CHARACTERS: Final = 400
_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - with a time zone, texts would show the zone
_TIMES: Final = (PrimitiveType(Kind.TIMESTAMP), PrimitiveType(Kind.TIMESTAMPTZ))
_log: Final = logging.getLogger(__name__)
RowKey = tuple[tuple[str, str | None], ...]  # names and texts of the identity columns
_Pass = TypeVar("_Pass", "BucketDifferences", "DifferingRows")
_KEY_BYTES: Final = 32
_BITS_MIN, _BITS_MAX = 8, 20  # there are 2**bits buckets
# Hashes of identity and content, and the position of a row. Each field adds a hash of eight bytes.
_RECORD_BYTES: Final = 40
_FIELD_BYTES: Final = 8


class Side(Enum):
    """Where rows are read: the source, for the rows that should have been written, or the staged files."""

    INTENT = auto()
    STAGED = auto()


@dataclass(frozen=True, slots=True)
class LocateLimits:
    """The limits of locating. `folder` is for the spool file, by default the system's folder for temporary files."""

    memory_bytes: int = LOCATE_MEMORY_MAX_BYTES
    spool_bytes: int = LOCATE_SPOOL_MAX_BYTES
    seconds: float = LOCATE_SECONDS_MAX
    samples: int = SAMPLE_KEYS_MAX
    folder: Path | None = None


class KernelSearch:
    """The search for the wrong rows of one attempt, by the kernel (native code).

    `intent` has a function for each source file that returns its rows, in the same order at each call. `staged` has a
    function for each staged file that returns the bytes that would be published.
    """

    def __init__(
        self,
        plan: Plan,
        intent: Sequence[Callable[[], Iterator[pa.RecordBatch]]],
        staged: Sequence[Callable[[], bytes]],
        *,
        threads: int = 1,
        limits: LocateLimits | None = None,
    ) -> None:
        self._plan = plan
        self._request = FileRequest(plan.schema)
        self._intent = intent
        self._staged = staged
        self._threads = max(1, threads)
        self._limits = limits or LocateLimits()
        self._deadline = time.monotonic() + self._limits.seconds
        self._files = [(Side.INTENT, at) for at in range(len(intent))]
        self._files += [(Side.STAGED, at) for at in range(len(staged))]
        self.spooled = False

    def run(self, intent_rows: int, staged_rows: int) -> dict[str, Any]:
        """Run both passes. The result has `fields` and `compared`, as `WrongRows` has, and an object for each class.

        The object has the number of wrong `rows`, their number by file (`files`), and `samples`. A sample has the
        numbers of its file and row (`at`), the number of `rows` that it stands for, and the `fields` that differ.
        """
        from pvdm.digest.kernel import BucketDifferences

        hash_key = secrets.token_bytes(_KEY_BYTES)
        # About four rows a bucket, within the limits.
        bits = min(_BITS_MAX, max(_BITS_MIN, math.ceil(math.log2(max(intent_rows, staged_rows) / 4 + 1))))
        buckets = self._read_all([BucketDifferences(self._plan, hash_key, bits) for _ in range(self._threads)])
        with tempfile.TemporaryDirectory(prefix="pvdm-locate-", dir=self._limits.folder) as folder:
            differing = self._read_all(self._collectors(buckets, Path(folder)))
            self.spooled = differing.is_spooled
            result = differing.tally(self._limits.samples)
        _require_explained(result, staged_rows - intent_rows)
        return result

    def _collectors(self, buckets: BucketDifferences, folder: Path) -> list[DifferingRows]:
        """The collectors of the second pass, one for each thread."""
        limits, columns = self._limits, len(self._plan.projection(ProjectionName.CONTENT).columns)
        _, row_count = buckets.count_differing()
        # Single fields are compared only if the spool file has room for their hashes.
        compares_fields = row_count * (_RECORD_BYTES + _FIELD_BYTES * columns) <= limits.spool_bytes
        return [
            buckets.differing_rows(
                hash_fields=compares_fields,
                memory_bytes=limits.memory_bytes // self._threads,
                spool=folder / f"rows-{thread}",
                spool_bytes=limits.spool_bytes // self._threads,
            )
            for thread in range(self._threads)
        ]

    def _read_all(self, collectors: Sequence[_Pass]) -> _Pass:
        """Read every file once, with one thread for each collector. Returns all collectors merged into the first."""

        def read_file(collector: _Pass, file: tuple[Side, int]) -> None:
            self.require_time()
            side, index = file
            if side is Side.STAGED:
                collector.read(self._staged[index](), self._request, index)
                return
            first_row = 0
            for batch in self._intent[index]():
                self.require_time()
                collector.add(batch, index, first_row)
                first_row += batch.num_rows

        share(self._files, [partial(read_file, each) for each in collectors])
        first = collectors[0]
        for other in collectors[1:]:
            first.merge(other)
        return first

    def require_time(self) -> None:
        """Raise `locate_too_slow` once the time is over."""
        if time.monotonic() > self._deadline:
            most = f"at most {self._limits.seconds:g} seconds"
            raise Code.LOCATE_FAILED(reason="locate_too_slow", expected=most, got="more")


def _require_explained(found: dict[str, Any], difference: int) -> None:
    """Require that some wrong rows were found, and that they add up to `difference` (staged minus intended rows)."""
    counts = {name: found[name]["rows"] for name in ("missing", "added", "duplicated", "modified")}
    surplus = counts["added"] + counts["duplicated"] - counts["missing"]
    if surplus != difference or not any(counts.values()):
        expected = f"staged minus intent: {difference}"
        raise Code.BUG(
            reason="locate_inconsistent", expected=expected, got=f"{surplus}, of {sum(counts.values())} wrong rows"
        )


def locate(
    inputs: JobInputs,
    staged: Sequence[ReadFile],
    source: Freeze,
    files: Files,
    *,
    intent_rows: int,
    staged_rows: int,
    threads: int,
    limits: LocateLimits,
) -> WrongRows:
    """The wrong rows, or the reason why they could not be located. The verdict is FAIL in both cases."""
    try:
        locator = _Locator(inputs, staged, source, files, threads=threads, limits=limits)
        return shorten(locator.run(intent_rows, staged_rows))
    except PvdmError as error:
        return WrongRows.not_located(error.reason, _writable(str(error)[:_PROBLEM_MAX_CHARACTERS]))
    except Exception as error:  # a bug here must not hide a FAIL
        # The message is not logged, since it may quote a row.
        _log.error("locating failed: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        return WrongRows.not_located("locate_failed", f"a bug: {type(error).__name__}; the Steward's log has more")


def shorten(located: WrongRows) -> WrongRows:
    """Drop sample keys until the document is within its size limit. If need be, keep only counts and files."""
    samples = max((len(each.samples) for each in located.classes), default=0)
    while len(canonical_json.dump(located.to_json())) > LOCATED_MAX_BYTES:
        if not samples:
            return located.without_values()
        samples //= 2
        classes = tuple(replace(each, samples=each.samples[:samples]) for each in located.classes)
        located = replace(located, classes=classes)
    return located


def _side_of(failure: FailureClass) -> Side:
    """The side that has the wrong rows of a class: missing rows are only in the source."""
    return Side.INTENT if failure is FailureClass.MISSING else Side.STAGED


class _Locator:
    """Locates the rows of one attempt. The kernel names files and rows by number; these become names and keys."""

    def __init__(
        self,
        inputs: JobInputs,
        staged: Sequence[ReadFile],
        source: Freeze,
        files: Files,
        *,
        threads: int,
        limits: LocateLimits,
    ) -> None:
        self._inputs = inputs
        self._staged = staged
        self._files = files
        self._fetch_source = source_fetcher(files, source.files.values())
        self._identity = inputs.plan.projected_schema(ProjectionName.IDENTITY)
        # The identity is a set; its columns are shown in the table's order.
        self._key_columns = [field for field in inputs.plan.schema.fields if field.name in self._identity.names]
        with translate_read_errors():
            intent = inputs.intent()
            self._source_files = files_of_chunk(inputs.bound, inputs.source, inputs.chunk)
        self._search = KernelSearch(
            inputs.plan,
            [partial(self._intended_rows, intent, each) for each in self._source_files],
            [partial(self._published_bytes, each) for each in staged],
            threads=threads,
            limits=limits,
        )
        header = header_of(inputs.metadata, inputs.metadata.default_spec_id, ManifestContent.DATA)
        self._names = {
            Side.INTENT: [each.location for each in self._source_files],
            Side.STAGED: [each.added.staged_path for each in staged],
        }
        self._partitions = {
            Side.INTENT: [self._source_partition(each) for each in self._source_files],
            Side.STAGED: [_partition_text(header, each.observed.data_file) for each in staged],
        }

    def run(self, intent_rows: int, staged_rows: int) -> WrongRows:
        """Locate the rows. Raises if they cannot be located."""
        found = self._search.run(intent_rows, staged_rows)
        # Keys are not read if the contract lets no role see them.
        keys = self._read_keys(found) if self._inputs.bound.contract.governance.sample_keys else None
        with_rows = [each for each in ROW_CLASSES if found[each.value]["rows"]]
        classes = tuple(self._describe_class(each, found[each.value], keys) for each in with_rows)
        fields, _ = select_largest([(name, count) for name, count in found["fields"]], LOCATED_FIELDS_MAX)
        return WrongRows(classes, fields, found["compared"])

    def _describe_class(
        self, failure: FailureClass, found: Mapping[str, Any], keys: Mapping[tuple[Side, int, int], RowKey] | None
    ) -> LocatedClass:
        side = _side_of(failure)
        partitions: Counter[str] = Counter()
        for file, rows in found["files"]:
            if (partition := self._partitions[side][file]) is not None:
                partitions[partition] += rows
        rows_by_file = [(self._names[side][file], rows) for file, rows in found["files"]]
        files, files_more = select_largest(rows_by_file, LOCATED_FILES_MAX)
        largest, partitions_more = select_largest(partitions.items(), LOCATED_PARTITIONS_MAX)
        samples = [] if keys is None else [self._describe_sample(side, each, keys) for each in found["samples"]]
        return LocatedClass(failure, found["rows"], files, files_more, largest, partitions_more, tuple(samples))

    def _describe_sample(
        self, side: Side, found: Mapping[str, Any], keys: Mapping[tuple[Side, int, int], RowKey]
    ) -> SampleKey:
        (file, row), fields = found["at"], found["fields"]
        shown = None if fields is None else tuple(fields[:LOCATED_FIELDS_MAX])
        name, partition = self._names[side][file], self._partitions[side][file]
        return SampleKey(keys[side, file, row], found["rows"], name, partition, shown)

    def _read_keys(self, found: Mapping[str, Any]) -> dict[tuple[Side, int, int], RowKey]:
        """The keys of all samples by side, file and row."""
        rows_of_file: dict[tuple[Side, int], list[int]] = {}
        for failure in ROW_CLASSES:
            for sample in found[failure.value]["samples"]:
                file, row = sample["at"]
                rows_of_file.setdefault((_side_of(failure), file), []).append(row)
        keys: dict[tuple[Side, int, int], RowKey] = {}
        for (side, file), rows in rows_of_file.items():
            self._search.require_time()
            of_file = read_keys_at(self._identities(side, file), rows, self._key_columns)
            keys |= {(side, file, row): key for row, key in of_file.items()}
        return keys

    def _intended_rows(self, intent: Intent, file: ScanFile) -> Iterator[pa.RecordBatch]:
        with translate_read_errors():
            yield from intent.rows(file, self._fetch_source)

    def _published_bytes(self, file: ReadFile) -> bytes:
        """The bytes of a staged file, read at its published path: the Steward's copy if there is one."""
        return self._files.fetch_frozen(HashedFile(file.added.published_path, *file.added.published_size_and_hash)).data

    def _identities(self, side: Side, file: int) -> Iterator[pa.RecordBatch]:
        """The identity columns of a file's rows."""
        inputs, plan = self._inputs, self._inputs.plan
        if side is Side.INTENT:
            narrow = Plan(plan.schema, (plan.projection(ProjectionName.IDENTITY),), plan.mode, plan.construction)
            intent = Intent(inputs.bound, inputs.source, inputs.chunk, narrow, self._identity.names)
            return self._intended_rows(intent, self._source_files[file])
        other_columns = every_id(plan.schema) - every_id(self._identity)
        return read_batches(self._published_bytes(self._staged[file]), self._identity, dropped=other_columns)

    def _source_partition(self, file: ScanFile) -> str | None:
        """Values of partition fields with the identity transform; other transforms are not shown."""
        columns = {field.field_id: field for field in self._inputs.source.scan.schema.fields}
        known = [(columns[field_id], value) for field_id, value in file.constants.items() if field_id in columns]
        texts = [(field.name, partition_value_text(field.type, value)) for field, value in known]
        return _join_partition(texts) if texts else None


def _partition_text(header: ManifestHeader, entry: DataFile | None) -> str | None:
    fields = header.spec.fields
    if entry is None or not fields:
        return None
    values = [entry.partition.get(field.field_id) for field in fields]
    texts = map(partition_value_text, header.partition_types(), values)
    return _join_partition([(field.name, text) for field, text in zip(fields, texts, strict=True)])


def read_keys_at(
    batches: Iterable[pa.RecordBatch], rows: Iterable[int], identity: Sequence[Field]
) -> dict[int, RowKey]:
    """The keys of these rows by row number. Batches after the last of these rows are not read."""
    ordered = sorted(set(rows))
    keys: dict[int, RowKey] = {}
    start = 0
    for batch in batches:
        end = start + batch.num_rows
        for row in ordered:
            if start <= row < end:
                # A column that the file lacks is null in all its rows.
                present = [field for field in identity if field.name in batch.schema.names]
                texts = {each.name: scalar_text(batch.column(each.name)[row - start], each.type) for each in present}
                keys[row] = tuple((field.name, texts.get(field.name)) for field in identity)
        if not ordered or end > ordered[-1]:
            break
        start = end
    return keys


def scalar_text(scalar: Any, kind: object = None) -> str | None:
    """A value as shortened text: bytes in hex, except UUIDs; everything else as Python writes it."""
    if not scalar.is_valid:
        return None
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        # Python has no value for it, for example a day after the year 9999. Arrow may have a text.
        try:
            return _shorten_text(str(scalar.cast(pa.string()).as_py()))
        except pa.ArrowException:
            return "a value that cannot be shown as text"
    if isinstance(value, bytes):
        is_uuid = kind == PrimitiveType(Kind.UUID) and len(value) == 16
        return _shorten_text(str(uuid.UUID(bytes=value)) if is_uuid else value.hex())
    return _shorten_text(str(value))


def _shorten_text(text: str) -> str:
    return _writable(text[:SAMPLE_TEXT_MAX_CHARACTERS])


def _writable(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


def partition_value_text(kind: object, value: object) -> str | None:
    """A partition value as text. Iceberg stores dates and timestamps as numbers since 1970."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    try:
        if isinstance(value, int) and kind == PrimitiveType(Kind.DATE):
            return str(_EPOCH.date() + datetime.timedelta(days=value))
        if isinstance(value, int) and kind in _TIMES:
            return str(_EPOCH + datetime.timedelta(microseconds=value))
    except OverflowError:
        pass  # outside the years 1 to 9999: show the number
    return _shorten_text(str(value))


def _join_partition(pairs: Sequence[tuple[str, str | None]]) -> str:
    """The pairs as one text, in the form of a partition path."""
    return "/".join(f"{quoted(name)}={quoted(value)}" for name, value in pairs)
