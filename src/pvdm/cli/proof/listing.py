"""`pvdm proof list` and `pvdm proof get`: which proofs a Steward has, and one of them as a file."""

from __future__ import annotations

from pathlib import Path

import click

from pvdm.cli.common.files import write_new
from pvdm.cli.common.options import PlaceType, json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.common.trust_roots import Sha256Type
from pvdm.cli.common.views import proof_view_line
from pvdm.cli.proof.proof import proof
from pvdm.model.printable import view_json

_ROWS = 1_000
_DEFAULT_ROWS = 100


@proof.command("list", short_help="List a Steward's proofs.")
@json_option
@service_options
@click.option("--workload", metavar="ID", help="Of this workload only.")
@click.option("--attempt", metavar="ID", help="Of this attempt only.")
@click.option("--after", type=click.IntRange(0), metavar="INDEX", help="Go on after this entry of the log.")
@click.option("--rows", type=click.IntRange(1, _ROWS), default=_DEFAULT_ROWS, show_default=True, help="Proofs to show.")
def proof_list(
    *, as_json: bool, service: Service, workload: str | None, attempt: str | None, after: int | None, rows: int
) -> None:
    """List the proofs of your domain, PASS and FAIL; a FAIL that was overridden cannot be overlooked.

    \b
    Examples:
      pvdm proof list --workload orders-2026-11-14
      pvdm proof list --json | jq '.proofs[] | select(.overridden)'
    """
    with service.connect() as client:
        views = client.proofs(workload_id=workload, attempt_id=attempt, after=after, limit=rows)
    if as_json:
        say_json({"proofs": [view_json(view) for view in views]})
        return
    if not views:
        say("no proof")
    for view in views:
        line, style = proof_view_line(view)
        say(line, style=style)


@proof.command("get", short_help="Get one proof as a bundle.")
@json_option
@click.argument("proof_id", type=Sha256Type(), metavar="PROOF_ID")
@service_options
@click.option("--envelope", is_flag=True, help="The signed envelope alone, without its log proof.")
@click.option("--out", type=PlaceType(), required=True, metavar="FILE", help="Where it goes; never over another file.")
def proof_get(*, as_json: bool, proof_id: str, service: Service, envelope: bool, out: Path) -> None:
    """Get a proof with its log proof and checkpoint, all that `proof check` needs but the trust root.

    \b
    Examples:
      pvdm proof get PROOF_ID --out bundle.json
      pvdm proof check bundle.json --trust-root roots.json --root-sha256 HEX
    """
    with service.connect() as client:
        data = client.proof_envelope(proof_id) if envelope else client.proof_bundle(proof_id)
    write_new(out, data)
    if as_json:
        say_json({"proof_id": proof_id, "bytes": len(data), "out": str(out)})
        return
    say(f"{'envelope' if envelope else 'bundle'}: {out}; nothing was checked yet")
