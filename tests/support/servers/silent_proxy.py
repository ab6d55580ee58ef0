"""A TCP proxy that a test can make silent.

While it is silent, connections stay open, but no bytes pass in either direction.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

_PIECE_BYTES = 65_536


@dataclass(slots=True)
class SilentProxy:
    """A proxy to `target`. It drops the bytes that arrive while `silent` is set."""

    target: tuple[str, int]
    port: int = 0
    silent: bool = False
    connections: int = 0
    open: set[socket.socket] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def resume(self) -> None:
        """Let bytes pass again, and end all open connections, because some have lost bytes."""
        self.silent = False
        for each in list(self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve(self, client: socket.socket) -> None:
        """Pass the bytes of one connection until a side ends it."""
        self.connections += 1
        with client, socket.create_connection(self.target) as server, selectors.DefaultSelector() as either:
            self.open |= {client, server}
            either.register(client, selectors.EVENT_READ, server)
            either.register(server, selectors.EVENT_READ, client)
            with contextlib.suppress(OSError):
                while either.get_map():
                    for key, _ in either.select():
                        piece = key.fileobj.recv(_PIECE_BYTES)  # type: ignore[union-attr]
                        if not piece and self.silent:
                            either.unregister(key.fileobj)  # a silent proxy does not pass on the end either
                            continue
                        if not piece:
                            return
                        if not self.silent:
                            key.data.sendall(piece)
            self.open -= {client, server}


@contextlib.contextmanager
def silent_proxy(host: str, port: int) -> Iterator[SilentProxy]:
    """Run a proxy to that server on a free loopback port."""
    proxy = SilentProxy((host, port))
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.port = listener.getsockname()[1]

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        proxy.resume()
        thread.join()
