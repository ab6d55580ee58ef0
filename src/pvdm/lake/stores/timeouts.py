"""How long an object store is waited for: a call has few tries, and begins and ends as the line to the server says."""

from __future__ import annotations

from typing import Any, Final

from pvdm.lake.stores.circuit_breaker import Line, line_at

S3_CONNECT_MAX_SECONDS: Final = 5
S3_SILENT_TRIES_MAX: Final = 2
"""How often a request is made that gets nothing in its time; one that is broken off may be made more often."""
_BEGUN: Final = "pvdm_begun"


def line_to(client: Any) -> Line:
    """The line to the client's server; clients of one server share it."""
    return line_at(client.meta.endpoint_url)


def wait_with_patience(client: Any, service: str, tries: int, *, broken: bool = True) -> None:
    """Let the client's calls begin, end and be noted as the line says.

    `broken`: a server that breaks off all tries is silent too, and not only one that lets time pass.
    """
    from botocore.exceptions import (
        ConnectionClosedError,
        ConnectTimeoutError,
        EndpointConnectionError,
        ProxyConnectionError,
        ReadTimeoutError,
    )

    line, late = line_to(client), (ConnectTimeoutError, ReadTimeoutError)
    closed = (ConnectionClosedError, EndpointConnectionError, ProxyConnectionError)
    silent = (*late, *closed) if broken else late

    def begin(context: dict[str, Any], **_: object) -> None:
        context[_BEGUN] = line.begin()

    def judge(response: Any, attempts: int, caught_exception: Exception | None, request_dict: Any, **_: object) -> None:
        if response is not None:
            line.answered()
        elif isinstance(caught_exception, silent):
            most = min(tries, S3_SILENT_TRIES_MAX) if isinstance(caught_exception, late) else tries
            if attempts >= most:
                line.was_silent(request_dict["context"][_BEGUN])
                # The library offers no other way to end its tries.
                raise caught_exception

    client.meta.events.register_first(f"before-call.{service}", begin)
    client.meta.events.register_first(f"needs-retry.{service}", judge)


def note_answers(client: Any, service: str) -> None:
    """For a client that finds out whether the server answers again: it always asks, and tells the others."""
    line = line_to(client)

    def judge(response: Any, **_: object) -> None:
        if response is not None:
            line.answered()

    client.meta.events.register_first(f"needs-retry.{service}", judge)
