"""The root command `pvdm` with all its subcommands."""

from __future__ import annotations

import click

from pvdm.cli.common.options import command_group
from pvdm.cli.demo.demo import demo
from pvdm.cli.demo.evaluate import evaluate
from pvdm.cli.demo.quickstart import quickstart
from pvdm.cli.evidence import log_prove, opening  # noqa: F401 - they add commands
from pvdm.cli.evidence.attest import attest
from pvdm.cli.evidence.audit import audit_command
from pvdm.cli.evidence.log import log
from pvdm.cli.evidence.proof import proof
from pvdm.cli.keys.keys import keys
from pvdm.cli.steward import restore, tokens  # noqa: F401 - they add commands
from pvdm.cli.steward.steward import steward
from pvdm.cli.table.contract import contract, init, validate
from pvdm.cli.table.migrate import migrate
from pvdm.cli.table.protect import protect, protections, unprotect
from pvdm.cli.table.source_files import source_files
from pvdm.cli.work.break_glass import break_glass
from pvdm.cli.work.cleanup import orphans, quarantine
from pvdm.cli.work.run import abandon, publish, repair, run
from pvdm.cli.work.status import status
from pvdm.version import __version__


@command_group(
    "pvdm",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 2 usage or bad input, 3 verification failed, 4 rolled back or conflict, "
    "5 not allowed, 6 state unknown, 7 unavailable, 1 a bug.",
)
@click.version_option(__version__, prog_name="pvdm", message="%(prog)s %(version)s")
def pvdm() -> None:
    """Proof-gated publication for Apache Iceberg tables on Spark.

    \b
    Examples:
      pvdm quickstart                a protected table of your own in some seconds, without Spark
      pvdm demo                      publish one good run on Spark, and see seven bad ones refused
      pvdm eval collision            measure how reliable the digest is
      pvdm demo --json | jq .scenes  every command can print JSON
      pvdm steward init              keys and ledger of a Steward, which `pvdm steward serve` runs
      pvdm protect sales.orders …    put a table under a contract: it then changes by proofs only
      pvdm protections --current     what is protected now
      pvdm migrate propose …         change a protected table, by a signed migration
    """


for command in (
    abandon,
    attest,
    audit_command,
    break_glass,
    contract,
    demo,
    evaluate,
    init,
    keys,
    log,
    migrate,
    orphans,
    proof,
    protect,
    protections,
    publish,
    quarantine,
    quickstart,
    repair,
    run,
    source_files,
    status,
    steward,
    unprotect,
    validate,
):
    pvdm.add_command(command)
