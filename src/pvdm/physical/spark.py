"""Stages a DataFrame with Spark on the attempt's branch, through a catalog with the attempt's token."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.errors import Code
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.spark import SparkCatalog, unwire, wire
from pvdm.model.statements.core import Operation
from pvdm.physical.spark_expressions import fitted, in_partition, spark_name
from pvdm.physical.stager import Destination

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkStager:
    """Writes to `table.branch_x`, since Iceberg's `branch` option would silently write to `main`."""

    def __init__(self, client: StewardClient, spark: SparkSession) -> None:
        """`client` is any client of the Steward; requests use the attempt's own token."""
        self._client = client
        self._spark = spark
        self._cancelled: set[str] = set()

    def stage(self, make: Callable[[], DataFrame], to: Destination) -> None:
        """Write the rows; Spark removes its files itself when a job fails or is cancelled."""
        with _job_group(self._spark, to):
            self._stage(make(), to)

    def _stage(self, rows: DataFrame, to: Destination) -> None:
        from pyspark.sql import DataFrame

        if not isinstance(rows, DataFrame):
            raise Code.ROWS_INVALID(reason="rows_not_a_frame", got=type(rows).__name__)
        spark = rows.sparkSession
        with self._client.with_token(to.token) as client:
            metadata = TableMetadata.from_json(TableClient(client, *to.name).load())
        catalog = SparkCatalog(f"pvdm_{to.attempt_id}", to.catalog_uri, to.token)
        with _spark_catalog(spark, catalog):
            levels, name = to.name
            table = (catalog.name, *levels, name)
            if to.branch not in metadata.refs:
                # The Steward cannot create a branch of an empty table, and Spark writes to existing branches only.
                spark.sql(f"alter table {spark_name(*table)} create branch {spark_name(to.branch)}")
            ready = fitted(rows, spark.table(spark_name(*table)).schema)
            writer = ready.writeTo(spark_name(*table, f"branch_{to.branch}"))
            for key, text in to.summary.items():
                writer = writer.option(f"snapshot-property.{key}", text)
            self._require_not_cancelled(to)
            _write(writer, to, metadata, catalog.name)

    def cancel(self, to: Destination) -> bool:
        """Cancel the attempt's jobs in all sessions of this process; the caller must wait for their end."""
        self._cancelled.add(to.attempt_id)
        from pyspark import SparkContext

        context: Any = SparkContext._active_spark_context
        if context is not None:
            context.cancelJobGroup(to.attempt_id)
        return False

    def _require_not_cancelled(self, to: Destination) -> None:
        if to.attempt_id in self._cancelled:
            raise Code.ATTEMPT_INTERRUPTED()


def _write(writer: Any, to: Destination, metadata: TableMetadata, catalog: str) -> None:
    """Write as the contract's operation says; without a declared partition the rows decide what is replaced."""
    from pyspark.sql import functions

    match to.operation:
        case Operation.APPEND:
            writer.append()
        case Operation.OVERWRITE:
            writer.overwrite(functions.lit(True))
        case Operation.OVERWRITE_PARTITIONS if to.partition:
            # Static, so that an empty result empties the partition.
            writer.overwrite(in_partition(metadata, to.partition, catalog))
        case Operation.OVERWRITE_PARTITIONS:
            writer.overwritePartitions()


@contextlib.contextmanager
def _spark_catalog(spark: SparkSession, catalog: SparkCatalog) -> Iterator[None]:
    wire(spark, catalog)
    try:
        yield
    finally:
        unwire(spark, catalog)


@contextlib.contextmanager
def _job_group(spark: SparkSession, to: Destination) -> Iterator[None]:
    """Put this thread's jobs into the attempt's job group, so that another thread can cancel them."""
    context: Any = spark.sparkContext
    context.setJobGroup(
        to.attempt_id, f"pvdm: chunk {to.chunk_id} of {to.workload_id} to {to.table}", interruptOnCancel=True
    )
    try:
        yield
    finally:
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(key, None)
