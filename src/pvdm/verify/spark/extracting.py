"""Rows by Spark's own reader of Iceberg tables, digested by the kernel, and held to what the direct reader saw."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pvdm.digest import Plan
from pvdm.errors import Code, InputError, UnavailableError, VerificationError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import listed_manifests
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.compare import Partials, rows_of
from pvdm.verify.fetch import Files
from pvdm.verify.file_orders import Ground, Held, Outcome, Reader, Work, published_files, together
from pvdm.verify.findings import Finding
from pvdm.verify.intent import Intent
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.application import Application, Table
from pvdm.verify.spark.conf import EXTRACTION_FOLDER
from pvdm.verify.spark.reader import DoorOf, opened
from pvdm.verify.spark.report import Report
from pvdm.verify.spark.seal import bound_to
from pvdm.verify.spark.settings import TASK_TRIES_MAX, TASKS_A_CORE_MAX, SparkSettings, is_connect
from pvdm.verify.spark.task import Common, Rows
from pvdm.verify.spark.worker import FILE_COLUMN


@dataclass(frozen=True, slots=True)
class SparkExtraction:
    """The Steward's Spark application as a reader of rows."""

    settings: SparkSettings
    application: Application
    files: Files
    door_of: DoorOf
    access: StoreAccess

    def require_reach(self, locations: Sequence[str]) -> None:
        """Refuse files that Spark's reader could not read, before anything is staged."""
        remote = [each for each in locations if parse_location(each).scheme != "file"]
        if remote and is_connect(self.settings.master):
            raise _unreached("local files, where Spark is a Connect server", remote[0])
        if not self.access.reaches(locations):
            raise _unreached("local files, or objects of [s3] for which [s3.vending] has roles", remote[0])

    def over(self, direct: Reader) -> Reader:
        """Rows by Spark, everything else by this one."""
        return _Extracting(self, direct)


@dataclass(frozen=True, slots=True)
class _Extracting:
    """The direct reader first: it holds bytes to their freeze and builds the entries by which Spark then reads.

    Its digests come with that. Spark's must be the same, of both sides: so nothing that Spark fetched by itself can
    have been other than what was frozen, and no row that its reader sees otherwise goes unnoticed.
    """

    spark: SparkExtraction
    direct: Reader

    def redemptions(self, work: Work) -> int:
        """The direct reader's, and once for every try of every task of two more jobs."""
        return self.direct.redemptions(work) + 2 * TASK_TRIES_MAX * _tasks(self.spark)

    def read(self, work: Work, held: Held) -> Outcome:
        """What was staged, then what was intended; a file that could not be read leaves Spark nothing to read."""
        direct = self.direct.read(work, held)
        files = published_files(direct.read)
        if direct.staged is None or files is None:
            return direct
        with job_folder(self.spark.settings.scratch, held.job_id) as folder:
            staged = extracted_staged(self.spark, work.ground, files, folder, held)
            intent = extracted_intent(self.spark, work.ground, folder, held)
        if not _agree(intent, direct.intent):
            raise _source_differs(intent, direct.intent)
        found = () if _agree(staged, direct.staged) else (_differ(staged, direct.staged),)
        changed = tuple(self._versions_changed(work))
        return Outcome(direct.read, staged, intent, (*found, *changed), self.spark.application.versions())

    def _versions_changed(self, work: Work) -> Iterator[Finding]:
        """Spark's reader knows no versions: what was pinned before it read must be shown after it too."""
        if work.keep is not None:
            return
        for order in work.staged:
            if order.frozen.version is None:
                continue
            try:
                self.spark.files.require_version(order.frozen)
            except VerificationError as error:
                yield Finding.of(FailureClass.PHYSICAL, error, order.path)


def extracted_staged(
    spark: SparkExtraction, ground: Ground, files: Sequence[DataFile], folder: Path, held: Held
) -> Partials:
    """Staged rows, read by the entries that would be published, at the places that they would be published at."""
    store = spark.access.vended(held.job_id, [each.file_path for each in files])
    snapshot_id = int.from_bytes(hashlib.sha256(held.job_id.encode()).digest()[:7], "big") + 1
    document = _table_of(plain(ground.metadata), files, snapshot_id, folder, spark.files)
    columns = tuple(dict.fromkeys(name for each in ground.plan.projections for name in each.columns))
    table = Table(folder / "staged", snapshot_id, columns, _tasks(spark), store)
    table.write(document.to_bytes())
    reports = _reports(spark, ground, Rows(staged=True), table, held)
    return _summed(ground.plan, held, [each.staged for each in reports])


def extracted_intent(spark: SparkExtraction, ground: Ground, folder: Path, held: Held) -> Partials:
    """The source's rows by Spark, through filter and mapping as any others."""
    source, named = ground.source, ground.chunk.files
    if source.metadata is None:
        raise Code.EXTRACTION_SOURCE_UNSUPPORTED(got=source.ref.name)
    columns = Intent(ground.bound, source, ground.chunk, ground.plan).columns
    asked = columns if named is None else (*columns, FILE_COLUMN)
    described = described_by(source.metadata, source.snapshot_id, spark.files)
    store = spark.access.vended(held.job_id, source.scan.locations(), described)
    table = Table(folder / "source", source.snapshot_id, asked, _tasks(spark), store)
    table.write(plain(source.metadata).to_bytes())
    reports = _reports(spark, ground, Rows(staged=False, files=named), table, held)
    return _summed(ground.plan, held, [each.intent for each in reports])


def plain(metadata: TableMetadata) -> TableMetadata:
    """The table without its properties: they are words of whoever writes to it, and Spark would go by them.

    None of them changes which rows there are, but a split of one byte (`read.split.target-size`), a batch of all rows
    or a class to be loaded keeps the application from everybody else's jobs.
    """
    return TableMetadata.from_json({**metadata.raw, "properties": {}})


def _tasks(spark: SparkExtraction) -> int:
    return TASKS_A_CORE_MAX * spark.application.cores()


def _reports(spark: SparkExtraction, ground: Ground, rows: Rows, table: Table, held: Held) -> list[Report]:
    common = Common.of(ground, spark.door_of(held.job_id, held.handle)).to_bytes()
    orders = rows.to_bytes()
    refused, sealed = spark.application.extract(held.job_id, common, orders, table)
    return opened(refused, sealed, [bound_to(common, orders)] * len(sealed), held)


@contextlib.contextmanager
def job_folder(scratch: Path, job_id: str) -> Iterator[Path]:
    """A folder for what Spark's reader is told, while the job runs."""
    folder = scratch / EXTRACTION_FOLDER / hashlib.sha256(job_id.encode()).hexdigest()[:32]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _table_of(
    metadata: TableMetadata, files: Sequence[DataFile], snapshot_id: int, folder: Path, reader: Files
) -> TableMetadata:
    """The table with one more snapshot, which holds these files and nothing else."""
    made = next_snapshot(
        metadata,
        SnapshotChange(tuple(files), frozenset(), {}),
        branch=f"extraction-{snapshot_id}",
        snapshot_id=snapshot_id,
        now_ms=metadata.last_updated_ms,
        place=lambda name: f"file://{folder / name}",
        reader=reader,
    )
    for file in made.files:
        (folder / file.name).write_bytes(file.data)
    return apply_updates(metadata, list(made.updates), now_ms=metadata.last_updated_ms, previous_location=None)


def described_by(metadata: TableMetadata, snapshot_id: int, reader: Files) -> list[str]:
    """Where the manifests of a snapshot lie, and their list: Spark reads them before it reads any file."""
    snapshot = metadata.snapshot(snapshot_id)
    if snapshot is None:
        raise AssertionError("a pinned snapshot is there")
    listed = [each.manifest_path for each in listed_manifests(metadata, snapshot, reader)]
    return [str(snapshot.manifest_list), *listed]


def _summed(plan: Plan, held: Held, seen: Sequence[Partials | None]) -> Partials:
    return together(plan, held.keys, [each for each in seen if each is not None])


def _agree(mine: Partials, other: Partials) -> bool:
    return all(mine[name].matches(other[name]) for name in other)


def _differ(spark: Partials, direct: Partials) -> Finding:
    return Finding(
        FailureClass.METADATA,
        "extraction_differs",
        "Spark's reader and the direct reader do not see the same staged rows",
        f"{rows_of(direct)} rows, as the direct reader sees them",
        f"{rows_of(spark)} rows by Spark's reader"
        + ("" if rows_of(spark) != rows_of(direct) else ", of other content"),
    )


def _unreached(expected: str, location: str) -> InputError:
    return InputError(
        Code.EXTRACTION_STORE_UNREACHABLE,
        "the contract wants rows to be read by Spark, and this Steward's Spark cannot read the table's files",
        expected=expected,
        got=location[:200],
        hint="configure it (docs/spark-verification.md), or take `extraction: direct`",
    )


def _source_differs(spark: Partials, direct: Partials) -> UnavailableError:
    return UnavailableError(
        Code.EXTRACTION_SOURCE_DIFFERS,
        "Spark's reader and the direct reader do not see the same rows of the source",
        expected=f"{rows_of(direct)} rows, as they were frozen",
        got=f"{rows_of(spark)} rows" + ("" if rows_of(spark) != rows_of(direct) else " of other content"),
        hint="find out whether the source's files were changed; nothing is said about what was staged",
    )
