"""The Coordinator: runs a workload from its opening to its outcome, and continues an interrupted run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from pvdm.api.work import PlanningView, WorkloadView
from pvdm.client import StewardClient
from pvdm.durable.arguments import (
    require_lease_seconds,
    require_parallel,
    require_take_over,
    require_workload_timeout,
)
from pvdm.durable.chunk import Chunk, Source
from pvdm.durable.final_outcome import complete_outcome
from pvdm.durable.outcome import Outcome, RolledBack, Watch, ignore_progress, planning_watch
from pvdm.durable.run import Run, Settings
from pvdm.durable.segment import Segment
from pvdm.errors import (
    Code,
    ConflictError,
    InputError,
    NotAllowedError,
    PvdmError,
    RolledBackError,
    VerificationError,
)
from pvdm.model.contract import DataProductContract, parse_contract, read_contract
from pvdm.model.role import Role
from pvdm.model.states import LEASE_SECONDS, WITH_STEWARD, WorkloadState
from pvdm.physical.small import SmallStager
from pvdm.physical.spark import SparkStager
from pvdm.physical.stager import Stager
from pvdm.physical.watchdog import SigtermReceived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Build: TypeAlias = Callable[[Any, Chunk], Any]
"""`build(spark, chunk) -> DataFrame`; in a small job, without Spark, `build(None, chunk) -> pyarrow.Table`."""


class Coordinator:
    """Runs workloads of one Steward as a producer; a context manager that closes its own client."""

    def __init__(  # noqa: PLR0913 - settings are given by name
        self,
        steward: StewardClient,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        *,
        segment_timeout: float | None = None,
        rollback_threshold: float | None = None,
        max_chunks: int | None = None,
        segment_started_at: float | None = None,
        workload_timeout: float | None = None,
        lease_seconds: int = LEASE_SECONDS,
        take_over: bool = False,
        parallel: int = 1,
        watch: Watch = ignore_progress,
    ) -> None:
        """`steward` is an embedded Steward or a producer's client. Without `spark`, jobs return Arrow tables.

        `spark` is a session, or a function that starts one, which is called when there is a chunk to stage.
        `watch` is called at every step. A run holds the lease of its workload, and renews it several times within
        `lease_seconds`. With `take_over` it ends the lease that another run had when this one began.

        A run stops `rollback_threshold` seconds before the end of its segment, or when it has staged `max_chunks`
        chunks. The segment ends `segment_timeout` seconds after the Coordinator was created. If it began before that,
        for example with its process, `segment_started_at` is its start by `pvdm.durable.segment.elapsed_seconds`.
        `workload_timeout` is how long after the opening of a workload its runs may stage chunks, in seconds (by default
        5,400); a later run can change it. An argument that cannot be used raises an `InputError`.

        A run works on up to `parallel` chunks at a time, in the same Spark application. Then `build` is called from
        several threads. With Arrow tables, the rows of `parallel` chunks are in memory.
        """
        self._segment = Segment.start(
            segment_timeout, rollback_threshold, max_chunks=max_chunks, started_at=segment_started_at
        )
        self._workload_timeout = require_workload_timeout(workload_timeout)
        self._lease_seconds = require_lease_seconds(lease_seconds)
        self._take_over = require_take_over(take_over)
        self._parallel = require_parallel(parallel)
        client = steward.with_patience()
        self._owns_client = client.identity().role is not Role.PRODUCER  # an embedded Steward lends a producer's token
        self._client = client.with_token(steward.lend(Role.PRODUCER).token) if self._owns_client else client
        self._spark = _session_function(spark)
        self._watch = watch

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client that the Coordinator created; a client that the caller passed stays open."""
        if self._owns_client:
            self._client.close()

    def execute_workload(
        self,
        workload_id: str,
        build: Build | None = None,
        *,
        table: str | None = None,
        contract: DataProductContract | Path | str | None = None,
        **parameters: object,
    ) -> Outcome:
        """Open or continue the workload, and bring every chunk to its end.

        `build` makes a chunk's rows; without `build`, Spark makes them by the contract's filter and mapping. `table` or
        `contract` (a contract in force, or its file) names the target. `parameters` are the contract's parameters.
        """
        return self.run(workload_id, self._require_target(table, contract), parameters, build)

    def run(
        self, workload_id: str, table: str, parameters: Mapping[str, object], build: Build | None = None
    ) -> Outcome:
        """As `execute_workload`, with the contract's parameters as a mapping, so that they may have any name."""
        self._require_job(build)
        try:
            opened = self.open_workload(workload_id, table, parameters)
        except RolledBackError as error:
            if error.code != Code.SEGMENT_ENDED:
                raise
            return RolledBack(workload_id, table, (), error)
        return self._run(opened, build)

    def open_workload(self, workload_id: str, table: str, parameters: Mapping[str, object]) -> WorkloadView:
        """Open the workload, or return it if it exists, and work on no chunk. This waits until its plan is made.

        Raises `segment_timed_out` if the segment has to stop before that. The Steward goes on with the plan.
        """
        texts = {name: _parameter_text(name, value) for name, value in parameters.items()}
        watch = planning_watch(self._watch)

        def watch_in_time(found: PlanningView) -> None:
            watch(found)
            self._segment.require_time()

        return self._client.open_workload(workload_id, table, texts, self._workload_timeout, watch=watch_in_time)

    def resume_workload(self, workload_id: str, build: Build | None = None) -> Outcome:
        """Continue a workload that was opened before, with the parameters that it was opened with."""
        self._require_job(build)
        return self._run(self._client.workload(workload_id).workload, build)

    def repair(self, workload_id: str, build: Build | None = None, *, reason: str) -> Outcome:
        """Try failed chunks again, with new attempts, and continue with the rest of the workload.

        `reason` says what was corrected; it is stored with the new attempts.
        """
        self._require_job(build)
        return self._run(self._client.workload(workload_id).workload, build, repair_reason=reason)

    def publish(
        self,
        workload_id: str,
        table: str,
        branch: str,
        parameters: Mapping[str, object] | None = None,
        *,
        reason: str | None = None,
    ) -> Outcome:
        """Verify and publish a branch that an unmodified job has staged; the Steward copies its files.

        If a branch has failed under this workload id, `reason` says what was corrected, as with `repair`.
        """
        texts = {name: _parameter_text(name, value) for name, value in (parameters or {}).items()}
        try:
            attempt = self._client.publish_branch(workload_id, table, branch, texts, reason)
        except (ConflictError, InputError, NotAllowedError, VerificationError):
            # An abandoned workload is reported as abandoned, whatever else is wrong with this call.
            if (abandoned := self._abandoned_outcome(workload_id)) is None:
                raise
            return abandoned
        is_running = attempt.state in WITH_STEWARD
        opened = attempt.attempt_id if is_running else None
        return self._run(self._client.workload(workload_id).workload, _refuse_build, opened_attempt=opened)

    def _abandoned_outcome(self, workload_id: str) -> Outcome | None:
        """The outcome of an abandoned workload; None if the workload is not abandoned, or cannot be read."""
        try:
            workload = self._client.workload(workload_id).workload
        except PvdmError:
            return None
        return self._run(workload, _refuse_build) if workload.state is WorkloadState.ABANDONED else None

    def _require_target(self, table: str | None, contract: DataProductContract | Path | str | None) -> str:
        """The target's name. Raises if there is none, or the target is not protected under this contract."""
        if contract is None:
            if table is None:
                raise Code.TARGET_MISSING()
            return table
        if not isinstance(contract, DataProductContract):
            contract = parse_contract(read_contract(Path(contract)), str(contract))
        target = contract.boundary.target
        if table not in (None, target):
            raise Code.TARGET_DIFFERS(expected=target, got=str(table)[:200])
        protected = self._client.protected("table", name=target)
        if not protected or protected[0].contract_sha256 != contract.sha256:
            words, reason = f"{target} is not protected under this contract", "contract_not_protecting"
            expected = protected[0].contract_sha256 if protected else "a protected table"
            raise Code.CONTRACT_NOT_APPLICABLE(words, reason=reason, expected=expected, got=contract.sha256)
        return target

    def _run(
        self,
        workload: WorkloadView,
        build: Build | None,
        *,
        repair_reason: str | None = None,
        opened_attempt: str | None = None,
    ) -> Outcome:
        contract = parse_contract(self._client.contract(workload.contract_hash), f"contract {workload.contract_hash}")
        bound = contract.bind(dict(workload.parameters))
        source = None if self._spark is None else Source(self._client, self._spark, workload, bound)
        settings = Settings(
            make_rows=self._make_function(build),
            get_stager=functools.cache(self._create_stager),
            source=source,
            watch=self._watch,
            segment=self._segment,
            lease_seconds=self._lease_seconds,
            take_over=self._take_over,
            stages_rows=build is not _refuse_build,
            parallel=self._parallel,
            repair_reason=repair_reason,
            opened_attempt=opened_attempt,
        )
        outcome = Run(self._client, workload, bound, settings).execute()
        try:
            return complete_outcome(self._client, outcome, repairs=bool(contract.governance.automatic_repairs))
        except (KeyboardInterrupt, SigtermReceived):
            return outcome

    def _require_job(self, build: Build | None) -> None:
        if build is None and self._spark is None:
            words = "without Spark the contract's filter and mapping cannot be the job"
            expected, hint = "build(None, chunk) -> pyarrow.Table", "give the job, or a Spark session"
            raise Code.JOB_INVALID(words, reason="job_missing", expected=expected, got="none", hint=hint)

    def _make_function(self, build: Build | None) -> Callable[[Chunk], Any]:
        if build is None:
            return lambda chunk: chunk.rows()
        session = self._spark
        return lambda chunk: build(None if session is None else session(), chunk)

    def _create_stager(self) -> Stager[Any]:
        if self._spark is None:
            return SmallStager(self._client)
        return SparkStager(self._client, self._spark())


def resume_workload(
    steward: StewardClient,
    workload_id: str,
    build: Build | None = None,
    *,
    spark: SparkSession | Callable[[], SparkSession] | None = None,
    segment_timeout: float | None = None,
    rollback_threshold: float | None = None,
    max_chunks: int | None = None,
    parallel: int = 1,
    watch: Watch = ignore_progress,
) -> Outcome:
    """Continue an open workload for one segment. Schedulers and serverless functions call this.

    This may be called again at any time and from any process. Published chunks are not staged again. The arguments are
    those of `Coordinator`.
    """
    opened = Coordinator(
        steward,
        spark,
        segment_timeout=segment_timeout,
        rollback_threshold=rollback_threshold,
        max_chunks=max_chunks,
        parallel=parallel,
        watch=watch,
    )
    with opened as coordinator:
        return coordinator.resume_workload(workload_id, build)


def _session_function(spark: SparkSession | Callable[[], SparkSession] | None) -> Callable[[], SparkSession] | None:
    """A function that returns the session. If `spark` is a function, the first call starts the session."""
    if spark is None:
        return None
    return functools.cache(spark) if callable(spark) else lambda: spark


def _refuse_build(_spark: object, chunk: Chunk) -> None:
    """The job for a branch that is staged already. Raises, since such a branch needs no rows of a job."""
    raise Code.BRANCH_NOT_ADOPTED(got=chunk.chunk_id)


def _parameter_text(name: str, value: object) -> str:
    """The value of a parameter as text, as contracts write it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | UUID():
            return str(value)
        case datetime() | date():
            return value.isoformat()
    message = f"parameter {name[:80]} cannot be accepted"
    expected = "a text, a number, true or false, a date or time, or a UUID"
    raise Code.PARAMETERS_INVALID(message, reason="parameter_invalid", expected=expected, got=type(value).__name__)
