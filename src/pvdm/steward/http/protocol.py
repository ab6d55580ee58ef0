"""HTTP/1.1 as uvicorn reads it, with a time limit for headers and errors in the Steward's envelope."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pvdm.errors import Code, InputError
from pvdm.steward.http.errors import error_body

HEADERS_MAX_SECONDS: Final = 15
HEADERS_MAX_BYTES: Final = 65_536


class StewardProtocol(H11Protocol):
    """One connection; it is closed if the headers do not come in time."""

    headers_seconds: float = HEADERS_MAX_SECONDS
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time limit for headers."""
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Read on; the time for headers runs while no request is under way."""
        super().data_received(data)
        if self._under_way():
            self._stop_waiting()
        elif self._late is None and not self.transport.is_closing():
            self._wait_for_headers()

    def on_response_complete(self) -> None:
        """Between two requests the server's keep-alive time counts, not ours."""
        self._stop_waiting()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer in the Steward's envelope; the server's own message is for its log."""
        del msg
        error = InputError(
            Code.HTTP_MALFORMED, "this is not HTTP as the Steward reads it", expected="HTTP/1.1", got="something else"
        )
        request_id = secrets.token_hex(16)
        body = error_body(error, request_id)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"cache-control", b"no-store"),
            (b"x-request-id", request_id.encode("ascii")),
            (b"connection", b"close"),
        ]
        answer = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        try:
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass  # an answer has begun already: it ends here
        self.transport.close()

    def _under_way(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is not None and not cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._late = self.loop.call_later(self.headers_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if not self._under_way() and not self.transport.is_closing():
            self.transport.abort()
