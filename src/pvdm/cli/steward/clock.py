"""`pvdm steward confirm-clock`: an operator says that the host's time is right after a jump."""

from __future__ import annotations

import click

from pvdm.cli.common.options import json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.common.times import utc
from pvdm.cli.steward.steward import steward


@steward.command("confirm-clock", short_help="Say that the Steward's clock is right.")
@json_option
@service_options
@click.option("--reason", required=True, metavar="TEXT", help="Why; it goes into the step log with your name.")
def steward_confirm_clock(*, as_json: bool, service: Service, reason: str) -> None:
    """After the clock jumped (`clock_jumped`): confirm that the host's time is right now. Needs an operator's token.

    Where the clock has not jumped there is nothing to confirm, and nothing changes.

    Set the host's clock right first. A wrong time that was confirmed cannot be taken back: proofs expire and keys end.

    \b
    Examples:
      pvdm steward confirm-clock --reason "NTP was off over the weekend" --url https://steward.example:8181
    """
    with service.connect() as client:
        confirmed = client.confirm_clock(reason)
    if as_json:
        say_json({"at": confirmed.at, "confirmed": confirmed.confirmed})
    elif not confirmed.confirmed:
        say(f"nothing to confirm: the clock has not jumped, and the Steward goes on at {utc(confirmed.at)}")
    else:
        say(f"confirmed: the Steward goes on from {utc(confirmed.at)}")
