"""`pvdm keys root fetch` and `submit`: trust roots from a Steward, and to it."""

from __future__ import annotations

from pathlib import Path

import click

from pvdm.cli.common.files import write_new
from pvdm.cli.common.options import PlaceType, json_option
from pvdm.cli.common.screen import notice, say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.common.times import now_micros
from pvdm.cli.common.trust_roots import FAITH, first_sha256, follow, pin_option, read_chain, write_chain
from pvdm.cli.keys.roots import root_group


@root_group.command("fetch", short_help="Get the chain of trust roots from a Steward.")
@json_option
@service_options
@pin_option
@click.option("--out", type=PlaceType(), required=True, metavar="FILE", help="Where the chain goes.")
def root_fetch(*, as_json: bool, service: Service, pin: str | None, out: Path) -> None:
    """Get every version of the Steward's trust root, check the chain, and keep it for `proof check`.

    A Steward that is asked for its own trust root can say what it likes: the pin must come by another way.

    \b
    Examples:
      pvdm keys root fetch --url https://steward.example:8181 --root-sha256 HEX --out roots.json
    """
    with service.connect() as client:
        chain = client.trust_root().chain
    root = follow(chain, pin=pin, at=now_micros())
    write_new(out, write_chain(chain))
    if pin is None:
        notice(FAITH)
    if as_json:
        facts = {"version": root.version, "sha256": root.sha256, "first_sha256": first_sha256(chain)}
        say_json({**facts, "pinned": pin is not None, "out": str(out)})
        return
    say(f"trust roots 1 to {root.version}: {out}")
    if pin is None:
        say(f"  if it is the one that its operator names: --root-sha256 {first_sha256(chain)}")


@root_group.command("submit", short_help="Hand a trust root to a Steward.")
@json_option
@click.argument("file", type=PlaceType(), metavar="ROOT")
@service_options
def root_submit(*, as_json: bool, file: Path, service: Service) -> None:
    """Hand in the next trust root, or a chain of them. The newest again changes nothing. Needs an operator's token.

    The first one is accepted if its hash stands in the Steward's configuration (`trust_root_sha256`).

    \b
    Examples:
      pvdm keys root submit root-2.json --url https://steward.example:8181
    """
    with service.connect() as client:
        done = [client.submit_trust_root(envelope) for envelope in read_chain(file)][-1]
    if as_json:
        say_json({"version": done.version, "sha256": done.sha256})
        return
    say(f"the Steward stands under trust root {done.version}, {done.sha256}")
