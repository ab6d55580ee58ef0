"""Reads rows with Spark's own reader of Iceberg tables, and compares their digests with the direct reader's."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pvdm.errors import Code, VerificationError, expect
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import listed_manifests
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.fetch import Files
from pvdm.verify.findings import Finding, Partials, count_rows
from pvdm.verify.readers import JobInputs, JobKeys, Reader, ReadResult, Work, combine_all, published_files
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.application import Application, SparkTable
from pvdm.verify.spark.reader import EndpointOf, open_reports
from pvdm.verify.spark.report import Report, hash_task
from pvdm.verify.spark.settings import EXTRACTION_FOLDER, TASK_TRIES_MAX, TASKS_A_CORE_MAX, SparkSettings, is_connect
from pvdm.verify.spark.task import FILE_COLUMN, Common, RowSelection


@dataclass(frozen=True, slots=True)
class SparkExtraction:
    """The Steward's Spark application, whose own reader of Iceberg tables reads the rows."""

    settings: SparkSettings
    application: Application
    files: Files
    endpoint_of: EndpointOf
    access: StoreAccess

    def require_reach(self, locations: Sequence[str]) -> None:
        """Refuse files in a store that Spark's reader cannot read. It is called before anything is staged."""
        remote = [each for each in locations if parse_location(each).scheme != "file"]
        if remote and is_connect(self.settings.master):
            expected, got = "local files, where Spark is a Connect server", remote[0][:200]
            raise Code.EXTRACTION_UNSUPPORTED(reason="extraction_store_unreachable", expected=expected, got=got)
        if not self.access.reaches(locations):
            raise Code.EXTRACTION_UNSUPPORTED(reason="extraction_store_unreachable", got=remote[0][:200])

    def wrap(self, direct: Reader) -> Reader:
        """A reader that reads with `direct` and then with Spark's reader, and compares the two."""
        return _ExtractionReader(self, direct)


def require_extraction(extraction: SparkExtraction | None) -> SparkExtraction:
    """Require the Steward's Spark application, which a contract with `extraction: spark` needs."""
    if extraction is None:
        raise Code.SPARK_EXTRACTION_FAILED(reason="extraction_not_configured", got="none")
    return extraction


@dataclass(frozen=True, slots=True)
class _ExtractionReader:
    """Reads with the direct reader first, which compares bytes with their freeze and builds the entries for Spark.

    Spark's digests of both sides must equal the direct ones. They differ if Spark reads a row differently, or if a
    file was changed after the direct reader had read it.
    """

    spark: SparkExtraction
    direct: Reader

    def redemptions(self, work: Work) -> int:
        """The direct reader's redemptions of the handle, and one for each try of a task. Each side is a Spark job."""
        return self.direct.redemptions(work) + 2 * TASK_TRIES_MAX * _count_tasks(self.spark)

    def read(self, work: Work, job_keys: JobKeys) -> ReadResult:
        """Read both sides. If the direct reader could not read a file, Spark reads nothing."""
        result = self.direct.read(work, job_keys)
        files = published_files(result.read)
        if result.staged is None or files is None:
            return result
        with job_folder(self.spark.settings.scratch, job_keys.job_id) as folder:
            staged = extract_staged(self.spark, work.inputs, files, folder, job_keys)
            intent = extract_intent(self.spark, work.inputs, folder, job_keys)
        if not _agree(intent, result.intent):
            expected, got = f"{count_rows(result.intent)} rows, as they were frozen", _rows_text(intent, result.intent)
            raise Code.SOURCE_UNREADABLE(reason="extraction_source_differs", expected=expected, got=got)
        differing = () if _agree(staged, result.staged) else (_difference_finding(staged, result.staged),)
        changed = tuple(self._versions_changed(work))
        return ReadResult(result.read, staged, intent, (*differing, *changed), self.spark.application.versions())

    def _versions_changed(self, work: Work) -> Iterator[Finding]:
        """Findings for files whose version changed while Spark read them: Spark's reader knows no versions."""
        if work.store_copy is not None:
            return  # Spark read the Steward's copies
        for item in work.staged:
            if item.frozen.version is None:
                continue
            try:
                self.spark.files.require_version(item.frozen)
            except VerificationError as error:
                yield Finding.of(FailureClass.PHYSICAL, error, item.path)


def extract_staged(
    spark: SparkExtraction, inputs: JobInputs, files: Sequence[DataFile], folder: Path, job_keys: JobKeys
) -> Partials:
    """Digest the staged rows. Spark reads them by the entries, and from the paths, that would be published."""
    store = spark.access.vend(job_keys.job_id, [each.file_path for each in files])
    snapshot_id = int.from_bytes(hashlib.sha256(job_keys.job_id.encode()).digest()[:7], "big") + 1  # below 2^63
    document = _with_snapshot(without_properties(inputs.metadata), files, snapshot_id, folder, spark.files)
    columns = tuple(dict.fromkeys(name for each in inputs.plan.projections for name in each.columns))
    table = SparkTable(folder / "staged", snapshot_id, columns, _count_tasks(spark), store)
    table.write(document.to_bytes())
    reports = _extract_reports(spark, inputs, RowSelection(staged=True), table, job_keys)
    return combine_all(inputs.plan, job_keys.keys, (each.staged for each in reports))


def extract_intent(spark: SparkExtraction, inputs: JobInputs, folder: Path, job_keys: JobKeys) -> Partials:
    """Digest the source's rows as Spark reads them, through filter and mapping."""
    source, chunk_files = inputs.source, inputs.chunk.files
    if source.metadata is None:
        raise Code.EXTRACTION_UNSUPPORTED(reason="extraction_source_unsupported", got=source.ref.name)
    columns = inputs.intent().source_columns + (() if chunk_files is None else (FILE_COLUMN,))
    metadata_files = _metadata_locations(source.metadata, source.snapshot_id, spark.files)
    store = spark.access.vend(job_keys.job_id, source.scan.locations(), metadata_files)
    table = SparkTable(folder / "source", source.snapshot_id, columns, _count_tasks(spark), store)
    table.write(without_properties(source.metadata).to_bytes())
    reports = _extract_reports(spark, inputs, RowSelection(staged=False, files=chunk_files), table, job_keys)
    return combine_all(inputs.plan, job_keys.keys, (each.intent for each in reports))


def without_properties(metadata: TableMetadata) -> TableMetadata:
    """The table without its properties, which any writer may set and Spark would follow.

    No property changes the rows. But a split of one byte (`read.split.target-size`), a batch of all rows, or a class
    that a property lets Spark load would block the application for other jobs.
    """
    return TableMetadata.from_json({**metadata.raw, "properties": {}})


def _count_tasks(spark: SparkExtraction) -> int:
    return TASKS_A_CORE_MAX * spark.application.cores()


def _extract_reports(
    spark: SparkExtraction, inputs: JobInputs, selection: RowSelection, table: SparkTable, job_keys: JobKeys
) -> list[Report]:
    common = Common.for_tasks(inputs, spark.endpoint_of(job_keys.job_id, job_keys.handle)).to_bytes()
    message = selection.to_bytes()
    refusals, encrypted = spark.application.extract(job_keys.job_id, common, message, table)
    return open_reports(refusals, encrypted, [hash_task(common, message)] * len(encrypted), job_keys)


@contextlib.contextmanager
def job_folder(scratch: Path, job_id: str) -> Iterator[Path]:
    """A folder for the job's table metadata, which Spark's reader reads; removed at the end."""
    folder = scratch / EXTRACTION_FOLDER / hashlib.sha256(job_id.encode()).hexdigest()[:32]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_snapshot(
    metadata: TableMetadata, files: Sequence[DataFile], snapshot_id: int, folder: Path, reader: Files
) -> TableMetadata:
    """The table with one more snapshot, which holds only these files."""
    snapshot = next_snapshot(
        metadata,
        SnapshotChange(tuple(files), frozenset(), {}),
        branch=f"extraction-{snapshot_id}",
        snapshot_id=snapshot_id,
        now_ms=metadata.last_updated_ms,
        place=lambda name: f"file://{folder / name}",
        reader=reader,
    )
    for file in snapshot.files:
        (folder / file.name).write_bytes(file.data)
    return apply_updates(metadata, list(snapshot.updates), now_ms=metadata.last_updated_ms, previous_location=None)


def _metadata_locations(metadata: TableMetadata, snapshot_id: int, reader: Files) -> list[str]:
    """The locations of a snapshot's manifest list and manifests, which Spark reads before any data file."""
    snapshot = expect(metadata.snapshot(snapshot_id), "the metadata of a pinned source has its pinned snapshot")
    return [str(snapshot.manifest_list), *(each.manifest_path for each in listed_manifests(metadata, snapshot, reader))]


def _agree(spark: Partials, direct: Partials) -> bool:
    """Whether the digests of Spark's reader equal those of the direct reader."""
    return all(spark[name].matches(direct[name]) for name in direct)


def _rows_text(spark: Partials, direct: Partials) -> str:
    return f"{count_rows(spark)} rows" + ("" if count_rows(spark) != count_rows(direct) else " of other content")


def _difference_finding(spark: Partials, direct: Partials) -> Finding:
    return Finding(
        FailureClass.METADATA,
        "extraction_differs",
        "Spark's reader and the direct reader do not read the same staged rows",
        f"{count_rows(direct)} rows by the direct reader",
        f"{_rows_text(spark, direct)} by Spark's reader",
    )
