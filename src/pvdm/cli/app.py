"""The root command `pvdm`. A command's module is imported when the command is used, so that `pvdm` starts quickly."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import click

from pvdm.cli.common.commands import command_group
from pvdm.version import __version__


class _Source(NamedTuple):
    """Where a command is defined: its name in a module below `pvdm.cli`, its line in the help, and that module.

    `added` are modules that add commands to a group.
    """

    name: str
    summary: str
    module: str
    added: tuple[str, ...] = ()


_COMMANDS: Final = {
    "abandon": _Source("abandon", "Abandon a workload.", "work.run"),
    "attest": _Source("attest", "Statements of a source about its rows.", "evidence.attest"),
    "audit": _Source("audit_command", "Check a table's history against receipts and proofs.", "evidence.audit"),
    "break-glass": _Source("break_glass", "Override a FAIL verdict.", "work.break_glass"),
    "contract": _Source("contract", "Read the contract of a table.", "table.contract"),
    "demo": _Source("demo", "Publish one good run on Spark, and see seven bad ones refused.", "demo.demo"),
    "eval": _Source("evaluate", "Run the paper's experiments.", "demo.evaluate"),
    "init": _Source("init", "Write a contract to start from.", "table.contract"),
    "keys": _Source("keys", "Key pairs, epochs and trust roots.", "keys.keys"),
    "log": _Source("log", "Check, compare and prove the transparency log.", "evidence.log", ("evidence.log_prove",)),
    "migrate": _Source("migrate", "Change a protected table by a signed migration.", "table.migrate"),
    "orphans": _Source("orphans", "Files that jobs left behind.", "work.cleanup"),
    "proof": _Source("proof", "Show, check and open proofs.", "evidence.proof", ("evidence.opening",)),
    "protect": _Source("protect", "Put a table, or a namespace, under a contract.", "table.protect"),
    "protections": _Source("protections", "List who protected what, or what is protected now.", "table.protect"),
    "publish": _Source("publish", "Verify and publish a branch that is staged.", "work.run"),
    "quarantine": _Source("quarantine", "Files of failed attempts: list, remove.", "work.cleanup"),
    "quickstart": _Source(
        "quickstart",
        "Create a protected table to try: no Spark, no keys, some seconds.",
        "demo.quickstart",
    ),
    "repair": _Source("repair", "Try the failed chunks of a workload again.", "work.run"),
    "run": _Source("run", "Stage, verify and publish a workload.", "work.run"),
    "source-files": _Source("source_files", "List Parquet files as a contract's source.", "table.source_files"),
    "status": _Source("status", "Show the state of a Steward, a table or a workload.", "work.status"),
    "steward": _Source(
        "steward", "Make, run and restore a Steward.", "steward.steward", ("steward.restore", "steward.tokens")
    ),
    "unprotect": _Source("unprotect", "End the protection of a table or a namespace.", "table.protect"),
    "validate": _Source("validate", "Check a contract's file.", "table.contract"),
}


class _LazyGroup(click.Group):
    """The commands of `_COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command."""
        if cmd_name not in _COMMANDS:
            return None
        source = _COMMANDS[cmd_name]
        for module in source.added:
            import_module(f"pvdm.cli.{module}")
        command: click.Command = getattr(import_module(f"pvdm.cli.{source.module}"), source.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].summary) for name in self.list_commands(ctx)])


@command_group(
    "pvdm",
    cls=_LazyGroup,
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
