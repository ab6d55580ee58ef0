"""What a command prints and where: results and JSON on standard output, notices and errors on standard error."""

from __future__ import annotations

import codecs
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from pvdm.errors import PvdmError, comparison
from pvdm.evaluation.progress import Watch, unwatched
from pvdm.model.printable import json_printable, printable

_REDRAW_SECONDS: Final = 0.1


def say(line: str = "", *, style: str | None = None) -> None:
    """One line of a result; never wrapped, so that it can be copied and compared."""
    # Text, not markup: a column name such as "[red]" is data. So is whatever else comes from rows, files and tables.
    Console(file=sys.stdout, highlight=False, soft_wrap=True).print(Text(printable(line), style=style or ""))


def notice(line: str) -> None:
    """One line that is not part of the result."""
    say_aside(f"notice: {line}", "yellow")


def say_json(value: dict[str, object]) -> None:
    """The one JSON document of a command."""
    # Escapes that JSON has, for letters that the output does not.
    plain = codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8"
    sys.stdout.write(json_printable(json.dumps(value, indent=2, ensure_ascii=plain)) + "\n")


def say_error(error: PvdmError) -> None:
    """An error, as lines for people."""
    say_aside(f"error: {error.message} ({error.reason})", "bold red")
    if tail := comparison(error.expected, error.got):
        say_aside(f"  {tail}")
    for name, value in error.details.items():
        say_aside(f"  {name.replace('_', ' ')}: {value}")
    if error.hint is not None:
        say_aside(f"hint: {error.hint}")


@contextlib.contextmanager
def watch_on_screen() -> Iterator[Watch]:
    """How far the work is, as bars on standard error where that is a terminal; they go away at the end."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield unwatched
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bars:
        yield _Bars(bars).show


class _Bars:
    """One bar a part of the work, redrawn some times a second: drawing each of a million steps would be the work."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._drawn = 0.0

    def show(self, part: str, done: int, total: int) -> None:
        now = time.monotonic()
        if part in self._tasks and done < total and now - self._drawn < _REDRAW_SECONDS:
            return
        self._drawn = now
        if part not in self._tasks:
            self._tasks[part] = self._bars.add_task(part, total=total)
        self._bars.update(self._tasks[part], completed=done, total=total)


def say_aside(line: str, style: str = "") -> None:
    """One line on standard error."""
    # rich ends the process where standard error is a closed pipe; a line nobody can read changes no outcome.
    with contextlib.suppress(OSError, SystemExit):
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(printable(line), style=style))
