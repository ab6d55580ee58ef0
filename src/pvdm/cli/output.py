"""Standard output that says what it is when it cannot be written; imports nothing heavy."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from pvdm.errors import InputError


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Within, a full disk or a closed pipe behind standard output is an `output_not_writable`, whoever writes."""
    stream: TextIO | None = sys.stdout  # None where the caller closed it
    if stream is None:
        raise _not_writable("a closed one")
    checked = _Checked(stream)
    sys.stdout = cast(TextIO, checked)
    try:
        yield
        checked.flush()
    finally:
        sys.stdout = stream


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

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise _not_writable(error.strerror or type(error).__name__) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise _not_writable(error.strerror or type(error).__name__) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _not_writable(got: str) -> InputError:
    return InputError(
        "output_not_writable",
        "standard output cannot be written",
        expected="a place for the result",
        got=got,
        hint="send it to a file or a pipe that takes it all",
    )
