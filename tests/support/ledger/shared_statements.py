"""Shares compiled SQL statements between the ledgers of a process.

Each test has a new ledger, and all ledgers use the same statements. SQLAlchemy would compile them for each one again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import sqlalchemy
from sqlalchemy import Engine

Key = tuple[Hashable, ...]


class SharedStatements:
    """A cache of compiled statements, in place of an engine's own. SQLAlchemy's keys begin with the engine's dialect.

    Here they begin with the dialect's class, so that all engines for the same kind of database find the statement.
    """

    def __init__(self) -> None:
        self._compiled: dict[Key, Any] = {}

    def get(self, key: Key) -> Any:
        return self._compiled.get((type(key[0]), *key[1:]))

    def __setitem__(self, key: Key, compiled: Any) -> None:
        self._compiled[type(key[0]), *key[1:]] = compiled


_SHARED = SharedStatements()


def create_engine_with_shared_statements(*arguments: Any, **options: Any) -> Engine:
    """Create an engine as SQLAlchemy does, with the process's cache of compiled statements."""
    engine = sqlalchemy.create_engine(*arguments, **options)
    engine._compiled_cache = _SHARED  # type: ignore[assignment]
    return engine
