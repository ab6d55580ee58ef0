"""`pvdm keys list|create|activate|retire|revoke`: the epochs of a Steward's own keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.options import json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.keys.keys import keys
from pvdm.model.printable import view_json
from pvdm.model.statements.epoch import EpochStage

if TYPE_CHECKING:
    from pvdm.client import EpochChange, StewardClient

_STYLES = {EpochStage.ACTIVE: "green", EpochStage.REVOKED: "red"}
_reason = click.option("--reason", required=True, metavar="TEXT", help="Why; it is signed and logged with the change.")
_number = click.argument("number", type=click.IntRange(1), metavar="EPOCH")


@keys.command("list", short_help="List the epochs of a Steward's keys.")
@json_option
@service_options
def keys_list(*, as_json: bool, service: Service) -> None:
    """List the generations of the Steward's own keys, with the ids of their public halves.

    \b
    Examples:
      pvdm keys list --url https://steward.example:8181
    """
    with service.connect() as client:
        views = client.epochs()
    if as_json:
        say_json({"epochs": [view_json(view) for view in views]})
        return
    for view in views:
        say(f"epoch {view.number}  {view.state.value}", style=_STYLES.get(view.state))
        for role, key_id in sorted(view.key_ids.items()):
            say(f"  {role:<10}{key_id}")


@keys.command("create", short_help="Make the keys of a new epoch.")
@json_option
@service_options
@_reason
def keys_create(*, as_json: bool, service: Service, reason: str) -> None:
    """Make the keys of the next epoch. Nothing uses them until the trust root names them and `activate` is called.

    \b
    Examples:
      pvdm keys create --reason "yearly rotation"
    """
    _change(lambda client: client.create_epoch(reason), service, as_json=as_json)


@keys.command("activate", short_help="Let new workloads open under an epoch.")
@json_option
@_number
@service_options
@_reason
def keys_activate(*, as_json: bool, number: int, service: Service, reason: str) -> None:
    """Make an epoch the active one; the one that was is retired. Workloads that are open stay on theirs.

    \b
    Examples:
      pvdm keys activate 2 --reason "yearly rotation"
    """
    _change(lambda client: client.activate_epoch(number, reason), service, as_json=as_json)


@keys.command("retire", short_help="Open no new workload under an epoch.")
@json_option
@_number
@service_options
@_reason
def keys_retire(*, as_json: bool, number: int, service: Service, reason: str) -> None:
    """Retire the active epoch: no new workload opens until another is activated.

    \b
    Examples:
      pvdm keys retire 1 --reason "the host is being replaced"
    """
    _change(lambda client: client.retire_epoch(number, reason), service, as_json=as_json)


@keys.command("revoke", short_help="Never use the keys of an epoch again.")
@json_option
@_number
@service_options
@_reason
def keys_revoke(*, as_json: bool, number: int, service: Service, reason: str) -> None:
    """Revoke an epoch: its keys neither derive nor sign again, and its outstanding proofs die with it.

    It cannot be undone. Revoke its public keys in the trust root too: `pvdm keys root next --revoke`.

    \b
    Examples:
      pvdm keys revoke 1 --reason "the keystore was copied"
    """
    _change(lambda client: client.revoke_epoch(number, reason), service, as_json=as_json)


def _change(step: Callable[[StewardClient], tuple[EpochChange, ...]], service: Service, *, as_json: bool) -> None:
    with service.connect() as client:
        changes = step(client)
    if as_json:
        say_json({"changes": [view_json(change) for change in changes]})
        return
    for change in changes:
        before = "new" if change.before is None else change.before.value
        say(f"epoch {change.epoch}: {before} → {change.after.value}", style=_STYLES.get(change.after))
        for role, key_id in sorted(change.key_ids.items()):
            say(f"  {role:<10}{key_id}")
