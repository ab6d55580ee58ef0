"""`pvdm init`: writes a commented contract to start from."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.files import write_new
from pvdm.cli.common.options import PlaceType, json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.model.contract import parse_contract

_TEMPLATE: Final = """\
# The contract of a data product. Lines that begin with # show what else can be said; docs/contract.md has every key.
# Change what is in capitals, then: pvdm validate {file}
apiVersion: pvdm/v1
kind: DataProduct

metadata:
  domain: {domain}
  product: {product}
  owner: YOU@EXAMPLE.COM
  description: WHAT CONSUMERS GET

# A value that every workload brings, such as ${{date}} below; it is bound into its proofs.
# parameters:
#   date: {{type: date}}

boundary:
  source:
    table: {source}
  # where: order_date = ${{date}} and status in ('paid', 'shipped')
  # columns:                    # left out: every column of the source as it is
  #   - order_id
  #   - {{from: cust, to: customer_id, type: long}}
  #   - order_date
  #   - loaded_at
  target: {target}
  operation: append             # or overwrite-partitions, overwrite
  # claim: {{column: order_date}} # without it a workload claims everything: there can be one only

# chunking:
#   by: partition               # or files (max-size: 512MiB), range (column: …, bounds: […])
#   columns: [order_date]

projections:
  identity: [KEY_COLUMN]
  # content:                    # every column is compared, but for declared exceptions
  #   exclude:
  #     - {{column: loaded_at, reason: differs from run to run}}

storage: copied                 # the Steward publishes files of its own; or open, sealed: the job's files as they are
# extraction: direct            # or spark, with copied or sealed: rows are digested as Spark's own reader gives them

governance:
  on-fail: quarantine           # or delete
  # sample-keys: [operator, auditor] # who may see keys of wrong rows; with producer, jobs are told them too
  attempts: 5
"""
_LABEL: Final = re.compile(r"[^a-z0-9._-]+")


@click.command("init", short_help="Write a contract to start from.")
@json_option
@click.option("--table", default="curated.TABLE", metavar="NAME", help="The target, as namespace.name.")
@click.option("--source", default="raw.TABLE", metavar="NAME", help="The source, as namespace.name.")
@click.option("--out", type=PlaceType(), metavar="FILE", help="Where to write it.  [default: standard output]")
def init(*, as_json: bool, table: str, source: str, out: Path | None) -> None:
    """Write a commented contract to start from. Nothing is overwritten.

    \b
    Examples:
      pvdm init
      pvdm init --table curated.orders --source raw.orders --out orders.yaml
    """
    text = template(table, source, out.name if out else "FILE")
    data = text.encode()
    # What cannot be a table is refused here, where it was typed.
    parse_contract(data, str(out) if out else "contract")
    written = out is not None and write_new(out, data)
    if as_json:
        shown = {"file": None if out is None else str(out), "written": written}
        say_json({**shown, "sha256": hashlib.sha256(data).hexdigest(), "contract": text})
    elif out is None:
        for line in text.splitlines():
            say(line)
    else:
        say(f"{out}: a contract for {table}; change what is in capitals, then `pvdm validate {out}`")


def template(table: str, source: str, file: str) -> str:
    """A contract for a table, with what is not known in capitals."""
    names = [_LABEL.sub("-", part.lower()).strip("-._") or "name" for part in table.split(".")]
    return _TEMPLATE.format(domain=names[0], product=names[-1], target=table, source=source, file=file)
