"""`pvdm steward`: makes, runs and restores a Steward on its own host, by its configuration file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pvdm.cli.common.commands import command_group
from pvdm.cli.common.files import write_new
from pvdm.cli.common.options import Service, path_argument, path_option, service_options
from pvdm.cli.common.screen import say_result
from pvdm.cli.common.times import utc
from pvdm.cli.common.trust_roots import pin_option, read_chain
from pvdm.trust.keys.epochs import EpochBook
from pvdm.trust.log.note import NoteKey

if TYPE_CHECKING:
    from pvdm.steward.notary import Notary


@command_group("steward")
def steward() -> None:
    """Make, run and restore a Steward on its own host. Each command takes its configuration, steward.toml;
    only confirm-clock asks the service instead.

    \b
    Examples:
      pvdm steward init --config steward.toml --reason "first start" --public keys/
      pvdm steward token issue --config steward.toml --role operator --name ruth --out ruth.token
      pvdm steward serve --config steward.toml
    """


_CONFIG_HELP = "The Steward's configuration, steward.toml, or PVDM_CONFIG."
config_option = path_option("--config", envvar="PVDM_CONFIG", required=True, help=_CONFIG_HELP)


@contextlib.contextmanager
def opened_notary(config: Path) -> Iterator[Notary]:
    """Open the Steward of the configuration, and close it after the block. The Steward's service may run meanwhile."""
    # Imported late: the Steward is slow to load, and most commands work without it.
    from pvdm.steward.config.steward import load_config
    from pvdm.steward.notary import open_notary

    with contextlib.closing(open_notary(load_config(config))) as notary:
        yield notary


@steward.command("init", short_help="Make a Steward: keys, ledger, log.")
@config_option
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is logged with the first epoch.")
@path_option("--public", folder=True, help="Write the public keys here.")
def steward_init(*, config: Path, reason: str, public: Path | None) -> None:
    """Make ledger, log and the keys of the first epoch, and store the log's first checkpoint outside the ledger.

    A second run changes nothing, with one exception: until the catalog has its first table, its name and folders are
    taken from the configuration again. The public keys go into the trust root, which people make and sign elsewhere:
    `pvdm keys root new`.

    \b
    Examples:
      pvdm steward init --config steward.toml --reason "first start" --public keys/
    """
    from pvdm.steward.config.steward import load_config
    from pvdm.steward.notary import create_notary

    with contextlib.closing(create_notary(load_config(config), reason=reason)) as notary:
        record = _export_public_keys(notary, public)
    lines = [
        f"the Steward {record['notary']} is made; its log is {record['origin']}",
        *_key_lines(record),
        "hint: name these keys in a trust root (`pvdm keys root new`), sign it, put its hash into steward.toml as",
        "      trust_root_sha256, above the first [table], and submit the root:",
        "      `pvdm steward trust root-1.json --config …`",
    ]
    say_result(record, lines)


@steward.command("public", short_help="Write the Steward's public keys.")
@path_argument("folder", folder=True, metavar="DIR")
@config_option
def steward_public(*, folder: Path, config: Path) -> None:
    """Write the public keys of every epoch, for the trust root. Existing files stay.

    \b
    Examples:
      pvdm steward public keys/ --config steward.toml
    """
    with opened_notary(config) as notary:
        record = _export_public_keys(notary, folder)
    say_result(record, _key_lines(record))


def _export_public_keys(notary: Notary, folder: Path | None) -> dict[str, Any]:
    """The public keys of every epoch; with a folder, each is also written to a file there."""
    book: EpochBook = notary.keys.book()
    origin = notary.config.origin
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    exported = []
    for epoch in book.epochs:
        for entry in epoch.keys:
            if entry.public is None:
                continue  # a secret root, from which the keys of attempts are derived
            file = None if folder is None else folder / f"epoch-{epoch.number}.{entry.role.value}.pub"
            if file is not None:
                write_new(file, entry.public.to_pem())
            key: dict[str, object] = {
                "epoch": str(epoch.number),
                "state": epoch.state.value,
                "role": entry.role.value,
                "key_id": entry.public.key_id,
                "file": file,
            }
            if entry.role.value == "log":
                key["vkey"] = NoteKey(origin, entry.public.der).to_vkey()  # for other tools that check the log
            exported.append(key)
    return {"notary": notary.config.notary, "origin": origin, "keys": exported}


def _key_lines(record: dict[str, Any]) -> list[str]:
    return [
        f"  epoch {key['epoch']} {key['state']:<8} {key['role']:<8} {key['key_id']}  {key['file'] or ''!s}"
        for key in record["keys"]
    ]


@steward.command("trust", short_help="Submit a trust root on the Steward's host.")
@path_argument("file", metavar="ROOT")
@config_option
@pin_option
def steward_trust(*, file: Path, config: Path, pin: str | None) -> None:
    """Submit the first trust root or its successors on the Steward's own host. A repeated submission changes nothing.

    The first one is trusted by its hash, from steward.toml (`trust_root_sha256`) or --root-sha256.

    \b
    Examples:
      pvdm steward trust root-1.json --config steward.toml --root-sha256 HEX
    """
    with opened_notary(config) as notary:
        accepted = set(notary.trust.chain())
        for envelope in read_chain(file):
            if envelope not in accepted:
                notary.trust.accept(envelope, pin=pin)
        root = notary.trust.current()
    document = {"version": root.version, "sha256": root.sha256, "expires_at": root.expires_at}
    say_result(document, [f"the Steward uses trust root {root.version}, {root.sha256}"])


@steward.command("serve", short_help="Run the Steward's service.")
@config_option
def steward_serve(*, config: Path) -> None:
    """Run the service until SIGTERM or Ctrl-C; it finishes the current requests before it stops.

    Its log lines are JSON on standard error; the first names its address.

    \b
    Examples:
      pvdm steward serve --config steward.toml
    """
    from pvdm.steward.server import run

    with opened_notary(config) as notary:
        run(notary)
        name = notary.config.notary
    say_result({"notary": name, "stopped": True}, [f"the Steward {name} has stopped"])


@steward.command("confirm-clock", short_help="Confirm that the Steward's clock is right.")
@service_options
@click.option("--reason", required=True, metavar="TEXT", help="Why; the step log stores it with your name.")
def steward_confirm_clock(*, service: Service, reason: str) -> None:
    """After the clock jumped (`clock_jumped`): confirm that the host's time is now correct. Needs an operator's token.

    If the clock has not jumped, nothing changes.

    Correct the host's clock first. A confirmed wrong time cannot be undone: proofs and keys would expire.

    \b
    Examples:
      pvdm steward confirm-clock --reason "NTP was off over the weekend" --url https://steward.example:8181
    """
    with service.connect() as client:
        confirmed = client.confirm_clock(reason)
    line = f"confirmed: the Steward continues from {utc(confirmed.at)}"
    if not confirmed.confirmed:
        line = f"nothing to confirm: the clock has not jumped, and the Steward continues at {utc(confirmed.at)}"
    say_result({"at": confirmed.at, "confirmed": confirmed.confirmed}, [line])
