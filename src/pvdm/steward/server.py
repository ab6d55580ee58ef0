"""Runs the HTTP service, in the foreground until a signal or in a thread of the caller's process."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, TextIO

import uvicorn

from pvdm.errors import Code, PvdmError
from pvdm.steward.config.steward import ServiceConfig, require_tls_or_loopback
from pvdm.steward.http.app import create_app
from pvdm.steward.http.listener import HEADERS_MAX_BYTES, Listener, StewardEventLoop, StewardProtocol, connection_limit
from pvdm.steward.locks import serve_alone
from pvdm.steward.logs import LOGGER, JsonFormatter, log_event
from pvdm.steward.notary import Notary

BACKLOG_MAX: Final = 1_024
KEEP_ALIVE_SECONDS: Final = 15
_START_SECONDS: Final = 30  # for the thread to open the port
_EXIT_SECONDS: Final = 5  # for the thread to end after its last request
_ROOT_USER_ID: Final = 0
_NOT_PRIVATE_BITS: Final = 0o177  # every permission bit except the owner's read and write bits
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(notary: Notary) -> None:
    """Serve until SIGTERM or SIGINT; then refuse new requests, and wait up to `shutdown_seconds` for running ones."""
    if notary.config.development:
        raise Code.DEVELOPMENT_NOT_SERVED(got=f"{notary.config.notary}, whose operator key lies in its own folder")
    log_to(sys.stderr)
    with serve_alone(notary.ledger), contextlib.closing(_open_listener(notary.config.service)) as listener:
        _Server(notary, _url(notary.config.service, listener)).run(sockets=[listener])


def start(notary: Notary) -> RunningServer:
    """Serve in a thread of this process until `stop`; port 0 selects a free port."""
    service = notary.config.service
    with contextlib.ExitStack() as undo:
        undo.enter_context(serve_alone(notary.ledger))
        listener = undo.enter_context(contextlib.closing(_open_listener(service)))
        server = _Server(notary, _url(service, listener))
        running = RunningServer(server, listener, service.limits.shutdown_seconds, undo.pop_all())
    try:
        running.begin()
    except BaseException:
        running.stop()
        raise
    return running


class RunningServer:
    """An HTTP service that runs in a thread. The end of its `with` block stops it."""

    def __init__(
        self, server: _Server, listener: socket.socket, shutdown_seconds: int, resources: contextlib.ExitStack
    ) -> None:
        """`resources` (the listener, and the lock on the ledger) are closed by `stop`."""
        self._server = server
        self._listener = listener
        self._resources = resources
        self._shutdown_seconds = shutdown_seconds
        self._thread = threading.Thread(target=self._serve, name="pvdm-steward", daemon=True)
        self._failure: BaseException | None = None
        self.url = server.url
        self.port: int = listener.getsockname()[1]

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self) -> None:
        """Start the thread and wait until the service is up. Raises `service_not_started` if it does not come up."""
        self._thread.start()
        self._server.up.wait(_START_SECONDS)
        if self._failure is not None or not self._server.started:
            self._server.should_exit = True
            expected = f"an open port within {_START_SECONDS} seconds"
            got = type(self._failure).__name__ if self._failure is not None else "no open port"
            raise Code.SERVICE_NOT_STARTED(expected=expected, got=got) from self._failure

    def stop(self) -> None:
        """Refuse new requests, wait up to `shutdown_seconds` for running requests, and end. May be called twice."""
        self._server.should_exit = True
        self._thread.join(self._shutdown_seconds + _EXIT_SECONDS)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(_EXIT_SECONDS)
        self._resources.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except BaseException as error:
            self._failure = error
        finally:
            self._server.up.set()


class _Server(uvicorn.Server):
    """A uvicorn server that does not raise a caught signal again when it stops, so that the code after `run` runs."""

    def __init__(self, notary: Notary, url: str) -> None:
        super().__init__(_uvicorn_config(notary))
        self.url = url
        self._notary = notary
        if notary.spark is not None:
            notary.spark.set_service_address(url)
        self.up = threading.Event()  # set when the service has started or could not start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        catalog = self._notary.config.catalog
        log_event("started", address=self.url, catalog=catalog.name, warehouse=catalog.warehouse)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log_event("stopping")
        self._notary.changes.close()  # wakes long polls
        await super().shutdown(sockets=sockets)
        log_event("stopped")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del frame
        if self.should_exit and sig == signal.SIGINT:  # a second Ctrl-C does not wait for requests
            self.force_exit = True
        self.should_exit = True


def log_to(stream: TextIO) -> None:
    """Write the log lines of the service and of uvicorn to this stream, in one format."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    for name, level in ((LOGGER.name, logging.INFO), ("uvicorn.error", logging.WARNING), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def _uvicorn_config(notary: Notary) -> uvicorn.Config:
    service = notary.config.service
    require_tls_or_loopback(service)
    context = tls_context(service)
    return uvicorn.Config(
        create_app(notary),
        http=StewardProtocol,
        ws="none",
        loop=f"{StewardEventLoop.__module__}:{StewardEventLoop.__name__}",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # a caller could fake the peer address in a header
        server_header=False,
        backlog=BACKLOG_MAX,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=service.limits.shutdown_seconds,
        h11_max_incomplete_event_size=HEADERS_MAX_BYTES,
        ssl_context_factory=None if context is None else lambda *_: context,
    )


def tls_context(service: ServiceConfig) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with the configured certificate; None if none is configured."""
    if service.tls_certificate is None or service.tls_key is None:
        return None
    _require_private(service.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(service.tls_certificate, service.tls_key, password=_refuse_passphrase)
    except OSError as error:
        raise _tls_error(error.strerror or type(error).__name__) from None
    return context


def _require_private(key: Path) -> None:
    """Require that root or this process's user owns the key file, and no one else has access; links are followed."""
    try:
        found = key.stat()
    except OSError as error:
        raise _tls_error(error.strerror or type(error).__name__) from None
    if found.st_uid not in (os.geteuid(), _ROOT_USER_ID):
        message, owner = f"{key.name} belongs to another user", f"user {found.st_uid}"
        raise Code.KEY_FILE_REFUSED(message, reason="key_file_owner", expected=f"user {os.geteuid()}", got=owner)
    mode = stat.S_IMODE(found.st_mode)
    if mode & _NOT_PRIVATE_BITS:
        message, got = f"{key.name} may be read or written by others", f"mode {mode:04o}"
        hint = f"find out who could read it; then chmod 600 {key.name}, or get a new certificate"
        raise Code.KEY_FILE_REFUSED(message, reason="key_file_mode", expected="mode 0600 or 0400", got=got, hint=hint)


def _refuse_passphrase() -> NoReturn:
    raise _tls_error("a key with a passphrase")


def _tls_error(got: str) -> PvdmError:
    message = "certificate and key cannot be used"
    return Code.CONFIG_INVALID(message, reason="tls_invalid", expected="a PEM certificate and its key", got=got)


def _open_listener(service: ServiceConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    listener = Listener(family, connections=connection_limit(), peer_connections=service.limits.peer_connections)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((service.host, service.port))
    except OSError as error:
        listener.close()
        expected = f"{service.host} port {service.port}, a free port of this machine"
        raise Code.ADDRESS_UNAVAILABLE(expected=expected, got=error.strerror or type(error).__name__) from None
    return listener


def _url(service: ServiceConfig, listener: socket.socket) -> str:
    scheme = "http" if service.tls_certificate is None else "https"
    host = f"[{service.host}]" if ":" in service.host else service.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"
