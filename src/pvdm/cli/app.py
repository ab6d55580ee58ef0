"""The root command, and the one place where an error becomes an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from pvdm import __version__
from pvdm.cli.demo import demo
from pvdm.cli.evaluate import evaluate
from pvdm.cli.options import require_command
from pvdm.cli.screen import say_error
from pvdm.errors import InputError, PvdmError, RolledBackError


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 2 usage or bad input, 3 verification failed, 4 interrupted, 5 not allowed, "
    "6 state unknown, 7 unavailable, 1 a bug.",
)
@click.version_option(__version__, prog_name="pvdm", message="%(prog)s %(version)s")
@click.pass_context
def pvdm(context: click.Context) -> None:
    """Proof-gated publication for Apache Iceberg tables on Spark.

    \b
    Examples:
      pvdm demo                      lose, double and change rows, and see what the digest says
      pvdm eval collision            how much the digest can be trusted, measured
      pvdm demo --json | jq .scenes  every command also speaks JSON
    """
    require_command(context)


pvdm.add_command(demo)
pvdm.add_command(evaluate)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        outcome = pvdm.main(args=words, prog_name="pvdm", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return _fail(error, as_json="--json" in words)
    return outcome if isinstance(outcome, int) else 0


def _fail(error: BaseException, *, as_json: bool) -> int:
    if os.environ.get("PVDM_DEBUG") == "1":
        traceback.print_exception(error, file=sys.stderr)
    judged = _judge(error)
    say_error(judged, as_json=as_json)
    return judged.exit_code


def _judge(error: BaseException) -> PvdmError:
    match error:
        case PvdmError():
            return error
        case click.UsageError():
            return _usage(error.format_message().rstrip("."), error.ctx)
        case click.ClickException():
            return InputError("usage", _lower(error.format_message()))
        case KeyboardInterrupt() | click.Abort():
            return RolledBackError(
                "interrupted", "interrupted before the end; nothing was published", hint="run the same command again"
            )
        case _:
            return PvdmError(
                "bug",
                f"a bug: unexpected {type(error).__name__}: {error}",
                hint="run it again with PVDM_DEBUG=1 and report the traceback",
            )


def _usage(message: str, context: click.Context | None) -> InputError:
    path = context.command_path if context is not None else "pvdm"
    return InputError("usage", _lower(message), hint=f"`{path} --help` shows what it takes")


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
