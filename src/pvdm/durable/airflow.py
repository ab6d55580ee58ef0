"""An Airflow operator: each try of the task is one segment of a workload, and Airflow's retries continue it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from pvdm.client import StewardClient
from pvdm.durable.coordinator import Coordinator
from pvdm.durable.job import load_job
from pvdm.durable.outcome import Committed, Outcome
from pvdm.durable.progress import end_text, may_be_repeated
from pvdm.errors import PvdmError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WorkloadOperator(BaseOperator):  # type: ignore[misc]
    """Opens a workload, or continues it, and returns a summary when all of it is published.

    If a retry can continue the workload, a try fails with an error after which Airflow retries. A FAIL verdict, or an
    error that a repetition cannot correct, fails the task at once.
    """

    template_fields: Sequence[str] = ("workload_id", "parameters")

    def __init__(  # noqa: PLR0913 - an operator's settings are given by name in a DAG
        self,
        *,
        url: str,
        token_file: str,
        workload_id: str,
        table: str,
        job: str | None = None,
        parameters: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        get_spark: Callable[[], SparkSession] | None = None,
        segment_timeout: timedelta | None = None,
        workload_timeout: timedelta | None = None,
        parallel: int = 1,
        **settings: Any,
    ) -> None:
        """`job` is `module:function`. Without `get_spark` the job returns Arrow tables. `settings` are Airflow's."""
        super().__init__(**settings)
        self.url = url
        self.token_file = token_file
        self.workload_id = workload_id
        self.table = table
        self.job = job
        self.parameters = dict(parameters or {})
        self.ca_file = ca_file
        self.get_spark = get_spark
        self.segment_timeout = segment_timeout
        self.workload_timeout = workload_timeout
        self.parallel = parallel

    def execute(self, context: Any) -> dict[str, Any]:
        """Run one segment."""
        del context
        try:
            outcome = self._run_segment()
        except PvdmError as error:
            raise _airflow_error(error) from error
        if not isinstance(outcome, Committed):
            raise _airflow_error(outcome)
        return {"outcome": outcome.name, "workload_id": self.workload_id, "chunks": len(outcome.chunks)}

    def _run_segment(self) -> Outcome:
        build = None if self.job is None else load_job(self.job)
        ca_file = None if self.ca_file is None else Path(self.ca_file)
        with (
            StewardClient(self.url, token_file=Path(self.token_file), ca_file=ca_file) as client,
            Coordinator(
                client,
                self.get_spark,
                segment_timeout=_seconds(self.segment_timeout),
                workload_timeout=_seconds(self.workload_timeout),
                parallel=self.parallel,
            ) as coordinator,
        ):
            return coordinator.run(self.workload_id, self.table, self.parameters, build)


def _airflow_error(result: Outcome | PvdmError) -> Exception:
    """An error after which Airflow retries, if a retry continues the workload; else an error that fails the task."""
    error: Exception = (AirflowException if may_be_repeated(result) else AirflowFailException)(end_text(result))
    return error


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
