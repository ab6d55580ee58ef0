"""Reports errors of standard output, and ignores a closed pipe. Imports nothing that is slow to load."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from pvdm.errors import Code, PvdmError


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """In the block, an error of standard output raises `output_not_writable`.

    After the reader of a pipe has closed it, as `head -1` does, output is discarded and the command continues.
    """
    stream: TextIO | None = sys.stdout  # None if the caller closed it
    if stream is None:
        raise _not_writable("a closed standard output")
    if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
        stream.reconfigure(errors="backslashreplace")  # for characters that the output's encoding does not have
    checked = _CheckedStream(stream)
    sys.stdout = cast(TextIO, checked)
    try:
        yield
        checked.flush()
    finally:
        sys.stdout = stream


@contextlib.contextmanager
def output_to_stderr() -> Iterator[None]:
    """In the block, standard output of this process, its child processes and its JVM goes to standard error."""
    stdout, stderr = sys.stdout, sys.stderr  # stderr is None if the caller closed it
    stdout.flush()
    with Path(os.devnull).open("w", encoding="utf-8") as null_device:
        # Child processes write to file descriptor 1, not to sys.stdout.
        saved_descriptor = os.dup(1)
        target_descriptor = null_device.fileno() if stderr is None else 2
        os.dup2(target_descriptor, 1)
        sys.stdout = null_device if stderr is None else stderr
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            sys.stdout = stdout
            os.dup2(saved_descriptor, 1)
            os.close(saved_descriptor)


def discard_unwritten() -> None:
    """Discard buffered text that cannot be written: the interpreter would fail on it when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError), Path(os.devnull).open("wb") as null_device:
                os.dup2(null_device.fileno(), stream.fileno())


class _CheckedStream:
    """A text stream that raises pvdm's errors. After the reader has closed the pipe, it discards text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_open = True

    def write(self, text: str) -> int:
        with self._translate_errors():
            if self._is_open:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._translate_errors():
            if self._is_open:
                self._stream.flush()

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # not raised: click and rich would end the command
            self._is_open = False
        except OSError as error:
            raise _not_writable(error.strerror or type(error).__name__) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _not_writable(got: str) -> PvdmError:
    hint = "redirect it to a file on a disk with free space, or to a pipe that is read to its end"
    return Code.OUTPUT_REFUSED("standard output cannot be written", reason="output_not_writable", got=got, hint=hint)
