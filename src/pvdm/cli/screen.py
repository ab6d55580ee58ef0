"""What a command prints and where: results and JSON on standard output, notices and errors on standard error."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.text import Text

from pvdm.errors import PvdmError


def say(line: str = "", *, style: str | None = None) -> None:
    """One line of a result; never wrapped, so that it can be copied and compared."""
    _print(Console(file=sys.stdout, highlight=False, soft_wrap=True), line, style)


def notice(line: str) -> None:
    """One line that is not part of the result."""
    _print(Console(file=sys.stderr, highlight=False, soft_wrap=True), f"notice: {line}", "yellow")


def say_json(value: dict[str, object]) -> None:
    """The one JSON document of a command."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def say_error(error: PvdmError, *, as_json: bool) -> None:
    """An error: as the envelope under `--json`, else as lines for people."""
    if as_json:
        say_json({"error": error.to_json()})
        return
    console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
    _print(console, f"error: {error.message}", "bold red")
    if error.expected is not None or error.got is not None:
        _print(console, f"  expected {error.expected or 'something else'}, got {error.got or 'nothing'}", None)
    for name, value in error.details.items():
        _print(console, f"  {name.replace('_', ' ')}: {value}", None)
    if error.hint is not None:
        _print(console, f"hint: {error.hint}", None)


def _print(console: Console, line: str, style: str | None) -> None:
    # Text, not markup: a column name such as "[red]" is data.
    console.print(Text(line, style=style or ""))
