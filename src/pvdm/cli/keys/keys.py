"""`pvdm keys`: key pairs of people, the epochs of a Steward, and the trust root that names them all."""

from __future__ import annotations

from pathlib import Path

import click

from pvdm.cli.common.options import PlaceType, json_option, require_command
from pvdm.cli.common.passphrases import new_passphrase, passphrase_option
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.keys.root_spec import read_public
from pvdm.cli.keys.roots import root_group
from pvdm.trust.keys.operator import create_key_pair
from pvdm.trust.keys.public import Algorithm


@click.group("keys", short_help="Key pairs, epochs and trust roots.", invoke_without_command=True)
@click.pass_context
def keys(context: click.Context) -> None:
    """Key pairs of people, the epochs of a Steward, and the trust root that names them all.

    Private keys are files of mode 0600 on the side of whoever signs. None is ever printed or sent.

    \b
    Examples:
      pvdm keys pair alice.pem --passphrase prompt
      pvdm keys root new keys.toml --out root-1.draft
    """
    require_command(context)


keys.add_command(root_group)


@keys.command("pair", short_help="Make a key pair.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
@click.option(
    "--algorithm",
    "algorithm_name",
    type=click.Choice([algorithm.value for algorithm in Algorithm]),
    default=Algorithm.ED25519.value,
    show_default=True,
    help="The kind of key.",
)
@passphrase_option("Seal the private key; the passphrase comes from prompt, file:NAME or env:NAME.")
def keys_pair(*, as_json: bool, file: Path, algorithm_name: str, where: str | None) -> None:
    """Make a person's key pair: the private key in FILE (mode 0600), the public one in FILE.pub.

    For break-glass, attestors, operators and root signers. Nothing is overwritten. A Steward makes its own keys.

    \b
    Examples:
      pvdm keys pair alice.pem --passphrase prompt
      pvdm keys pair glass.pem --passphrase file:glass.word
      pvdm keys pair source.pem --algorithm ecdsa-p256
    """
    public = create_key_pair(file, algorithm=Algorithm(algorithm_name), passphrase=new_passphrase(where))
    facts = {
        "private_key": str(file),
        "public_key": f"{file}.pub",
        "algorithm": public.algorithm.value,
        "key_id": public.key_id,
        "sealed": where is not None,
    }
    if as_json:
        say_json(dict(facts))
        return
    say(f"private key: {file} ({'sealed' if where else 'not sealed'}); keep it, and send it to nobody")
    say(f"public key:  {file}.pub; whoever makes the trust root needs it")
    say(f"key id:      {public.key_id}")


@keys.command("id", short_help="The id of a public key.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE.pub")
def keys_id(*, as_json: bool, file: Path) -> None:
    """Print the id of a public key: SHA-256 over its SubjectPublicKeyInfo.

    Compare it by voice with the key's owner before you trust the file.

    \b
    Examples:
      pvdm keys id alice.pem.pub
    """
    public = read_public(file)
    if as_json:
        say_json({"key_id": public.key_id, "algorithm": public.algorithm.value})
        return
    say(f"{public.key_id}  {public.algorithm.value}")
