"""Connections: a listening socket that counts them by address, and HTTP/1.1 with a time limit for headers."""

from __future__ import annotations

import asyncio
import resource
import secrets
import socket
from collections import Counter
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pvdm.errors import Code
from pvdm.steward.http.errors import error_body
from pvdm.steward.http.limits import LOOPBACK, peer_identity

CONNECTIONS_MAX: Final = 2_048
HANDSHAKE_MAX_SECONDS: Final = 10
# Ledger, log, archive and key files are opened while connections are open; where the system allows few files, half.
_FILES_KEPT_FREE: Final = 256

HEADERS_MAX_SECONDS: Final = 15
HEADERS_MAX_BYTES: Final = 65_536


class Listener(socket.socket):
    """A listening socket that closes connections beyond the limit, before a TLS handshake."""

    def __init__(self, family: int, *, connections: int, peer_connections: int) -> None:
        # asyncio sends small responses at once only if the protocol is named TCP.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._most = connections
        self._most_of_peer = peer_connections
        self._open: Counter[str] = Counter()
        self._together = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. One beyond the limit is closed, and reported to the event loop as aborted."""
        plain, address = super().accept()
        peer = peer_identity(address[0])
        found = _Connection(self, peer, plain.detach())
        # Behind a proxy on loopback all callers have one address, so the limit of one address does not apply.
        if self._together > self._most or (peer != LOOPBACK and self._open[peer] > self._most_of_peer):
            found.close()
            raise ConnectionAbortedError
        return found, address

    def entered(self, peer: str) -> None:
        """Count one more connection."""
        self._open[peer] += 1
        self._together += 1

    def left(self, peer: str) -> None:
        """Count one less; an address without any is dropped."""
        self._together -= 1
        self._open[peer] -= 1
        if self._open[peer] == 0:
            del self._open[peer]


class _Connection(socket.socket):
    """An accepted connection; it is counted until it is closed."""

    def __init__(self, listener: Listener, peer: str, descriptor: int) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=descriptor)
        self._listener: Listener | None = listener
        self._peer = peer
        listener.entered(peer)

    def close(self) -> None:
        """Close, and make room for the next."""
        super().close()
        if self._listener is not None:
            self._listener.left(self._peer)
            self._listener = None


class PromptLoop(asyncio.SelectorEventLoop):
    """The event loop of the service, with a shorter time limit for TLS handshakes."""

    async def create_server(self, *args: Any, **more: Any) -> asyncio.Server:
        """As in asyncio, with a shorter time for the handshake."""
        if more.get("ssl") is not None:
            more |= {"ssl_handshake_timeout": HANDSHAKE_MAX_SECONDS, "ssl_shutdown_timeout": HANDSHAKE_MAX_SECONDS}
        return await super().create_server(*args, **more)


def connections_most() -> int:
    """How many connections the service has open at a time: the limit, or less where the system allows fewer files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, max(1, files - min(_FILES_KEPT_FREE, files // 2)))


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
        error = Code.HTTP_MALFORMED(
            "this is not HTTP as the Steward reads it", expected="HTTP/1.1", got="something else"
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
