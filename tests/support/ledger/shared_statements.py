"""Ledgers of one process share the SQL that SQLAlchemy compiled: each test has a new ledger, and they say the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import sqlalchemy
from sqlalchemy import Engine

Key = tuple[Hashable, ...]


class SharedStatements:
    """Compiled statements by the kind of database instead of the single engine."""

    def __init__(self) -> None:
        self._compiled: dict[Key, Any] = {}

    def get(self, key: Key) -> Any:
        return self._compiled.get((type(key[0]), *key[1:]))

    def __setitem__(self, key: Key, compiled: Any) -> None:
        self._compiled[type(key[0]), *key[1:]] = compiled


_SHARED = SharedStatements()


def create_engine_with_shared_statements(*arguments: Any, **options: Any) -> Engine:
    """Do what SQLAlchemy's function does; the engine looks its statements up in the process's."""
    made = sqlalchemy.create_engine(*arguments, **options)
    made._compiled_cache = _SHARED  # type: ignore[assignment]
    return made
