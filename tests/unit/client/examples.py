"""A client for tests with short time-outs, and examples of the Steward's answers."""

from __future__ import annotations

from typing import Any, TypeAlias

from pvdm.client import Retries, StewardClient, TimeOuts

TOKEN = "pvdm_7Jb1nTzq0mS5hV2cXw8kRyLd4uGfA3oE"

QUICK = Retries(tries=3, total_seconds=10, restart_seconds=0.01, first_wait_seconds=0.01, longest_wait_seconds=0.02)
SHORT = TimeOuts(connect_seconds=2, read_seconds=2, total_seconds=4)

Json: TypeAlias = dict[str, Any]
HASH, ID = "ab" * 32, "cd" * 16
TIME = 1_794_000_000_000_000

IDENTITY: Json = {
    "token_id": ID,
    "role": "producer",
    "domain": "sales",
    "name": "job",
    "expires_at": TIME,
    "attempt_id": None,
}
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
REFUSAL: Json = {"code": "c", "reason": "r", "message": "m", "expected": "e", "got": "g", "hint": "h"}
ATTEMPT: Json = {
    "attempt_id": ID,
    "workload_id": "orders-1",
    "chunk_id": "2026-11-14",
    "number": 1,
    "state": "STAGING",
    "table": "sales.orders",
    "target_branch": "main",
    "branch": "b",
    "prefix": "p",
    "staged_snapshot_id": None,
    "reason": "opened",
    "changed_at": TIME,
    "waiting": False,
    "verdict": "FAIL",
    "classes": ["missing"],
    "findings": [
        {
            "failure": "metadata",
            "code": "record_count_lies",
            "message": "it lies",
            "expected": "6",
            "got": "5",
            "file": "file:///lake/a.parquet",
            "withheld": False,
        }
    ],
    "findings_more": 2,
    "proof_id": HASH,
    "override_id": None,
    "snapshot_id": None,
    "extent": {"rows_added": "152", "files_added": "3", "rows_removed": "3661", "files_removed": "4"},
    "refusal": REFUSAL,
    "job": {"state": "waiting", "tries": 2, "problem": REFUSAL, "again_seconds": 17},
    "located": None,
    "quarantine": {
        "folder": "file:///vault/q",
        "files": [{"file": "file:///lake/a.parquet", "location": "file:///vault/q/a"}],
    },
}


def client(url: str, **options: Any) -> StewardClient:
    """A client with short time-outs and few retries."""
    return StewardClient(url, **{"token": TOKEN, "time_outs": SHORT, "retries": QUICK, **options})
