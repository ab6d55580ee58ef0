"""The Steward's own Spark application beside the session that writes: a driver of its own, on as many cores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.spark_steward import House, seconds
from pvdm.model.statements.core import ExtractionPath
from pvdm.steward.pipeline.spark import SparkVerifier
from pvdm.verify.job import Tools, VerifyJob, verify
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.settings import SparkSettings

MASTER = "local[2]"
MEMORY = "2g"


@contextlib.contextmanager
def application_of(house: House, folder: Path) -> Iterator[Tools]:
    """The house's tools with an application that every chunk is left to; its driver starts with the first one."""
    settings = SparkSettings(MASTER, folder / "application", memory=MEMORY, bytes_least=0)
    desk = SparkVerifier(settings, house.notary.access, house.tools.files, StoreAccess())
    desk.set_service_address(house.shop.steward.url)
    try:
        yield replace(house.tools, large=desk.reader, extraction=desk.extraction)
    finally:
        desk.close()


def on_spark(house: House, tools: Tools, attempt_id: str) -> dict[str, float]:
    """Both sides of an attempt by the application, and once more by Spark's own reader after threads have read them."""

    def verified(changed: Callable[[VerifyJob], VerifyJob], own: Tools) -> float:
        def both() -> None:
            assert verify(changed(house.desks.verification.load_job(attempt_id)), own).core.verdict.passed

        both()  # the first one starts the driver, and is a warm-up
        return seconds(both)

    return {
        "verify_spark": verified(lambda job: job, tools),
        "verify_spark_extraction": verified(_by_sparks_reader, replace(tools, large=None)),
    }


def _by_sparks_reader(job: VerifyJob) -> VerifyJob:
    """The same job under a contract that leaves rows to Spark's reader."""
    contract = replace(job.bound.contract, extraction=ExtractionPath.SPARK)
    return replace(job, bound=replace(job.bound, contract=contract))
