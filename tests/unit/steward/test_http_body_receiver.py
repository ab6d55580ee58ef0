"""A refusal before the end of the body: the answer goes out first, a little is read on, then the connection ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pvdm.steward.http import body as module
from pvdm.steward.http.body import BodyReceiver, send_refusal

START: dict[str, Any] = {"type": "http.response.start", "status": 401, "headers": [(b"a", b"b")]}
CLOSE = (b"connection", b"close")


class Wire:
    """Keeps what happens in order; pieces of a body, or silence when there are none left."""

    def __init__(self, *pieces: tuple[bytes, bool]) -> None:
        self.pieces = list(pieces)
        self.seen: list[str] = []

    async def receive(self) -> dict[str, Any]:
        if not self.pieces:
            await asyncio.Event().wait()
        body, more = self.pieces.pop(0)
        self.seen.append(f"read {len(body)}")
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.seen.append("start, then close" if CLOSE in message["headers"] else "start")
        else:
            self.seen.append(f"sent {len(message['body'])}{', more' if message['more_body'] else ''}")


def refused(wire: Wire, *headers: tuple[bytes, bytes]) -> list[str]:
    async def scene() -> None:
        await send_refusal(START, b"no", BodyReceiver({"headers": headers}, wire.receive), wire.send)

    asyncio.run(asyncio.wait_for(scene(), 5))
    return wire.seen


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"0"),), ((b"content-length", b"00"),)])
def test_without_a_body_the_connection_is_kept(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert refused(Wire(), *headers) == ["start", "sent 2"]


@pytest.mark.parametrize("header", [(b"content-length", b"7"), (b"transfer-encoding", b"chunked")])
def test_a_body_that_was_not_read_is_read_after_the_answer(header: tuple[bytes, bytes]) -> None:
    wire = Wire((b"four", True), (b"end", False))
    assert refused(wire, header) == ["start, then close", "sent 2, more", "read 4", "read 3", "sent 0"]


def test_a_body_that_was_read_to_its_end_keeps_the_connection() -> None:
    wire = Wire((b"whole", False))

    async def scene() -> None:
        receiver = BodyReceiver({"headers": [(b"content-length", b"5")]}, wire.receive)
        await receiver()
        await send_refusal(START, b"no", receiver, wire.send)

    asyncio.run(scene())
    assert wire.seen == ["read 5", "start", "sent 2"]


def test_no_more_is_read_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_MAX_BYTES", 10)
    wire = Wire(*[(b"x" * 8, True)] * 50)
    assert refused(wire, (b"content-length", b"400")).count("read 8") == 2


def test_nobody_is_waited_for_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER_MAX_SECONDS", 0.05)
    wire = Wire((b"x", True))
    assert refused(wire, (b"content-length", b"400"))[-2:] == ["read 1", "sent 0"]
