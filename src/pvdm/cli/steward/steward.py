"""`pvdm steward`: makes, runs and restores a Steward on its own host, by its configuration file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pvdm.cli.common.files import write_new
from pvdm.cli.common.options import PlaceType, json_option, require_command
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.trust_roots import pin_option, read_chain
from pvdm.trust.keys.epochs import EpochBook
from pvdm.trust.log.note import NoteKey

if TYPE_CHECKING:
    from pvdm.steward.notary import Notary

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group("steward", short_help="Make, run and restore a Steward.", invoke_without_command=True)
@click.pass_context
def steward(context: click.Context) -> None:
    """Make, run and restore a Steward on its own host. Each command takes its configuration, steward.toml.

    \b
    Examples:
      pvdm steward init --config steward.toml --reason "first start" --public keys/
      pvdm steward token issue --config steward.toml --role operator --name ruth --out ruth.token
      pvdm steward serve --config steward.toml
    """
    require_command(context)


def config_option(command: _Command) -> _Command:
    """`--config`: the Steward's configuration."""
    return click.option(
        "--config",
        type=PlaceType(),
        envvar="PVDM_CONFIG",
        required=True,
        metavar="FILE",
        help="The Steward's configuration, steward.toml, or PVDM_CONFIG.",
    )(command)


@contextlib.contextmanager
def opened_notary(config: Path) -> Iterator[Notary]:
    """The Steward of that configuration, opened beside its service and closed again."""
    # Only here: the Steward's rooms are slow to load, and most commands work without them.
    from pvdm.steward.config.steward import load_config
    from pvdm.steward.notary import open_notary

    with contextlib.closing(open_notary(load_config(config))) as notary:
        yield notary


@steward.command("init", short_help="Make a Steward: keys, ledger, log.")
@json_option
@config_option
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is logged with the first epoch.")
@click.option("--public", type=PlaceType(folder=True), metavar="DIR", help="Write the public keys here.")
def steward_init(*, as_json: bool, config: Path, reason: str, public: Path | None) -> None:
    """Make the keys of the first epoch, the ledger and the log, with its first checkpoint outside.

    What is there already is kept: a second run changes nothing, but for the catalog's name and folders, which are
    taken from the configuration until the catalog has its first table. The public keys go into the trust root, which
    people make and sign elsewhere: `pvdm keys root new`.

    \b
    Examples:
      pvdm steward init --config steward.toml --reason "first start" --public keys/
    """
    from pvdm.steward.config.steward import load_config
    from pvdm.steward.notary import create_notary

    with contextlib.closing(create_notary(load_config(config), reason=reason)) as notary:
        record = _public_keys(notary, public)
        if as_json:
            say_json(record)
            return
        say(f"the Steward {notary.config.notary} is made; its log is {notary.config.origin}")
        _tell_keys(record)
        say("hint: name these keys in a trust root (`pvdm keys root new`), sign it, put its hash into steward.toml as")
        say("      trust_root_sha256, above the first [table], and hand the root in:")
        say("      `pvdm steward trust root-1.json --config …`")


@steward.command("public", short_help="Write the Steward's public keys.")
@json_option
@click.argument("folder", type=PlaceType(folder=True), metavar="DIR")
@config_option
def steward_public(*, as_json: bool, folder: Path, config: Path) -> None:
    """Write the public keys of every epoch, for the trust root. Files that are there already stay.

    \b
    Examples:
      pvdm steward public keys/ --config steward.toml
    """
    with opened_notary(config) as notary:
        record = _public_keys(notary, folder)
    if as_json:
        say_json(record)
    else:
        _tell_keys(record)


def _public_keys(notary: Notary, folder: Path | None) -> dict[str, Any]:
    book: EpochBook = notary.keys.book()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    found = []
    for epoch in book.epochs:
        for entry in epoch.keys:
            if entry.public is None:
                continue
            file = None if folder is None else folder / f"epoch-{epoch.number}.{entry.role.value}.pub"
            if file is not None:
                write_new(file, entry.public.to_pem())
            found.append(
                {
                    "epoch": str(epoch.number),
                    "state": epoch.state.value,
                    "role": entry.role.value,
                    "key_id": entry.public.key_id,
                    "file": None if file is None else str(file),
                    **_vkey(notary, entry.role.value, entry.public.der),
                }
            )
    return {"notary": notary.config.notary, "origin": notary.config.origin, "keys": found}


def _vkey(notary: Notary, role: str, der: bytes) -> dict[str, str]:
    return {"vkey": NoteKey(notary.config.origin, der).to_vkey()} if role == "log" else {}


def _tell_keys(record: dict[str, Any]) -> None:
    for key in record["keys"]:
        say(f"  epoch {key['epoch']} {key['state']:<8} {key['role']:<8} {key['key_id']}  {key['file'] or ''}")


@steward.command("trust", short_help="Hand in a trust root on the Steward's host.")
@json_option
@click.argument("file", type=PlaceType(), metavar="ROOT")
@config_option
@pin_option
def steward_trust(*, as_json: bool, file: Path, config: Path, pin: str | None) -> None:
    """Hand in the first trust root, or its successors, on the Steward's own host. The newest again changes nothing.

    The first one is trusted by its hash: from steward.toml (`trust_root_sha256`), or given here.

    \b
    Examples:
      pvdm steward trust root-1.json --config steward.toml --root-sha256 HEX
    """
    with opened_notary(config) as notary:
        known = set(notary.trust.chain())
        for envelope in read_chain(file):
            if envelope not in known:
                notary.trust.accept(envelope, pin=pin)
        root = notary.trust.current()
    if as_json:
        say_json({"version": root.version, "sha256": root.sha256, "expires_at": root.expires_at})
        return
    say(f"the Steward stands under trust root {root.version}, {root.sha256}")


@steward.command("serve", short_help="Run the Steward's service.")
@json_option
@config_option
def steward_serve(*, as_json: bool, config: Path) -> None:
    """Run the service until it is told to stop (SIGTERM or Ctrl-C), which it does after the requests at hand.

    Its log lines are JSON on standard error; the first names its address.

    \b
    Examples:
      pvdm steward serve --config steward.toml
    """
    from pvdm.steward.server import run

    with opened_notary(config) as notary:
        run(notary)
        name = notary.config.notary
    if as_json:
        say_json({"notary": name, "stopped": True})
    else:
        say(f"the Steward {name} has stopped")
