"""TPC-H lineitem on its way through Spark and the Steward: every step timed alone, beside what else could be done."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from bench.spark_hashes import differing_rows, sum_hmac, sum_xxhash64
from bench.spark_steward import House, Opened, seconds
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
Taken = dict[str, float]
Work = tuple[str, Callable[[], float]]


@dataclass(frozen=True, slots=True)
class Tables:
    """Where one repetition writes to: a table that anyone may write to, and a protected one, both new and empty."""

    plain: str
    target: str


@dataclass(slots=True)
class Lineitem:
    """The source in the Steward's catalog, read and written by Spark; each repetition has tables of its own.

    `whole` leaves nothing out; without it there is no HMAC and no multiset difference, which take longest.
    """

    house: House
    spark: SparkSession
    seed: int
    whole: bool
    catalog: SparkCatalog = field(init=False)
    columns: str = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        steward = self.house.shop.steward
        lent = steward.lend(Role.PRODUCER)
        name = f"bench_{steward.url.rpartition(':')[2]}"
        self.catalog = SparkCatalog(name, f"{steward.url}/catalog", lent.token, lent.token_id)
        add_catalog(self.spark, self.catalog)

    def close(self) -> None:
        """Take the catalog out of the session."""
        remove_catalog(self.spark, self.catalog)

    def make(self, files: Sequence[Path]) -> None:
        """The source, written by Spark from generated files."""
        frame = self.spark.read.parquet(*(str(file.resolve()) for file in files))
        self.columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in frame.schema)
        self.rows = sum(pq.read_metadata(file).num_rows for file in files)
        self._create(SOURCE)
        frame.writeTo(self._named(SOURCE)).append()
        assert self._count(SOURCE) == self.rows

    def repetition(self, number: int) -> Taken:
        """Everything once; who comes first changes from one repetition to the next."""
        tables = self._tables(number)
        opened = self.house.open(f"lineitem-{number}", tables.target, {})
        taken = _in_turn(
            number,
            [
                ("write", lambda: self._write(tables.plain)),
                ("stage", lambda: self._stage(opened)),
            ],
        )
        attempt_id = self.house.producer.staged(opened.to.attempt_id).attempt_id
        taken |= _in_turn(number, [*self._verifying(attempt_id), *self._hashing(tables.plain)])
        taken["publish"], taken["gate"] = self._publish(opened, attempt_id)
        assert self._count(tables.target) == self._count(tables.plain) == self.rows
        for name in (tables.plain, tables.target):
            shutil.rmtree(self._place(name))  # nobody reads it again, and many repetitions would fill the disk
        return taken

    def staged(self) -> str:
        """One more attempt, staged and waiting for its verification."""
        tables = self._tables(-1)
        opened = self.house.open("lineitem-fresh", tables.target, {})
        self._stage(opened)
        return self.house.producer.staged(opened.to.attempt_id).attempt_id

    def _verifying(self, attempt_id: str) -> list[Work]:
        """Freeze and verification; the job is made anew each time, since it is good for one run."""
        job_of, tools = self.house.desks.verification.load_job, self.house.tools

        def both() -> None:
            found = verify(job_of(attempt_id), tools)
            assert found.core.verdict.passed, found.findings
            assert found.core.rows.staged == found.core.rows.intent == self.rows

        def staged_alone() -> None:
            """The same job against a source without files: everything is read, digested and checked on one side.

            The rows are too many then, and nobody is to look for them.
            """
            job = job_of(attempt_id)
            alone = replace(job, source=replace(job.source, scan=replace(job.source.scan, files=())))
            found = verify(alone, replace(tools, locate_limits=LocateLimits(seconds=0)))
            assert (found.findings, found.core.rows.staged, found.core.rows.intent) == ((), self.rows, 0)
            assert found.located is not None
            assert found.located.problem_code == "locate_too_slow"

        frozen = _frozen(job_of(attempt_id), tools.files)
        return [
            ("freeze", lambda: seconds(lambda: freeze(frozen, tools.files, threads=tools.threads))),
            ("verify", lambda: seconds(staged_alone)),
            ("verify_both", lambda: seconds(both)),
        ]

    def _hashing(self, plain: str) -> list[Work]:
        """What others would compute over the same rows; the multiset difference has both sides to read."""
        frame, key = self._frame(plain), self.seed.to_bytes(32, "big")

        def differ() -> None:
            assert differing_rows(self._frame(SOURCE), frame) == 0

        work: list[Work] = [("xxhash64", lambda: seconds(lambda: sum_xxhash64(frame)))]
        if self.whole:
            work.append(("hmac_builtin", lambda: seconds(lambda: sum_hmac(frame, key))))
            work.append(("except_all", lambda: seconds(differ)))
        return work

    def _publish(self, opened: Opened, attempt_id: str) -> tuple[float, float]:
        """From freeze to read-back and receipt; and what the gate had of it, which reads every file once more."""
        desks = self.house.desks
        verified = seconds(lambda: desks.verification.verify(attempt_id))
        gate = seconds(lambda: desks.publishing.publish(opened.to.workload_id, [attempt_id]))
        assert self.house.producer.attempt(attempt_id).state is AttemptState.COMMITTED
        desks.disposal.dispose(attempt_id)
        return verified + gate, gate

    def _write(self, plain: str) -> float:
        return seconds(lambda: self._frame(SOURCE).writeTo(self._named(plain)).append())

    def _stage(self, opened: Opened) -> float:
        source = Source(self.house.producer, lambda: self.spark, opened.workload, opened.bound)
        chunk = Chunk.of(opened.workload, opened.chunk, source)
        stager = SparkStager(self.house.producer, self.spark)
        return seconds(lambda: stager.stage(chunk.rows, opened.to))

    def _tables(self, number: int) -> Tables:
        mark = "fresh" if number < 0 else str(number)
        tables = Tables(f"sales.plain_{mark}", f"sales.lineitem_{mark}")
        for name in (tables.plain, tables.target):
            self._create(name)
        self.house.shop.protect(CONTRACT.format(name=f"lineitem_{mark}"))
        return tables

    def _create(self, name: str) -> None:
        self.spark.sql(f"create table {self._named(name)} ({self.columns}) using iceberg")

    def _named(self, table: str) -> str:
        return f"{self.catalog.name}.{table}"

    def _frame(self, table: str) -> DataFrame:
        return self.spark.table(self._named(table))

    def _count(self, table: str) -> int:
        return self._frame(table).count()

    def _place(self, table: str) -> Path:
        catalog, name = self.house.notary.catalog, table.rpartition(".")[2]
        return Path(parse_location(catalog.tables.load(self.house.operator, SALES, name).metadata.location).local)


def _frozen(job: VerifyJob, files: Files) -> list[str]:
    """Every file that the freeze of an attempt reads: what was staged on a table that was empty, and its source."""
    assert job.head is not None
    staged = [entry.data_file.file_path for entry in live_entries(job.metadata, job.head, files)]
    return [*staged, *job.source.scan.locations()]


def _in_turn(number: int, work: Sequence[Work]) -> Taken:
    """All of it, forwards and backwards by turns, so that none has always the same one before it."""
    return {name: run() for name, run in (work if number % 2 else reversed(work))}
