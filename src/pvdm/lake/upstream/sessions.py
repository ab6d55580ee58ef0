"""HTTP sessions towards upstreams: every request has an end as a whole, however slowly its answer drips in."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

_CHUNK_BYTES: Final = 1_048_576
_ASKING: Final = threading.local()


class _Asked:
    """One request on its way; a time limit for each read alone would let an answer last for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.ended = False

    def uses(self, found: socket.socket | None) -> None:
        """The request goes by this connection."""
        with self._lock:
            if found is not None:
                self._sockets.append(found)
            if self.ended:
                self._stop()

    def end(self) -> None:
        """Its time is up: whoever waits for the connection hears that there is no more."""
        with self._lock:
            self.ended = True
            self._stop()

    def _stop(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Noted:
    """A connection that says by which socket the request of this thread goes."""

    sock: socket.socket | None

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        _noted(self.sock)

    def request(self, *given: Any, **more: Any) -> None:
        _noted(self.sock)
        super().request(*given, **more)  # type: ignore[misc]


def _noted(found: socket.socket | None) -> None:
    asked: _Asked | None = getattr(_ASKING, "asked", None)
    if asked is not None:
        asked.uses(found)


class _Plain(_Noted, HTTPConnection):
    pass


class _Secure(_Noted, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *given: Any, **more: Any) -> None:
        super().init_poolmanager(*given, **more)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}


def bounded(session: requests.Session, *, seconds: float, most: int) -> None:
    """Each request of the session ends in time, is read until it has more than `most` bytes, and goes nowhere else.

    A redirected commit would be sent twice, and a credential to somebody else.
    """
    send = session.request
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())

    def request(method: str, url: str, **more: Any) -> requests.Response:
        with _ending(seconds):
            answer = send(method, url, **{**more, "timeout": seconds, "allow_redirects": False, "stream": True})
            answer._content = _body(answer, most)
            answer._content_consumed = True
        return answer

    session.request = request  # type: ignore[method-assign, assignment]


@contextlib.contextmanager
def _ending(seconds: float) -> Iterator[None]:
    asked = _Asked()
    before, _ASKING.asked = getattr(_ASKING, "asked", None), asked
    timer = threading.Timer(seconds, asked.end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _ASKING.asked = before
    if asked.ended:  # whatever was read may be half of it
        raise TimeoutError


def _body(answer: requests.Response, most: int) -> bytes:
    """So much as an answer may be, and more than that if it is longer, by which that is noticed."""
    found = bytearray()
    for chunk in answer.iter_content(_CHUNK_BYTES):
        found += chunk
        if len(found) > most:
            answer.close()
            break
    return bytes(found)
