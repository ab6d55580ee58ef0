"""HTTP sessions to upstreams (users' own catalogs), with one time limit for a request and its whole response."""

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
_THREAD: Final = threading.local()
_READ_METHODS: Final = frozenset({"GET", "HEAD"})


class _RunningRequest:
    """A request in progress, which another thread can end. A timeout of `requests` limits each read, not the sum."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.ended = False

    def add_socket(self, found: socket.socket | None) -> None:
        """Record that the request uses this socket."""
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


class _RecordingConnection:
    """A connection that adds its socket to this thread's running request, before the first byte is sent."""

    sock: socket.socket | None

    def _new_conn(self) -> socket.socket:
        found: socket.socket = super()._new_conn()  # type: ignore[misc]
        _record_socket(found)  # before `connect` returns: a proxy may respond slowly
        return found

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        _record_socket(self.sock)

    def request(self, *args: Any, **kwargs: Any) -> None:
        _record_socket(self.sock)
        super().request(*args, **kwargs)  # type: ignore[misc]


def _record_socket(found: socket.socket | None) -> None:
    running: _RunningRequest | None = getattr(_THREAD, "request", None)
    if running is not None:
        running.add_socket(found)


def _recording_pool_class(pool: type[Any]) -> type[Any]:
    """The same pool with connections that record their sockets."""
    connection = type("_Connection", (_RecordingConnection, pool.ConnectionCls), {})
    return type("_Pool", (pool,), {"ConnectionCls": connection})


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self._use_recording_pools(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """As in `HTTPAdapter`, with connections that record their sockets."""
        known = proxy in self.proxy_manager
        found = super().proxy_manager_for(proxy, **kwargs)
        if not known:
            self._use_recording_pools(found)
        return found

    def _use_recording_pools(self, manager: Any) -> None:
        pools = manager.pool_classes_by_scheme
        manager.pool_classes_by_scheme = {scheme: _recording_pool_class(pool) for scheme, pool in pools.items()}


def limit_session(
    session: requests.Session, *, seconds: float, max_bytes: int, breaker: CircuitBreaker, ignores_breaker: bool = False
) -> None:
    """Limit each request of the session in time and size, and refuse redirects.

    A redirect would send a commit twice, and a credential to another server. While the circuit breaker is open,
    requests that only read are refused, except with `ignores_breaker`. Other requests are always sent.
    """
    send = session.request
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())

    def request(method: str, url: str, **kwargs: Any) -> requests.Response:
        only_reads = method.upper() in _READ_METHODS
        begun = breaker.begin() if only_reads and not ignores_breaker else time.monotonic()
        seconds_left = min(seconds, _deadline() - begun)
        if seconds_left <= 0:
            raise TimeoutError
        try:
            with _stop_after(seconds_left):
                options = {**kwargs, "timeout": seconds_left, "allow_redirects": False, "stream": True}
                answer = send(method, url, **options)
                answer._content = _read_body(answer, max_bytes)
                answer._content_consumed = True
        except (TimeoutError, requests.Timeout):
            if only_reads and seconds_left == seconds:  # with less time, a working server may be too slow
                breaker.record_silence(begun)
            raise
        breaker.record_answer()
        if answer.status_code // 100 == 3:  # PyIceberg would take a redirect as success
            raise requests.TooManyRedirects("the upstream points elsewhere")
        return answer

    session.request = request  # type: ignore[method-assign, assignment]


@contextlib.contextmanager
def shared_deadline(seconds: float) -> Iterator[None]:
    """Give all requests of this thread in the block one common time limit: a list may have any number of pages."""
    before, _THREAD.deadline = _deadline(), time.monotonic() + seconds
    try:
        yield
    finally:
        _THREAD.deadline = before


def _deadline() -> float:
    return float(getattr(_THREAD, "deadline", math.inf))


@contextlib.contextmanager
def _stop_after(seconds: float) -> Iterator[None]:
    """Stop the request of the block after this time. Raises TimeoutError then."""
    running = _RunningRequest()
    before, _THREAD.request = getattr(_THREAD, "request", None), running
    timer = threading.Timer(seconds, running.end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if running.ended:  # the shutdown caused the error
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
        _THREAD.request = before
    if running.ended:  # the response may be incomplete
        raise TimeoutError


def _read_body(answer: requests.Response, max_bytes: int) -> bytes:
    """The response body, cut after the chunk that goes over `max_bytes`. The parser of the body checks its size."""
    found = bytearray()
    try:
        for chunk in answer.iter_content(_CHUNK_BYTES):
            found += chunk
            if len(found) > max_bytes:
                break
    finally:
        answer.close()  # closes the connection only if the body was not read to its end
    return bytes(found)
