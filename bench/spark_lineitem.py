"""Times TPC-H lineitem through Spark and the Steward step by step, and other ways to compare the same two tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from bench.spark_hashes import differing_rows, sum_hmac, sum_xxhash64
from bench.spark_steward import BenchSteward, OpenAttempt, seconds
from pvdm.durable.chunk import Chunk, Source
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.lake.spark import SparkCatalog, add_catalog, remove_catalog
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.physical.spark import SparkStager
from pvdm.verify.fetch import Files, freeze
from pvdm.verify.job import VerifyJob, verify
from pvdm.verify.locate import LocateLimits
from tests.support.gate.approvals import SALES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "raw.lineitem"
CONTRACT = """\
apiVersion: pvdm/v1
kind: DataProduct
metadata:
  domain: sales
  product: {name}
  owner: sales
boundary:
  source:
    table: raw.lineitem
  target: sales.{name}
  operation: append
projections:
  identity: [l_orderkey, l_linenumber]
"""
SecondsByStep = dict[str, float]
Work = tuple[str, Callable[[], float]]
"""A step's name, and the function that runs it and returns its seconds."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one repetition: an unprotected one and a protected one, both new and empty."""

    plain: str
    target: str


@dataclass(slots=True)
class Lineitem:
    """The source in the Steward's catalog, read and written by Spark; each repetition has new tables.

    `with_slow_steps`: HMAC and the multiset difference, which take longest, are measured too.
    """

    steward: BenchSteward
    spark: SparkSession
    seed: int
    with_slow_steps: bool
    catalog: SparkCatalog = field(init=False)
    columns: str = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        steward = self.steward.shop.steward
        lent = steward.lend(Role.PRODUCER)
        name = f"bench_{steward.url.rpartition(':')[2]}"
        self.catalog = SparkCatalog(name, f"{steward.url}/catalog", lent.token, lent.token_id)
        add_catalog(self.spark, self.catalog)

    def close(self) -> None:
        """Remove the catalog from the session."""
        remove_catalog(self.spark, self.catalog)

    def create_source(self, files: Sequence[Path]) -> None:
        """Create the source, and let Spark write the generated files to it."""
        frame = self.spark.read.parquet(*(str(file.resolve()) for file in files))
        self.columns = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in frame.schema)
        self.rows = sum(pq.read_metadata(file).num_rows for file in files)
        self._create(SOURCE)
        frame.writeTo(self._named(SOURCE)).append()
        assert self._count(SOURCE) == self.rows

    def repetition(self, number: int) -> SecondsByStep:
        """Run every step once, in an order that alternates between repetitions; returns the seconds of each step."""
        tables = self._tables(number)
        opened = self.steward.open(f"lineitem-{number}", tables.target, {})
        taken = _in_turn(
            number,
            [
                ("write", lambda: self._write(tables.plain)),
                ("stage", lambda: self._stage(opened)),
            ],
        )
        attempt_id = self.steward.producer.staged(opened.to.attempt_id).attempt_id
        taken |= _in_turn(number, [*self._verifying(attempt_id), *self._hashing(tables.plain)])
        taken["publish"], taken["gate"] = self._publish(opened, attempt_id)
        assert self._count(tables.target) == self._count(tables.plain) == self.rows
        for name in (tables.plain, tables.target):
            shutil.rmtree(self._folder_of(name))  # not needed any more, and many repetitions would fill the disk
        return taken

    def stage_attempt(self) -> str:
        """Stage one more attempt, which is not verified; returns its id."""
        tables = self._tables(-1)
        opened = self.steward.open("lineitem-fresh", tables.target, {})
        self._stage(opened)
        return self.steward.producer.staged(opened.to.attempt_id).attempt_id

    def _verifying(self, attempt_id: str) -> list[Work]:
        """Freeze and verification; a job can be verified once only, so each call loads a new one."""
        job_of, tools = self.steward.services.verification.load_job, self.steward.tools

        def both() -> None:
            found = verify(job_of(attempt_id), tools)
            assert found.core.verdict.passed, found.findings
            assert found.core.rows.staged == found.core.rows.intent == self.rows

        def staged_alone() -> None:
            """Verify against a source without files, so that only the staged side is read, digested and checked.

            All staged rows are wrong then; the time limit of 0 prevents that they are located.
            """
            job = job_of(attempt_id)
            alone = replace(job, source=replace(job.source, scan=replace(job.source.scan, files=())))
            found = verify(alone, replace(tools, locate_limits=LocateLimits(seconds=0)))
            assert (found.findings, found.core.rows.staged, found.core.rows.intent) == ((), self.rows, 0)
            assert found.located is not None
            assert found.located.problem_code == "locate_too_slow"

        frozen = _files_to_freeze(job_of(attempt_id), tools.files)
        return [
            ("freeze", lambda: seconds(lambda: freeze(frozen, tools.files, threads=tools.threads))),
            ("verify", lambda: seconds(staged_alone)),
            ("verify_both", lambda: seconds(both)),
        ]

    def _hashing(self, plain: str) -> list[Work]:
        """Other computations over the same rows; the multiset difference reads the source too."""
        frame, key = self._frame(plain), self.seed.to_bytes(32, "big")

        def differ() -> None:
            assert differing_rows(self._frame(SOURCE), frame) == 0

        work: list[Work] = [("xxhash64", lambda: seconds(lambda: sum_xxhash64(frame)))]
        if self.with_slow_steps:
            work.append(("hmac_builtin", lambda: seconds(lambda: sum_hmac(frame, key))))
            work.append(("except_all", lambda: seconds(differ)))
        return work

    def _publish(self, opened: OpenAttempt, attempt_id: str) -> tuple[float, float]:
        """Seconds from freeze to receipt, and those of the gate alone, which reads every file once more."""
        services = self.steward.services
        verified = seconds(lambda: services.verification.verify(attempt_id))
        gate = seconds(lambda: services.publishing.publish(opened.to.workload_id, [attempt_id]))
        assert self.steward.producer.attempt(attempt_id).state is AttemptState.COMMITTED
        services.disposal.dispose(attempt_id)
        return verified + gate, gate

    def _write(self, plain: str) -> float:
        return seconds(lambda: self._frame(SOURCE).writeTo(self._named(plain)).append())

    def _stage(self, opened: OpenAttempt) -> float:
        source = Source(self.steward.producer, lambda: self.spark, opened.workload, opened.bound)
        chunk = Chunk.of(opened.workload, opened.chunk, source)
        stager = SparkStager(self.steward.producer, self.spark)
        return seconds(lambda: stager.stage(chunk.rows, opened.to))

    def _tables(self, number: int) -> Tables:
        mark = "fresh" if number < 0 else str(number)
        tables = Tables(f"sales.plain_{mark}", f"sales.lineitem_{mark}")
        for name in (tables.plain, tables.target):
            self._create(name)
        self.steward.shop.protect(CONTRACT.format(name=f"lineitem_{mark}"))
        return tables

    def _create(self, name: str) -> None:
        self.spark.sql(f"create table {self._named(name)} ({self.columns}) using iceberg")

    def _named(self, table: str) -> str:
        return f"{self.catalog.name}.{table}"

    def _frame(self, table: str) -> DataFrame:
        return self.spark.table(self._named(table))

    def _count(self, table: str) -> int:
        return self._frame(table).count()

    def _folder_of(self, table: str) -> Path:
        catalog, name = self.steward.notary.catalog, table.rpartition(".")[2]
        return Path(parse_location(catalog.tables.load(self.steward.operator, SALES, name).metadata.location).local)


def _files_to_freeze(job: VerifyJob, files: Files) -> list[str]:
    """Every file that the freeze of an attempt reads: the staged ones (the table was empty), and the source's."""
    assert job.head is not None
    staged = [entry.data_file.file_path for entry in live_entries(job.metadata, job.head, files)]
    return [*staged, *job.source.scan.locations()]


def _in_turn(number: int, work: Sequence[Work]) -> SecondsByStep:
    """Run all steps, forwards or backwards by turns, so that no step always follows the same one."""
    return {name: run() for name, run in (work if number % 2 else reversed(work))}
