"""A client for tests that does not wait long, and answers of each kind."""

from __future__ import annotations

from typing import Any

from pvdm.client import Retries, StewardClient, TimeOuts

TOKEN = "pvdm_7Jb1nTzq0mS5hV2cXw8kRyLd4uGfA3oE"

QUICK = Retries(tries=3, total_seconds=10, first_wait_seconds=0.01, longest_wait_seconds=0.02)
SHORT = TimeOuts(connect_seconds=2, read_seconds=2, total_seconds=4)

INFO = {
    "notary": "notary-1",
    "origin": "log.example/pvdm",
    "isolation": "embedded",
    "version": "0.1.0",
    "active_epoch": "1",
    "log_size": "9007199254740993",
    "trust_root_version": 1,
    "catalog": {"name": "lake", "warehouse": "file:///lake"},
}
CHANGE = {"epoch": "2", "before": None, "after": "CREATED", "reason": "r", "key_ids": {"log": "ab" * 32}}
CHANGES = {"changes": [CHANGE]}


def client(url: str, **options: Any) -> StewardClient:
    """Ready to fail soon."""
    return StewardClient(url, **{"token": TOKEN, "time_outs": SHORT, "retries": QUICK, **options})
