"""A refusal before the end of the body: it is sent, then some of the body is read, then the connection is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pvdm.steward.http import body as body_module
from pvdm.steward.http.body import BodyReceiver, send_refusal

START: dict[str, Any] = {"type": "http.response.start", "status": 401, "headers": [(b"a", b"b")]}
CLOSE = (b"connection", b"close")


class RecordingWire:
    """Records what is read and sent. `receive` returns the pieces of the body, then it waits for ever."""

    def __init__(self, *pieces: tuple[bytes, bool]) -> None:
        self.pieces = list(pieces)
        self.events: list[str] = []

    async def receive(self) -> dict[str, Any]:
        if not self.pieces:
            await asyncio.Event().wait()
        body, more = self.pieces.pop(0)
        self.events.append(f"read {len(body)}")
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.events.append("start, then close" if CLOSE in message["headers"] else "start")
        else:
            self.events.append(f"sent {len(message['body'])}{', more' if message['more_body'] else ''}")


def send_refusal_on(wire: RecordingWire, *headers: tuple[bytes, bytes]) -> list[str]:
    async def send() -> None:
        await send_refusal(START, b"no", BodyReceiver({"headers": headers}, wire.receive), wire.send)

    asyncio.run(asyncio.wait_for(send(), 5))
    return wire.events


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"0"),), ((b"content-length", b"00"),)])
def test_without_a_body_the_connection_is_kept(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert send_refusal_on(RecordingWire(), *headers) == ["start", "sent 2"]


@pytest.mark.parametrize("header", [(b"content-length", b"7"), (b"transfer-encoding", b"chunked")])
def test_a_body_that_was_not_read_is_read_after_the_answer(header: tuple[bytes, bytes]) -> None:
    wire = RecordingWire((b"four", True), (b"end", False))
    assert send_refusal_on(wire, header) == ["start, then close", "sent 2, more", "read 4", "read 3", "sent 0"]


def test_a_body_that_was_read_to_its_end_keeps_the_connection() -> None:
    wire = RecordingWire((b"whole", False))

    async def send() -> None:
        receiver = BodyReceiver({"headers": [(b"content-length", b"5")]}, wire.receive)
        await receiver()
        await send_refusal(START, b"no", receiver, wire.send)

    asyncio.run(send())
    assert wire.events == ["read 5", "start", "sent 2"]


def test_reading_after_a_refusal_ends_at_the_byte_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "LINGER_MAX_BYTES", 10)
    wire = RecordingWire(*[(b"x" * 8, True)] * 50)
    assert send_refusal_on(wire, (b"content-length", b"400")).count("read 8") == 2


def test_reading_after_a_refusal_ends_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "LINGER_MAX_SECONDS", 0.05)
    wire = RecordingWire((b"x", True))
    assert send_refusal_on(wire, (b"content-length", b"400"))[-2:] == ["read 1", "sent 0"]
