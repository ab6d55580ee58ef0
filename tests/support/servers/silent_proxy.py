"""A proxy for any server that can fall silent: connections stand, and nothing comes through them in either way."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

_PIECE = 65_536


@dataclass(slots=True)
class SilentProxy:
    """Bytes pass as they are while it speaks; what came while it was silent is lost with its connection."""

    target: tuple[str, int]
    port: int = 0
    silent: bool = False
    connections: int = 0
    open: set[socket.socket] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def speak(self) -> None:
        self.silent = False
        for each in list(self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def passing(self, client: socket.socket) -> None:
        self.connections += 1
        with client, socket.create_connection(self.target) as server, selectors.DefaultSelector() as either:
            self.open |= {client, server}
            either.register(client, selectors.EVENT_READ, server)
            either.register(server, selectors.EVENT_READ, client)
            with contextlib.suppress(OSError):
                while either.get_map():
                    for key, _ in either.select():
                        piece = key.fileobj.recv(_PIECE)  # type: ignore[union-attr]
                        if not piece and self.silent:
                            either.unregister(key.fileobj)  # an end is a word, too
                            continue
                        if not piece:
                            return
                        if not self.silent:
                            key.data.sendall(piece)
            self.open -= {client, server}


@contextlib.contextmanager
def silent_proxy(host: str, port: int) -> Iterator[SilentProxy]:
    """The proxy on a free loopback port."""
    proxy = SilentProxy((host, port))
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.port = listener.getsockname()[1]

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=proxy.passing, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        proxy.speak()
        thread.join()
