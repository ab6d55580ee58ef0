"""Runs a command line, and is the one place where an error becomes an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from pvdm.cli.common.output import checked_output, discard_unwritten
from pvdm.errors import Code, InputError, PvdmError, RolledBackError


def run(words: Sequence[str]) -> int:
    """Run the command; its exit code, or the error it met."""
    with checked_output():
        from pvdm.cli.app import pvdm

        outcome = pvdm.main(args=list(words), prog_name="pvdm", standalone_mode=False)
    discard_unwritten()
    return outcome if isinstance(outcome, int) else 0


def fail(error: BaseException, *, as_json: bool) -> int:
    """Tell the error and return its exit code; a second Ctrl-C ends the telling."""
    try:
        if os.environ.get("PVDM_DEBUG") == "1":
            import traceback

            with contextlib.suppress(OSError):
                traceback.print_exception(error, file=sys.stderr)
        judged = _judge(error)
        _report(judged, as_json=as_json)
        return judged.exit_code
    except KeyboardInterrupt:
        return RolledBackError.exit_code
    finally:
        discard_unwritten()


def _report(judged: PvdmError, *, as_json: bool) -> None:
    from pvdm.cli.common.screen import say_error, say_json

    if as_json:
        try:
            with checked_output():
                say_json({"error": judged.to_json()})
        except InputError:
            pass  # standard output does not even take the error: standard error gets it in words
        else:
            return
    say_error(judged)


def _judge(error: BaseException) -> PvdmError:
    if isinstance(error, PvdmError):
        return error
    import click

    match error:
        case click.UsageError():
            return _usage(error.format_message().rstrip("."), error.ctx.command_path if error.ctx else "pvdm")
        case click.ClickException():
            return InputError(Code.USAGE, _lower(error.format_message()))
        case KeyboardInterrupt() | click.Abort():
            return RolledBackError(Code.INTERRUPTED, "interrupted before the end", hint="run the same command again")
        case _:
            return PvdmError(
                Code.BUG,
                f"a bug: unexpected {type(error).__name__}: {error}",
                hint="run it again with PVDM_DEBUG=1 and report the traceback",
            )


def _usage(message: str, command: str) -> InputError:
    return InputError(Code.USAGE, _lower(message), hint=f"`{command} --help` shows what it takes")


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
