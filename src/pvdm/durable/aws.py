"""Runs a workload in an AWS Lambda durable function: each step of the execution is one segment of the workload.

The execution's checkpoints have only the results of its steps. The Steward's ledger has what is published, so a
step that Lambda repeats, or a replay of the whole execution, publishes nothing twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from aws_durable_execution_sdk_python import DurableContext, StepContext
from aws_durable_execution_sdk_python.config import Duration, StepConfig
from aws_durable_execution_sdk_python.retries import RetryDecision

from pvdm.client import StewardClient
from pvdm.durable.coordinator import Build, Coordinator, resume_workload
from pvdm.durable.outcome import Committed, Outcome
from pvdm.durable.progress import (
    FAILURES_MAX,
    Progress,
    end_text,
    may_be_repeated,
    may_continue,
    waits_for_steward,
)
from pvdm.errors import Code, PvdmError, RolledBackError
from pvdm.model.states import LEASE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE_LONGEST_SECONDS: Final = 60


class _SegmentResult(TypedDict):
    """What a segment's step stores in its checkpoint. `ended` is the summary; None if another segment follows."""

    ended: dict[str, Any] | None
    handed_in: int
    waits: bool
    text: str


def run_workload(  # noqa: PLR0913 - settings are given by name
    context: DurableContext,
    steward: StewardClient,
    workload_id: str,
    table: str,
    build: Build | None = None,
    *,
    parameters: Mapping[str, str] | None = None,
    spark: SparkSession | Callable[[], SparkSession] | None = None,
    rollback_threshold: float | None = None,
    workload_timeout: float | None = None,
    parallel: int = 1,
) -> dict[str, Any]:
    """Run the workload until it is published, and return a summary. Another outcome fails the execution with its error.

    A segment stops before the invocation's time is over. Then the execution pauses: a second after progress, and twice
    as long after each further segment without progress, at most a minute. The next segment begins in a new invocation.
    """

    def open_workload(_step: StepContext) -> int | None:
        seconds, threshold = _times_left(context, rollback_threshold)
        opened = Coordinator(
            steward, workload_timeout=workload_timeout, segment_timeout=seconds, rollback_threshold=threshold
        )
        try:
            with opened as coordinator:
                return coordinator.open_workload(workload_id, table, parameters or {}).handed_in
        except RolledBackError as error:
            if error.code != Code.SEGMENT_ENDED:
                raise
            return None  # the Steward still makes the plan

    def run_segment(_step: StepContext) -> _SegmentResult:
        seconds, threshold = _times_left(context, rollback_threshold)
        outcome = resume_workload(
            steward,
            workload_id,
            build,
            spark=spark,
            segment_timeout=seconds,
            rollback_threshold=threshold,
            parallel=parallel,
        )
        return _result_of(outcome, steward.workload(workload_id, look_up_source=False).handed_in)

    handed_in = context.step(open_workload, name="open", config=_REPEATED)
    for number in itertools.count(2):
        if handed_in is not None:
            break
        context.wait(_pause_after(0), name=f"pause {number} of the plan")
        handed_in = context.step(open_workload, name=f"open {number}", config=_REPEATED)
    progress = Progress(handed_in or 0)
    for number in itertools.count(1):
        result = context.step(run_segment, name=f"segment {number}", config=_REPEATED)
        if result["ended"] is not None:
            return result["ended"]
        progress.note(result["handed_in"], waits=result["waits"])
        progress.require(workload_id, result["text"])
        context.wait(_pause_after(progress.failures), name=f"pause {number}")
    raise AssertionError("the loop has no end of its own")


def _result_of(outcome: Outcome, handed_in: int) -> _SegmentResult:
    if may_continue(outcome):
        return {"ended": None, "handed_in": handed_in, "waits": waits_for_steward(outcome), "text": end_text(outcome)}
    return {"ended": _summary(outcome.require()), "handed_in": handed_in, "waits": False, "text": ""}


def _summary(outcome: Committed) -> dict[str, Any]:
    """The outcome with the number of its chunks in place of the chunks: a checkpoint's size is limited."""
    document = outcome.to_json()
    return {**{name: value for name, value in document.items() if name != "chunks"}, "chunks": len(outcome.chunks)}


def _times_left(context: DurableContext, rollback_threshold: float | None) -> tuple[float | None, float | None]:
    """The seconds that this invocation has left, and how long before their end a segment stops.

    Raises `segment_timed_out` if no time is left for work. After this error, another invocation repeats the step.
    """
    invocation = context.lambda_context
    if invocation is None:
        return None, None
    seconds = invocation.get_remaining_time_in_millis() / 1000
    least = rollback_threshold if isinstance(rollback_threshold, (int, float)) else 0.0
    if seconds <= least:
        expected = f"an invocation with more than {least:g} seconds left"
        raise Code.SEGMENT_ENDED(reason="segment_timed_out", expected=expected, got=f"{seconds:g} seconds")
    return seconds, rollback_threshold


def _pause_after(failures: int) -> Duration:
    return Duration.from_seconds(min(2**failures, _PAUSE_LONGEST_SECONDS))


def _retry(error: Exception, attempt: int) -> RetryDecision:
    """Repeat a step if a repetition alone can correct the error, for example if the Steward cannot be reached."""
    if isinstance(error, PvdmError) and may_be_repeated(error) and attempt < FAILURES_MAX:
        is_leased = error.code == Code.WORKLOAD_LEASED  # perhaps by an invocation that was killed
        return RetryDecision.retry(Duration.from_seconds(LEASE_SECONDS) if is_leased else _pause_after(attempt))
    return RetryDecision.no_retry()


_REPEATED: Final = StepConfig(retry_strategy=_retry)
