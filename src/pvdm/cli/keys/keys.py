"""`pvdm keys`: key pairs of people, the epochs (generations) of a Steward's keys, and the trust root that names all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.commands import command_group
from pvdm.cli.common.options import Service, choice_option, path_argument, service_options
from pvdm.cli.common.passphrases import passphrase_option, read_new_passphrase
from pvdm.cli.common.screen import Line, say_list, say_result
from pvdm.cli.keys.root_spec import read_public_key
from pvdm.cli.keys.roots import root_group
from pvdm.model.statements.epoch import EpochStage
from pvdm.trust.keys.pem import create_key_pair
from pvdm.trust.keys.public import Algorithm

if TYPE_CHECKING:
    from pvdm.api.service import EpochChange, EpochView
    from pvdm.client import StewardClient

_STYLES = {EpochStage.ACTIVE: "green", EpochStage.REVOKED: "red"}
_reason_option = click.option(
    "--reason", required=True, metavar="TEXT", help="Why; it is signed and logged with the change."
)
_epoch_argument = click.argument("number", type=click.IntRange(1), metavar="EPOCH")


@command_group("keys")
def keys() -> None:
    """Key pairs of people, the epochs of a Steward, and the trust root that names them all.

    Private keys are files of mode 0600 on the signer's machine. They are never printed or sent.

    \b
    Examples:
      pvdm keys pair alice.pem --passphrase prompt
      pvdm keys root new keys.toml --out root-1.draft
    """


keys.add_command(root_group)


@keys.command("pair", short_help="Make a key pair.")
@path_argument("file")
@choice_option(
    "--algorithm", "algorithm_name", choices=[each.value for each in Algorithm], help_text="The kind of key."
)
@passphrase_option("Seal (encrypt) the private key; the passphrase comes from prompt, file:NAME or env:NAME.")
def keys_pair(*, file: Path, algorithm_name: str, passphrase_source: str | None) -> None:
    """Make a person's key pair: the private key in FILE (mode 0600), the public one in FILE.pub.

    For break-glass, attestors, operators and root signers. Nothing is overwritten. A Steward makes its own keys.

    \b
    Examples:
      pvdm keys pair alice.pem --passphrase prompt
      pvdm keys pair glass.pem --passphrase file:glass.word
      pvdm keys pair source.pem --algorithm ecdsa-p256
    """
    passphrase = read_new_passphrase(passphrase_source)
    public = create_key_pair(file, algorithm=Algorithm(algorithm_name), passphrase=passphrase)
    document = {
        "private_key": str(file),
        "public_key": f"{file}.pub",
        "algorithm": public.algorithm.value,
        "key_id": public.key_id,
        "sealed": passphrase_source is not None,
    }
    lines = [
        f"private key: {file} ({'sealed' if passphrase_source else 'not sealed'}); keep it secret",
        f"public key:  {file}.pub; the trust root needs it",
        f"key id:      {public.key_id}",
    ]
    say_result(document, lines)


@keys.command("id", short_help="Print the id of a public key.")
@path_argument("file", metavar="FILE.pub")
def keys_id(*, file: Path) -> None:
    """Print the id of a public key: SHA-256 over its SubjectPublicKeyInfo.

    Compare it with the key's owner, for example by phone, before you trust the file.

    \b
    Examples:
      pvdm keys id alice.pem.pub
    """
    public = read_public_key(file)
    document = {"key_id": public.key_id, "algorithm": public.algorithm.value}
    say_result(document, [f"{public.key_id}  {public.algorithm.value}"])


@keys.command("list", short_help="List the epochs of a Steward's keys.")
@service_options
def keys_list(*, service: Service) -> None:
    """List the epochs of the Steward's keys, with their states and the ids of their public keys.

    \b
    Examples:
      pvdm keys list --url https://steward.example:8181
    """
    with service.connect() as client:
        views = client.epochs()
    say_list("epochs", views, _epoch_lines, "no epoch")


def _epoch_lines(view: EpochView) -> Iterator[Line]:
    yield f"epoch {view.number}  {view.state.value}", _STYLES.get(view.state)
    yield from _key_lines(view.key_ids)


@keys.command("create", short_help="Make the keys of a new epoch.")
@service_options
@_reason_option
def keys_create(*, service: Service, reason: str) -> None:
    """Make the keys of the next epoch. Nothing uses them until the trust root names them and `keys activate` is called.

    \b
    Examples:
      pvdm keys create --reason "yearly rotation"
    """
    _change_epoch(lambda client: client.create_epoch(reason), service)


@keys.command("activate", short_help="Let new workloads open under an epoch.")
@_epoch_argument
@service_options
@_reason_option
def keys_activate(*, number: int, service: Service, reason: str) -> None:
    """Activate an epoch; the one that was active is retired. Open workloads keep their epoch.

    \b
    Examples:
      pvdm keys activate 2 --reason "yearly rotation"
    """
    _change_epoch(lambda client: client.activate_epoch(number, reason), service)


@keys.command("retire", short_help="Open no new workload under an epoch.")
@_epoch_argument
@service_options
@_reason_option
def keys_retire(*, number: int, service: Service, reason: str) -> None:
    """Retire the active epoch: no new workload opens until another is activated.

    \b
    Examples:
      pvdm keys retire 1 --reason "the host is being replaced"
    """
    _change_epoch(lambda client: client.retire_epoch(number, reason), service)


@keys.command("revoke", short_help="Never use the keys of an epoch again.")
@_epoch_argument
@service_options
@_reason_option
def keys_revoke(*, number: int, service: Service, reason: str) -> None:
    """Revoke an epoch: its keys neither derive nor sign again, so its open workloads cannot continue.

    It cannot be undone. Also revoke its public keys in the trust root (`pvdm keys root next --revoke`): the gate
    accepts its unused proofs until then.

    \b
    Examples:
      pvdm keys revoke 1 --reason "the keystore was copied"
    """
    _change_epoch(lambda client: client.revoke_epoch(number, reason), service)


def _change_epoch(request: Callable[[StewardClient], tuple[EpochChange, ...]], service: Service) -> None:
    """Send the request, and print the changed epochs."""
    with service.connect() as client:
        changes = request(client)
    say_list("changes", changes, _change_lines, "no change")


def _change_lines(change: EpochChange) -> Iterator[Line]:
    before = "new" if change.before is None else change.before.value
    yield f"epoch {change.epoch}: {before} → {change.after.value}", _STYLES.get(change.after)
    yield from _key_lines(change.key_ids)


def _key_lines(key_ids: Mapping[str, str]) -> list[Line]:
    return [(f"  {role:<10}{key_id}", None) for role, key_id in sorted(key_ids.items())]
