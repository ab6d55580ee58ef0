"""Measures verification by the Steward's own Spark application, which has its own driver beside the writing session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.spark_steward import BenchSteward, seconds
from pvdm.model.statements.core import ExtractionPath
from pvdm.steward.pipeline.spark import SparkVerifier
from pvdm.verify.job import Tools, VerifyJob, verify
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.settings import SparkSettings

MASTER = "local[2]"
MEMORY = "2g"


@contextlib.contextmanager
def application_of(steward: BenchSteward, folder: Path) -> Iterator[Tools]:
    """The Steward's tools with a Spark application that reads every chunk; its driver starts with the first chunk."""
    settings = SparkSettings(MASTER, folder / "application", memory=MEMORY, bytes_least=0)
    verifier = SparkVerifier(settings, steward.notary.access, steward.tools.files, StoreAccess())
    verifier.set_service_address(steward.shop.steward.url)
    try:
        yield replace(steward.tools, large=verifier.reader, extraction=verifier.extraction)
    finally:
        verifier.close()


def on_spark(steward: BenchSteward, tools: Tools, attempt_id: str) -> dict[str, float]:
    """Seconds for both sides of an attempt: read by the application, and with `extraction: spark`."""

    def time_verification(change: Callable[[VerifyJob], VerifyJob], with_tools: Tools) -> float:
        def verify_both() -> None:
            job = change(steward.services.verification.load_job(attempt_id))
            assert verify(job, with_tools).core.verdict.passed

        verify_both()  # a warm-up, which starts the driver
        return seconds(verify_both)

    return {
        "verify_spark": time_verification(lambda job: job, tools),
        "verify_spark_extraction": time_verification(_with_spark_extraction, replace(tools, large=None)),
    }


def _with_spark_extraction(job: VerifyJob) -> VerifyJob:
    """The same job under a contract with `extraction: spark`."""
    contract = replace(job.bound.contract, extraction=ExtractionPath.SPARK)
    return replace(job, bound=replace(job.bound, contract=contract))
