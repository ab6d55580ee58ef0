"""A served Steward that leaves chunks to its own Spark application, or to the same workers without a JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.pipeline.spark import SparkVerifier
from pvdm.verify.job import Tools, VerificationResult, verify
from pvdm.verify.readers import JobKeys, ReadResult, Work
from pvdm.verify.spark.application import Application, SparkTable
from pvdm.verify.spark.reader import SparkReader
from pvdm.verify.spark.settings import SparkSettings
from pvdm.verify.spark.worker import KEYRING, run_extraction, run_task
from tests.support.gate.approvals import furnish, with_catalog
from tests.support.steward.http import Served, served
from tests.support.verify.attempts import Bench, Row, bench_on


class InProcess(Application):
    """The application with all of its workers in this process: everything is real but Spark."""

    def __init__(self, settings: SparkSettings, store: Mapping[str, str] | None = None, cores: int = 2) -> None:
        super().__init__(settings, store)
        self._cores = cores
        self.seen: list[tuple[bytes, tuple[bytes, ...]]] = []
        self.answers: list[bytes] = []

    def cores(self) -> int:
        return self._cores

    def run(self, job_id: str, common: bytes, tasks: Sequence[bytes]) -> tuple[list[str | None], list[bytes]]:
        del job_id
        self.seen.append((common, tuple(tasks)))
        told = []
        for task in tasks:
            KEYRING.forget()  # as in a process of its own
            told.append(run_task(common, task))
        self.answers = [sealed or b"" for sealed, _ in told]
        return [refused for _, refused in told], self.answers

    def extract(
        self, job_id: str, common: bytes, rows: bytes, table: SparkTable
    ) -> tuple[list[str | None], list[bytes]]:
        """As Spark's reader does it, by another one that is no kernel of ours either: PyIceberg's."""
        del job_id
        own = dict(table.store or {})
        found = StaticTable.from_metadata(f"file://{table.folder}/metadata/v1.metadata.json", own).scan(
            snapshot_id=table.snapshot_id
        )
        batches = found.select(*table.columns).to_arrow().to_batches()
        KEYRING.forget()
        told = [
            each for batch in run_extraction(common, rows, self.seen_by_reader(batches)) for each in batch.to_pylist()
        ]
        return [each["refused"] for each in told], [each["sealed"] or b"" for each in told]

    def seen_by_reader(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """What the reader makes of the rows: itself, or what a test says."""
        return batches

    def versions(self) -> str:
        return "pyiceberg-in-its-place"


@dataclass
class Lab:
    """A bench on a served Steward with a Spark application."""

    served: Served
    bench: Bench
    settings: SparkSettings
    tools: Tools = field(init=False)

    def __post_init__(self) -> None:
        notary = self.bench.scene.notary
        extraction = None if notary.spark is None else notary.spark.extraction
        self.tools = Tools(self.bench.files, notary.handles, notary.keys, self.bench.vault, extraction=extraction)

    @property
    def desk(self) -> SparkVerifier:
        found = self.bench.scene.notary.spark
        assert found is not None
        return found

    def on_spark(self, application: Application | None = None) -> Tools:
        """The tools with the Steward's reader, on this application or its own."""
        reader: SparkReader = self.desk.reader
        return replace(self.tools, large=reader if application is None else replace(reader, application=application))

    def without_jvm(self, **more: Any) -> tuple[InProcess, Tools]:
        made = InProcess(self.settings, **more)
        return made, self.on_spark(made)

    def verified(self, attempt: Attempt, tools: Tools) -> VerificationResult:
        """What a job of its own finds; nothing moves."""
        return verify(self.bench.verification.load_job(attempt.attempt_id), tools)

    def work(self, attempt: Attempt) -> Work:
        """What would be read for this attempt."""
        seen: list[Work] = []

        class _AskedError(Exception):
            pass

        class _Asking:
            def takes(self, work: Work) -> bool:
                seen.append(work)
                raise _AskedError

            def redemptions(self, work: Work) -> int:
                raise NotImplementedError

            def read(self, work: Work, job_keys: JobKeys) -> ReadResult:
                raise NotImplementedError

        with contextlib.suppress(_AskedError):
            self.verified(attempt, replace(self.tools, large=_Asking()))
        return seen[0]

    def both(self, attempt: Attempt, tools: Tools) -> tuple[VerificationResult, VerificationResult]:
        """By threads, and by these tools."""
        return self.verified(attempt, self.tools), self.verified(attempt, tools)


def facts(found: VerificationResult) -> tuple[object, ...]:
    """Everything that a proof and a publication rest on; commitments under one key are equal where digests are."""
    return found.core.to_bytes(), found.commitments, found.files, found.findings, found.context


@contextlib.contextmanager
def lab_at(
    folder: Path,
    *,
    source: Sequence[Sequence[Row]],
    master: str = "local[2]",
    contracted: dict[str, str] | None = None,
    **more: Any,
) -> Iterator[Lab]:
    """A Steward in this folder that leaves every chunk to Spark."""
    folder = folder.resolve()
    settings = SparkSettings(master, folder / "spark", bytes_least=0, **more)
    catalog = with_catalog(folder)

    def changed(config: StewardConfig) -> StewardConfig:
        return replace(catalog(config), spark=settings)

    with served(folder, changed=changed) as running:
        words: dict[str, Any] = dict(contracted or {})
        bench = bench_on(furnish(running.stand), folder, source=source, **words)
        bench.scene.notary.jobs.stop()  # the tests verify, and nothing else does
        yield Lab(running, bench, settings)


def worker_token(lab: Lab, path: Path) -> Path:
    """A worker's token, put where an operator would put it."""
    path.write_text(lab.served.stand.token(Role.WORKER, "*", "workers")[0])
    path.chmod(0o600)
    return path
