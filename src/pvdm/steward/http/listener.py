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
HEADERS_MAX_SECONDS: Final = 15
HEADERS_MAX_BYTES: Final = 65_536
# File descriptors kept free for ledger, log, archive and keys; half of all if the system allows fewer than 512.
_FILES_KEPT_FREE: Final = 256


class Listener(socket.socket):
    """A listening socket that closes connections beyond the limit, before a TLS handshake."""

    def __init__(self, family: int, *, connections: int, peer_connections: int) -> None:
        # asyncio sets TCP_NODELAY only if the socket's protocol is given as TCP.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._connections_max = connections
        self._peer_connections_max = peer_connections
        self._open_by_peer: Counter[str] = Counter()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. A connection beyond the limit is closed, and reported to the event loop as aborted."""
        accepted, address = super().accept()
        peer = peer_identity(address[0])
        connection = _Connection(self, peer, accepted.detach())
        # The new connection is already counted. Behind a proxy on loopback all callers have one address, so there the
        # limit of one address does not apply.
        over_peer_limit = peer != LOOPBACK and self._open_by_peer[peer] > self._peer_connections_max
        if over_peer_limit or self._open_by_peer.total() > self._connections_max:
            connection.close()
            raise ConnectionAbortedError
        return connection, address

    def count_opened(self, peer: str) -> None:
        """Count one more connection of this address."""
        self._open_by_peer[peer] += 1

    def count_closed(self, peer: str) -> None:
        """Count one connection less; an address without connections is dropped."""
        self._open_by_peer -= Counter([peer])


class _Connection(socket.socket):
    """An accepted connection; it is counted until it is closed."""

    def __init__(self, listener: Listener, peer: str, descriptor: int) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=descriptor)
        self._listener: Listener | None = listener
        self._peer = peer
        listener.count_opened(peer)

    def close(self) -> None:
        """Close the connection, and stop counting it."""
        super().close()
        if self._listener is not None:
            self._listener.count_closed(self._peer)
            self._listener = None


class StewardEventLoop(asyncio.SelectorEventLoop):
    """The event loop of the service, with a shorter time limit for TLS handshakes."""

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """As in asyncio, with a shorter time limit for TLS handshakes."""
        if options.get("ssl") is not None:
            options |= {"ssl_handshake_timeout": HANDSHAKE_MAX_SECONDS, "ssl_shutdown_timeout": HANDSHAKE_MAX_SECONDS}
        return await super().create_server(*args, **options)


def connection_limit() -> int:
    """How many connections the service may have open: the limit, or fewer where the system allows few open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, max(1, files - min(_FILES_KEPT_FREE, files // 2)))


class StewardProtocol(H11Protocol):
    """One connection; it is closed if the headers do not come in time."""

    headers_seconds: float = HEADERS_MAX_SECONDS
    _headers_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time limit for headers."""
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes. The time limit runs until a request's headers are complete."""
        super().data_received(data)
        if self._is_under_way():
            self._stop_waiting()
        elif self._headers_timer is None and not self.transport.is_closing():
            self._wait_for_headers()

    def on_response_complete(self) -> None:
        """Stop the time limit: between two requests uvicorn's keep-alive timeout applies."""
        self._stop_waiting()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Send an error in the form of the Steward's API in place of uvicorn's message, and close the connection."""
        del msg
        error = Code.REQUEST_INVALID(
            "the request is not valid HTTP", reason="http_malformed", expected="HTTP/1.1", got="something else"
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
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        try:
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass  # another response has begun; it is cut off
        self.transport.close()

    def _is_under_way(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is not None and not cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._headers_timer = self.loop.call_later(self.headers_seconds, self._abort_idle)

    def _stop_waiting(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

    def _abort_idle(self) -> None:
        self._headers_timer = None
        if not self._is_under_way() and not self.transport.is_closing():
            self.transport.abort()
