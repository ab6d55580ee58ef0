"""Shares compiled SQL statements and TLS's trusted authorities between all Stewards and clients of a test process."""

from __future__ import annotations

import functools
import os
import ssl
from typing import Any

import httpx._transports.default
from httpx._config import create_ssl_context

from pvdm.ledger import engine as ledger_engine
from tests.support.ledger.shared_statements import create_engine_with_shared_statements


def share_in_process() -> None:
    """Make the ledgers share compiled statements, and the clients share the default TLS authorities."""
    httpx._transports.default.create_ssl_context = _tls_context  # type: ignore[attr-defined]
    ledger_engine.create_engine = create_engine_with_shared_statements  # type: ignore[attr-defined]


@functools.cache
def _default_tls(trust_env: bool, _file: str | None, _folder: str | None) -> ssl.SSLContext:
    return create_ssl_context(trust_env=trust_env)


def _tls_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Read the default authorities only once. httpx would read them for every client, even for plain HTTP."""
    if verify is True and cert is None:
        return _default_tls(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return create_ssl_context(verify=verify, cert=cert, trust_env=trust_env)
