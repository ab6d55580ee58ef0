"""Runs a command line, and converts every error to an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from pvdm.cli.common.output import checked_output, discard_unwritten
from pvdm.errors import Code, InputError, PvdmError, RolledBackError
from pvdm.physical.watchdog import restore_stop_signals


def run(words: Sequence[str], *, ends_process: bool) -> int:
    """Run the command line `words` and return its exit code. Raises the command's error.

    A command may ignore stop signals at its end. They stay ignored only if the process ends with the command.
    """
    with checked_output(), contextlib.nullcontext() if ends_process else restore_stop_signals():
        from pvdm.cli.app import pvdm

        outcome = pvdm.main(args=list(words), prog_name="pvdm", standalone_mode=False)
    discard_unwritten()
    return outcome if isinstance(outcome, int) else 0


def fail(error: BaseException, *, as_json: bool) -> int:
    """Print the error and return its exit code; a second Ctrl-C ends the printing."""
    try:
        if os.environ.get("PVDM_DEBUG") == "1":
            import traceback

            with contextlib.suppress(OSError):
                traceback.print_exception(error, file=sys.stderr)
        translated = _translate(error)
        _report(translated, as_json=as_json)
        return translated.exit_code
    except KeyboardInterrupt:
        return RolledBackError.exit_code  # the class of `interrupted`
    finally:
        discard_unwritten()


def _report(error: PvdmError, *, as_json: bool) -> None:
    from pvdm.cli.common.screen import say_error, say_json

    if as_json:
        try:
            with checked_output():
                say_json({"error": error.to_json()})
        except InputError:
            pass  # standard output cannot be written, so the error goes to standard error as text
        else:
            return
    say_error(error)


def _translate(error: BaseException) -> PvdmError:
    if isinstance(error, PvdmError):
        return error
    import click

    match error:
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "pvdm"
            message = _start_lower(error.format_message().rstrip("."))
            return InputError(Code.USAGE, message, hint=f"`{command} --help` shows how to call it")
        case click.ClickException():
            return InputError(Code.USAGE, _start_lower(error.format_message()))
        case KeyboardInterrupt() | click.Abort():
            return Code.INTERRUPTED()
        case _:
            hint = "run it again with PVDM_DEBUG=1 and report the traceback"
            return Code.BUG(f"a bug: unexpected {type(error).__name__}: {error}", hint=hint)


def _start_lower(message: str) -> str:
    return message[:1].lower() + message[1:]
