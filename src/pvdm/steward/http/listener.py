"""The listening socket: counts connections as they are accepted, so that no address takes all of them."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import Counter
from typing import Any, Final

from pvdm.steward.http.limits import LOOPBACK, peer_identity

CONNECTIONS_MAX: Final = 2_048
HANDSHAKE_MAX_SECONDS: Final = 10
# Ledger, log, archive and key files are opened while connections are open; where the system allows few files, half.
_FILES_KEPT_FREE: Final = 256


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
