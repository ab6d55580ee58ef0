"""A served Steward that verifies chunks on its Spark application, or with the same workers in this process."""

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
    """The Spark application without Spark: its workers run in this process."""

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
        results = []
        for task in tasks:
            KEYRING.forget()  # as in a new process
            results.append(run_task(common, task))
        self.answers = [encrypted or b"" for encrypted, _ in results]
        return [refused for _, refused in results], self.answers

    def extract(
        self, job_id: str, common: bytes, selection: bytes, table: SparkTable
    ) -> tuple[list[str | None], list[bytes]]:
        """Extract rows with PyIceberg's reader in place of Spark's; both are independent of the kernel."""
        del job_id
        store = dict(table.store or {})
        scan = StaticTable.from_metadata(f"file://{table.folder}/metadata/v1.metadata.json", store).scan(
            snapshot_id=table.snapshot_id
        )
        batches = scan.select(*table.columns).to_arrow().to_batches()
        KEYRING.forget()
        results = [
            each
            for batch in run_extraction(common, selection, self.seen_by_reader(batches))
            for each in batch.to_pylist()
        ]
        return [each["refused"] for each in results], [each["encrypted"] or b"" for each in results]

    def seen_by_reader(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The rows that the reader returns; a test can override this."""
        return batches

    def versions(self) -> str:
        return "pyiceberg-in-its-place"


@dataclass
class Lab:
    """A served Steward with a Spark application, and the source and target of a `Bench`."""

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
        """The tools that read on Spark: on this application, or on the Steward's own."""
        reader: SparkReader = self.desk.reader
        return replace(self.tools, large=reader if application is None else replace(reader, application=application))

    def without_jvm(self, **more: Any) -> tuple[InProcess, Tools]:
        """An application without Spark, and the tools that read on it."""
        application = InProcess(self.settings, **more)
        return application, self.on_spark(application)

    def verified(self, attempt: Attempt, tools: Tools) -> VerificationResult:
        """The result of verifying the attempt with these tools; nothing is recorded."""
        return verify(self.bench.verification.load_job(attempt.attempt_id), tools)

    def work(self, attempt: Attempt) -> Work:
        """The work that a verification would give to its reader for this attempt."""
        seen: list[Work] = []

        class _StopError(Exception):
            pass

        class _CapturingReader:
            def takes(self, work: Work) -> bool:
                seen.append(work)
                raise _StopError

            def redemptions(self, work: Work) -> int:
                raise NotImplementedError

            def read(self, work: Work, job_keys: JobKeys) -> ReadResult:
                raise NotImplementedError

        with contextlib.suppress(_StopError):
            self.verified(attempt, replace(self.tools, large=_CapturingReader()))
        return seen[0]

    def verify_both(self, attempt: Attempt, tools: Tools) -> tuple[VerificationResult, VerificationResult]:
        """The results of verifying with threads, and with these tools."""
        return self.verified(attempt, self.tools), self.verified(attempt, tools)


def facts(found: VerificationResult) -> tuple[object, ...]:
    """Everything in a result that proof and publication depend on. Equal commitments mean equal digests."""
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
    """A Steward in this folder that verifies every chunk on Spark."""
    folder = folder.resolve()
    settings = SparkSettings(master, folder / "spark", bytes_least=0, **more)
    catalog = with_catalog(folder)

    def changed(config: StewardConfig) -> StewardConfig:
        return replace(catalog(config), spark=settings)

    with served(folder, changed=changed) as running:
        contract_options: dict[str, Any] = dict(contracted or {})
        bench = bench_on(furnish(running.stand), folder, source=source, **contract_options)
        bench.scene.notary.jobs.stop()  # only the tests verify
        yield Lab(running, bench, settings)


def worker_token(lab: Lab, path: Path) -> Path:
    """Write a worker's token to a file with the rights that an operator would set."""
    path.write_text(lab.served.stand.token(Role.WORKER, "*", "workers")[0])
    path.chmod(0o600)
    return path
