"""The few words between the Steward and its Spark driver: JSON and opaque bytes, each with its length before it."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Sequence
from typing import IO, Any, Final

from pvdm.errors import UnavailableError

FRAME_MAX_BYTES: Final = 4_294_967_296
_LENGTH_BYTES: Final = 8
_PIECE: Final = 1_048_576


def send(stream: IO[bytes], head: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
    """One message: what it is, and how many parts follow."""
    for part in (json.dumps({**head, "parts": len(parts)}).encode(), *parts):
        stream.write(len(part).to_bytes(_LENGTH_BYTES, "big"))
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes], seconds: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
    """The next message; the other side's end, or its silence, is an error."""
    ends = None if seconds is None else time.monotonic() + seconds
    head: dict[str, Any] = json.loads(_frame(stream, ends))
    return head, [_frame(stream, ends) for _ in range(int(head["parts"]))]


def _frame(stream: IO[bytes], ends: float | None) -> bytes:
    size = int.from_bytes(_exactly(stream, _LENGTH_BYTES, ends), "big")
    if size > FRAME_MAX_BYTES:
        raise gone(f"a message of {size} bytes")
    return _exactly(stream, size, ends)


def _exactly(stream: IO[bytes], size: int, ends: float | None) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        if ends is not None and not select.select([stream], [], [], max(0.0, ends - time.monotonic()))[0]:
            raise gone("silence")
        part = os.read(stream.fileno(), min(size, _PIECE))
        if not part:
            raise gone("its end")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def gone(got: str) -> UnavailableError:
    """The driver is no more, or does not answer."""
    return UnavailableError(
        "spark_driver_gone",
        "the Steward's Spark driver does not answer",
        expected="an answer",
        got=got,
        hint="its log lies in the folder of [spark]; the job is tried again",
    )
