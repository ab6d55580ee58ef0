"""`pvdm contract`: the contracts that tables are, or were, protected under."""

from __future__ import annotations

import click

from pvdm.cli.common.options import json_option, require_command
from pvdm.cli.common.screen import say_json
from pvdm.cli.common.service import Service, service_options


@click.group("contract", short_help="Read the contract of a table.", invoke_without_command=True)
@click.pass_context
def contract(context: click.Context) -> None:
    """Read the contracts that tables are, or were, protected under.

    \b
    Examples:
      pvdm protections --current sales.orders
      pvdm contract show SHA256
    """
    require_command(context)


@contract.command("show", short_help="Print a contract.")
@json_option
@click.argument("contract_sha256", metavar="SHA256")
@service_options
def contract_show(*, as_json: bool, contract_sha256: str, service: Service) -> None:
    """Print a contract byte for byte, by the SHA-256 that `pvdm protections` shows.

    \b
    Examples:
      pvdm contract show SHA256 --url https://steward.example:8181
      pvdm contract show SHA256 > orders.yaml
    """
    with service.connect() as client:
        text = client.contract(contract_sha256).decode()
    if as_json:
        say_json({"contract_sha256": contract_sha256, "contract": text})
        return
    click.echo(text.encode(), nl=False)
