"""`pvdm abandon`: a workload that nobody wants any more, or that cannot go on, is given up."""

from __future__ import annotations

import click

from pvdm.cli.common.options import json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.table.open_workloads import summarize
from pvdm.model.printable import view_json


@click.command("abandon", short_help="Give a workload up.")
@json_option
@click.argument("workload_id", metavar="WORKLOAD_ID")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it stays with the workload, in the step log too.")
@service_options
def abandon(*, as_json: bool, workload_id: str, reason: str, service: Service) -> None:
    """Give a workload up for good, as an operator: its live attempts are rolled back and cleaned away.

    What is published of it stays. An append of which rows are published keeps its claim on its whole part: its other
    rows cannot be appended under another id, and the answer names the way to publish them (`way_on` in --json).
    Otherwise another workload id starts anew. A workload that was given up stays as it is; one that is complete is
    left alone, and the command ends with 4.

    \b
    Examples:
      pvdm abandon orders-2026-11-15 --reason "the source was delivered twice"
      pvdm abandon orders-2026-11-15 --reason "no attempt is left" --json | jq -r .state
    """
    with service.connect() as client:
        found = client.abandon_workload(workload_id, reason)
    summary = summarize(found)
    if as_json:
        say_json({**view_json(found), "way_on": summary.way_on})
        return
    say(f"{found.state}  {found.workload_id} of {found.table or found.table_uuid}", style="bold")
    say(f"  reason  {found.reason}")
    say(f"  chunks  {summary.progress}")
    if summary.way_on is not None:
        say(f"hint: {summary.way_on}")
