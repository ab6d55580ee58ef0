"""`pvdm run`, `pvdm publish` and `pvdm repair`: a workload to its outcome, which is the exit code."""

from __future__ import annotations

from typing import Final

import click

from pvdm.cli.common.options import json_option
from pvdm.cli.common.screen import say_aside
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.work.jobs import (
    Job,
    coordinator,
    job_options,
    job_output,
    named_values,
    param_option,
    tell,
    workload_option,
)

_YOURS: Final = "the job's own files are unreferenced now: `pvdm orphans` lists them"


@click.command("run", short_help="Stage, verify and publish a workload.")
@json_option
@click.argument("table", metavar="TABLE")
@workload_option
@param_option
@job_options
@service_options
def run(*, as_json: bool, table: str, workload_id: str, params: tuple[str, ...], job: Job, service: Service) -> None:
    """Open the workload under the table's contract, stage every chunk, and wait for what the Steward says.

    The same call again takes up where an earlier one ended: what is published stays, what was left half done is taken
    back. Needs a producer's token. Ends with 0 when all is published, 3 when a verdict is FAIL or the gate refuses, 4
    when it was rolled back.

    \b
    Examples:
      pvdm run sales.orders --workload-id orders-2026-11-15 --param date=2026-11-15
      pvdm run sales.orders --workload-id orders-2026-11-15 --param date=2026-11-15 --job jobs.orders:build
      pvdm run sales.rates --workload-id rates-1 --job jobs.rates:table --small --json | jq .outcome
    """
    values = named_values(params, "--param")
    with job_output(as_json=as_json):
        build = job.build()
        with coordinator(service, job, as_json=as_json) as found:
            outcome = found.run(workload_id, table, values, build)
    tell(outcome, as_json=as_json)


@click.command("publish", short_help="Verify and publish a branch that is staged.")
@json_option
@click.argument("table", metavar="TABLE")
@click.argument("branch", metavar="BRANCH")
@workload_option
@param_option
@click.option("--reason", metavar="TEXT", help="What was mended, after a branch that failed under this id.")
@service_options
def publish(
    *,
    as_json: bool,
    table: str,
    branch: str,
    workload_id: str,
    params: tuple[str, ...],
    reason: str | None,
    service: Service,
) -> None:
    """Have a branch verified and published that an unmodified Spark job has staged, with `spark.wap.branch` or so.

    The Steward reads the branch and the contract's source itself, and publishes copies of the files. The branch goes
    when it is published; after a FAIL it stays as it was. The job's own files are never touched: they are yours to
    remove. A failed branch is tried again, or another one published in its place, only with --reason. Under an id that
    is published, a branch with other rows is refused: it needs an id of its own. Needs a producer's token.

    \b
    Examples:
      pvdm publish sales.orders etl_20261115 --workload-id orders-2026-11-15 --param date=2026-11-15
      pvdm publish sales.orders etl_2 --workload-id orders-2026-11-15 --reason "the filter is back"
    """
    values = named_values(params, "--param")
    nothing = Job(None, True, None, (), None)
    with coordinator(service, nothing, as_json=as_json) as found:
        outcome = found.publish(workload_id, table, branch, values, reason=reason)
    from pvdm.durable.outcome import Committed, Published

    if not as_json and isinstance(outcome, Committed) and outcome.published is Published.NOW:
        say_aside(f"branch {branch} is deleted: {table} uses the Steward's copies of its files; {_YOURS}")
    tell(outcome, as_json=as_json)


@click.command("repair", short_help="Try the failed chunks of a workload again.")
@json_option
@click.argument("workload_id", metavar="WORKLOAD_ID")
@click.option("--reason", required=True, metavar="TEXT", help="What was mended; it stays with the new attempts.")
@job_options
@service_options
def repair(*, as_json: bool, workload_id: str, reason: str, job: Job, service: Service) -> None:
    """Open new attempts at chunks whose verdict was FAIL, and go on with the rest; everything is verified anew.

    \b
    Examples:
      pvdm repair orders-2026-11-15 --reason "the join lost rows" --job jobs.orders:build
    """
    with job_output(as_json=as_json):
        build = job.build()
        with coordinator(service, job, as_json=as_json) as found:
            outcome = found.repair(workload_id, build, reason=reason)
    tell(outcome, as_json=as_json)
