"""A transport for httpx that keeps one end for a whole exchange: a peer that trickles cannot stretch it."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpcore
import httpx

CONNECTIONS_MAX: Final = 100
_PIECE_BYTES: Final = 65_536
# Shorter than servers keep an idle connection: a request on one that the server is just closing would be lost.
_IDLE_SECONDS: Final = 2.0


class _Ends(threading.local):
    """When the exchange that this thread is in must be over, on the monotonic clock."""

    at: float | None = None


_ends: Final = _Ends()


@contextmanager
def until(at: float) -> Iterator[None]:
    """Everything that this thread sends and receives in the block ends by then."""
    _ends.at = at
    try:
        yield
    finally:
        _ends.at = None


def _left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    if _ends.at is None:
        return timeout
    left = _ends.at - time.monotonic()
    if left <= 0:
        raise late("the exchange has lasted too long")
    return left if timeout is None else min(timeout, left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout, httpcore.ConnectTimeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, left, local_address, socket_options))


class _Body(httpx.SyncByteStream):
    def __init__(self, inner: Iterable[bytes]) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        with _spoken_as_httpx():
            yield from self._inner

    def close(self) -> None:
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()


class BoundedTransport(httpx.BaseTransport):
    """HTTP/1.1 over pooled connections; no proxy, nothing taken from the environment."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=_Backend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One exchange; the errors are httpx's."""
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _spoken_as_httpx():
            answer = self._pool.handle_request(asked)
        if not isinstance(answer.stream, Iterable):
            raise httpx.RemoteProtocolError("the answer cannot be read")
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer.stream))

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()


@contextmanager
def _spoken_as_httpx() -> Iterator[None]:
    """Both libraries have one set of names for what goes wrong."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        kind: type[httpx.TransportError] = getattr(httpx, type(error).__name__, httpx.TransportError)
        raise kind(str(error)) from None
