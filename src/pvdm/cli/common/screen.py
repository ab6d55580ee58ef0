"""Prints results and JSON on standard output, and notices, questions and errors on standard error."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TextIO, TypeAlias, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from pvdm.cli.common.commands import wants_json
from pvdm.errors import Code, PvdmError, comparison
from pvdm.evaluation.record import OnProgress, ignore_progress
from pvdm.model.printable import json_printable, printable, utc_time, view_json

# A line and its style. The words alone must show what matters, since not every output has colours.
Line: TypeAlias = tuple[str, str | None]
ALERT: Final = "bold white on red"
_REDRAW_SECONDS: Final = 0.1
_View = TypeVar("_View")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is open and a terminal. A closed standard stream is None in `sys`."""
    return stream is not None and stream.isatty()


def say(line: str = "", *, style: str | None = None) -> None:
    """Print one line of a result, unwrapped, so that it can be copied and compared."""
    # Text, not markup: a column name such as "[red]" is data.
    Console(file=sys.stdout, highlight=False, soft_wrap=True).print(Text(printable(line), style=style or ""))


def say_lines(lines: Iterable[Line]) -> None:
    """Print lines of a result."""
    for line, style in lines:
        say(line, style=style)


def say_result(document: Mapping[str, object], lines: Iterable[Line | str]) -> None:
    """Print the result of a command: with --json the document, else the lines."""
    if wants_json():
        say_json(document)
        return
    say_lines((line, None) if isinstance(line, str) else line for line in lines)


def say_list(name: str, views: Sequence[_View], lines_of: Callable[[_View], Iterable[Line]], empty: str) -> None:
    """Print a list: with --json the views under `name`, else the lines of each view, or `empty` if there is no view."""
    lines: list[Line | str] = [line for view in views for line in lines_of(view)]
    say_result({name: [view_json(view) for view in views]}, lines or [empty])


def notice(line: str) -> None:
    """Print one line that is not part of the result, on standard error."""
    say_on_stderr(f"notice: {line}", "yellow")


def say_json(document: Mapping[str, object]) -> None:
    """Print the one JSON document of a command; paths in it are written as text."""
    # Characters that the output's encoding does not have are written as JSON escapes.
    only_ascii = codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8"
    text = json.dumps(document, indent=2, ensure_ascii=only_ascii, default=os.fspath)
    sys.stdout.write(json_printable(text) + "\n")


def say_error(error: PvdmError) -> None:
    """Print an error as text, on standard error."""
    say_on_stderr(f"error: {error.message} ({error.reason})", "bold red")
    if tail := comparison(error.expected, error.got):
        say_on_stderr(f"  {tail}")
    for name, value in error.details.items():
        is_time = name.endswith("_at") and isinstance(value, int)
        say_on_stderr(f"  {name.replace('_', ' ')}: {utc_time(int(value)) if is_time else value}")
    if error.hint is not None:
        say_on_stderr(f"hint: {error.hint}")


@contextlib.contextmanager
def progress_bars() -> Iterator[OnProgress]:
    """Yield a function that draws progress bars on standard error, removed at the end; no bars without a terminal."""
    if not is_terminal(sys.stderr):
        yield ignore_progress
        return
    percentage = TextColumn("{task.percentage:>3.0f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), percentage, TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bars:
        yield _Bars(bars).show


class _Bars:
    """One bar for each part of the work, redrawn at most ten times a second."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._drawn_at = 0.0

    def show(self, part: str, done: int, total: int) -> None:
        now = time.monotonic()
        if part in self._tasks and done < total and now - self._drawn_at < _REDRAW_SECONDS:
            return
        self._drawn_at = now
        if part not in self._tasks:
            self._tasks[part] = self._bars.add_task(part, total=total)
        self._bars.update(self._tasks[part], completed=done, total=total)


def say_on_stderr(line: str, style: str = "") -> None:
    """Print one line on standard error."""
    # rich ends the process if standard error is a closed pipe; that must not change the outcome.
    with contextlib.suppress(OSError, SystemExit):
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(printable(line), style=style))


def require_yes(question: str, lines: Iterable[Line]) -> None:
    """Show the lines and the question on standard error. Raises unless the answer is yes."""
    if not is_terminal(sys.stdin):
        raise click.UsageError(f'"{question}" needs a terminal; read what the command does, then add --yes')
    for line, style in lines:
        say_on_stderr(line, style or "")
    if not click.confirm(question, err=True):
        raise Code.DECLINED()
