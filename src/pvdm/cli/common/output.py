"""Standard output that says so when it cannot be written, and is quiet where nobody reads on; imports nothing heavy."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from pvdm.errors import Code, InputError


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Within, a full disk behind standard output is an `output_not_writable`, whoever writes.

    Who closes a pipe has read enough, as `head -1` has: the rest goes nowhere, and the command ends as it would.
    """
    stream: TextIO | None = sys.stdout  # None where the caller closed it
    if stream is None:
        raise _not_writable("a closed one")
    _show_all_letters(stream)
    checked = _Checked(stream)
    sys.stdout = cast(TextIO, checked)
    try:
        yield
        checked.flush()
    finally:
        sys.stdout = stream


def _show_all_letters(stream: TextIO) -> None:
    """A letter that the output's encoding does not have is an escape: what was done is told, and not a bug instead."""
    if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
        stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def output_aside() -> Iterator[None]:
    """Within, whatever is printed goes to standard error: a job's words, and those of its child processes and JVM."""
    stream, errors = sys.stdout, sys.stderr
    stream.flush()
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        # Processes that are started meanwhile write to the number 1, whatever Python calls standard output.
        stack.callback(_number_one(2 if errors is not None else nowhere.fileno()))
        sys.stdout = errors if errors is not None else nowhere
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            sys.stdout = stream


def _number_one(target: int) -> Callable[[], None]:
    """Lets file descriptor 1 be another one; what is returned brings the first one back."""
    kept = os.dup(1)
    os.dup2(target, 1)

    def back() -> None:
        os.dup2(kept, 1)
        os.close(kept)

    return back


def discard_unwritten() -> None:
    """Let go of what standard output and error did not take, so that the interpreter does not fail on it at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


class _Checked:
    """A text stream whose errors are ours. click and rich would end the process at a closed pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_read = True

    def write(self, text: str) -> int:
        with self._judged():
            if self._is_read:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._judged():
            if self._is_read:
                self._stream.flush()

    @contextlib.contextmanager
    def _judged(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._is_read = False
        except OSError as error:
            raise _not_writable(error.strerror or type(error).__name__) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _not_writable(got: str) -> InputError:
    return InputError(
        Code.OUTPUT_NOT_WRITABLE,
        "standard output cannot be written",
        expected="a place for the result",
        got=got,
        hint="send it to a file or a pipe that takes it all",
    )
