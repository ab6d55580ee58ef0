"""The root command `pvdm`. A command's module is imported when the command is used, so that `pvdm` starts quickly."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import click

from pvdm.cli.common.commands import command_group
from pvdm.version import __version__


class _Entry(NamedTuple):
    """A command before its import: its variable in a module below `pvdm.cli`, and its line in the help."""

    variable: str
    summary: str
    module: str
    extending_modules: tuple[str, ...] = ()  # their import adds subcommands to a group


_COMMANDS: Final = {
    "abandon": _Entry("abandon", "Abandon a workload.", "work.run"),
    "attest": _Entry("attest", "Statements of a source about its rows.", "evidence.attest"),
    "audit": _Entry("audit_command", "Check a table's history against receipts and proofs.", "evidence.audit"),
    "break-glass": _Entry("break_glass", "Override a FAIL verdict.", "work.break_glass"),
    "claims": _Entry("claims", "Claims that a restore has lost: list, release.", "table.claims"),
    "contract": _Entry("contract", "Read the contract of a table.", "table.contract"),
    "demo": _Entry("demo", "Publish one good run on Spark, and see seven bad ones refused.", "demo.demo"),
    "eval": _Entry("evaluate", "Run the paper's experiments.", "demo.evaluate"),
    "init": _Entry("init", "Write a contract to start from.", "table.contract"),
    "keys": _Entry("keys", "Key pairs, epochs and trust roots.", "keys.keys"),
    "log": _Entry("log", "Check, compare and prove the transparency log.", "evidence.log", ("evidence.log_prove",)),
    "migrate": _Entry("migrate", "Change a protected table by a signed migration.", "table.migrate"),
    "orphans": _Entry("orphans", "List or remove files that jobs left behind.", "work.cleanup"),
    "proof": _Entry("proof", "Show, check and open proofs.", "evidence.proof", ("evidence.opening",)),
    "protect": _Entry("protect", "Put a table, or a namespace, under a contract.", "table.protect"),
    "protections": _Entry("protections", "List who protected what, or what is protected now.", "table.protect"),
    "publish": _Entry("publish", "Verify and publish a branch that is staged.", "work.run"),
    "quarantine": _Entry("quarantine", "Files of failed attempts: list, remove.", "work.cleanup"),
    "quickstart": _Entry(
        "quickstart", "Create a protected table to try: no Spark, no keys, some seconds.", "demo.quickstart"
    ),
    "repair": _Entry("repair", "Try the failed chunks of a workload again.", "work.run"),
    "resume": _Entry("resume", "Continue a workload for one bounded segment.", "work.run"),
    "run": _Entry("run", "Stage, verify and publish a workload.", "work.run"),
    "source-files": _Entry("source_files", "List Parquet files as a contract's source.", "table.source_files"),
    "status": _Entry("status", "Show the state of a Steward, a table or a workload.", "work.status"),
    "steward": _Entry(
        "steward", "Make, run and restore a Steward.", "steward.steward", ("steward.restore", "steward.tokens")
    ),
    "unprotect": _Entry("unprotect", "End the protection of a table or a namespace.", "table.protect"),
    "validate": _Entry("validate", "Check a contract's file.", "table.contract"),
}


class _LazyGroup(click.Group):
    """The root's group: the commands of `_COMMANDS`, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command; None if there is no command of this name."""
        if cmd_name not in _COMMANDS:
            return None
        entry = _COMMANDS[cmd_name]
        for module in entry.extending_modules:
            import_module(f"pvdm.cli.{module}")
        command: click.Command = getattr(import_module(f"pvdm.cli.{entry.module}"), entry.variable)
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
    "5 not allowed, 6 state unknown, 7 unavailable, 8 segment ended, 1 a bug.",
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
      pvdm protect sales.orders …    put a table under a contract: its rows then change by proofs only
      pvdm protections --current     what is protected now
      pvdm migrate propose …         change a protected table, by a signed migration
    """
