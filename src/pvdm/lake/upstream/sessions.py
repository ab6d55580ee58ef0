"""HTTP sessions to upstreams, with one time limit for a request and its whole response."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter

from pvdm.lake.stores.circuit_breaker import CircuitBreaker

_CHUNK_BYTES: Final = 1_048_576
_ASKING: Final = threading.local()
_ASKS: Final = frozenset({"GET", "HEAD"})


class _Asked:
    """A request in progress. A time limit for each read alone would let a slow response last for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.ended = False

    def uses(self, found: socket.socket | None) -> None:
        """Note that the request uses this socket."""
        with self._lock:
            if found is not None:
                self._sockets.append(found)
            if self.ended:
                self._stop()

    def end(self) -> None:
        """End the request: shut its sockets down, so that reads on them return."""
        with self._lock:
            self.ended = True
            self._stop()

    def _stop(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Noted:
    """A connection that notes the socket of this thread's request, from the first byte on."""

    sock: socket.socket | None

    def _new_conn(self) -> socket.socket:
        found: socket.socket = super()._new_conn()  # type: ignore[misc]
        _noted(found)  # a proxy may respond slowly before the connection is made
        return found

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


def _noting(pool: type[Any]) -> type[Any]:
    """The same pool with connections that note their sockets."""
    connection = type("_Connection", (_Noted, pool.ConnectionCls), {})
    return type("_Pool", (pool,), {"ConnectionCls": connection})


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *given: Any, **more: Any) -> None:
        super().init_poolmanager(*given, **more)
        self._note(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        """The same for a proxy that the environment names."""
        known = proxy in self.proxy_manager
        found = super().proxy_manager_for(proxy, **more)
        if not known:
            self._note(found)
        return found

    def _note(self, manager: Any) -> None:
        pools = manager.pool_classes_by_scheme
        manager.pool_classes_by_scheme = {scheme: _noting(pool) for scheme, pool in pools.items()}


def limit_session(
    session: requests.Session, *, seconds: float, most: int, breaker: CircuitBreaker, ignores_breaker: bool = False
) -> None:
    """Limit each request of the session in time and size, and refuse redirects.

    A redirect would send a commit twice, and a credential to another server. A request that only reads is refused
    while the server is silent, unless with `ignores_breaker`. Requests that change something are always sent.
    """
    send = session.request
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())

    def request(method: str, url: str, **more: Any) -> requests.Response:
        asking = method.upper() in _ASKS
        begun = breaker.begin() if asking and not ignores_breaker else time.monotonic()
        left = min(seconds, _until() - begun)
        if left <= 0:
            raise TimeoutError
        try:
            with _ending(left):
                answer = send(method, url, **{**more, "timeout": left, "allow_redirects": False, "stream": True})
                answer._content = _body(answer, most)
                answer._content_consumed = True
        except (TimeoutError, requests.Timeout):
            if asking and left == seconds:
                breaker.record_silence(begun)
            raise
        breaker.record_answer()
        if answer.status_code // 100 == 3:  # PyIceberg would take it as success
            raise requests.TooManyRedirects("the upstream points elsewhere")
        return answer

    session.request = request  # type: ignore[method-assign, assignment]


@contextlib.contextmanager
def shared_deadline(seconds: float) -> Iterator[None]:
    """Give all requests of this thread one common time limit: a list may have any number of pages."""
    before, _ASKING.until = _until(), time.monotonic() + seconds
    try:
        yield
    finally:
        _ASKING.until = before


def _until() -> float:
    return float(getattr(_ASKING, "until", math.inf))


@contextlib.contextmanager
def _ending(seconds: float) -> Iterator[None]:
    asked = _Asked()
    before, _ASKING.asked = getattr(_ASKING, "asked", None), asked
    timer = threading.Timer(seconds, asked.end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if asked.ended:  # the shutdown caused the error
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
        _ASKING.asked = before
    if asked.ended:  # the response may be incomplete
        raise TimeoutError


def _body(answer: requests.Response, most: int) -> bytes:
    """The response body, up to the first chunk that goes over `most`; the caller checks the size."""
    found = bytearray()
    try:
        for chunk in answer.iter_content(_CHUNK_BYTES):
            found += chunk
            if len(found) > most:
                break
    finally:
        answer.close()  # a connection that was read to its end stays open
    return bytes(found)
