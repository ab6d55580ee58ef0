"""The Steward's own Spark application beside the session that writes: a driver of its own, on as many cores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.spark_steward import House
from pvdm.model.core import ExtractionPath
from pvdm.steward.spark_desk import SparkDesk
from pvdm.verify.job import Tools, VerifyJob
from pvdm.verify.spark.settings import SparkSettings

MASTER = "local[2]"
MEMORY = "2g"


@contextlib.contextmanager
def application_of(house: House, folder: Path) -> Iterator[Tools]:
    """The house's tools with an application that every chunk is left to; its driver starts with the first one."""
    settings = SparkSettings(MASTER, folder / "application", memory=MEMORY, bytes_least=0)
    desk = SparkDesk(settings, house.notary.access, house.tools.files)
    desk.served_at(house.shop.steward.url)
    try:
        yield replace(house.tools, large=desk.reader, extraction=desk.extraction)
    finally:
        desk.close()


def by_sparks_reader(job: VerifyJob) -> VerifyJob:
    """The same job under a contract that leaves rows to Spark's reader."""
    contract = replace(job.bound.contract, extraction=ExtractionPath.SPARK)
    return replace(job, bound=replace(job.bound, contract=contract))
