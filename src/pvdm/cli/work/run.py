"""`pvdm run`, `resume`, `publish`, `repair` and `abandon`: workloads run, continued, published and ended."""

from __future__ import annotations

from typing import Final

import click

from pvdm.cli.common.commands import command, wants_json
from pvdm.cli.common.options import Service, parse_pairs, service_options
from pvdm.cli.common.screen import Line, say_on_stderr, say_result
from pvdm.cli.common.times import duration_type
from pvdm.cli.table.open_workloads import summarize
from pvdm.cli.work.jobs import Job, finish, job_options, job_output, open_coordinator, param_option, workload_option
from pvdm.cli.work.segments import SegmentOfCommand, SegmentTimes, run_in_segments, seconds_of, segment_options
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.printable import view_json
from pvdm.model.states import WORKLOAD_TIMEOUT_MAX_SECONDS, WorkloadState

_ORPHANS_NOTE: Final = "the job's own files are unreferenced now: `pvdm orphans` lists them"


@command("run")
@click.argument("table", metavar="TABLE")
@workload_option
@param_option
@click.option(
    "--workload-timeout",
    type=duration_type(WORKLOAD_TIMEOUT_MAX_SECONDS * MICROS_PER_SECOND),
    metavar="TIME",
    help="How long runs may stage its chunks, from its opening on.  [default: unchanged; for a new workload 90m]",
)
@segment_options
@job_options
@service_options
def run(
    *,
    table: str,
    workload_id: str,
    params: tuple[str, ...],
    workload_timeout: int | None,
    segment: SegmentTimes,
    job: Job,
    service: Service,
) -> None:
    """Open the workload under the table's contract, stage every chunk, and wait for the Steward's verdict.

    The same call again continues where an earlier one ended: what is published stays, and unfinished attempts are
    rolled back. Needs a producer's token. Ends with 0 when all is published, 2 when the job's rows do not fit the
    table's columns, 3 when a verdict is FAIL or the gate refuses, 4 when it stopped before a verdict (ROLLED_BACK).

    While another run works on the workload, the command ends with 4 and names that run. If that run hangs, or its host
    is gone, --take-over ends its lease. That run can then hand in nothing, and its unfinished chunk is staged again.

    With --segment-timeout, the command runs the workload in processes of its own, one after the other. Each of them
    stops in time, and is started again until the workload has ended. After five in a row without progress, the command
    ends (crash_loop). All runs together have until the workload's deadline. Then they end with 4 (workload_timed_out);
    a longer --workload-timeout continues the workload.

    \b
    Examples:
      pvdm run sales.orders --workload-id orders-2026-11-15 --param date=2026-11-15
      pvdm run sales.orders --workload-id orders-2026-11-15 --param date=2026-11-15 --job jobs.orders:build
      pvdm run sales.rates --workload-id rates-1 --job jobs.rates:table --small --json | jq .outcome
      pvdm run sales.orders --workload-id orders-2026-11-15 --param date=2026-11-15 --take-over
      pvdm run sales.orders --workload-id backfill-1 --segment-timeout 15m --workload-timeout 12h
    """
    values = parse_pairs(params, "--param")
    timeout = seconds_of(workload_timeout)
    segment.end_from_now()  # raises if the times do not fit together
    if segment.timeout_seconds is not None:
        finish(run_in_segments(service, job, segment, workload_id, table, values, workload_timeout=timeout))
    else:
        with job_output(json=wants_json()):
            build = job.load_build()
            progress = not wants_json()
            with open_coordinator(service, job, workload_timeout=timeout, shows_progress=progress) as opened:
                outcome = opened.run(workload_id, table, values, build)
        finish(outcome)


@command("resume")
@click.argument("workload_id", metavar="WORKLOAD_ID")
@click.option("--max-chunks", type=click.IntRange(1), metavar="N", help="Stop after staging N chunks.")
@segment_options
@job_options
@service_options
def resume(*, workload_id: str, max_chunks: int | None, segment: SegmentTimes, job: Job, service: Service) -> None:
    """Continue an open workload in this process, as one segment; its table and parameters are known.

    For schedulers that start the segments themselves. With --segment-timeout the command stops early enough to roll
    back, with --max-chunks after N chunks. Then it ends with 8 (segment_ended), and the same command continues.
    The other exit codes are those of `pvdm run`; repeat a command after 8 only. On a cluster, spark-submit can run it.

    \b
    Examples:
      pvdm resume backfill-1 --segment-timeout 15m --job jobs.orders:build
      until pvdm resume backfill-1 --max-chunks 1; do
        code=$?; [ $code = 8 ] || exit $code
      done
    """
    one = SegmentOfCommand(workload_id, service, job, segment, wants_json(), max_chunks)
    finish(one.run(segment.end_from_now()))


@command("publish")
@click.argument("table", metavar="TABLE")
@click.argument("branch", metavar="BRANCH")
@workload_option
@param_option
@click.option("--reason", metavar="TEXT", help="What was repaired; needed after a branch failed under this id.")
@service_options
def publish(
    *, table: str, branch: str, workload_id: str, params: tuple[str, ...], reason: str | None, service: Service
) -> None:
    """Verify and publish a branch that an unmodified Spark job has staged, for example with `spark.wap.branch`.

    The Steward reads the branch and the contract's source itself, and publishes copies of the files. It deletes the
    branch after the publication; after a FAIL the branch stays. The job's own files stay too; `pvdm orphans --remove`
    removes them. After a FAIL, the same id with --reason accepts the branch again, or another one. While a branch is
    being verified, and after its PASS, the id accepts only this branch, unchanged; anything else needs another id.
    Needs a producer's token.

    \b
    Examples:
      pvdm publish sales.orders etl_20261115 --workload-id orders-2026-11-15 --param date=2026-11-15
      pvdm publish sales.orders etl_2 --workload-id orders-2026-11-15 --reason "the filter is back"
    """
    values = parse_pairs(params, "--param")
    no_job = Job(name=None, small=True, master=None, conf=())  # the rows are staged already, so no Spark is needed
    with open_coordinator(service, no_job, shows_progress=not wants_json()) as opened:
        outcome = opened.publish(workload_id, table, branch, values, reason=reason)
    from pvdm.durable.outcome import Committed, PublicationTime

    if not wants_json() and isinstance(outcome, Committed) and outcome.published is PublicationTime.NOW:
        say_on_stderr(f"branch {branch} is deleted: {table} uses the Steward's copies of its files; {_ORPHANS_NOTE}")
    finish(outcome)


@command("repair")
@click.argument("workload_id", metavar="WORKLOAD_ID")
@click.option("--reason", required=True, metavar="TEXT", help="What was repaired; it is stored with the new attempts.")
@job_options
@service_options
def repair(*, workload_id: str, reason: str, job: Job, service: Service) -> None:
    """Open new attempts at chunks whose verdict was FAIL, and continue with the rest. Every new attempt is verified.

    \b
    Examples:
      pvdm repair orders-2026-11-15 --reason "the join lost rows" --job jobs.orders:build
    """
    with job_output(json=wants_json()):
        build = job.load_build()
        with open_coordinator(service, job, shows_progress=not wants_json()) as opened:
            outcome = opened.repair(workload_id, build, reason=reason)
    finish(outcome)


@command("abandon")
@click.argument("workload_id", metavar="WORKLOAD_ID")
@click.option("--reason", required=True, metavar="TEXT", help="Why; stored with the workload and in the step log.")
@service_options
def abandon(*, workload_id: str, reason: str, service: Service) -> None:
    """Abandon a workload, as an operator: its live attempts are rolled back and their files removed.

    Chunks that are published stay. If some rows of an append are published, the workload keeps its claim on all of its
    rows: no other workload id can append the rest. The output says how to publish the rest (`way_on` in --json). In
    all other cases the whole workload can be published under another id. Abandoning again changes nothing; for a
    complete workload the command changes nothing and ends with 4. If the Steward still makes the workload's plan, the
    plan is abandoned, and the id stays free.

    \b
    Examples:
      pvdm abandon orders-2026-11-15 --reason "the source was delivered twice"
      pvdm abandon orders-2026-11-15 --reason "no attempt is left" --json | jq -r .state
    """
    from pvdm.api.work import PlanningView

    with service.connect() as client:
        workload = client.abandon_workload(workload_id, reason)
    if isinstance(workload, PlanningView):
        text = f"{workload.workload_id} was not open yet: its plan is abandoned, and the id is free"
        say_result({**view_json(workload), "state": WorkloadState.ABANDONED.value, "way_on": None}, [text])
        return
    summary = summarize(workload)
    lines: list[Line | str] = [
        (f"{workload.state}  {workload.workload_id} of {workload.table or workload.table_uuid}", "bold"),
        f"  reason  {workload.reason}",
        f"  chunks  {summary.progress}",
        *([] if summary.way_on is None else [f"hint: {summary.way_on}"]),
    ]
    say_result({**view_json(workload), "way_on": summary.way_on}, lines)
