"""A transport for httpx with one deadline for a whole exchange, which a slow peer cannot extend."""

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


class _Deadline(threading.local):
    """The deadline of this thread's exchange, on the monotonic clock."""

    at: float | None = None


_deadline: Final = _Deadline()


@contextmanager
def deadline(at: float) -> Iterator[None]:
    """Set the deadline of everything that this thread sends and receives in the block."""
    _deadline.at = at
    try:
        yield
    finally:
        _deadline.at = None


def _remaining(timeout: float | None, error: type[httpcore.TimeoutException]) -> float | None:
    """The timeout, or the seconds until the deadline if they are fewer. Raises the error after the deadline."""
    if _deadline.at is None:
        return timeout
    remaining = _deadline.at - time.monotonic()
    if remaining <= 0:
        raise error("the exchange took too long")
    return remaining if timeout is None else min(timeout, remaining)


class _Stream(httpcore.NetworkStream):
    """A connection that the deadline bounds; data is sent in pieces, so that the deadline is checked between them."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _remaining(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], _remaining(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(
            self._inner.start_tls(ssl_context, server_hostname, _remaining(timeout, httpcore.ConnectTimeout))
        )

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    """Opens connections that the deadline bounds."""

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
        seconds = _remaining(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, seconds, local_address, socket_options))


class _Body(httpx.SyncByteStream):
    """The body of a response; reading it raises httpx's errors."""

    def __init__(self, inner: Iterable[bytes]) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        with _translate_errors():
            yield from self._inner

    def close(self) -> None:
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()


class BoundedTransport(httpx.BaseTransport):
    """HTTP/1.1 over pooled connections, without proxies and without settings from the environment."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=_Backend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One exchange; raises httpx's errors."""
        core_request = httpcore.Request(
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
        with _translate_errors():
            response = self._pool.handle_request(core_request)
        if not isinstance(response.stream, Iterable):
            raise httpx.RemoteProtocolError("the response cannot be read")
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response.stream))

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise httpcore's errors as httpx's, which have the same names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        kind: type[httpx.TransportError] = getattr(httpx, type(error).__name__, httpx.TransportError)
        raise kind(str(error)) from None
