"""`pvdm orphans`: files that attempts and unmodified jobs left behind, found and removed."""

from __future__ import annotations

import click

from pvdm.cli.common.options import json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.model.printable import counted, view_json


@click.command("orphans", short_help="Files that jobs left behind.")
@json_option
@click.argument("table", metavar="TABLE")
@click.option("--remove", is_flag=True, help="Remove them.")
@service_options
def orphans(*, as_json: bool, table: str, remove: bool, service: Service) -> None:
    """List files that jobs left behind and that no snapshot of any table refers to.

    These are files in the folders of ended attempts, such as a killed job leaves. With `pvdm publish` they are also the
    files of the job itself: the Steward published copies of them. Files that a running attempt, or evidence of a FAIL,
    still needs are not listed, nor are files of branches that were not given to `pvdm publish`.

    The Steward reads every manifest that could name one of the files, which may take minutes.

    \b
    Examples:
      pvdm orphans sales.orders
      pvdm orphans sales.orders --remove --json | jq '.orphans | length'
    """
    with service.connect() as client:
        found = client.remove_orphans(table) if remove else client.orphans(table)
    if as_json:
        say_json({"table": table, "removed": remove, "orphans": [view_json(each) for each in found]})
        return
    for each in found:
        say(f"{each.size:>15,}  {each.location}")
    total = sum(each.size for each in found)
    what = f"{counted(len(found), 'file')}, {counted(total, 'byte')}"
    say(f"{what}{' removed' if remove else ''}", style="bold")
    if found and not remove:
        say(f"hint: `pvdm orphans {table} --remove` removes them")
