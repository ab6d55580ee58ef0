"""The way in: knows whether the body has ended, so that a refusal before its end does not get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from starlette.types import Message, Receive, Send

LINGER_MAX_BYTES: Final = 1_048_576
LINGER_MAX_SECONDS: Final = 2


class Inlet:
    """Receives for one request and remembers whether there is more to come."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive) -> None:
        self._receive = receive
        self.ended = not _has_body(scope)

    async def __call__(self) -> Message:
        """The next piece."""
        message = await self._receive()
        self.ended = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Read on for a moment and throw it away."""
        seen = 0
        try:
            async with asyncio.timeout(LINGER_MAX_SECONDS):
                while not self.ended and seen <= LINGER_MAX_BYTES:
                    seen += len((await self()).get("body", b""))
        except TimeoutError:
            return


async def send_refusal(start: dict[str, Any], body: bytes, inlet: Inlet, send: Send) -> None:
    """Send the answer; if the caller is still sending, read on a little before the connection is closed.

    A server that closes while the caller still sends makes the caller's system throw the answer away.
    """
    if inlet.ended:
        await send(start)
        await send({"type": "http.response.body", "body": body, "more_body": False})
        return
    await send({**start, "headers": [*start["headers"], (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await inlet.drain()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _has_body(scope: Mapping[str, Any]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0") != b"")
        for name, value in scope["headers"]
    )
